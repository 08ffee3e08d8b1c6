package iwarp

import (
	"errors"
	"net"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// Linux's siw, as responder, hands its socket over to the queue pair after it has sent the MPA
// reply, and does not check for bytes that arrived in between: the first FPDU of a quick initiator
// stays unread until more arrive, while the initiator, with credit for one call, waits for the
// answer. So an initiator that has sent something and received nothing nudges its peer by an empty
// RDMA Write, which has no effect (RFC 5040 section 5.1, RFC 5041 section 5.2: its STag is not
// checked).

// nudges is the number of tries of a connection, at growing intervals.
const nudges = 5

// nudge nudges after the time d, unless the peer sends something before.
func (e *endpoint) nudge(d time.Duration, left int) {
	time.AfterFunc(d, func() {
		switch {
		case e.stats.bytesIn.Load()+e.stats.receives.Load()+e.stats.remoteReads.Load() > 0:
			return
		case e.stats.sends.Load() > 0:
			d, left = 2*d, left-1
			if err := e.Post([]rdma.WorkRequest{{Op: rdma.Write}}); errors.Is(err, net.ErrClosed) || left == 0 {
				return
			}
		case e.ended():
			return
		}
		e.nudge(d, left)
	})
}

// ended reports whether nothing will be sent any more.
func (e *endpoint) ended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done || e.closing || e.term != nil
}
