package iwarp

import (
	"errors"
	"net"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// Linux's siw, as responder, hands its socket over to the queue pair after it has sent the MPA reply, and does not look for what arrived
// in between: the first FPDU of a quick initiator lies there until more comes, while the initiator, which has
// credit for one call, waits for the answer. So an initiator that has sent and heard nothing nudges its peer: by an empty RDMA Write,
// which is received and has no effect (RFC 5040 section 5.1, RFC 5041 section 5.2: its STag is not checked).

// nudges is how often a connection tries, at growing intervals.
const nudges = 5

// nudge does so after the time d, unless the peer is heard before.
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

// ended tells whether nothing will be sent any more.
func (e *endpoint) ended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done || e.closing || e.term != nil
}
