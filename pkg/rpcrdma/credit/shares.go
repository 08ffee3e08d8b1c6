package credit

import "time"

// Reason is the reason of a changed grant.
type Reason uint8

// The reasons.
const (
	ByUse     Reason = iota // the connection's use, or its client's request
	ByLatency               // the backend's latency
	ByMemory                // the budget, and the parts of other connections
	ByConfig                // changed limits
	Reasons                 // their number
)

func (r Reason) String() string { return [Reasons]string{"use", "latency", "memory", "config"}[r] }

// shares divides the budget with max-min fairness: a connection that wants at most an equal part
// gets its wish; the others get equal parts of the rest.
//
//	            claims of the satisfied         parts of those with wantsMore
//	budget  |---- a ----|-- b --|- c -|------ d ------|------ e ------| free
//
// Each member computes its own part when settled, from the sum of the claims and the number of
// members with wantsMore. That needs no loop over the members, and converges after a few rounds.
// The sum of the charges always bounds the grants. A claim is the number of credits that a member
// wants, or its present charge if greater.
type shares struct {
	limits  Limits
	changes uint32  // of the limits
	memory  *Memory // may be nil

	ceiling int // the limit by latency; see top
	highest int // the highest grant since the ceiling was adjusted

	used      int64 // charged to all members, in bytes
	claimed   int64 // by satisfied members
	wantsMore int
	granted   int

	members []*member
	hand    int // the next member for decay

	raised, lowered [Reasons]uint64
}

// member is the policy's record of a connection.
type member struct {
	use       use
	grant     int   // credits
	charge    int   // credits with memory, the grant or more
	size      int   // bytes per credit
	holds     int64 // bytes of the Memory, at least first
	first     int64 // bytes of the first credits
	wantsMore bool
	claim     int64 // in bytes, unless wantsMore
	bound     Reason
	changes   uint32 // of the limits when last settled
	seen      time.Duration
	at        int // index in shares.members
	closed    bool
}

func (s *shares) setLimits(l Limits) {
	if s.ceiling >= s.limits.Max {
		s.ceiling = l.Max
	}
	s.limits = l
	s.changes++
}

// top is the maximum of a connection.
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

// settle sets the grant of m. Its client requests requested credits; posted receives stand for it,
// new ones have size bytes (0 if unknown). It reports whether another look with the next reply is
// useful.
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

// wants returns the credits that m wants, regardless of memory, and the reason for the bound.
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

// change sets the grant to n. A lower grant has the present bound as its reason, a higher one the
// earlier bound.
func (s *shares) change(m *member, n int, bound Reason) {
	why, count := bound, &s.lowered
	if n > m.grant {
		why, count = m.bound, &s.raised
	}
	if m.changes != s.changes {
		why = ByConfig
	}
	if n != m.grant && m.grant > 0 { // the first grant is not a change
		count[why]++
	}
	s.granted += n - m.grant
	m.grant, m.bound, m.changes = n, bound, s.changes
	s.highest = max(s.highest, n)
}

// decay checks one member: after a long time without a call it claims only its charge.
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

// adjustCeiling lowers the ceiling if the backend is slow, by doublings of its latency in 256
// parts, and raises it if it is fast. In between it keeps it. It reports whether the ceiling
// changed.
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
