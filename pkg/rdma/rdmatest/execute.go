package rdmatest

import (
	"fmt"

	"sluice.dev/sluice/pkg/rdma"
)

// execute starts a work request. The caller must not touch the memory of its lists until it is
// complete.
func (e *endpoint) execute(wr *rdma.WorkRequest) {
	if e.ended {
		return // the memory is released when Serve returns
	}
	c := e.c
	var fault Fault
	if c.f.faults.Load() > 0 {
		fault = c.f.match(c.number, e.side, wr.Op)
	}
	switch fault.Do {
	case LoseBeforeSend:
		c.lose(fmt.Errorf("%w before a %s was sent", ErrLost, opName(wr.Op)))
		return
	case Stall:
		c.stalled = true
	}
	switch wr.Op {
	case rdma.LocalInvalidate:
		e.localInvalidate(wr)
		return
	case rdma.Redirect:
		e.redirect(wr)
		return
	case rdma.Read:
		e.stats.Reads++
		if e.reads == e.attributes.ORD {
			e.waiting.push(waitingRead{*wr, fault})
			return
		}
	case rdma.Write:
		e.stats.Writes++
	default:
		e.stats.Sends++
	}
	e.send(wr, fault)
}

func (e *endpoint) send(wr *rdma.WorkRequest, fault Fault) {
	p := e.c.newPacket(request)
	p.wr, p.fault = *wr, fault
	if wr.Op == rdma.Read {
		e.reads++
	} else {
		p.parts = wr.Local
		p.bytes = length(wr.Local)
		e.stats.BytesOut += uint64(p.bytes)
	}
	e.wire.transmit(p)
}

// arrive executes the peer's request, at its target.
func (w *wire) arrive(p *packet) {
	c, e := w.c, w.to
	name := opName(p.wr.Op)
	switch p.fault.Do {
	case LoseBeforeDelivery:
		c.freePacket(p)
		c.lose(fmt.Errorf("%w before a %s arrived", ErrLost, name))
		return
	case RefuseAccess:
		op, handle := p.wr.Op, p.wr.Remote.Handle
		c.freePacket(p)
		e.refuse(op, handle, fmt.Errorf("%s: %w (injected)", name, ErrRemoteAccess))
		return
	case Overrun:
		c.freePacket(p)
		e.fail(fmt.Errorf("%s: %w (injected)", name, ErrOverrun))
		return
	}
	c.f.count(w.from, p)
	if p.wr.Op == rdma.Read {
		w.serveRead(p)
		return
	}
	var err error
	if p.wr.Op == rdma.Write {
		err = e.remoteWrite(p)
	} else {
		err = e.receive(p)
	}
	fault, op, handle := p.fault.Do, p.wr.Op, p.wr.Remote.Handle
	c.freePacket(p)
	switch {
	case err != nil:
		e.refuse(op, handle, err)
	case fault == LoseAfterDelivery:
		c.lose(fmt.Errorf("%w after a %s arrived", ErrLost, name))
	}
}

// receive scatters a Send into the next receive.
func (e *endpoint) receive(p *packet) error {
	if q := e.shared; q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		return e.receiveFrom(&q.receives, p)
	}
	return e.receiveFrom(&e.receives, p)
}

func (e *endpoint) receiveFrom(receives *fifo[rdma.Receive], p *packet) error {
	name := opName(p.wr.Op)
	if receives.len() == 0 {
		return fmt.Errorf("%s of %d bytes: %w: none is posted", name, p.bytes, ErrOverrun)
	}
	r := receives.peek()
	if n := length(r.Segments); p.bytes > n {
		return fmt.Errorf("%s of %d bytes: %w: the next one holds %d", name, p.bytes, ErrOverrun, n)
	}
	done := rdma.Completion{ID: r.ID, Op: rdma.Recv, Bytes: p.bytes}
	if p.wr.Op == rdma.SendWithInvalidate {
		h := p.wr.Invalidate
		if !e.attributes.RemoteInvalidation {
			return fmt.Errorf("%s: %w: this end does not offer remote invalidation", name, ErrRemoteAccess)
		}
		if !e.invalidate(h) {
			return fmt.Errorf("%s: %w: handle %#x is not exposed", name, ErrRemoteAccess, h)
		}
		done.Invalidated, done.HasInvalidated = h, true
	}
	receives.pop()
	if e.shared != nil {
		e.shared.taken++
		e.taken.push(r)
	}
	scatter(r.Segments, p.parts)
	e.stats.Receives++
	e.stats.BytesIn += uint64(p.bytes)
	e.complete(done)
	return nil
}

func (e *endpoint) remoteWrite(p *packet) error {
	mem, err := e.access(p.wr.Remote, p.bytes, rdma.RemoteWrite)
	if err != nil {
		return fmt.Errorf("RDMA Write: %w: %w", ErrRemoteAccess, err)
	}
	for _, b := range p.parts {
		mem = mem[copy(mem, b):]
	}
	e.stats.RemoteWrites++
	e.stats.BytesIn += uint64(p.bytes)
	return nil
}

// serveRead answers the peer's Read; the packet travels back as the response.
func (w *wire) serveRead(p *packet) {
	c, e := w.c, w.to
	p.bytes = length(p.wr.Local)
	mem, err := e.access(p.wr.Remote, p.bytes, rdma.RemoteRead)
	if err != nil {
		handle := p.wr.Remote.Handle
		c.freePacket(p)
		e.refuse(rdma.Read, handle, fmt.Errorf("RDMA Read: %w: %w", ErrRemoteAccess, err))
		return
	}
	e.stats.RemoteReads++
	if p.fault.Do == LoseAfterDelivery {
		c.freePacket(p)
		c.lose(fmt.Errorf("%w after an RDMA Read arrived", ErrLost))
		return
	}
	e.stats.BytesOut += uint64(p.bytes)
	p.kind, p.fault, p.captured = readResponse, Fault{}, false
	p.one[0] = mem
	p.parts = p.one[:]
	e.wire.transmit(p)
}

// readDone places the data of our Read, and starts the next one.
func (e *endpoint) readDone(p *packet) {
	scatter(p.wr.Local, p.parts)
	e.stats.BytesIn += uint64(p.bytes)
	e.outstanding--
	e.reads--
	e.complete(rdma.Completion{ID: p.wr.ID, Op: rdma.Read})
	if e.waiting.len() > 0 {
		next := e.waiting.pop()
		e.send(&next.wr, next.fault)
	}
}

func length(list [][]byte) (n int) {
	for _, b := range list {
		n += len(b)
	}
	return n
}

// scatter copies one list of memory to another that is at least as long.
func scatter(to, from [][]byte) {
	var t []byte
	for _, f := range from {
		for len(f) > 0 {
			for len(t) == 0 {
				t, to = to[0], to[1:]
			}
			n := copy(t, f)
			t, f = t[n:], f[n:]
		}
	}
}
