package rdmatest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"sluice.dev/sluice/pkg/bufpool"
)

// domain knows the arenas in which local memory must lie.
type domain struct {
	f *Fabric

	mu        sync.Mutex
	detach    []func()
	endpoints int
	closed    bool

	// sorted; replaced, never changed, so that Post reads it without a lock
	arenas atomic.Pointer[[]span]
}

var errClosedDomain = errors.New("rdma fabric: the domain is closed")

type span struct{ from, to uintptr }

func newDomain(f *Fabric) *domain {
	d := &domain{f: f}
	d.arenas.Store(new([]span))
	return d
}

// Register makes the pool's arenas local memory.
func (d *domain) Register(p *bufpool.Pool) error {
	if d.isClosed() {
		return errClosedDomain
	}
	detach, err := p.Attach(func(a *bufpool.Arena) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.closed { // Close is about to detach; the pool and its other users continue
			return nil
		}
		from := uintptr(unsafe.Pointer(unsafe.SliceData(a.Memory)))
		s := append(slices.Clone(*d.arenas.Load()), span{from, from + uintptr(len(a.Memory))})
		slices.SortFunc(s, func(a, b span) int {
			if a.from < b.from {
				return -1
			}
			return 1
		})
		d.arenas.Store(&s)
		return nil
	}, func(a *bufpool.Arena) {
		d.mu.Lock()
		defer d.mu.Unlock()
		from := uintptr(unsafe.Pointer(unsafe.SliceData(a.Memory)))
		s := slices.DeleteFunc(slices.Clone(*d.arenas.Load()), func(s span) bool { return s.from == from })
		d.arenas.Store(&s)
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.detach = append(d.detach, detach)
	}
	d.mu.Unlock()
	if closed { // meanwhile
		detach() // without our lock: a pool calls us under its own
		return errClosedDomain
	}
	return nil
}

// Close fails while endpoints of the domain are open.
func (d *domain) Close() error {
	d.mu.Lock()
	if d.endpoints > 0 {
		defer d.mu.Unlock()
		return fmt.Errorf("rdma fabric: the domain is in use by %d endpoints, which must be closed before", d.endpoints)
	}
	d.closed = true
	detach := d.detach
	d.detach = nil
	d.mu.Unlock()
	for _, f := range detach { // without our lock: a pool calls us under its own
		f()
	}
	return nil
}

func (d *domain) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

func (d *domain) acquire() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosedDomain
	}
	d.endpoints++
	return nil
}

func (d *domain) release() {
	d.mu.Lock()
	d.endpoints--
	d.mu.Unlock()
}

// check returns the reason why b cannot be local memory. An empty slice always can.
func (d *domain) check(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	to := from + uintptr(len(b))
	for _, s := range *d.arenas.Load() {
		if from < s.from {
			break
		}
		if from < s.to {
			if to > s.to {
				return fmt.Errorf("a slice of %d bytes ends %d bytes past the end of an arena", len(b), to-s.to)
			}
			return nil
		}
	}
	return fmt.Errorf("a slice of %d bytes lies in no arena that is attached to the endpoint's domain", len(b))
}

// checkList checks a list of local memory and returns its length in bytes.
func (d *domain) checkList(what string, list [][]byte, limit int) (n int, err error) {
	if len(list) > limit {
		return 0, fmt.Errorf("rdma fabric: %s has %d segments, at most %d are possible", what, len(list), limit)
	}
	for i, b := range list {
		if err := d.check(b); err != nil {
			return 0, fmt.Errorf("rdma fabric: %s, segment %d: %w", what, i, err)
		}
		n += len(b)
	}
	if n >= 1<<32 {
		return 0, fmt.Errorf("rdma fabric: %s has %d bytes, a message has less than 2^32", what, n)
	}
	return n, nil
}
