package rdmatest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// endpoint is one end of a connection. Fields after the first block are under conn.mu.
type endpoint struct {
	c             *conn
	side          Side
	domain        *domain
	peer          *endpoint
	wire          *wire // to the peer
	local, remote addr
	attributes    rdma.Attributes
	sendQueue     int
	receiveQueue  int

	ready     sync.Cond // completions, or the end
	handler   rdma.Handler
	serving   bool
	gathering int  // while the handler is in Completed, and between Cork and Uncork: posts wait
	done      bool // Serve returned
	closed    bool // by Close
	ended     bool
	released  bool // from the domain
	cause     error

	posted      []rdma.WorkRequest // gathered
	outstanding int                // work requests posted and not complete
	receives    fifo[rdma.Receive]
	shared      *receiveQueue      // instead of receives, if not nil
	taken       fifo[rdma.Receive] // of shared, in completions
	waiting     fifo[waitingRead]
	reads       int // outstanding Reads

	completions, spare []rdma.Completion

	sends     fifo[sent] // complete, to be reported
	silent    int        // unsignaled and sent since the last signaled
	quiet     [][]byte   // their memory, to be scribbled over
	ids       []uint64
	reporting bool // a goroutine is in Handler.Sent
	sentTimer *time.Timer
	lastSent  time.Time // when the last of sends is due

	rand    *rand.Rand
	regions map[uint32]*region // by handle
	spares  []*region          // for the next Expose
	reuse   []uint32           // invalidated handles, with Options.ReuseHandles
	stats   rdma.Stats
	counts  Counters
}

// waitingRead is a Read beyond ORD.
type waitingRead struct {
	wr    rdma.WorkRequest
	fault Fault
}

// sent is a signaled Send or Write that was transmitted.
type sent struct {
	id     uint64
	count  int // of work requests that are complete with it
	due    time.Time
	memory [][]byte // to be scribbled over
}

func newEndpoint(c *conn, s Side, d *domain, o *rdma.Options) *endpoint {
	e := &endpoint{
		c: c, side: s, domain: d, sendQueue: o.SendQueue, receiveQueue: o.ReceiveQueue,
		rand: c.newRand(s), regions: map[uint32]*region{}, shared: sharedOf(o),
		attributes: rdma.Attributes{
			Provider: "fabric", MaxSegments: c.f.o.MaxSegments, MaxReadSegments: c.f.o.MaxReadSegments,
			RemoteInvalidation: !c.f.o.NoRemoteInvalidation, Redirects: !c.f.o.NoRedirects && !c.f.o.ReuseHandles,
			RoundTrip: 2 * c.f.o.Delay,
		},
	}
	e.ready.L = &c.mu
	return e
}

func (e *endpoint) Attributes() rdma.Attributes { return e.attributes }
func (e *endpoint) LocalAddr() net.Addr         { return e.local }
func (e *endpoint) RemoteAddr() net.Addr        { return e.remote }

func (e *endpoint) Stats() rdma.Stats {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	return e.stats
}

func (e *endpoint) Serve(h rdma.Handler) error {
	c := e.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.serving {
		return errors.New("rdma fabric: Serve was called before")
	}
	e.serving, e.handler = true, h
	e.report()
	for !e.closed {
		if len(e.completions) == 0 {
			if e.ended {
				break
			}
			e.ready.Wait()
			continue
		}
		batch := e.completions
		e.completions = e.spare[:0]
		e.shared.report(&e.taken)
		e.gathering++
		e.stats.ReadCalls++
		c.mu.Unlock()
		h.Completed(batch)
		c.mu.Lock()
		e.spare = batch
		e.gathered()
		e.report()
	}
	for e.reporting {
		e.ready.Wait()
	}
	e.done = true
	e.completions, e.spare = nil, nil
	e.shared.giveBack(&e.taken)
	e.release()
	return e.cause
}

// gathered executes posts of a batch when the last cork is gone.
func (e *endpoint) gathered() {
	if e.gathering--; e.gathering == 0 {
		e.flush()
	}
}

func (e *endpoint) flush() {
	if len(e.posted) == 0 {
		return
	}
	e.stats.WriteCalls++
	posted := e.posted
	for i := range posted {
		e.execute(&posted[i])
	}
	clear(posted)
	e.posted = posted[:0]
}

func (e *endpoint) Cork() {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	e.gathering++
}

func (e *endpoint) Uncork() {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	e.gathered()
	e.report()
}

func (e *endpoint) Post(wrs []rdma.WorkRequest) error {
	for i := range wrs {
		if err := e.check(&wrs[i]); err != nil {
			return err
		}
	}
	c := e.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.ended {
		return fmt.Errorf("rdma fabric: post: the connection ended: %w", e.cause)
	}
	if e.outstanding+len(wrs) > e.sendQueue {
		return fmt.Errorf("rdma fabric: post of %d work requests: %d are outstanding, the send queue holds %d",
			len(wrs), e.outstanding, e.sendQueue)
	}
	e.outstanding += len(wrs)
	if c.f.o.ScribbleReceives {
		for i := range wrs {
			if wrs[i].Op == rdma.Read {
				scribble(wrs[i].Local)
			}
		}
	}
	if e.gathering > 0 {
		e.posted = append(e.posted, wrs...)
		return nil
	}
	e.stats.WriteCalls++
	for i := range wrs {
		e.execute(&wrs[i])
	}
	e.report()
	return nil
}

// check returns the fault of a work request.
func (e *endpoint) check(wr *rdma.WorkRequest) error {
	limit := e.attributes.MaxSegments
	switch wr.Op {
	case rdma.Send, rdma.SendWithInvalidate, rdma.Write:
	case rdma.Read:
		limit = e.attributes.MaxReadSegments
		if e.attributes.ORD == 0 {
			return errors.New("rdma fabric: an RDMA Read was posted, but none may be outstanding on this connection (ORD is 0)")
		}
	case rdma.LocalInvalidate:
		return nil
	case rdma.Redirect:
		limit = 1
		if r := e.regions[wr.Invalidate]; !e.attributes.Redirects || len(wr.Local) != 1 || r != nil && len(r.mem) != len(wr.Local[0]) {
			return fmt.Errorf("rdma fabric: redirect of handle %#x to %d slices", wr.Invalidate, len(wr.Local))
		}
	default:
		return fmt.Errorf("rdma fabric: opcode %d is not a work request's", wr.Op)
	}
	_, err := e.domain.checkList(opName(wr.Op), wr.Local, limit)
	return err
}

func (f *Fabric) checkReceives(d *domain, rs []rdma.Receive, limit int) error {
	if len(rs) > limit {
		return fmt.Errorf("rdma fabric: %d receives, the receive queue holds %d", len(rs), limit)
	}
	for i := range rs {
		if _, err := d.checkList("receive", rs[i].Segments, f.o.MaxSegments); err != nil {
			return err
		}
	}
	return nil
}

func (e *endpoint) PostReceives(rs []rdma.Receive) error {
	if e.shared != nil {
		return errors.New("rdma fabric: post receives: those of this endpoint are shared")
	}
	if err := e.c.f.checkReceives(e.domain, rs, e.receiveQueue); err != nil {
		return err
	}
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	if e.ended {
		return fmt.Errorf("rdma fabric: post receives: the connection ended: %w", e.cause)
	}
	if n := e.receives.len() + len(rs); n > e.receiveQueue {
		return fmt.Errorf("rdma fabric: post of %d receives: %d are posted, the receive queue holds %d",
			len(rs), e.receives.len(), e.receiveQueue)
	}
	e.addReceives(rs)
	return nil
}

func (e *endpoint) addReceives(rs []rdma.Receive) {
	for i := range rs {
		if e.c.f.o.ScribbleReceives {
			scribble(rs[i].Segments)
		}
		e.receives.push(rs[i])
	}
}

// complete queues a completion for Serve.
func (e *endpoint) complete(done rdma.Completion) {
	e.completions = append(e.completions, done)
	if len(e.completions) == 1 {
		e.ready.Broadcast()
	}
}

// sentOne completes the transmission of a Send or Write.
func (e *endpoint) sentOne(p *packet) {
	o := &e.c.f.o
	e.silent++
	if o.ScribbleSends {
		e.quiet = append(e.quiet, p.wr.Local...)
	}
	if !p.wr.Signaled {
		return
	}
	s := sent{id: p.wr.ID, count: e.silent, memory: e.quiet}
	e.silent, e.quiet = 0, nil
	delay := o.SentDelay
	if p.fault.Do == DelaySent {
		delay += p.fault.Delay
	}
	if delay > 0 || e.sends.len() > 0 {
		s.due = time.Now().Add(delay)
		if s.due.Before(e.lastSent) {
			s.due = e.lastSent
		}
		e.lastSent = s.due
	}
	e.sends.push(s)
}

func (e *endpoint) onSent() {
	e.c.mu.Lock()
	e.report()
	e.c.mu.Unlock()
}

// report calls Handler.Sent for due completions, without the lock. Only one goroutine reports at a
// time, so that IDs come in order; it also reports those added meanwhile.
func (e *endpoint) report() {
	if e.handler == nil || e.reporting || e.done {
		return
	}
	e.reporting = true
	for {
		ids := e.ids[:0]
		for e.sends.len() > 0 && (e.sends.peek().due.IsZero() || !time.Now().Before(e.sends.peek().due)) {
			s := e.sends.pop()
			ids = append(ids, s.id)
			e.outstanding -= s.count
			scribble(s.memory)
		}
		e.ids = ids
		if len(ids) == 0 {
			break
		}
		e.c.mu.Unlock()
		e.handler.Sent(ids)
		e.c.mu.Lock()
	}
	e.reporting = false
	if e.ended {
		e.ready.Broadcast()
	} else if e.sends.len() > 0 {
		arm(&e.sentTimer, time.Until(e.sends.peek().due), e.onSent)
	}
}

// end ends the connection for this end. Its memory is not touched any more.
func (e *endpoint) end(cause error) {
	if e.ended {
		return
	}
	e.ended, e.cause = true, cause
	e.posted, e.quiet = nil, nil
	e.receives, e.waiting = fifo[rdma.Receive]{}, fifo[waitingRead]{}
	clear(e.regions)
	if e.sentTimer != nil {
		e.sentTimer.Stop()
	}
	e.ready.Broadcast()
	e.c.f.record(Event{Conn: e.c.number, From: e.side, What: "ended: " + cause.Error()})
}

// abort ends the connection for this end, and drops its unsent work.
func (e *endpoint) abort(cause error) {
	e.wire.cut()
	e.end(cause)
}

// fail ends the connection because of the peer, and notifies it.
func (e *endpoint) fail(why error) { e.failBoth(why, why) }

// refuse ends the connection because of the peer's request, and sends it the handle by which a Read
// or Write named the memory.
func (e *endpoint) refuse(op rdma.Opcode, handle uint32, why error) {
	if op != rdma.Read && op != rdma.Write {
		e.fail(why)
		return
	}
	e.failBoth(why, fmt.Errorf("%w: %w", why, &rdma.AccessError{Handle: handle}))
}

func (e *endpoint) failBoth(here, there error) {
	e.abort(fmt.Errorf("rdma fabric: the peer's %w", here))
	p := e.c.newPacket(terminate)
	p.err = fmt.Errorf("rdma fabric: the peer ended the connection: %w", there)
	e.wire.transmit(p)
}

func (e *endpoint) Close() error {
	c := e.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	if !e.ended {
		e.flush()
	}
	if !e.ended {
		e.wire.captureAll()
		e.wire.transmit(c.newPacket(disconnect))
		e.end(net.ErrClosed)
	}
	e.ready.Broadcast()
	if !e.serving || e.done {
		e.shared.giveBack(&e.taken)
		e.release()
	}
	return nil
}

// release leaves the domain, once the endpoint is closed and Serve has returned.
func (e *endpoint) release() {
	if e.closed && !e.released {
		e.released = true
		e.shared.leave()
		e.domain.release()
	}
}

// scribble overwrites memory whose contents are invalid.
func scribble(list [][]byte) {
	for _, b := range list {
		fill(b, 0xa5)
	}
}
