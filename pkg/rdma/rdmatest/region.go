package rdmatest

import (
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/rdma"
)

// region is memory exposed to the peer.
type region struct {
	mem    []byte
	base   uint64 // the offset of its first byte
	access rdma.Access
}

// Expose makes memory of the domain's arenas accessible. Its first byte has a random offset below
// 2^63.
func (e *endpoint) Expose(mem []byte, access rdma.Access) (rdma.Remote, error) {
	if access == 0 || access&^(rdma.RemoteRead|rdma.RemoteWrite) != 0 {
		return rdma.Remote{}, fmt.Errorf("rdma fabric: expose: access %#x is not RemoteRead, RemoteWrite or both", access)
	}
	if err := e.domain.check(mem); err != nil {
		return rdma.Remote{}, fmt.Errorf("rdma fabric: expose: %w", err)
	}
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	if e.ended {
		return rdma.Remote{}, fmt.Errorf("rdma fabric: expose: the connection ended: %w", e.cause)
	}
	if most := e.c.f.o.MaxExposed; most > 0 && len(e.regions) >= most {
		return rdma.Remote{}, fmt.Errorf("rdma fabric: expose: %w", rdma.ErrExposed)
	}
	var r *region
	if n := len(e.spares); n > 0 {
		r, e.spares = e.spares[n-1], e.spares[:n-1]
	} else {
		r = new(region)
	}
	*r = region{mem, e.rand.Uint64() >> 1, access}
	h := e.newHandle()
	e.regions[h] = r
	e.counts.Exposed++
	e.c.f.counters.exposed.Add(1)
	e.c.f.record(Event{Conn: e.c.number, From: e.side, What: "exposed", Bytes: len(mem), Handle: h})
	return rdma.Remote{Handle: h, Offset: r.base}, nil
}

func (e *endpoint) newHandle() uint32 {
	if n := len(e.reuse); n > 0 {
		h := e.reuse[n-1]
		e.reuse = e.reuse[:n-1]
		return h
	}
	for {
		h := e.rand.Uint32()
		if _, used := e.regions[h]; !used && h != 0 {
			return h
		}
	}
}

// invalidate ends the access by a handle, and reports whether there was any.
func (e *endpoint) invalidate(handle uint32) bool {
	r := e.regions[handle]
	if r == nil {
		return false
	}
	delete(e.regions, handle)
	r.mem = nil
	e.spares = append(e.spares, r)
	if e.c.f.o.ReuseHandles {
		e.reuse = append(e.reuse, handle)
	}
	return true
}

// localInvalidate completes even if the peer invalidated first: its caller cannot know.
func (e *endpoint) localInvalidate(wr *rdma.WorkRequest) {
	e.invalidate(wr.Invalidate)
	e.outstanding--
	e.counts.LocalInvalidates++
	e.c.f.counters.localInvalidates.Add(1)
	e.c.f.record(Event{Conn: e.c.number, From: e.side, What: "invalidated", Handle: wr.Invalidate})
	e.complete(rdma.Completion{ID: wr.ID, Op: rdma.LocalInvalidate})
}

// redirect leads a handle to other memory. RDMA in flight has its effect when it arrives.
func (e *endpoint) redirect(wr *rdma.WorkRequest) {
	if r := e.regions[wr.Invalidate]; r != nil {
		r.mem = wr.Local[0]
	}
	e.outstanding--
	e.c.f.record(Event{Conn: e.c.number, From: e.side, What: "redirected", Handle: wr.Invalidate})
	e.complete(rdma.Completion{ID: wr.ID, Op: rdma.Redirect})
}

// access finds the memory that the peer names. A length of 0 is not checked (RFC 5041 section 5.2,
// RFC 5040 section 5.2.1).
func (e *endpoint) access(at rdma.Remote, n int, want rdma.Access) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	r := e.regions[at.Handle]
	switch {
	case r == nil:
		return nil, fmt.Errorf("handle %#x is not exposed", at.Handle)
	case r.access&want == 0 && want == rdma.RemoteRead:
		return nil, errors.New("the memory is exposed for writing only")
	case r.access&want == 0:
		return nil, errors.New("the memory is exposed for reading only")
	case at.Offset+uint64(n) < at.Offset:
		return nil, fmt.Errorf("offset %#x and length %d go past 2^64", at.Offset, n)
	case at.Offset < r.base:
		return nil, fmt.Errorf("it begins %d bytes before the exposed memory", r.base-at.Offset)
	}
	if end, size := at.Offset-r.base+uint64(n), uint64(len(r.mem)); end > size {
		return nil, fmt.Errorf("it ends %d bytes past the exposed memory of %d bytes", end-size, size)
	}
	from := at.Offset - r.base
	return r.mem[from : from+uint64(n)], nil
}
