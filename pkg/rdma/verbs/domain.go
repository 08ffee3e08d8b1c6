//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// domain is a protection domain on each device on which it has connections. A device is known only
// once an address is, so the arenas are registered with the first connection over it; later arenas
// are registered at once.
type domain struct {
	p *provider

	mu        sync.Mutex
	detach    []func()
	spaces    map[*device]*space
	endpoints int
	closed    bool

	arenas atomic.Pointer[[]arena] // the keys in these are unused
}

// space is a domain on one device.
type space struct {
	pd        *C.struct_ibv_pd
	access    C.int // of registered arenas
	endpoints int   // and shared queues
	queues    []*receiveQueue
	lost      bool // the device was removed
	// sorted; replaced as a whole, so that Post reads it without a lock
	arenas atomic.Pointer[[]arena]
}

// arena is registered memory at the addresses [from, to).
type arena struct {
	from, to uintptr
	key      uint32
	mr       *C.struct_ibv_mr
}

var errDomainClosed = errors.New("verbs: the domain is closed")

// NewDomain implements [rdma.Provider].
func (p *provider) NewDomain() (rdma.Domain, error) {
	d := &domain{p: p, spaces: map[*device]*space{}}
	p.mu.Lock()
	p.domains[d] = struct{}{}
	p.mu.Unlock()
	return d, nil
}

func ptr[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// find returns the arena that holds b, or nil.
func find(p *atomic.Pointer[[]arena], b []byte) *arena {
	list := p.Load()
	if list == nil {
		return nil
	}
	arenas, from := *list, addressOf(b)
	lo, hi := 0, len(arenas)
	for lo < hi { // the last arena that begins at or before b
		if mid := (lo + hi) / 2; arenas[mid].from <= from {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || from+uintptr(len(b)) > arenas[lo-1].to {
		return nil
	}
	return &arenas[lo-1]
}

func insert(p *atomic.Pointer[[]arena], a arena) {
	var all []arena
	if old := p.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, a)
	slices.SortFunc(all, func(a, b arena) int { return cmp.Compare(a.from, b.from) })
	p.Store(&all)
}

// takeOut removes the arena b, if it is there, and returns its region.
func takeOut(p *atomic.Pointer[[]arena], b []byte) *C.struct_ibv_mr {
	a := find(p, b)
	if a == nil {
		return nil
	}
	all := slices.DeleteFunc(slices.Clone(*p.Load()), func(o arena) bool { return o.from == a.from })
	p.Store(&all)
	return a.mr
}

// holds reports whether b lies in an arena.
func (d *domain) holds(b []byte) bool { return len(b) == 0 || find(&d.arenas, b) != nil }

// Register implements [rdma.Domain].
func (d *domain) Register(p *bufpool.Pool) error {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return errDomainClosed
	}
	detach, err := p.Attach(func(a *bufpool.Arena) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.closed { // Close is about to detach; the pool and its other users continue
			return nil
		}
		from := addressOf(a.Memory)
		added := arena{from: from, to: from + uintptr(len(a.Memory))}
		for _, s := range d.spaces {
			if s.lost {
				continue
			}
			if err := s.register(added); err != nil {
				return err
			}
		}
		insert(&d.arenas, added)
		return nil
	}, d.undo)
	if err != nil {
		return fmt.Errorf("verbs: %w", err)
	}
	d.mu.Lock()
	d.detach = append(d.detach, detach)
	d.mu.Unlock()
	return nil
}

// undo removes an arena that never had a buffer in use.
func (d *domain) undo(a *bufpool.Arena) {
	d.mu.Lock()
	defer d.mu.Unlock()
	takeOut(&d.arenas, a.Memory)
	for _, s := range d.spaces {
		if mr := takeOut(&s.arenas, a.Memory); mr != nil {
			C.ibv_dereg_mr(mr)
		}
	}
}

// register makes an arena local memory of the space.
func (s *space) register(a arena) error {
	mr, err := register(s.pd, a.from, a.to-a.from, s.access)
	if err != nil {
		return err
	}
	a.mr, a.key = mr, uint32(mr.lkey)
	insert(&s.arenas, a)
	return nil
}

// register is ibv_reg_mr with a helpful error.
func register(pd *C.struct_ibv_pd, from, length uintptr, access C.int) (*C.struct_ibv_mr, error) {
	mr, err := C.sv_register(pd, C.uintptr_t(from), C.uint64_t(length), access)
	if mr != nil {
		return mr, nil
	}
	return nil, fmt.Errorf("registering %d bytes with the device: %w%s", length, err, memlockHint(err))
}

// memlockHint is the advice for memory that cannot be locked; "" for other errors, or without a
// limit.
func memlockHint(err error) string {
	if !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, syscall.EPERM) {
		return ""
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf(" (this process may lock %d bytes of memory: raise the limit memlock, or give it the capability IPC_LOCK)", limit.Cur)
}

// join counts an endpoint on the device, and returns its space.
func (d *domain) join(dev *device) (*space, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errDomainClosed
	}
	s := d.spaces[dev]
	if s == nil {
		if dev.lost.Load() {
			return nil, fmt.Errorf("verbs: %s: the RDMA device was removed", dev.name)
		}
		pd, err := C.ibv_alloc_pd(dev.context)
		if pd == nil {
			return nil, fmt.Errorf("verbs: a protection domain of %s: %w", dev.name, err)
		}
		countSpace(dev.context, 1)
		s = &space{pd: pd, access: C.IBV_ACCESS_LOCAL_WRITE}
		// data are touched only after a completion, which is ordered in any case
		if !d.p.cfg.StrictOrdering {
			s.access |= C.SV_RELAXED_ORDERING
		}
		if dev.limits.max_windows > 0 {
			s.access |= C.IBV_ACCESS_MW_BIND
		}
		if list := d.arenas.Load(); list != nil {
			for _, a := range *list {
				if err := s.register(a); err != nil {
					s.free()
					return nil, fmt.Errorf("verbs: %s: %w", dev.name, err)
				}
			}
		}
		d.spaces[dev] = s
	}
	d.endpoints++
	s.endpoints++
	return s, nil
}

// leave undoes join.
func (d *domain) leave(dev *device) {
	d.mu.Lock()
	d.endpoints--
	s := d.spaces[dev]
	s.endpoints--
	d.dropLocked(dev, s)
	d.mu.Unlock()
}

// lose gives up a removed device: its registrations end with the last endpoint, before librdmacm
// closes the device.
func (d *domain) lose(dev *device) {
	d.mu.Lock()
	var queues []*receiveQueue
	if s := d.spaces[dev]; s != nil {
		s.lost = true
		queues = slices.Clone(s.queues)
		d.dropLocked(dev, s)
	}
	d.mu.Unlock()
	for _, q := range queues {
		q.lose()
	}
}

// dropLocked frees the space of a lost device when no endpoint uses it. The caller holds mu.
func (d *domain) dropLocked(dev *device, s *space) {
	if s.lost && s.endpoints == 0 {
		delete(d.spaces, dev)
		s.free()
	}
}

func (s *space) free() {
	if list := s.arenas.Swap(nil); list != nil {
		for _, a := range *list {
			C.ibv_dereg_mr(a.mr)
		}
	}
	context := s.pd.context
	C.ibv_dealloc_pd(s.pd)
	countSpace(context, -1)
}

// Close implements [rdma.Domain].
func (d *domain) Close() error {
	d.mu.Lock()
	if d.endpoints > 0 {
		defer d.mu.Unlock()
		return fmt.Errorf("verbs: the domain has %d endpoints and shared queues, which have to be closed before", d.endpoints)
	}
	d.closed = true
	detach, spaces := d.detach, d.spaces
	d.detach, d.spaces = nil, nil
	d.mu.Unlock()
	d.p.mu.Lock()
	delete(d.p.domains, d)
	d.p.mu.Unlock()
	for _, f := range detach { // without the lock: the pool calls us under its own
		f()
	}
	for _, s := range spaces {
		s.free()
	}
	return nil
}
