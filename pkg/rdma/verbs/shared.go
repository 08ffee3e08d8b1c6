//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

var errShared = errors.New("verbs: receives of this endpoint are posted to the queue that it shares")

// receiveQueue implements [rdma.SRQ]. Its lock is taken under those of endpoints.
type receiveQueue struct {
	domain   *domain
	dev      *device
	space    *space
	segments int
	events   *watcher

	mu        sync.Mutex
	q         *C.struct_sv_shared // nil when closed
	broken    error               // reason why the device takes no more
	receives  []rdma.Receive      // posted ones, by their numbers
	free      []uint64            // unused numbers
	endpoints int
	gathered  int // in q, and their segments
	listed    int
}

func newReceiveQueue(d *domain, dev *device, depth int) (*receiveQueue, error) {
	space, err := d.join(dev)
	if err != nil {
		return nil, err
	}
	depth = min(depth, int(dev.limits.max_shared_work))
	r := &receiveQueue{domain: d, dev: dev, space: space, segments: min(int(dev.limits.max_shared_segments), C.SV_SEGMENTS),
		q: (*C.struct_sv_shared)(C.calloc(1, C.sizeof_struct_sv_shared)), receives: make([]rdma.Receive, depth), free: make([]uint64, depth)}
	for i := range r.free {
		r.free[i] = uint64(depth - 1 - i)
	}
	if errno := managed(func() C.int { return C.sv_open_shared(r.q, space.pd, C.int(depth), C.int(r.segments)) }); errno != 0 {
		C.free(ptr(r.q))
		d.leave(dev)
		return nil, fmt.Errorf("verbs: %s: ibv_create_srq: %w", dev.name, syscall.Errno(errno))
	}
	r.events = watcherOf(dev.context)
	r.events.join(r, uintptr(ptr(r.q.srq)))
	d.mu.Lock()
	space.queues = append(space.queues, r)
	lost := space.lost
	d.mu.Unlock()
	if lost {
		r.lose()
	}
	return r, nil
}

// Depth implements [rdma.SRQ].
func (r *receiveQueue) Depth() int { return len(r.receives) }

// PostReceives implements [rdma.SRQ].
func (r *receiveQueue) PostReceives(rs []rdma.Receive) error {
	for i := range rs {
		if n := len(rs[i].Segments); n > r.segments {
			return fmt.Errorf("verbs: receive %d has %d segments, at most %d are possible", rs[i].ID, n, r.segments)
		}
		for k, b := range rs[i].Segments {
			if len(b) > 0 && find(&r.space.arenas, b) == nil {
				return fmt.Errorf("verbs: receive %d: segment %d of %d bytes lies in no arena that is attached to the domain", rs[i].ID, k, len(b))
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.q == nil:
		return net.ErrClosed
	case r.broken != nil:
		return r.broken
	}
	if n := len(r.free); len(rs) > n {
		return fmt.Errorf("verbs: %d receives for a shared queue with room for %d", len(rs), n)
	}
	for i := range rs {
		last := len(r.free) - 1
		n := r.free[last]
		r.free = r.free[:last]
		r.receives[n] = rs[i]
		r.pushLocked(n)
	}
	r.flushLocked()
	// if the device refused one, it may have the earlier ones: the memory of all is in use until
	// Close, and the next call returns the error
	return nil
}

// pushLocked gathers receive number n. The caller holds mu.
func (r *receiveQueue) pushLocked(n uint64) {
	if r.gathered == C.SV_CHAIN || r.listed+C.SV_SEGMENTS > C.SV_LIST {
		r.flushLocked()
	}
	c := &r.q.receives[r.gathered]
	c.index, c.first = C.uint64_t(n|receiveBit), C.uint32_t(r.listed)
	for _, b := range r.receives[n].Segments {
		if len(b) > 0 {
			to := &r.q.list[r.listed]
			to.addr, to.length, to.lkey = C.uint64_t(addressOf(b)), C.uint32_t(len(b)), C.uint32_t(find(&r.space.arenas, b).key)
			r.listed++
		}
	}
	// siw takes no receive without a segment
	if r.listed == int(c.first) && r.dev.limits.iwarp != 0 {
		r.q.list[r.listed] = C.struct_ibv_sge{}
		r.listed++
	}
	c.count = C.uint32_t(r.listed) - c.first
	r.gathered++
}

// flushLocked posts the gathered receives. The caller holds mu.
func (r *receiveQueue) flushLocked() {
	n := r.gathered
	r.gathered, r.listed = 0, 0
	if n == 0 || r.broken != nil {
		return
	}
	if errno := C.sv_post_shared(r.q, C.int(n)); errno != 0 {
		r.broken = fmt.Errorf("verbs: %s takes no shared receives: %w", r.dev.name, syscall.Errno(errno))
	}
}

// take returns the ID of a completed receive.
func (r *receiveQueue) take(index C.uint64_t) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := uint64(index) &^ receiveBit
	id := r.receives[n].ID
	r.receives[n] = rdma.Receive{}
	r.free = append(r.free, n)
	return id
}

// again posts a taken receive that will not be reported.
func (r *receiveQueue) again(index C.uint64_t) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.q != nil {
		r.pushLocked(uint64(index) &^ receiveBit)
		r.flushLocked()
	}
}

// again gives a failed receive back.
func (e *endpoint) again(c *C.struct_sv_completion) {
	if e.shared != nil && c.index&receiveBit != 0 {
		e.shared.again(c.index)
	}
}

// giveBack ends receiving, and gives back the unreported shared receives. An adapter may still be
// filling some, and drops those that it has not reported when the queue pair is destroyed: so it
// waits for their end.
func (e *endpoint) giveBack() {
	if e.shared == nil || e.q.cq == nil {
		return
	}
	if e.q.qp != nil {
		onHelper(func() struct{} { C.sv_fail(e.q); return struct{}{} })
		if !e.awaitLast() {
			e.p.cfg.Logger.Debug("the RDMA device did not report the last shared receive of a connection", "device", e.dev.name)
		}
	}
	for {
		n := int(C.sv_turn(e.q, 0, 0, C.SV_POLL, 0))
		if n <= 0 {
			return
		}
		for i := range n {
			e.again(&e.q.completions[i])
		}
	}
}

// lastReceive bounds the wait for LAST_WQE_REACHED after a queue pair was failed. Adapters take
// microseconds.
const lastReceive = time.Second

// awaitLast waits until no receive of the shared queue is taken any more, and reports whether the
// device has confirmed it. It does not wait before the connection was established, nor with
// software devices: those fail a queue pair before they return, and rxe sends no event.
func (e *endpoint) awaitLast() bool {
	if e.local == nil || e.events == nil || e.dev.limits.software != 0 {
		return true
	}
	limit := time.NewTimer(lastReceive)
	defer limit.Stop()
	select {
	case <-e.last:
		return true
	case <-e.events.stopped: // the device is gone
		return true
	case <-limit.C:
		return false
	}
}

// join counts an endpoint.
func (r *receiveQueue) join(dev *device) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.q == nil {
		return net.ErrClosed
	}
	if dev != r.dev {
		return fmt.Errorf("verbs: the shared queue of receives is of %s, the connection is over %s", r.dev.name, dev.name)
	}
	r.endpoints++
	return nil
}

// leave takes an endpoint out of the count.
func (r *receiveQueue) leave() {
	r.mu.Lock()
	r.endpoints--
	r.mu.Unlock()
	r.domain.mu.Lock()
	lost := r.space.lost
	r.domain.mu.Unlock()
	if lost {
		r.lose()
	}
}

// lose gives up the queue of a removed device when no endpoint uses it: librdmacm closes the device
// after the last one.
func (r *receiveQueue) lose() { _ = r.Close() }

// Close implements [rdma.SRQ].
func (r *receiveQueue) Close() error {
	r.mu.Lock()
	if n := r.endpoints; n > 0 {
		defer r.mu.Unlock()
		return fmt.Errorf("verbs: the queue of receives has %d endpoints, which have to be closed before", n)
	}
	q := r.q
	r.q = nil
	r.mu.Unlock()
	if q == nil {
		return nil
	}
	r.events.leave(uintptr(ptr(q.srq)))
	manager().do(newCall(func() { C.sv_close_shared(q) }))
	C.free(ptr(q))
	r.domain.mu.Lock()
	r.space.queues = slices.DeleteFunc(r.space.queues, func(o *receiveQueue) bool { return o == r })
	r.domain.mu.Unlock()
	r.domain.leave(r.dev)
	return nil
}
