package credit

import "time"

// Reason is why a grant was changed.
type Reason uint8

// The reasons.
const (
	ByUse     Reason = iota // the connection uses more or less, or its client asks for it
	ByLatency               // the backend's latency
	ByMemory                // the budget, and the other connections' parts of it
	ByConfig                // the limits were changed
	Reasons                 // their number
)

func (r Reason) String() string { return [Reasons]string{"use", "latency", "memory", "config"}[r] }

// shares divides the budget with max-min fairness: a connection that wants no more than an equal
// part has its wish, and the others have equal parts of the rest.
//
//	            claims of the satisfied         parts of those with wantsMore
//	budget  |---- a ----|-- b --|- c -|------ d ------|------ e ------| free
//
// Each member finds its own place when it is settled, from the sum of the claims and the number of
// members with wantsMore. That takes no loop over the members, and settles after a few rounds. The
// sum of the charges bounds the grants at all times. A claim is the number that a member wants, so
// that others leave it free; or its present charge, if that is more.
type shares struct {
	limits  Limits
	changes uint32  // of the limits
	memory  *Memory // may be nil

	ceiling int // what latency allows, within the limits; see top
	highest int // highest grant since the ceiling was adjusted

	used      int64 // charged to all members, in bytes
	claimed   int64 // by those that are satisfied
	wantsMore int
	granted   int

	members []*member
	hand    int // the next member for decay

	raised, lowered [Reasons]uint64
}

// member is a connection, as the policy sees it.
type member struct {
	use       use
	grant     int   // credits
	charge    int   // credits that memory stands for, the grant or more
	size      int   // of the memory for one, in bytes
	holds     int64 // of the Memory, in bytes: first or more
	first     int64 // for the first credits
	wantsMore bool
	claim     int64 // in bytes, unless wantsMore
	bound     Reason
	changes   uint32 // of the limits when it was settled last
	seen      time.Duration
	at        int // in shares.members
	closed    bool
}

func (s *shares) setLimits(l Limits) {
	if s.ceiling >= s.limits.Max {
		s.ceiling = l.Max
	}
	s.limits = l
	s.changes++
}

// top is the most that a connection may have.
func (s *shares) top() int { return min(max(s.ceiling, s.limits.Min), s.limits.Max) }

func (s *shares) open(m *member, now time.Duration) {
	m.size, m.charge, m.changes = s.limits.ReceiveSize, s.limits.Min, s.changes
	m.use = use{want: s.limits.Min, looked: now}
	m.seen, m.at = now, len(s.members)
	m.claim = int64(m.charge) * int64(m.size)
	s.members = append(s.members, m)
	if s.memory != nil {
		m.first = int64(s.first()) * int64(m.size)
		m.holds = m.first
		s.memory.used.Add(m.holds)
	}
	s.used += m.claim
	s.claimed += m.claim
}

func (s *shares) close(m *member) {
	if m.closed {
		return
	}
	m.closed = true
	s.leave(m)
	s.used -= int64(m.charge) * int64(m.size)
	s.granted -= m.grant
	if s.memory != nil {
		s.memory.used.Add(-m.holds)
	}
	last := s.members[len(s.members)-1]
	s.members[m.at], last.at = last, m.at
	s.members[len(s.members)-1] = nil
	s.members = s.members[:len(s.members)-1]
}

// leave takes m out of the sums of claims, and join puts it back.
func (s *shares) leave(m *member) {
	if m.wantsMore {
		s.wantsMore--
	} else {
		s.claimed -= m.claim
	}
}

func (s *shares) join(m *member, wantsMore bool, claim int64) {
	m.wantsMore, m.claim = wantsMore, claim
	if wantsMore {
		s.wantsMore++
	} else {
		s.claimed += claim
	}
}

// settle sets the grant of m. Its client asks for requested; posted receives stand for it, those to
// come of size bytes (0 if unknown). It returns whether another look with the next answer is worth
// it.
func (s *shares) settle(m *member, requested, posted, size int, now time.Duration) (again bool) {
	s.leave(m)
	s.used -= int64(m.charge) * int64(m.size)
	if size > 0 {
		m.size = size
	}
	room := (s.limits.Memory - s.used) / int64(m.size)
	wants, bound := s.wants(m, requested)
	part := max((s.limits.Memory-s.claimed)/int64(s.wantsMore+1)/int64(m.size), int64(s.limits.Min))
	n, wantsMore := wants, int64(wants) > part
	if wantsMore {
		n, bound = int(part), ByMemory
	}
	if limit := max(room, int64(m.grant), int64(posted)); int64(n) > limit {
		n, bound = int(limit), ByMemory
	}
	n = max(n, min(s.limits.Min, wants))
	if fits := s.within(m, n, posted); n > fits {
		n, bound = fits, ByMemory
	}
	s.change(m, n, bound)
	m.charge, m.seen = max(n, posted), now
	s.used += int64(m.charge) * int64(m.size)
	s.join(m, wantsMore, int64(max(m.charge, wants))*int64(m.size))
	s.decay(now)
	return m.charge > n || !wantsMore && n < wants || wantsMore && int64(n) < part
}

// wants is the number of credits of m if memory did not matter, and the reason for the bound.
func (s *shares) wants(m *member, requested int) (n int, bound Reason) {
	n = max(m.use.want, s.limits.Min)
	if n > s.limits.Max {
		n, bound = s.limits.Max, ByConfig
	}
	if n > s.top() {
		n, bound = s.top(), ByLatency
	}
	if requested = max(requested, 1); n > requested {
		n, bound = requested, ByUse
	}
	return n, bound
}

// change sets the grant to n. The reason is the present bound for a lower grant, the earlier one
// for a higher.
func (s *shares) change(m *member, n int, bound Reason) {
	why, count := bound, &s.lowered
	if n > m.grant {
		why, count = m.bound, &s.raised
	}
	if m.changes != s.changes {
		why = ByConfig
	}
	if n != m.grant && m.grant > 0 { // the first grant is no change
		count[why]++
	}
	s.granted += n - m.grant
	m.grant, m.bound, m.changes = n, bound, s.changes
	s.highest = max(s.highest, n)
}

// decay checks one member: without a call for long it claims no more than it has.
func (s *shares) decay(now time.Duration) {
	if s.hand++; s.hand >= len(s.members) {
		s.hand = 0
	}
	m := s.members[s.hand]
	if has := int64(m.charge) * int64(m.size); now-m.seen >= restTime && (m.wantsMore || m.claim > has) {
		s.leave(m)
		m.use.want = s.limits.Min
		s.join(m, false, has)
	}
}

// adjustCeiling lowers the ceiling when the backend is slow, by doublings of its latency in 256
// parts, and raises it when it is not. In between it stays. It returns whether it changed.
func (s *shares) adjustCeiling(slow int64) bool {
	was, top := s.ceiling, s.top()
	switch {
	case slow >= slowAt && s.highest > 0:
		s.ceiling = max(min(top, s.highest)*3/4, s.limits.Min)
	case slow <= fineAt:
		s.ceiling = min(top+max(top/8, 1), s.limits.Max)
	}
	s.highest = 0
	return s.ceiling != was
}
