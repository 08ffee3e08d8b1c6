// Package bufpool holds the memory for bulk data: receives, RPC messages under construction, the
// data of READs and WRITEs.
//
// The memory is mmap'ed in large arenas, outside the Go heap: the garbage collector neither scans
// nor moves it, and an RDMA provider can register each arena once ([Pool.Attach]). Arenas are cut
// into buffers of power-of-two classes. The last buffer freed is the next one handed out, since it
// is still in the cache.
//
// A buffer has one owner at a time, who releases it or hands it over. A buffer that holds several
// messages has an owner for each ([Buf.Retain]), and is free after the last release.
package bufpool

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	minClass  = 8  // 256 bytes
	maxClass  = 22 // 4 MiB
	arenaSize = 8 << 20

	// MaxSize is the largest buffer that a pool hands out, in bytes.
	MaxSize = 1 << maxClass
)

// ErrExhausted is returned when the pool's limit does not allow another buffer.
var ErrExhausted = errors.New("bufpool: memory limit reached")

// Pool hands out buffers. Its methods may be called concurrently.
type Pool struct {
	limit int64

	mu       sync.Mutex
	mapped   int64
	arenas   []*Arena
	attached map[*attachment]struct{}
	closed   bool
	// Of huge pages: the callback, nil without huge pages; the mapping function; bytes; failures.
	refused  func(error)
	mapHuge  func(size int) ([]byte, error)
	huge     int64
	refusals int64
	classes  [maxClass + 1]class
}

// Arena is one mapping of memory, cut into buffers of one class. It lives until its pool is closed,
// or [Pool.Trim] finds it unused.
type Arena struct {
	Memory []byte

	class int
	huge  int64 // bytes of it in huge pages
	// Guarded by the class's lock.
	inUse int  // buffers handed out
	used  bool // used since the last Trim
}

type class struct {
	mu    sync.Mutex
	free  *Buf
	inUse int64
}

type attachment struct {
	attach func(*Arena) error
	undo   func(*Arena)
}

// Buf is a buffer of a pool.
type Buf struct {
	// B is the buffer's memory of the requested length; its capacity is the class's size. It holds
	// old data: never send bytes that you did not write.
	B     []byte
	pool  *Pool
	arena *Arena
	next  *Buf
	class uint8
	refs  atomic.Int32 // owners
}

// New makes a pool that maps at most limit bytes; 0 means no limit.
func New(limit int64) *Pool {
	return &Pool{limit: limit, mapHuge: mapHuge, attached: map[*attachment]struct{}{}}
}

// Attach calls attach for every arena of the pool: now for the present ones, later for each new one
// before its first buffer is handed out. If attach fails, so does Attach, or the Get that needed
// the arena. detach ends it.
//
// undo, unless nil, is then called for each of these arenas; for a new arena also if another user's
// attach failed, and for each arena that [Pool.Trim] is about to unmap. Later arenas may have the
// same addresses.
func (p *Pool) Attach(attach func(*Arena) error, undo func(*Arena)) (detach func(), err error) {
	if undo == nil {
		undo = func(*Arena) {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, a := range p.arenas {
		if err := attach(a); err != nil {
			for _, seen := range p.arenas[:i+1] {
				undo(seen)
			}
			return nil, fmt.Errorf("attach arena: %w", err)
		}
	}
	at := &attachment{attach, undo}
	p.attached[at] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.attached, at)
	}, nil
}

// Get returns a buffer with len(B) == n, 0 <= n <= MaxSize.
func (p *Pool) Get(n int) (*Buf, error) {
	if n < 0 || n > MaxSize {
		return nil, fmt.Errorf("bufpool: buffer of %d bytes requested, must be at most %d", n, MaxSize)
	}
	k := max(minClass, bits.Len(uint(max(n, 1)-1)))
	c := &p.classes[k]
	c.mu.Lock()
	if c.free == nil {
		c.mu.Unlock()
		if err := p.grow(k); err != nil {
			return nil, err
		}
		c.mu.Lock()
		if c.free == nil { // others took all new buffers
			c.mu.Unlock()
			return p.Get(n)
		}
	}
	b := c.free
	c.free, b.next = b.next, nil
	c.inUse++
	b.arena.inUse++
	b.arena.used = true
	c.mu.Unlock()
	b.refs.Store(1)
	b.B = b.B[:n]
	return b, nil
}

// grow maps an arena and cuts it into buffers of class k.
func (p *Pool) grow(k int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.classes[k]
	c.mu.Lock()
	ready := c.free != nil
	c.mu.Unlock()
	if ready {
		return nil
	}
	if p.closed {
		return ErrClosed
	}
	unit := max(1<<k, unix.Getpagesize())
	size := max(unit, min(arenaSize, 256<<k)) // a first small buffer does not take 8 MiB
	if p.limit > 0 && p.mapped+int64(size) > p.limit {
		// The last arena takes all that is left: many small ones would cost a provider a
		// registration each.
		size = int(p.limit-p.mapped) / unit * unit
		if size <= 0 {
			return fmt.Errorf("%w: %d of %d bytes are mapped, a buffer of %d more is needed", ErrExhausted, p.mapped, p.limit, 1<<k)
		}
	}
	huge := p.huge
	mem, err := p.mmapLocked(size)
	if err != nil {
		return err
	}
	a := &Arena{Memory: mem, class: k, huge: p.huge - huge}
	var seen []*attachment
	for at := range p.attached {
		seen = append(seen, at)
		if err := at.attach(a); err != nil {
			for _, at := range seen {
				at.undo(a)
			}
			_ = unix.Munmap(mem)
			p.huge = huge
			return fmt.Errorf("attach arena: %w", err)
		}
	}
	p.arenas = append(p.arenas, a)
	p.mapped += int64(len(mem))
	bufs := make([]Buf, len(mem)>>k)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(bufs) - 1; i >= 0; i-- {
		b := &bufs[i]
		b.B, b.pool, b.arena, b.class, b.next = mem[i<<k:i<<k:(i+1)<<k], p, a, uint8(k), c.free
		c.free = b
	}
	return nil
}

// Retain adds an owner, who releases the buffer too. From then on B must not change.
func (b *Buf) Retain() *Buf {
	b.refs.Add(1)
	return b
}

// Shared reports whether the buffer has more than one owner. False is reliable for the only owner.
func (b *Buf) Shared() bool { return b.refs.Load() > 1 }

// Release ends one owner's use; the last one frees the buffer. One release too many panics, since
// another owner may have the buffer by then.
func (b *Buf) Release() {
	if n := b.refs.Add(-1); n > 0 {
		return
	} else if n < 0 {
		panic("bufpool: buffer released twice")
	}
	c := &b.pool.classes[b.class]
	c.mu.Lock()
	b.next, c.free = c.free, b
	c.inUse--
	b.arena.inUse--
	c.mu.Unlock()
}

// Stats are a pool's figures.
type Stats struct {
	Mapped int64 // bytes of all arenas
	Huge   int64 // of these, bytes in huge pages
	InUse  int64 // bytes of the buffers in use, by the size of their class
	Bufs   int64 // buffers in use
	// Refusals counts the arenas that got no huge pages.
	Refusals int64
}

// Stats returns the present figures.
func (p *Pool) Stats() (s Stats) {
	p.mu.Lock()
	s.Mapped, s.Huge, s.Refusals = p.mapped, p.huge, p.refusals
	p.mu.Unlock()
	for k := range p.classes {
		c := &p.classes[k]
		c.mu.Lock()
		s.Bufs += c.inUse
		s.InUse += c.inUse << k
		c.mu.Unlock()
	}
	return s
}
