package credit

// Sends counts the messages of one direction against a limit that their receiver raises. Both count
// from the beginning of the connection, modulo 2^32: a message may be sent while fewer than limit
// have been (docs/protocol-v2-wg.md, Credits).
type Sends struct{ sent, limit uint32 }

// NewSends returns the state at the beginning: one message may be sent.
func NewSends() Sends { return Sends{limit: 1} }

// Allow takes the limit in a message that came. Messages come in order, so the last one holds.
func (s *Sends) Allow(limit uint32) { s.limit = limit }

// Free is how many messages may be sent, negative after a lowered limit.
func (s *Sends) Free() int { return int(int32(s.limit - s.sent)) }

// MayGrant reports whether a message of credits alone may be sent: the receiver has one receive
// more than the limit says.
func (s *Sends) MayGrant() bool { return s.Free() >= 0 }

// Send counts n messages.
func (s *Sends) Send(n int) { s.sent += uint32(n) }

// Receives is the receiver's side: it sets the limit of the peer.
type Receives struct {
	received, announced uint32
	window              int32 // messages that the peer could send when it was announced
}

// NewReceives returns the state at the beginning.
func NewReceives() Receives { return Receives{announced: 1, window: 1} }

// Receive counts a message.
func (r *Receives) Receive() { r.received++ }

// Announce returns the limit for the next message, with so many receives posted. One of them is for
// a message of credits alone.
func (r *Receives) Announce(posted int) uint32 {
	r.window = int32(posted - 1)
	r.announced = r.received + uint32(r.window)
	return r.announced
}

// Due reports whether the peer is to learn of more receives now: it has used more than half of
// those that it knows.
func (r *Receives) Due(posted int) bool {
	left := int32(r.announced - r.received)
	return left < int32(posted-1) && 2*left < max(r.window, 1)
}

// Overrun reports whether the peer has sent more than it may.
func (r *Receives) Overrun() bool { return int32(r.received-r.announced) > 1 }
