package bufpool

import (
	"net/netip"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestCeiling(t *testing.T) {
	var log []string
	c := NewCeiling(100)
	one, two, three := NewBudget(90, 0), NewBudget(90, 0), NewBudget(0, 0)
	var shares []*Share
	for _, b := range []*Budget{one, two, three} {
		b.Under(c)
		shares = append(shares, b.Share(netip.Addr{}, nil))
	}
	needs := map[string]*need{}
	acquire := func(s *Share, name string, n int64, want bool) {
		t.Helper()
		needs[name] = &need{name: name, log: &log}
		if got, err := s.Acquire(&needs[name].g, n, needs[name].ready); err != nil || got != want {
			t.Fatalf("Acquire(%s, %d) = %v, %v; want %v", name, n, got, err, want)
		}
	}
	expect := func(used int64, names ...string) {
		t.Helper()
		if !slices.Equal(log, names) || c.Used() != used {
			t.Fatalf("called %v, want %v; used %d, want %d", log, names, c.Used(), used)
		}
		log = nil
	}
	acquire(shares[0], "a", 80, true)
	acquire(shares[0], "b", 20, false) // above its own budget
	acquire(shares[1], "c", 30, false) // above the ceiling
	acquire(shares[2], "d", 10, false) // must not overtake c
	acquire(shares[1], "e", 5, false)
	expect(80)
	needs["c"].g.Release() // withdrawn: the next ones continue
	expect(95, "e", "d")
	acquire(shares[2], "f", 200, false) // above the total: met when nothing else is held
	needs["e"].g.Release()
	expect(90)
	needs["a"].g.Release()
	expect(10)
	needs["d"].g.Release()
	expect(200, "f")
	needs["b"].g.Release()
	acquire(shares[0], "g", 1, false)
	acquire(shares[1], "h", 1, false)
	if !needs["g"].g.Cancel() {
		t.Fatal("g does not wait")
	}
	expect(200)
	c.SetTotal(201)
	expect(201, "h")
	needs["f"].g.Release()
	needs["h"].g.Release()
	expect(0)
	if c.first != nil || c.last != nil {
		t.Error("somebody waits for ever")
	}
}

// TestCeilingModel: the ceiling counts its budgets' bytes, keeps its limit, and serves every waiter
// in the end.
func TestCeilingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 40).Draw(t, "total")
		c := NewCeiling(total)
		var budgets [3]*Budget
		var shares [6]*Share
		for i := range budgets {
			budgets[i] = NewBudget(rapid.Int64Range(10, 40).Draw(t, "budget"), rapid.Int64Range(1, 40).Draw(t, "share"))
			budgets[i].Under(c)
			shares[2*i], shares[2*i+1] = budgets[i].Share(netip.Addr{}, nil), budgets[i].Share(netip.Addr{}, nil)
		}
		var grants []*Grant
		held := func() (held []*Grant, bytes int64) {
			for _, g := range grants {
				if g.state.Load() == grantHeld {
					held, bytes = append(held, g), bytes+g.n
				}
			}
			return held, bytes
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				g := &Grant{}
				if _, err := rapid.SampledFrom(shares[:]).Draw(t, "share").Acquire(g, rapid.Int64Range(0, 10).Draw(t, "n"), func() {}); err != nil {
					t.Fatal(err)
				}
				grants = append(grants, g)
			},
			"release": func(t *rapid.T) {
				if len(grants) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(grants)-1).Draw(t, "i")
				grants[i].Release()
				grants = slices.Delete(grants, i, i+1)
			},
			"total": func(t *rapid.T) {
				total = rapid.Int64Range(1, 40).Draw(t, "total")
				c.SetTotal(total)
			},
			"": func(t *rapid.T) {
				hs, bytes := held()
				if c.Used() != bytes {
					t.Fatalf("used %d, want %d", c.Used(), bytes)
				}
				if len(hs) == 0 && len(grants) > 0 {
					t.Fatal("everybody waits, and nobody holds anything")
				}
			},
		})
		for len(grants) > 0 {
			hs, _ := held()
			if len(hs) == 0 {
				t.Fatalf("%d wait, and nobody holds anything", len(grants))
			}
			hs[0].Release()
			grants = slices.Delete(grants, slices.Index(grants, hs[0]), slices.Index(grants, hs[0])+1)
		}
		if c.Used() != 0 || c.first != nil || c.last != nil {
			t.Fatalf("%d bytes are used after all", c.Used())
		}
	})
}

// TestCeilingConcurrent: with goroutines of several budgets no byte is lost and the limit is kept.
func TestCeilingConcurrent(t *testing.T) {
	c := NewCeiling(64)
	var wg sync.WaitGroup
	for range 4 {
		b := NewBudget(48, 24)
		b.Under(c)
		for i := range 4 {
			s := b.Share(netip.Addr{}, nil)
			wg.Go(func() {
				var g Grant
				got := make(chan struct{}, 1)
				ready := func() { got <- struct{}{} }
				for k := range 500 {
					ok, err := s.Acquire(&g, int64((k*7+i)%24), ready)
					if err != nil {
						t.Error(err)
						return
					}
					if !ok && (k%5 != 0 || !g.Cancel()) {
						<-got
					}
					if u := c.Used(); u > 64 {
						t.Errorf("%d bytes used", u)
					}
					g.Release()
				}
			})
		}
	}
	wg.Wait()
	if c.Used() != 0 || c.first != nil {
		t.Errorf("used %d after all", c.Used())
	}
}

func TestCeilingAllocs(t *testing.T) {
	c := NewCeiling(10)
	b := NewBudget(0, 0)
	b.Under(c)
	s := b.Share(netip.Addr{}, nil)
	var one, two Grant
	called := 0
	ready := func() { called++ }
	if n := testing.AllocsPerRun(100, func() {
		_, _ = s.Acquire(&one, 8, ready)
		_, _ = s.Acquire(&two, 8, ready)
		one.Release()
		two.Release()
	}); n != 0 || called == 0 {
		t.Errorf("%v allocations, %d waited", n, called)
	}
}
