//go:build verbs

package verbs

import (
	"errors"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
)

// count returns the number of registered arenas: of the domain, and on each of its devices.
func (d *domain) count() (counts []int) {
	count := func(list *[]arena) {
		if list == nil {
			list = new([]arena)
		}
		counts = append(counts, len(*list))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	count(d.arenas.Load())
	for _, s := range d.spaces {
		count(s.arenas.Load())
	}
	return counts
}

// TestAttachInVain: an arena that one user cannot register is registered with none, since its
// addresses will be reused.
func TestAttachInVain(t *testing.T) {
	pool := bufpool.New(0)
	p := &provider{domains: map[*domain]struct{}{}}
	var domains []*domain
	if *address != "" { // with a device
		real, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		p = real.(*provider)
		c := connectPair(t, p, p, pool, few, false)
		defer c.end(t)
		domains = append(domains, c.domains[0].(*domain), c.domains[1].(*domain))
	}
	for range 4 {
		d, _ := p.NewDomain()
		defer d.Close()
		if err := d.Register(pool); err != nil {
			t.Fatal(err)
		}
		domains = append(domains, d.(*domain))
	}
	refused := errors.New("no more memory")
	detach, err := pool.Attach(func(a *bufpool.Arena) error {
		if len(a.Memory) > 1<<20 {
			return refused
		}
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	buf, err := pool.Get(1000)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	for range 4 { // the order is random
		if _, err := pool.Get(bufpool.MaxSize); !errors.Is(err, refused) {
			t.Fatalf("Get: %v, want %v", err, refused)
		}
	}
	for i, d := range domains {
		for _, n := range d.count() {
			if n != 1 {
				t.Errorf("domain %d has %d arenas, the pool has one: %v", i, n, d.count())
			}
		}
	}
}
