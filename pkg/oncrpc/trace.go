package oncrpc

// Stage is a part of a call's way through a server. Each stage lasts until the next one is reached.
type Stage uint8

// The stages. A call may skip some, and reach some several times.
const (
	Receiving Stage = iota // the transport fetches the rest of the call
	Serving                // the handler has the call
	Queued                 // the call waits for a worker, or for another call
	Working                // a worker runs the call
	Forwarded              // the backend server has the call, or will get it
	Replying               // the transport sends the reply
	Replied                // the reply has left
)

func (s Stage) String() string {
	return [...]string{"receive", "serve", "queue", "work", "backend", "reply", "replied"}[s]
}

// CallTrace follows a call. Its methods are called in order, by the goroutine that has the call.
// They must not block.
type CallTrace interface {
	// Reached is called when the call reaches a stage.
	Reached(s Stage)
	// Ended is called last, before the call is recycled.
	Ended()
}

// Reach reports a stage to the trace of the call, if it has one. After Respond,
// Drop or Supersede only the transport may call it.
func (c *Call) Reach(s Stage) {
	if c.Trace != nil {
		c.Trace.Reached(s)
	}
}
