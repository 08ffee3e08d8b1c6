//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"log/slog"
	"net"

	"sluice.dev/sluice/pkg/rdma"
)

// bind is the opcode of a request that binds a window. Users neither post it nor see its
// completion.
const bind = rdma.Recv + 1

// probe is the same for a keepalive probe.
const probe = rdma.Recv + 2

// exposed are the memory windows of an endpoint, which the peer can invalidate. The endpoint's mu
// guards them.
type exposed struct {
	all         []*window
	byKey       map[uint32]*window // those that the peer can reach
	first, last *window            // free ones, the longest free first
}

// window is a memory window of type 2. It is bound to the queue pair, and each binding gives it
// another handle.
type window struct {
	mw    *C.struct_ibv_mw
	key   uint32
	bound uint64           // number after that of its latest binding request
	own   *C.struct_ibv_mr // its own region, if it has one
	next  *window
}

// openWindows allocates the first window. If that fails, the endpoint has none.
func (e *endpoint) openWindows() {
	if e.windows == 0 {
		return
	}
	e.exposed.byKey = map[uint32]*window{}
	w, err := e.newWindow()
	if err != nil {
		e.p.cfg.Logger.Warn("the RDMA device announces memory windows, but allocates none; no remote invalidation",
			slog.String("device", e.dev.name), slog.Any("error", err))
		e.windows = 0
		return
	}
	e.exposed.put(w)
}

// forgoWindows gives up windows, since the device refuses the longer queue of requests that they
// need: a device's announced limits are for the smallest requests. There is no queue pair at this
// point.
func (e *endpoint) forgoWindows(why error) {
	e.p.cfg.Logger.Warn("the RDMA device refuses the longer queue that memory windows need: a region is registered for each call, and cannot be invalidated remotely",
		slog.String("device", e.dev.name), slog.Int("requests", len(e.sq)), slog.Any("error", why))
	e.exposed.free(e.q)
	e.exposed.first, e.exposed.last = nil, nil
	C.sv_destroy_rest(e.q)
	*e.q = C.struct_sv_queues{}
	e.sq, e.windows = e.sq[:e.connParams.sends+e.probes], 0
}

func (e *endpoint) newWindow() (*window, error) {
	mw, err := C.sv_window(e.space.pd)
	if mw == nil {
		return nil, err
	}
	w := &window{mw: mw, key: uint32(mw.rkey)}
	e.exposed.all = append(e.exposed.all, w)
	return w, nil
}

// put adds a free window.
func (x *exposed) put(w *window) {
	w.next = nil
	if x.last == nil {
		x.first = w
	} else {
		x.last.next = w
	}
	x.last = w
}

// take removes a handle, and returns its window, or nil.
func (x *exposed) take(key uint32) *window {
	w := x.byKey[key]
	delete(x.byKey, key)
	return w
}

// free gives up all windows. The queue pair does nothing any more.
func (x *exposed) free(q *C.struct_sv_queues) {
	if len(x.all) == 0 {
		return
	}
	C.sv_fail(q) // it is not to be destroyed before windows that are bound to it
	for _, w := range x.all {
		C.sv_free_window(w.mw)
		if w.own != nil {
			C.ibv_dereg_mr(w.own)
		}
	}
	x.all = nil
}

// windowLocked returns one that can be bound. One whose last binding has not completed cannot: its
// request refers to it. The caller holds mu.
func (e *endpoint) windowLocked() (*window, error) {
	x := &e.exposed
	if w := x.first; w != nil && w.bound <= e.sqSent {
		if x.first = w.next; x.first == nil {
			x.last = nil
		}
		return w, nil
	}
	if most := min(e.windows, e.p.cfg.MaxRegions); len(x.all) >= most {
		return nil, fmt.Errorf("verbs: %d windows of memory are in use, of %d: %w", len(x.all), most, rdma.ErrExposed)
	}
	w, err := e.newWindow()
	if err != nil {
		return nil, fmt.Errorf("verbs: another memory window of %s: %w (%w)", e.dev.name, err, rdma.ErrExposed)
	}
	return w, nil
}

// expose binds a window to mem, ahead of the next request that is posted.
func (e *endpoint) expose(mem []byte, access C.int) (rdma.Remote, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done || e.closing || e.broken != nil {
		return rdma.Remote{}, net.ErrClosed
	}
	if e.binds >= e.windows {
		return rdma.Remote{}, fmt.Errorf("verbs: expose: %d bindings of windows have not completed: %w", e.binds, rdma.ErrExposed)
	}
	in := find(&e.space.arenas, mem)
	if in == nil {
		return rdma.Remote{}, fmt.Errorf("verbs: expose: %d bytes lie in an arena that %s does not have: it was removed", len(mem), e.dev.name)
	}
	w, err := e.windowLocked()
	if err != nil {
		return rdma.Remote{}, err
	}
	region := in.mr
	if e.dev.limits.loose_windows != 0 {
		region, err = register(e.space.pd, addressOf(mem), uintptr(len(mem)), C.IBV_ACCESS_LOCAL_WRITE|C.IBV_ACCESS_MW_BIND)
		if err != nil {
			e.exposed.put(w)
			return rdma.Remote{}, fmt.Errorf("verbs: expose: %w", err)
		}
		w.own = region
	}
	w.key = w.key&^0xff | (w.key+1)&0xff
	c := e.requestLocked(0)
	c.opcode, c.window, c.region, c.access = C.IBV_WR_BIND_MW, w.mw, region, C.uint32_t(access)
	c.offset, c.length, c.key = C.uint64_t(addressOf(mem)), C.uint64_t(len(mem)), C.uint32_t(w.key)
	e.addLocked(slot{op: bind})
	w.bound = e.sqTail
	e.binds++
	e.exposed.byKey[w.key] = w
	return rdma.Remote{Handle: w.key, Offset: uint64(addressOf(mem))}, nil
}

// releaseLocked takes back a window that the peer cannot use any more. The caller holds mu.
func (e *endpoint) releaseLocked(w *window) {
	if w.own != nil {
		e.sinks = append(e.sinks, w.own)
		w.own = nil
	}
	e.exposed.put(w)
}
