package bufpool

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestPoolClasses(t *testing.T) {
	p := New(0)
	for _, tt := range []struct{ n, class int }{
		{0, 256}, {1, 256}, {256, 256}, {257, 512}, {4096, 4096}, {4097, 8192}, {1 << 20, 1 << 20}, {MaxSize - 1, MaxSize}, {MaxSize, MaxSize},
	} {
		b, err := p.Get(tt.n)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.B) != tt.n || cap(b.B) != tt.class {
			t.Errorf("Get(%d) has length %d and capacity %d, want %d", tt.n, len(b.B), cap(b.B), tt.class)
		}
		whole := b.B[:cap(b.B)]
		whole[0], whole[len(whole)-1] = 1, 2
		if s := p.Stats(); s.Bufs != 1 || s.InUse != int64(tt.class) || s.Mapped < s.InUse {
			t.Errorf("Get(%d): %+v", tt.n, s)
		}
		b.Release()
	}
	if s := p.Stats(); s.Bufs != 0 || s.InUse != 0 {
		t.Errorf("all is released, but: %+v", s)
	}
	for _, n := range []int{-1, MaxSize + 1} {
		if _, err := p.Get(n); err == nil {
			t.Errorf("Get(%d) succeeded", n)
		}
	}
}

// TestPoolDisjoint: no two buffers share memory, and the last one freed is the next one handed out.
func TestPoolDisjoint(t *testing.T) {
	p := New(0)
	type span struct{ from, to uintptr }
	var spans []span
	var bufs []*Buf
	for i := range 2000 {
		b, err := p.Get(1 << (8 + i%6))
		if err != nil {
			t.Fatal(err)
		}
		from := uintptr(unsafe.Pointer(unsafe.SliceData(b.B)))
		spans, bufs = append(spans, span{from, from + uintptr(cap(b.B))}), append(bufs, b)
	}
	slices.SortFunc(spans, func(a, b span) int { return int(int64(a.from) - int64(b.from)) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from < spans[i-1].to {
			t.Fatalf("%x overlaps %x", spans[i], spans[i-1])
		}
	}
	last := bufs[len(bufs)-1]
	n := cap(last.B)
	for _, b := range bufs {
		b.Release()
	}
	if b, _ := p.Get(n); b != last {
		t.Error("another buffer than the last one freed was handed out")
	}
}

func TestPoolLimit(t *testing.T) {
	page := os.Getpagesize()
	for _, tt := range []struct{ limit, size, want int }{
		{page, 256, page / 256},         // less than an arena: as many as fit
		{page - 1, 256, 0},              // not even a page
		{3<<20 + 5000, 1 << 20, 3},      // the rest is used up in whole buffers
		{64 << 20, 1 << 20, 64},         // several arenas
		{10<<20 + 1<<19, 64 << 10, 168}, // a whole arena and a smaller one
		{1<<20 + 256<<10, 64 << 10, 20}, // a smaller one at once
		{4*page + page/2, page, 4},      //
		{MaxSize - page, MaxSize, 0},    //
		{2*MaxSize + page, MaxSize, 2},  //
		{64*page + 300, 300, 64 * page / 512},
	} {
		p := New(int64(tt.limit))
		var bufs []*Buf
		for {
			b, err := p.Get(tt.size)
			if err != nil {
				if !errors.Is(err, ErrExhausted) {
					t.Fatal(err)
				}
				break
			}
			bufs = append(bufs, b)
		}
		if s := p.Stats(); len(bufs) != tt.want || s.Mapped > int64(tt.limit) {
			t.Errorf("limit %d: %d buffers of %d, want %d; %d bytes mapped", tt.limit, len(bufs), tt.size, tt.want, s.Mapped)
		}
		if len(bufs) == 0 {
			continue
		}
		bufs[0].Release()
		if _, err := p.Get(tt.size); err != nil {
			t.Errorf("after a release: %v", err)
		}
	}
}

func TestPoolAttach(t *testing.T) {
	p := New(0)
	first, err := p.Get(100)
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	var seen []*Arena
	fail := error(nil)
	detach, err := p.Attach(func(a *Arena) error {
		seen = append(seen, a)
		return fail
	}, nil)
	if err != nil || len(seen) != 1 {
		t.Fatalf("%v, %d arenas seen, want 1", err, len(seen))
	}
	b, err := p.Get(1 << 20)
	if err != nil || len(seen) != 2 {
		t.Fatalf("%v, %d arenas seen, want 2", err, len(seen))
	}
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(b.B))) - uintptr(unsafe.Pointer(unsafe.SliceData(seen[1].Memory))); at >= uintptr(len(seen[1].Memory)) {
		t.Error("the buffer is not in the arena that was attached")
	}
	fail = unix.ENOMEM
	mapped := p.Stats().Mapped
	if _, err := p.Get(1 << 16); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("Get needed an arena that could not be attached: %v", err)
	}
	if _, err := p.Attach(func(*Arena) error { return unix.ENOMEM }, nil); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("Attach: %v", err)
	}
	if now := p.Stats().Mapped; now != mapped {
		t.Errorf("%d bytes mapped, %d before", now, mapped)
	}
	detach()
	n := len(seen)
	if _, err := p.Get(1 << 16); err != nil || len(seen) != n {
		t.Errorf("after detach: %v, %d arenas seen", err, len(seen)-n)
	}
}

// TestAttachInVain: if one user cannot attach an arena, all others detach it.
func TestAttachInVain(t *testing.T) {
	p := New(0)
	first, err := p.Get(100)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()
	var fail error
	var has [8]map[*Arena]bool
	attach := func(i int) (func(), error) {
		has[i] = map[*Arena]bool{}
		return p.Attach(func(a *Arena) error {
			has[i][a] = true // also on failure: a part may have been done
			if i == 0 {
				return fail
			}
			return nil
		}, func(a *Arena) {
			if !has[i][a] || len(a.Memory) == 0 {
				t.Errorf("%d: an arena of %d bytes is taken back, which was attached: %v", i, len(a.Memory), has[i][a])
			}
			delete(has[i], a)
		})
	}
	for i := range has {
		if _, err := attach(i); err != nil {
			t.Fatal(err)
		}
	}
	fail = unix.ENOMEM
	for range 4 { // the order is random
		if _, err := p.Get(1 << 20); !errors.Is(err, fail) {
			t.Fatalf("Get needed an arena that could not be attached: %v", err)
		}
	}
	for i := range has {
		if len(has[i]) != 1 {
			t.Errorf("%d has %d arenas attached, the pool has 1", i, len(has[i]))
		}
	}
	if _, err := attach(0); !errors.Is(err, fail) || len(has[0]) != 0 {
		t.Errorf("Attach: %v, and %d arenas are attached", err, len(has[0]))
	}
}

func TestOwners(t *testing.T) {
	p := New(0)
	b, err := p.Get(10)
	if err != nil {
		t.Fatal(err)
	}
	if b.Shared() {
		t.Error("a new buffer is shared")
	}
	b.Retain().Retain()
	b.Release()
	if !b.Shared() || p.Stats().Bufs != 1 {
		t.Error("two owners are left")
	}
	b.Release()
	if b.Shared() || p.Stats().Bufs != 1 {
		t.Error("one owner is left")
	}
	b.Release()
	if p.Stats().Bufs != 0 {
		t.Error("the last owner's release did not free the buffer")
	}
	defer func() {
		if recover() == nil {
			t.Error("a release too many went unnoticed")
		}
	}()
	b.Release()
}

func TestPoolConcurrent(t *testing.T) {
	p := New(0)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				b, err := p.Get(1 << (8 + (i+g)%8))
				if err != nil {
					t.Error(err)
					return
				}
				for j := range b.B[:16] {
					b.B[j] = byte(g)
				}
				for j := range b.B[:16] {
					if b.B[j] != byte(g) {
						t.Error("a buffer has two owners")
						return
					}
				}
				b.Release()
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.Bufs != 0 {
		t.Errorf("%+v", s)
	}
}

func TestPoolAllocs(t *testing.T) {
	p := New(0)
	if n := testing.AllocsPerRun(100, func() {
		b, _ := p.Get(5000)
		b.Retain()
		b.Release()
		b.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
