package group

// Window is a sender's credit state: the granted and the in-flight request transmissions. Granted
// is at least 1.
type Window struct{ Granted, InFlight int }

// Way is how to send a request.
type Way uint8

// Ways.
const (
	// Now: enough credits are free.
	Now Way = iota
	// Chunks: too few credits are free. Send it in one transmission, with chunks, as soon as one
	// credit is free.
	Chunks
	// Later: wait without holding credits. Later requests must not overtake it.
	Later
	// Never: it needs more credits than granted, and no pending reply could grant more.
	Never
)

// Way returns how to send the oldest request that has not begun, which has n transmissions. chunks
// means that one transmission with chunks would also do.
//
// A request takes all of its credits or none. So requests in flight always have all they need,
// their replies come, and each waiting request gets its turn.
func (w Window) Way(n int, chunks bool) Way {
	switch {
	case w.InFlight+n <= w.Granted:
		return Now
	case chunks && n > 1:
		return Chunks
	case w.InFlight == 0:
		return Never
	}
	return Later
}
