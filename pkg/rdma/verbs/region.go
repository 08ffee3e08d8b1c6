//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"net"
	"sync"

	"sluice.dev/sluice/pkg/rdma"
)

// regions are the exposed memory of an endpoint without windows.
type regions struct {
	mu     sync.Mutex
	most   int
	closed bool
	byKey  map[uint32]*C.struct_ibv_mr
}

func (r *regions) init(most int) {
	r.most, r.byKey = most, map[uint32]*C.struct_ibv_mr{}
}

// revoke ends the access by a handle. An unknown or old one gives no access anyway.
func (r *regions) revoke(handle uint32) {
	r.mu.Lock()
	mr := r.byKey[handle]
	delete(r.byKey, handle)
	r.mu.Unlock()
	if mr != nil {
		C.ibv_dereg_mr(mr)
	}
}

// free revokes all.
func (r *regions) free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, mr := range r.byKey {
		C.ibv_dereg_mr(mr)
	}
	clear(r.byKey)
}

// Expose implements [rdma.Endpoint].
func (e *endpoint) Expose(mem []byte, access rdma.Access) (rdma.Remote, error) {
	if access == 0 || access&^(rdma.RemoteRead|rdma.RemoteWrite) != 0 {
		return rdma.Remote{}, fmt.Errorf("verbs: expose: access %#x is not RemoteRead, RemoteWrite or both", access)
	}
	if len(mem) == 0 || !e.domain.holds(mem) {
		return rdma.Remote{}, fmt.Errorf("verbs: %d bytes to expose lie in no arena that is attached to the domain", len(mem))
	}
	var flags C.int
	if access&rdma.RemoteRead != 0 {
		flags |= C.IBV_ACCESS_REMOTE_READ
	}
	if access&rdma.RemoteWrite != 0 {
		flags |= C.IBV_ACCESS_REMOTE_WRITE
	}
	if e.windows > 0 {
		return e.expose(mem, flags)
	}
	r := &e.regions
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return rdma.Remote{}, net.ErrClosed
	}
	if len(r.byKey) >= r.most {
		return rdma.Remote{}, fmt.Errorf("verbs: %d regions are exposed, of %d (MaxRegions): %w", len(r.byKey), r.most, rdma.ErrExposed)
	}
	mr, err := register(e.space.pd, addressOf(mem), uintptr(len(mem)), flags|C.IBV_ACCESS_LOCAL_WRITE)
	if err != nil {
		return rdma.Remote{}, fmt.Errorf("verbs: expose: %w", err)
	}
	r.byKey[uint32(mr.rkey)] = mr
	return rdma.Remote{Handle: uint32(mr.rkey), Offset: uint64(addressOf(mem))}, nil
}
