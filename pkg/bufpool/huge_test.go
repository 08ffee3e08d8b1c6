package bufpool

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fill gets a buffer of n bytes and writes all of it.
func fill(t *testing.T, p *Pool, n int) *Buf {
	t.Helper()
	b, err := p.Get(n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.B {
		b.B[i] = byte(i)
	}
	return b
}

// TestHugeRefused: without huge pages the pool uses ordinary memory, and calls refused.
func TestHugeRefused(t *testing.T) {
	p := New(0)
	var refused []error
	p.UseHugePages(func(err error) { refused = append(refused, err) })
	p.mapHuge = func(int) ([]byte, error) { return nil, unix.ENOMEM }
	bufs := []*Buf{fill(t, p, 256), fill(t, p, 4096), fill(t, p, 1<<20)}
	// the smallest buffers' arena uses ordinary memory
	if len(refused) != 2 || !errors.Is(refused[0], unix.ENOMEM) {
		t.Errorf("refused: %v", refused)
	}
	if s := p.Stats(); s.Huge != 0 || s.Refusals != 2 || s.Mapped != 64<<10+1<<20+8<<20 {
		t.Errorf("%+v", s)
	}
	for _, b := range bufs {
		b.Release()
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestHugeLimit: an arena uses ordinary memory if huge pages would exceed the pool's limit.
func TestHugeLimit(t *testing.T) {
	p := New(3 << 20)
	p.UseHugePages(func(err error) { t.Error(err) })
	var sizes []int
	p.mapHuge = func(n int) ([]byte, error) {
		sizes = append(sizes, n)
		return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	}
	bufs := []*Buf{fill(t, p, 4096), fill(t, p, 1<<20)}
	for range hugePage/4096 - 1 { // all of an arena
		bufs = append(bufs, fill(t, p, 4096))
	}
	if s := p.Stats(); len(sizes) != 1 || sizes[0] != hugePage || s.Huge != hugePage || s.Mapped != 3<<20 {
		t.Errorf("huge pages for %v bytes; %+v", sizes, s)
	}
	for _, b := range bufs {
		b.Release()
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Huge != 0 {
		t.Errorf("closed: %+v", s)
	}
}

// TestHugePages uses the machine's huge pages.
func TestHugePages(t *testing.T) {
	free, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err != nil || strings.TrimSpace(string(free)) == "0" {
		// CI's machine has none either. The guest of "make test-verbs" has, where a skip is a
		// failure.
		t.Skip("NOT RUN: the machine has no free huge pages: echo 8 >/proc/sys/vm/nr_hugepages")
	}
	p := New(0)
	var refused error
	p.UseHugePages(func(err error) { refused = err })
	var bufs []*Buf
	for refused == nil && len(bufs) < 4096 {
		bufs = append(bufs, fill(t, p, 1<<20))
	}
	if s := p.Stats(); s.Huge == 0 || refused != nil && !errors.Is(refused, unix.ENOMEM) {
		t.Errorf("%+v, refused: %v", s, refused)
	}
	t.Logf("%+v, refused: %v", p.Stats(), refused)
	for _, b := range bufs {
		b.Release()
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
