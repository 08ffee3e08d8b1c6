package iwarp

import (
	"sluice.dev/sluice/pkg/rdma"
)

// locate parses the header of a ULPDU with n bytes of payload, validates the segment, and finds the
// memory for the payload. Nothing is delivered before commit, since the CRC of a large segment is
// verified after it was placed.
func (rx *receiver) locate(e *endpoint, b []byte, n int) error {
	if b[0]&flagTagged != 0 {
		h, _, err := parseTagged(b)
		if err != nil {
			return err
		}
		rx.seg.op, rx.seg.last, rx.seg.n = h.op, h.last, n
		if h.op == opReadResponse {
			return rx.locateResponse(e, &h, n)
		}
		if n == 0 {
			return nil // a segment without data is not validated (RFC 5041 section 7.1)
		}
		p, err := e.stags.place(h.stag, h.to, n)
		if err != nil {
			return err
		}
		rx.seg.stag, rx.seg.to = h.stag, h.to
		rx.place = append(rx.place, p)
		return nil
	}
	h, _, err := parseUntagged(b)
	if err != nil {
		return err
	}
	rx.seg.op, rx.seg.last, rx.seg.n = h.op, h.last, n
	queue := uint32(queueSend)
	switch h.op {
	case opReadRequest:
		queue = queueRead
	case opTerminate:
		return nil
	}
	if h.qn != queue {
		return codeQueue.errorf("%v on queue %d, want %d", h.op, h.qn, queue)
	}
	if queue == queueRead {
		return nil
	}
	return rx.locateSend(e, &h, n)
}

// locateSend scatters a segment of a Send over the receive.
func (rx *receiver) locateSend(e *endpoint, h *untaggedHeader, n int) error {
	m := &rx.msg
	if h.msn != rx.sendMSN {
		return codeMSN.errorf("%v with message sequence number %d, want %d", h.op, h.msn, rx.sendMSN)
	}
	if !m.active {
		if h.mo != 0 {
			return codeMO.errorf("%v begins at message offset %d, want 0", h.op, h.mo)
		}
		if e.absorbRTR && !rx.got && n == 0 && h.last && h.op == opSend {
			rx.seg.op = opRTR
			return nil
		}
		recv, ok := e.takeReceive()
		if !ok {
			return codeNoBuffer.errorf("%v of message sequence number %d, but no receive is posted", h.op, h.msn)
		}
		m.active, m.op, m.stag, m.recv, m.room, m.scatter = true, h.op, h.stag, recv, length(recv.Segments), scatter{}
	}
	if h.op != m.op || h.stag != m.stag {
		return codeOpcode.errorf("%v (STag %08x) inside of a %v (STag %08x)", h.op, h.stag, m.op, m.stag)
	}
	if uint64(h.mo) != m.done {
		return codeMO.errorf("%v at message offset %d, want %d", h.op, h.mo, m.done)
	}
	if m.done+uint64(n) > m.room {
		return codeTooLong.errorf("%v of %d bytes or more, the receive has %d", h.op, m.done+uint64(n), m.room)
	}
	rx.place = m.next(rx.place, m.recv.Segments, n)
	return nil
}

// opRTR stands for the initiator's ready-to-receive indication by an empty Send (RFC 6581 section
// 9.2). It is no opcode of the wire.
const opRTR opcode = 0x80

// locateResponse scatters a segment of a Read Response over the sink of the oldest Read, which it
// must match.
func (rx *receiver) locateResponse(e *endpoint, h *taggedHeader, n int) error {
	p := &rx.resp
	if !p.active {
		e.mu.Lock()
		p.pendingRead, p.active = e.reads.oldest()
		e.mu.Unlock()
		if !p.active {
			return codeSTag.errorf("Read Response for STag %08x, but no Read is outstanding", h.stag)
		}
		p.scatter = scatter{}
	}
	if h.stag != p.stag {
		return codeSTag.errorf("Read Response for STag %08x, the oldest Read has %08x", h.stag, p.stag)
	}
	if h.to != p.to+p.done {
		return codeBounds.errorf("Read Response at offset %#x, want %#x", h.to, p.to+p.done)
	}
	if left := uint64(p.size) - p.done; uint64(n) > left || h.last && uint64(n) != left {
		return codeBounds.errorf("Read Response of %d bytes (last %v), %d of the Read's %d are missing", n, h.last, left, p.size)
	}
	rx.place = p.next(rx.place, p.local, n)
	return nil
}

// commit delivers a verified and placed segment.
func (rx *receiver) commit(e *endpoint) error {
	s := &rx.seg
	e.stats.bytesIn.Add(uint64(s.n))
	switch s.op {
	case opWrite:
		if s.last {
			e.stats.remoteWrites.Add(1)
		}
	case opReadResponse:
		if s.last {
			rx.finishRead(e)
		}
	case opRTR:
		rx.sendMSN++
	default:
		if s.last {
			return rx.finishSend(e)
		}
	}
	return nil
}

// finishRead completes the oldest Read.
func (rx *receiver) finishRead(e *endpoint) {
	p := &rx.resp
	e.mu.Lock()
	e.reads.finish()
	e.sendFree++
	e.mu.Unlock()
	rx.completed(e, rdma.Completion{ID: p.id, Op: rdma.Read, Bytes: int(p.size)})
	p.active, p.local = false, nil
}

// finishSend completes a receive.
func (rx *receiver) finishSend(e *endpoint) error {
	m := &rx.msg
	c := rdma.Completion{ID: m.recv.ID, Op: rdma.Recv, Bytes: int(m.done)}
	if m.op == opSendInv || m.op == opSendSEInv {
		pinned, err := e.stags.invalidateRemote(m.stag)
		if pinned {
			// The peer's write that ended the Read may not have returned yet, so the peer does not
			// know that the Read is over. Wait for that write only.
			e.tx.busy.Lock()
			e.tx.busy.Unlock() //nolint:staticcheck // for the order of things only
			pinned, err = e.stags.invalidateRemote(m.stag)
		}
		if pinned {
			err = codeInvalidate.errorf("STag %08x to invalidate is being read by the peer", m.stag)
		}
		if err != nil {
			return err
		}
		c.Invalidated, c.HasInvalidated = m.stag, true
	}
	rx.sendMSN++
	m.active, m.recv = false, rdma.Receive{}
	e.stats.receives.Add(1)
	rx.completed(e, c)
	return nil
}

// completed adds to the batch, and reports it when it is full.
func (rx *receiver) completed(e *endpoint, c rdma.Completion) {
	rx.completions = append(rx.completions, c)
	if len(rx.completions) >= maxCompletions {
		rx.report(e)
	}
}

// report gives the batch to the handler, and notes whether the handler posted less than an answer
// to each.
func (rx *receiver) report(e *endpoint) {
	if len(rx.completions) == 0 {
		return
	}
	before := e.posted.Load()
	e.h.Completed(rx.completions)
	if int(e.posted.Load()-before) < len(rx.completions) {
		rx.deferredWork = true
	}
	rx.completions = rx.completions[:0]
}

// readRequested queues the response to a Read Request.
func (rx *receiver) readRequested(e *endpoint, b []byte) error {
	h, n, err := parseUntagged(b)
	if err != nil {
		return err
	}
	if h.msn != rx.readMSN {
		return codeMSN.errorf("Read Request with message sequence number %d, want %d", h.msn, rx.readMSN)
	}
	if h.mo != 0 {
		return codeMO.errorf("Read Request at message offset %d, want 0", h.mo)
	}
	if !h.last {
		return codeTooLong.errorf("Read Request that goes on after %d bytes", len(b)-n)
	}
	q, _, err := parseReadRequest(b[n:])
	if err != nil {
		return err
	}
	if int(e.inFlight.Load()) >= e.ird {
		return codeNoBuffer.errorf("Read Request beyond the %d that may be outstanding", e.ird)
	}
	if q.size > 0 {
		err = e.stags.checkRead(q.sourceSTag, q.sourceTO, q.size)
		if err == nil && q.sinkTO+uint64(q.size) < q.sinkTO {
			err = codeReadWrap.errorf("sink offset %#x and length %d pass 2^64", q.sinkTO, q.size)
		}
		if err != nil {
			return about(err, clone(b[:n]), len(b), clone(b[n:]))
		}
	}
	rx.readMSN++
	e.inFlight.Add(1)
	e.mu.Lock()
	e.answers.push(answer{q, h.msn})
	e.mu.Unlock()
	return nil
}
