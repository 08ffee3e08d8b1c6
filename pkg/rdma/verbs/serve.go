//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// failure is a failed completion. A flushed one follows another failure.
type failure struct {
	err     error
	flushed bool
}

// explanation bounds the wait for a better cause of flushed requests and refused work.
const explanation = 2 * time.Second

// Serve implements [rdma.Endpoint].
func (e *endpoint) Serve(h rdma.Handler) error {
	e.mu.Lock()
	if e.served {
		e.mu.Unlock()
		return errors.New("verbs: Serve was called twice")
	}
	if e.closing || e.done {
		e.mu.Unlock()
		<-e.freed // Close may be running
		return net.ErrClosed
	}
	e.served = true
	e.h = h
	e.mu.Unlock()
	err := e.loop()
	e.finish()
	return err
}

// loop takes completions until the connection ends.
func (e *endpoint) loop() error {
	judged := false // nothing was found, and the connection continues
	for {
		n, over := e.next(judged)
		if n < 0 {
			return fmt.Errorf("verbs: %s: polling the completion queue failed", e.dev.name)
		}
		if e.reap(n) || n > 0 {
			e.deliver()
			judged = false
			continue
		}
		if err := e.verdict(over); err != nil {
			return err
		}
		judged = true
	}
}

// next sends the gathered work. It returns the number of completions in q, and whether the
// connection manager had ended the connection before that poll. Without completions it waits for
// the completion channel, unless a verdict is due first. It returns 0 after an interrupt, or at the
// limit.
func (e *endpoint) next(judged bool) (n int, over bool) {
	e.mu.Lock()
	e.gathering.Store(false)
	if e.stale {
		_ = e.file.SetReadDeadline(e.limit)
		e.stale = false
	}
	due := e.awake || len(e.revoked) > 0 || !judged && (e.closing || e.broken != nil || e.failure.err != nil)
	e.awake = false
	e.mu.Unlock()
	// after awake, which that event sets; before the queue, which holds the completions before the
	// end
	_, over = e.ended()
	if due || over && !judged {
		return e.look(), over
	}
	e.seen = 0
	if err := e.raw.Read(e.event); errors.Is(err, os.ErrDeadlineExceeded) {
		e.mu.Lock()
		e.stale = true
		e.mu.Unlock()
	}
	return e.seen, over
}

// look posts the gathered work, and polls. If it finds nothing, it arms the channel.
func (e *endpoint) look() int {
	poll := C.int(C.SV_ARM)
	if e.spin > 0 {
		poll = C.SV_POLL // it spins afterwards without the lock
	}
	n, posted := 0, false
	e.mu.Lock()
	if posted = e.sends+e.receives > 0 && !e.gathersLocked(); posted {
		n = e.turnLocked(poll)
	}
	e.mu.Unlock()
	if n != 0 || posted && poll == C.SV_ARM {
		return n
	}
	n = int(C.sv_turn(e.q, 0, 0, C.SV_ARM, C.int(e.spin)))
	e.stats.readCalls.Add(1)
	e.spin = nextSpin(e.spin, e.p.cfg.Spin, int(e.q.spun), n)
	return n
}

// reap takes n completions out of q. It returns whether there is something to report.
func (e *endpoint) reap(n int) bool {
	e.mu.Lock()
	for i := range n {
		c := &e.q.completions[i]
		switch {
		case c.status != C.IBV_WC_SUCCESS:
			e.failedLocked(c)
			e.again(c)
		case c.index&receiveBit != 0:
			e.receivedLocked(c)
		default:
			e.completedLocked(uint64(c.index))
		}
	}
	for _, id := range e.revoked {
		e.batch = append(e.batch, rdma.Completion{ID: id, Op: rdma.LocalInvalidate})
	}
	e.revoked = e.revoked[:0]
	gathering := len(e.batch) > 0 || len(e.sent) > 0
	e.gathering.Store(gathering)
	e.mu.Unlock()
	for _, mr := range e.sinks {
		C.ibv_dereg_mr(mr)
	}
	e.sinks = e.sinks[:0]
	return gathering
}

// receivedLocked takes the oldest receive. The caller holds mu.
func (e *endpoint) receivedLocked(c *C.struct_sv_completion) {
	done := rdma.Completion{Op: rdma.Recv, Bytes: int(c.bytes)}
	if e.shared != nil {
		done.ID = e.shared.take(c.index)
	} else {
		done.ID = e.rq[e.rqHead%uint64(len(e.rq))]
		e.rqHead++
	}
	if c.flags&e.dev.limits.with_invalidate != 0 {
		done.Invalidated, done.HasInvalidated = uint32(c.invalidated), true
		if w := e.exposed.take(done.Invalidated); w != nil {
			e.releaseLocked(w)
		}
	}
	e.batch = append(e.batch, done)
	e.stats.receives.Add(1)
	e.stats.bytesIn.Add(uint64(c.bytes))
}

// completedLocked takes request number n, and the Sends and Writes before it. A Read has a
// completion of its own: over iWARP, later requests may complete before it. The caller holds mu.
func (e *endpoint) completedLocked(n uint64) {
	if s := e.slot(n); s.op == rdma.Read {
		e.batch = append(e.batch, rdma.Completion{ID: s.id, Op: rdma.Read})
		e.stats.bytesIn.Add(uint64(s.bytes))
		if s.sink != nil {
			e.sinks = append(e.sinks, s.sink)
			s.sink = nil
		}
		s.complete = true
	} else {
		for ; e.sqSent <= n; e.sqSent++ {
			if s := e.slot(e.sqSent); s.op != rdma.Read {
				s.complete = true
				switch {
				case s.op == rdma.LocalInvalidate:
					e.batch = append(e.batch, rdma.Completion{ID: s.id, Op: s.op})
					e.releaseLocked(s.window)
				case s.signaled:
					e.sent = append(e.sent, s.id)
				}
			}
		}
	}
	for ; e.sqHead < e.sqTail && e.slot(e.sqHead).complete; e.sqHead++ {
		switch e.slot(e.sqHead).op {
		case bind:
			e.binds--
		case probe:
			e.probing--
		}
	}
	e.sqSent = max(e.sqSent, e.sqHead)
}

// failedLocked records the cause of the connection's end. The caller holds mu.
func (e *endpoint) failedLocked(c *C.struct_sv_completion) {
	if e.failure.err != nil && !e.failure.flushed || e.failure.flushed && c.status == C.IBV_WC_WR_FLUSH_ERR {
		return
	}
	what := "a receive"
	var access error
	if c.index&receiveBit == 0 {
		s := e.slot(uint64(c.index))
		what = opName(s.op)
		if c.status == C.IBV_WC_REM_ACCESS_ERR && (s.op == rdma.Read || s.op == rdma.Write) {
			access = &rdma.AccessError{Handle: s.handle}
		}
	}
	why := C.GoString(C.ibv_wc_status_str(uint32(c.status)))
	// Over iWARP a Send that meets the end of the stream fails by itself, even if that is an
	// orderly end.
	f := failure{flushed: c.status == C.IBV_WC_WR_FLUSH_ERR || e.dev.limits.iwarp != 0 && c.status == C.IBV_WC_LOC_QP_OP_ERR}
	if access != nil {
		f.err = fmt.Errorf("verbs: %s: %s failed: %s (vendor error %#x): %w", e.dev.name, what, why, uint32(c.vendor), access)
	} else {
		f.err = fmt.Errorf("verbs: %s: %s failed: %s (vendor error %#x)", e.dev.name, what, why, uint32(c.vendor))
	}
	e.failure = f
}

func opName(op rdma.Opcode) string {
	switch op {
	case rdma.Send:
		return "a Send"
	case rdma.SendWithInvalidate:
		return "a Send with Invalidate"
	case rdma.Write:
		return "an RDMA Write"
	case rdma.LocalInvalidate:
		return "the invalidation of a memory window"
	case bind:
		return "the binding of a memory window"
	case probe:
		return "a keepalive probe of the idle connection"
	default:
		return "an RDMA Read"
	}
}

// deliver reports. Posts meanwhile are sent with the next poll.
func (e *endpoint) deliver() {
	if len(e.batch) > 0 {
		e.h.Completed(e.batch)
		e.batch = e.batch[:0]
	}
	if len(e.sent) > 0 {
		e.h.Sent(e.sent)
		e.sent = e.sent[:0]
	}
}

// verdict decides whether the connection has ended, and the cause, when all completions are
// reported. over: the connection manager had reported its end before.
func (e *endpoint) verdict(over bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing:
		if e.sqHead == e.sqTail || e.failure.err != nil || e.broken != nil || over || e.expiredLocked(e.p.cfg.Linger) {
			return net.ErrClosed
		}
	case e.failure.err != nil && !e.failure.flushed:
		return e.failure.err
	case over:
		return e.endCauseLocked()
	case e.broken != nil:
		// Over iWARP the peer's end of the stream fails the queue pair before it is reported.
		if e.dev.limits.iwarp == 0 || e.expiredLocked(explanation) {
			return e.broken
		}
	case e.failure.flushed:
		if e.expiredLocked(explanation) {
			return e.broke()
		}
	}
	return nil
}

// expiredLocked starts a wait of d, and reports whether it has passed. The caller holds mu.
func (e *endpoint) expiredLocked(d time.Duration) bool {
	now := time.Now()
	if e.limit.IsZero() {
		e.limit, e.stale = now.Add(d), true
	}
	return !now.Before(e.limit)
}

// endCauseLocked returns the connection manager's cause of the end. The caller holds mu.
func (e *endpoint) endCauseLocked() error {
	last, _ := e.ended()
	if last.kind != C.RDMA_CM_EVENT_DISCONNECTED {
		return fmt.Errorf("verbs: %s: %w", e.dev.name, last.err())
	}
	// A queue pair fails before its connection ends only after an error. Over iWARP it always does:
	// the stream's end is its own.
	if e.dev.limits.iwarp == 0 && C.sv_failed(e.q) != 0 {
		return e.broke()
	}
	return io.EOF
}

// broke is the error of a queue pair that the device failed.
func (e *endpoint) broke() error {
	if text := e.reported.Load(); text != nil {
		return fmt.Errorf("verbs: %s: the queue pair failed: %s: the peer asked for memory that is not exposed, or broke the rules of the transport", e.dev.name, *text)
	}
	return fmt.Errorf("verbs: %s: the queue pair failed: the peer asked for memory that is not exposed, or broke the rules of the transport", e.dev.name)
}
