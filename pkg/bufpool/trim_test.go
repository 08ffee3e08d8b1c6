package bufpool

import (
	"slices"
	"testing"
	"unsafe"
)

// TestTrim: a burst's memory returns to the system at the second Trim after it, unless it is in
// use.
func TestTrim(t *testing.T) {
	p := New(0)
	attached := map[uintptr]bool{}
	address := func(a *Arena) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(a.Memory))) }
	detach, err := p.Attach(func(a *Arena) error { attached[address(a)] = true; return nil },
		func(a *Arena) { delete(attached, address(a)) })
	if err != nil {
		t.Fatal(err)
	}
	defer detach()

	kept, err := p.Get(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	kept.B[0] = 1
	one := p.Stats().Mapped
	burst := func() {
		var bufs []*Buf
		for range 100 {
			b, err := p.Get(1 << 20)
			if err != nil {
				t.Fatal(err)
			}
			b.B[0] = 2
			bufs = append(bufs, b)
		}
		for _, b := range slices.Backward(bufs) {
			b.Release()
		}
	}
	trim := func() Stats {
		if err := p.Trim(); err != nil {
			t.Fatal(err)
		}
		s := p.Stats()
		if len(attached) != len(p.arenas) {
			t.Errorf("%d arenas are attached, the pool has %d", len(attached), len(p.arenas))
		}
		return s
	}

	burst()
	full := p.Stats().Mapped
	if s := trim(); s.Mapped != full {
		t.Errorf("the first Trim after a burst left %d bytes of %d", s.Mapped, full)
	}
	if s := trim(); s.Mapped != one {
		t.Errorf("the second Trim after a burst left %d bytes mapped, want %d", s.Mapped, one)
	}
	if kept.B[0] != 1 {
		t.Error("a buffer in use was given back")
	}
	burst()
	if s := p.Stats(); s.Mapped != full {
		t.Errorf("the next burst has %d bytes mapped, want %d", s.Mapped, full)
	}
	// A steady load of one buffer keeps one arena of its class.
	for range 3 {
		b, err := p.Get(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		trim()
	}
	if s, want := p.Stats().Mapped, one+arenaSize; s != want {
		t.Errorf("with one buffer in use now and then %d bytes are mapped, want %d", s, want)
	}
	kept.Release()
	trim()
	if s := trim(); s.Mapped != 0 {
		t.Errorf("an unused pool has %d bytes mapped after two Trims", s.Mapped)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Trim(); err != nil {
		t.Errorf("Trim of a closed pool: %v", err)
	}
}
