package state

// The slots of a session follow its load (RFC 8881 section 2.10.6.1): a session that uses few of
// them gives the others back, and gets them again when it needs them. A session never has more than
// CREATE_SESSION has granted.

const (
	// minSlots is the number of slots that a session keeps while memory is plentiful.
	minSlots = 8
	// quietRequests is the number of requests in a row that use less than a quarter of the slots,
	// before the session loses half of them.
	quietRequests = 1024
)

// slotTable is the state of a session's slots that is about their number.
type slotTable struct {
	quiet int // requests in a row that used less than a quarter of the slots
	// shrinkTo is the number of slots that the client was asked to go down to, 0 if it was not.
	shrinkTo int
}

// reserveSlots reserves at most n slots, and no more than half of those that are left for h.
func (s *State) reserveSlots(h *host, n int) int {
	left, _ := s.left(h, slots)
	if s.scarce() {
		n = min(n, minSlots)
	}
	n = max(min(n, (left+1)/2), 0)
	before := s.scarce()
	s.take(h, slots, n)
	if !before && s.scarce() {
		s.squeeze = true
		s.ended.Store(true)
	}
	return n
}

// scarce reports that three quarters of all slots are in use by sessions.
func (s *State) scarce() bool { return s.used.slots > s.cfg.MaxAllSlots-s.cfg.MaxAllSlots/4 }

// maxSqueezed bounds the sessions that are asked for slots at once.
const maxSqueezed = 64

// Squeezed returns sessions that use few of their slots, and can be called back, if slots have
// become scarce since the last call. The caller asks their clients to give half of them back
// (CB_RECALL_SLOT): an idle client learns of it by no reply.
func (s *State) Squeezed() (list []*Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.squeeze {
		return nil
	}
	s.squeeze = false
	for _, n := range s.sessions {
		if n.table.shrinkTo == 0 && len(n.slots) > minSlots && n.busy*2 <= len(n.slots) && n.back.works() {
			n.table.shrinkTo = len(n.slots) / 2
			if list = append(list, n); len(list) == maxSqueezed {
				break
			}
		}
	}
	return list
}

// TargetSlot returns the highest slot that a session's client should use. ok is false if it may use
// all of them, or the session has ended.
func (s *State) TargetSlot(n *Session) (highest uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return n.target(), !n.ended && n.table.shrinkTo > 0
}

// target is sr_target_highest_slotid.
func (n *Session) target() uint32 {
	if n.table.shrinkTo > 0 {
		return uint32(n.table.shrinkTo - 1)
	}
	return uint32(len(n.slots) - 1)
}

// resize adapts the number of slots to a request, whose client uses slots up to highest.
func (s *State) resize(n *Session, highest uint32) {
	t := &n.table
	used := int(highest) + 1
	switch {
	case used == len(n.slots) && t.shrinkTo == 0:
		t.quiet = 0
		s.grow(n)
	case used*2 > len(n.slots):
		t.quiet, t.shrinkTo = 0, 0 // it needs them
	case t.shrinkTo > 0 && used <= t.shrinkTo:
		s.shrink(n)
	case used*4 <= len(n.slots):
		t.quiet++
	default:
		t.quiet = 0
	}
	least := minSlots
	if s.scarce() {
		least = 1
	}
	if t.shrinkTo == 0 && len(n.slots)/2 >= least && (t.quiet >= quietRequests || s.scarce() && used*2 <= len(n.slots)) {
		t.shrinkTo = len(n.slots) / 2
	}
}

// grow doubles the slots, as far as the grant and memory allow.
func (s *State) grow(n *Session) {
	more := min(int(n.fore.MaxRequests)-len(n.slots), len(n.slots))
	if more <= 0 || s.scarce() {
		return
	}
	n.slots = append(n.slots, make([]slot, s.reserveSlots(n.client.host, more))...)
}

// shrink removes the slots that the client has given up: it uses none of them, or its request would
// have said so.
func (s *State) shrink(n *Session) {
	t := &n.table
	for i := t.shrinkTo; i < len(n.slots); i++ {
		if n.slots[i].busy {
			return
		}
	}
	s.take(n.client.host, slots, t.shrinkTo-len(n.slots))
	n.slots = append([]slot(nil), n.slots[:t.shrinkTo]...)
	t.quiet, t.shrinkTo = 0, 0
}
