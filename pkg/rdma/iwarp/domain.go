package iwarp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"sluice.dev/sluice/pkg/bufpool"
)

// domain knows the arenas in which local memory must lie. The CPU reaches all memory without
// registration; the check finds users that would fail on hardware.
type domain struct {
	mu        sync.Mutex
	detach    []func()
	endpoints int
	closed    bool

	// sorted and disjoint; replaced as a whole, so that Post reads it without a lock
	arenas atomic.Pointer[[]span]
}

// span is an address range [from, to).
type span struct{ from, to uintptr }

func spanOf(b []byte) span {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return span{from, from + uintptr(len(b))}
}

var errDomainClosed = errors.New("iwarp: the domain is closed")

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
		d.add(spanOf(a.Memory))
		return nil
	}, d.undo)
	if err != nil {
		return fmt.Errorf("iwarp: %w", err)
	}
	d.mu.Lock()
	d.detach = append(d.detach, detach)
	d.mu.Unlock()
	return nil
}

// add inserts an arena. Neighbours become one span, since the kernel often maps arenas side by
// side.
func (d *domain) add(s span) {
	var all []span
	if old := d.arenas.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, s)
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	merged := all[:1]
	for _, s := range all[1:] {
		if last := &merged[len(merged)-1]; s.from <= last.to {
			last.to = max(last.to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	d.arenas.Store(&merged)
}

// undo removes an arena before its memory is unmapped.
func (d *domain) undo(a *bufpool.Arena) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.arenas.Load()
	if old == nil {
		return
	}
	gone := spanOf(a.Memory)
	var rest []span
	for _, s := range *old {
		if s.to <= gone.from || gone.to <= s.from {
			rest = append(rest, s)
			continue
		}
		if s.from < gone.from {
			rest = append(rest, span{s.from, gone.from})
		}
		if gone.to < s.to {
			rest = append(rest, span{gone.to, s.to})
		}
	}
	d.arenas.Store(&rest)
}

// Close implements [rdma.Domain].
func (d *domain) Close() error {
	d.mu.Lock()
	if d.endpoints > 0 {
		defer d.mu.Unlock()
		return fmt.Errorf("iwarp: the domain has %d endpoints, which have to be closed before", d.endpoints)
	}
	d.closed = true
	detach := d.detach
	d.detach = nil
	d.mu.Unlock()
	for _, f := range detach { // without the lock: the pool calls us under its own
		f()
	}
	return nil
}

// join and leave count the endpoints.
func (d *domain) join() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errDomainClosed
	}
	d.endpoints++
	return nil
}

func (d *domain) leave() {
	d.mu.Lock()
	d.endpoints--
	d.mu.Unlock()
}

// check validates local memory, and returns its length in bytes.
func (d *domain) check(list [][]byte) (n uint64, err error) {
	if len(list) > maxSegments {
		return 0, fmt.Errorf("%d segments, at most %d are possible", len(list), maxSegments)
	}
	for i, b := range list {
		if len(b) == 0 {
			continue
		}
		n += uint64(len(b))
		if !d.holds(spanOf(b)) {
			return 0, fmt.Errorf("segment %d of %d bytes lies in no arena that is attached to the domain", i, len(b))
		}
	}
	return n, nil
}

// holds reports whether s lies in an arena.
func (d *domain) holds(s span) bool {
	p := d.arenas.Load()
	if p == nil {
		return false
	}
	arenas := *p
	lo, hi := 0, len(arenas)
	for lo < hi { // the last arena that begins at or before s
		if mid := (lo + hi) / 2; arenas[mid].from <= s.from {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo > 0 && s.to <= arenas[lo-1].to
}
