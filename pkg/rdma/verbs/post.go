//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"net"
	"runtime"
	"syscall"

	"sluice.dev/sluice/pkg/rdma"
)

// receiveBit marks the numbers of receives, as distinct from requests.
const receiveBit = 1 << 63

func (e *endpoint) slot(n uint64) *slot { return &e.sq[n%uint64(len(e.sq))] }

// check validates a list of local memory, and returns its length in bytes and in segments.
func (e *endpoint) check(list [][]byte, most int) (bytes uint64, segments int, err error) {
	if len(list) > most {
		return 0, 0, fmt.Errorf("%d segments, at most %d are possible", len(list), most)
	}
	for i, b := range list {
		if len(b) == 0 {
			continue
		}
		bytes += uint64(len(b))
		segments++
		if find(&e.space.arenas, b) == nil {
			return 0, 0, fmt.Errorf("segment %d of %d bytes lies in no arena that is attached to the domain", i, len(b))
		}
	}
	if bytes > e.maxMessage {
		return 0, 0, fmt.Errorf("%d bytes, %s moves at most %d at once", bytes, e.dev.name, e.maxMessage)
	}
	return bytes, segments, nil
}

// checkWork validates a work request.
func (e *endpoint) checkWork(w *rdma.WorkRequest) error {
	most := e.segments
	switch w.Op {
	case rdma.Send, rdma.SendWithInvalidate, rdma.Write:
	case rdma.Read:
		if e.ord == 0 {
			return fmt.Errorf("verbs: work request %d is a Read, but the connection was set up for none (ORD 0)", w.ID)
		}
		most = e.readSegments
	case rdma.LocalInvalidate:
		return nil
	default:
		return fmt.Errorf("verbs: work request %d has opcode %d, which nobody can post", w.ID, w.Op)
	}
	n, _, err := e.check(w.Local, most)
	if err != nil {
		return fmt.Errorf("verbs: work request %d: %w", w.ID, err)
	}
	if (w.Op == rdma.Read || w.Op == rdma.Write) && w.Remote.Offset+n < w.Remote.Offset {
		return fmt.Errorf("verbs: work request %d: %d bytes at offset %#x go past 2^64", w.ID, n, w.Remote.Offset)
	}
	return nil
}

// Post implements [rdma.Endpoint].
func (e *endpoint) Post(wrs []rdma.WorkRequest) error {
	e.enter()
	defer e.exit()
	if e.done || e.closing || e.broken != nil {
		return net.ErrClosed
	}
	work := 0
	for i := range wrs {
		if err := e.checkWork(&wrs[i]); err != nil {
			return err
		}
		if wrs[i].Op != rdma.LocalInvalidate || e.exposed.byKey[wrs[i].Invalidate] != nil {
			work++
		}
	}
	if free := e.connParams.sends - int(e.sqTail-e.sqHead) + e.binds + e.probing; work > free {
		return fmt.Errorf("verbs: %d work requests for a send queue with room for %d", work, free)
	}
	for i := range wrs {
		if w := &wrs[i]; w.Op == rdma.LocalInvalidate && e.exposed.byKey[w.Invalidate] == nil {
			e.regions.revoke(w.Invalidate)
			e.revoked = append(e.revoked, w.ID)
		} else if err := e.pushLocked(w); err != nil {
			e.failLocked(err)
			// earlier requests are in progress: the end of the connection completes them all
			return nil
		}
	}
	if len(e.revoked) > 0 && !e.gathering.Load() {
		e.interrupt()
	}
	return nil
}

// enter takes mu for a post. While its holder is in C, others wait here: their posts leave
// together, by the last of them.
func (e *endpoint) enter() {
	e.Cork()
	e.mu.Lock()
}

func (e *endpoint) exit() {
	e.mu.Unlock()
	e.Uncork()
}

// gathersLocked reports whether another goroutine will flush. The caller holds mu.
func (e *endpoint) gathersLocked() bool {
	return e.gathering.Load() || e.corks.Load() > 0 && !e.closing
}

// pushLocked gathers a checked work request. The caller holds mu.
func (e *endpoint) pushLocked(w *rdma.WorkRequest) error {
	c := e.requestLocked(len(w.Local))
	s := slot{id: w.ID, op: w.Op, signaled: w.Signaled, handle: w.Remote.Handle}
	c.key, c.offset = C.uint32_t(w.Remote.Handle), C.uint64_t(w.Remote.Offset)
	bytes := 0
	for _, b := range w.Local {
		if len(b) == 0 {
			continue
		}
		bytes += len(b)
		to := &e.q.send_list[e.sendList]
		to.addr, to.length = C.uint64_t(addressOf(b)), C.uint32_t(len(b))
		to.lkey = C.uint32_t(find(&e.space.arenas, b).key)
		if w.Op == rdma.Read && e.dev.limits.iwarp != 0 {
			mr, err := register(e.space.pd, addressOf(b), uintptr(len(b)), C.IBV_ACCESS_LOCAL_WRITE|C.IBV_ACCESS_REMOTE_WRITE)
			if err != nil {
				return fmt.Errorf("verbs: the sink of a Read: %w", err)
			}
			s.sink, to.lkey = mr, mr.lkey
		}
		e.sendList++
		c.count++
	}
	s.bytes = uint32(bytes)
	switch w.Op {
	case rdma.Send:
		c.opcode = C.IBV_WR_SEND
	case rdma.SendWithInvalidate:
		c.opcode, c.key = C.IBV_WR_SEND_WITH_INV, C.uint32_t(w.Invalidate)
		s.handle = w.Invalidate
	case rdma.Write:
		c.opcode = C.IBV_WR_RDMA_WRITE
	case rdma.Read:
		c.opcode = C.IBV_WR_RDMA_READ
	case rdma.LocalInvalidate:
		c.opcode, c.key = C.IBV_WR_LOCAL_INV, C.uint32_t(w.Invalidate)
		s.window = e.exposed.take(w.Invalidate)
	}
	switch {
	case w.Op == rdma.Read, e.dev.limits.zero_copy != 0:
		c.flags = C.SV_SIGNALED
	case w.Signaled, w.Op == rdma.LocalInvalidate:
		if e.covering >= 0 {
			e.q.sends[e.covering].flags &^= C.SV_SIGNALED // this one's completion covers it
		}
		e.covering = e.sends
		c.flags = C.SV_SIGNALED
	}
	if w.Op != rdma.Read && bytes > 0 && bytes <= int(e.q.max_inline) {
		c.flags |= C.SV_INLINE
	}
	e.addLocked(s)
	e.stats.post(w.Op, bytes)
	return nil
}

// requestLocked returns the place of the next request, of at most so many segments. The caller
// holds mu.
func (e *endpoint) requestLocked(segments int) *C.struct_sv_send {
	if e.sends == C.SV_CHAIN || e.sendList+segments > C.SV_LIST {
		e.flushLocked()
	}
	c := &e.q.sends[e.sends]
	c.index, c.first, c.count, c.flags = C.uint64_t(e.sqTail), C.uint32_t(e.sendList), 0, 0
	return c
}

// addLocked counts the request that was written there. The caller holds mu.
func (e *endpoint) addLocked(s slot) {
	*e.slot(e.sqTail) = s
	e.sqTail++
	e.sends++
}

// flushLocked posts the gathered work. The caller holds mu.
func (e *endpoint) flushLocked() {
	if e.sends+e.receives > 0 && !e.done {
		e.turnLocked(C.SV_NOT)
	}
}

// turnLocked posts the gathered work, receives first: sends may announce them to the peer. Serve's
// turn then also polls, and returns the number of completions, negative after a failure. The caller
// holds mu.
func (e *endpoint) turnLocked(poll C.int) int {
	if e.sends > 0 {
		// so that every request completes in the end, even if none is signaled
		e.q.sends[e.sends-1].flags |= C.SV_SIGNALED
		e.stats.writeCalls.Add(1)
	} else {
		e.stats.readCalls.Add(1)
	}
	e.poll = poll
	if e.sends > 0 && e.dev.limits.software != 0 {
		manager().do(e.bell)
	} else {
		e.ring()
	}
	e.sends, e.sendList, e.covering = 0, 0, -1
	e.receives, e.receiveList = 0, 0
	e.postedLocked("receives", e.q.no_receives)
	e.postedLocked("work", e.q.no_sends)
	return e.found
}

// ring is turn's call into C.
func (e *endpoint) ring() {
	e.found = int(C.sv_turn(e.q, C.int(e.receives), C.int(e.sends), e.poll, 0))
}

// postedLocked handles the device's result for a chain. The caller holds mu.
func (e *endpoint) postedLocked(what string, errno C.int) {
	if errno != 0 {
		e.failLocked(fmt.Errorf("verbs: %s takes no %s: %w", e.dev.name, what, syscall.Errno(errno)))
	}
}

// failLocked ends the connection for a reason found outside of Serve. The caller holds mu.
func (e *endpoint) failLocked(err error) {
	if e.broken == nil {
		e.broken = err
	}
	e.interrupt()
}

// PostReceives implements [rdma.Endpoint].
func (e *endpoint) PostReceives(rs []rdma.Receive) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done || e.broken != nil {
		return net.ErrClosed
	}
	if e.shared != nil {
		return errShared
	}
	for i := range rs {
		if _, _, err := e.check(rs[i].Segments, e.segments); err != nil {
			return fmt.Errorf("verbs: receive %d: %w", rs[i].ID, err)
		}
	}
	if free := len(e.rq) - int(e.rqTail-e.rqHead); len(rs) > free {
		return fmt.Errorf("verbs: %d receives for a queue with room for %d", len(rs), free)
	}
	for i := range rs {
		e.pushReceiveLocked(&rs[i])
	}
	if e.corks.Load() == 0 || e.closing {
		e.flushReceivesLocked()
	}
	return nil
}

// flushReceivesLocked posts the gathered receives. The caller holds mu.
func (e *endpoint) flushReceivesLocked() {
	if e.receives > 0 {
		e.stats.readCalls.Add(1)
		C.sv_turn(e.q, C.int(e.receives), 0, C.SV_NOT, 0)
		e.receives, e.receiveList = 0, 0
		e.postedLocked("receives", e.q.no_receives)
	}
}

// pushReceiveLocked gathers a checked receive. The caller holds mu.
func (e *endpoint) pushReceiveLocked(r *rdma.Receive) {
	if e.receives == C.SV_CHAIN || e.receiveList+C.SV_SEGMENTS > C.SV_LIST {
		e.flushReceivesLocked()
	}
	c := &e.q.receives[e.receives]
	c.index, c.first = C.uint64_t(e.rqTail|receiveBit), C.uint32_t(e.receiveList)
	for _, b := range r.Segments {
		if len(b) == 0 {
			continue
		}
		to := &e.q.receive_list[e.receiveList]
		to.addr, to.length, to.lkey = C.uint64_t(addressOf(b)), C.uint32_t(len(b)), C.uint32_t(find(&e.space.arenas, b).key)
		e.receiveList++
	}
	// siw takes no receive without a segment
	if e.receiveList == int(c.first) && e.dev.limits.iwarp != 0 {
		e.q.receive_list[e.receiveList] = C.struct_ibv_sge{}
		e.receiveList++
	}
	c.count = C.uint32_t(e.receiveList) - c.first
	e.rq[e.rqTail%uint64(len(e.rq))] = r.ID
	e.rqTail++
	e.receives++
}

// keepAlive probes the peer of a connection without traffic since its last run, by an empty RDMA
// Write, which needs no exposed memory (InfiniBand Architecture Specification, volume 1, C9-88). If
// the peer is dead the retries are used up, and the request fails. While requests are outstanding
// the device is trying already.
func (e *endpoint) keepAlive() {
	e.enter()
	defer e.exit()
	if e.done || e.closing || e.broken != nil {
		return
	}
	if moved := e.sqTail + e.stats.receives.Load(); moved != e.traffic || e.sqHead != e.sqTail {
		e.traffic = moved
	} else {
		c := e.requestLocked(0)
		c.opcode, c.key, c.offset = C.IBV_WR_RDMA_WRITE, 0, 0
		e.addLocked(slot{op: probe})
		e.probing++
		e.traffic = e.sqTail + e.stats.receives.Load()
	}
	e.idle.Reset(e.p.cfg.KeepAlive)
}

// Cork implements [rdma.Endpoint]. It takes no lock: goroutines that cork while another one posts
// then leave together.
func (e *endpoint) Cork() { e.corks.Add(1) }

// Uncork implements [rdma.Endpoint]. It first yields to runnable goroutines while the cork still
// stands: workers that answer at about the same time then leave together.
func (e *endpoint) Uncork() {
	if e.corks.Load() == 1 && !e.gathering.Load() {
		runtime.Gosched()
	}
	if e.corks.Add(-1) > 0 {
		return // the last Uncork posts
	}
	e.mu.Lock()
	if !e.gathersLocked() {
		e.flushLocked()
	}
	e.mu.Unlock()
}
