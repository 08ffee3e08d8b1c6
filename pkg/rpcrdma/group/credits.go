package group

// Window is what a sender has of credits: Granted transmissions of requests may be under way, InFlight are. Granted is 1 at least.
type Window struct{ Granted, InFlight int }

// Way is how a request is sent.
type Way uint8

// Ways.
const (
	// Now: its credits are free.
	Now Way = iota
	// Chunks: they are not, and it is sent in one transmission, with chunks, as soon as one is.
	Chunks
	// Later: it waits, and holds no credit meanwhile; nor does any request behind it overtake it.
	Later
	// Never: it needs more than are granted, and no answer will come that might grant more.
	Never
)

// Way says how a request of n transmissions goes, that is the oldest of those which have not begun. chunks says that it can also go in one transmission, with
// chunks.
//
// It takes all of its credits, or none. So those that are in flight have all that they need, their answers come, and whoever waits has its turn.
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
