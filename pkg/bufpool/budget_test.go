package bufpool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// need is a call's grant, and its position in the order of calls.
type need struct {
	g    Grant
	name string
	log  *[]string
}

func (n *need) ready() { *n.log = append(*n.log, n.name) }

func TestBudget(t *testing.T) {
	var log []string
	b := NewBudget(100, 60)
	one, two, three := b.Share(netip.Addr{}, nil), b.Share(netip.Addr{}, nil), b.Share(netip.Addr{}, nil)
	needs := map[string]*need{}
	acquire := func(s *Share, name string, n int64, want bool) {
		t.Helper()
		needs[name] = &need{name: name, log: &log}
		got, err := s.Acquire(&needs[name].g, n, needs[name].ready)
		if err != nil || got != want {
			t.Fatalf("Acquire(%s, %d) = %v, %v; want %v", name, n, got, err, want)
		}
	}
	expect := func(names ...string) {
		t.Helper()
		if !slices.Equal(log, names) {
			t.Fatalf("called: %v, want %v", log, names)
		}
		log = nil
	}
	state := func(used int64, waiting int) {
		t.Helper()
		if b.Used() != used || b.Waiting() != waiting {
			t.Fatalf("used %d, waiting %d; want %d, %d", b.Used(), b.Waiting(), used, waiting)
		}
	}

	acquire(one, "a", 50, true)
	acquire(one, "b", 20, false) // its share is used up
	acquire(one, "c", 1, false)  // behind b
	acquire(two, "d", 30, true)  // not held up by b
	acquire(three, "e", 40, false)
	acquire(two, "f", 1, false) // behind e, which waits for the total
	state(80, 4)
	expect()
	needs["d"].g.Release() // 50 used: now e fits, then f; b and c are still held up by a
	expect("e", "f")
	state(91, 2)
	needs["a"].g.Release()
	expect("b", "c")
	state(62, 0)
	for _, n := range needs {
		n.g.Release()
		n.g.Release()
	}
	state(0, 0)

	var large Grant
	// more than a share, but nothing else is held
	if ok, err := one.Acquire(&large, 61, nil); !ok || err != nil {
		t.Errorf("above the share: %v, %v", ok, err)
	}
	large.Release()
	if _, err := one.Acquire(&Grant{}, 101, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("above the total: %v", err)
	}
	if _, err := one.Acquire(&Grant{}, -1, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("negative: %v", err)
	}
	new(Grant).Release()
	if new(Grant).Cancel() {
		t.Error("an idle grant was cancelled")
	}
}

func TestBudgetCancel(t *testing.T) {
	var log []string
	b := NewBudget(10, 0)
	s := b.Share(netip.Addr{}, nil)
	held, large, small := &need{name: "held", log: &log}, &need{name: "large", log: &log}, &need{name: "small", log: &log}
	_, _ = s.Acquire(&held.g, 5, held.ready)
	_, _ = s.Acquire(&large.g, 10, large.ready)
	_, _ = b.Share(netip.Addr{}, nil).Acquire(&small.g, 5, small.ready)
	if held.g.Cancel() {
		t.Error("what is held was cancelled")
	}
	if !large.g.Cancel() || large.g.Cancel() {
		t.Error("a waiting grant is cancelled once")
	}
	if !slices.Equal(log, []string{"small"}) || b.Used() != 10 || b.Waiting() != 0 {
		t.Errorf("called %v, used %d, waiting %d", log, b.Used(), b.Waiting())
	}
}

func TestBudgetSetLimits(t *testing.T) {
	var log []string
	b := NewBudget(10, 10)
	s := b.Share(netip.Addr{}, nil)
	held, waits := &need{name: "held", log: &log}, &need{name: "waits", log: &log}
	_, _ = s.Acquire(&held.g, 10, held.ready)
	_, _ = s.Acquire(&waits.g, 8, waits.ready)
	b.SetLimits(Limits{Total: 4, PerShare: 4})
	if len(log) != 0 {
		t.Fatalf("granted above the limit: %v", log)
	}
	held.g.Release()
	if !slices.Equal(log, []string{"waits"}) {
		t.Fatal("what was let in before the limit shrank must be granted when nothing else is held")
	}
	if ok, err := s.Acquire(&held.g, 4, held.ready); ok || err != nil {
		t.Fatalf("Acquire = %v, %v", ok, err)
	}
	b.SetLimits(Limits{})
	if b.Used() != 12 || len(log) != 2 {
		t.Errorf("used %d, called %v", b.Used(), log)
	}
}

// TestBudgetModel compares the budget with a slow model over one list.
func TestBudgetModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var total, perShare, perClient int64
		b := NewBudget(0, 0)
		limits := func() Limits {
			limit := rapid.Int64Range(1, 40)
			total, perShare, perClient = limit.Draw(t, "total"), limit.Draw(t, "perShare"), limit.Draw(t, "perClient")
			return Limits{Total: total, PerShare: perShare, PerClient: perClient}
		}
		b.SetLimits(limits())
		type entry struct {
			n     *need
			share int
			size  int64
		}
		var shares [6]*Share // two of each client
		for i := range shares {
			shares[i] = b.Share(netip.AddrFrom4([4]byte{byte(i / 2)}), nil)
		}
		var used int64
		var shareUsed [len(shares)]int64
		var held, waiting []entry
		var log, wantLog []string
		take := func(e entry) {
			held = append(held, e)
			used += e.size
			shareUsed[e.share] += e.size
		}
		clientUsed := func(e entry) int64 { return shareUsed[e.share/2*2] + shareUsed[e.share/2*2+1] }
		next := func() (int, bool) { // the first waiting entry that may go
			var passed [len(shares)]bool
			var beyond [len(shares) / 2]bool // clients with a need beyond their part
			first := -1
			for i, e := range waiting {
				if passed[e.share] || shareUsed[e.share]+e.size > perShare && shareUsed[e.share] > 0 {
					passed[e.share] = true
					continue
				}
				if c := clientUsed(e); beyond[e.share/2] || c+e.size > perClient && c > 0 {
					beyond[e.share/2], passed[e.share] = true, true
					if first < 0 {
						first = i
					}
					continue
				}
				first = i
				break
			}
			return max(0, first), first >= 0 && (used+waiting[first].size <= total || used == 0)
		}
		settle := func() {
			for {
				i, ok := next()
				if !ok {
					return
				}
				e := waiting[i]
				waiting = slices.Delete(waiting, i, i+1)
				take(e)
				wantLog = append(wantLog, e.n.name)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				e := entry{&need{name: fmt.Sprint(rapid.Uint32().Draw(t, "name")), log: &log}, rapid.IntRange(0, len(shares)-1).Draw(t, "share"), rapid.Int64Range(0, 20).Draw(t, "size")}
				got, err := shares[e.share].Acquire(&e.n.g, e.size, e.n.ready)
				if tooLarge := e.size > total; tooLarge || err != nil {
					if !tooLarge || !errors.Is(err, ErrTooLarge) {
						t.Fatalf("Acquire(%d): %v", e.size, err)
					}
					return
				}
				waiting = append(waiting, e)
				i, ok := next()
				if ok = ok && i == len(waiting)-1; ok != got {
					t.Fatalf("Acquire(%d) = %v, want %v", e.size, got, ok)
				}
				if ok {
					waiting = waiting[:i]
					take(e)
				}
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "i")
				e := held[i]
				held = slices.Delete(held, i, i+1)
				used -= e.size
				shareUsed[e.share] -= e.size
				settle()
				e.n.g.Release()
			},
			"shrink": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip()
				}
				e := &held[rapid.IntRange(0, len(held)-1).Draw(t, "i")]
				n := rapid.Int64Range(0, 20).Draw(t, "n")
				over := max(0, e.size-n)
				e.size -= over
				used -= over
				shareUsed[e.share] -= over
				g := &e.n.g
				settle()
				g.Shrink(n)
			},
			"cancel": func(t *rapid.T) {
				if len(waiting) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "i")
				e := waiting[i]
				waiting = slices.Delete(waiting, i, i+1)
				settle()
				if !e.n.g.Cancel() {
					t.Fatal("Cancel returned false")
				}
			},
			"limits": func(t *rapid.T) {
				l := limits()
				settle()
				b.SetLimits(l)
			},
			"": func(t *rapid.T) {
				if !slices.Equal(log, wantLog) {
					t.Fatalf("called %v, want %v", log, wantLog)
				}
				if b.Used() != used || b.Waiting() != len(waiting) {
					t.Fatalf("used %d, waiting %d; want %d, %d", b.Used(), b.Waiting(), used, len(waiting))
				}
				listed := map[*Share]bool{}
				for s := b.holding; s != nil; s = s.nextHolding {
					listed[s] = true
				}
				for i, s := range shares {
					if s.used != shareUsed[i] || listed[s] != (s.used > 0) {
						t.Fatalf("share %d holds %d bytes, want %d; it is listed: %v", i, s.used, shareUsed[i], listed[s])
					}
				}
			},
		})
	})
}

// TestBudgetConcurrent: with many goroutines no byte is lost and no limit exceeded.
func TestBudgetConcurrent(t *testing.T) {
	b := NewBudget(64, 24)
	var wg sync.WaitGroup
	for range 8 {
		s := b.Share(netip.Addr{}, nil)
		for i := range 4 {
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
					if u := b.Used(); u > 64 {
						t.Errorf("%d bytes used", u)
					}
					g.Release()
				}
			})
		}
	}
	wg.Wait()
	if b.Used() != 0 || b.Waiting() != 0 {
		t.Errorf("used %d, waiting %d", b.Used(), b.Waiting())
	}
}

func TestBudgetAllocs(t *testing.T) {
	b := NewBudget(10, 10)
	s := b.Share(netip.Addr{}, nil)
	var a, w Grant
	called := 0
	ready := func() { called++ }
	if n := testing.AllocsPerRun(100, func() {
		_, _ = s.Acquire(&a, 6, ready)
		_, _ = s.Acquire(&w, 6, ready)
		a.Release()
		w.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if called == 0 {
		t.Error("nothing waited")
	}
}

func BenchmarkGrant(b *testing.B) {
	s := NewBudget(1<<20, 1<<20).Share(netip.Addr{}, nil)
	var g Grant
	for b.Loop() {
		_, _ = s.Acquire(&g, 1000, nil)
		g.AwaitPeer(In)
		g.PeerDone()
		g.AwaitPeer(Out)
		g.Release()
	}
}
