package rpcrdma

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// wish is a credit.Policy with a grant set by the test.
type wish struct{ n atomic.Int32 }

func (p *wish) Open() credit.Account { return p }
func (p *wish) Credits(int, int) int { return int(p.n.Load()) }
func (p *wish) Max() int             { return 128 }
func (p *wish) Close()               {}

// TestCreditsUnderLoad changes the grant while calls are under way in both kinds of handlers. The
// fabric ends the connection when a message finds no receive.
func TestCreditsUnderLoad(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%v", async), func(t *testing.T) {
			p := new(wish)
			p.n.Store(64)
			w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Credits = p })
			w.handler.async = async
			c := w.dial(nil)
			var wg sync.WaitGroup
			var stop atomic.Bool
			for range 32 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for !stop.Load() {
						if err := null(c, w.cpool, procNull); err != nil {
							t.Error(err)
							return
						}
					}
				}()
			}
			for _, n := range []int32{1, 64, 0, 2, 128, 7, -5, 1, 33} {
				p.n.Store(n)
				time.Sleep(10 * time.Millisecond)
			}
			stop.Store(true)
			wg.Wait()
			for range 200 { // each answer may give back one receive
				if err := null(c, w.cpool, procNull); err != nil {
					t.Fatal(err)
				}
			}
			w.waitIdle()
			if g := c.Negotiated().Granted; g != 33 {
				t.Errorf("%d credits granted, want 33", g)
			}
			w.close(c)
		})
	}
}

// TestCreditNeverZero looks at the grants themselves.
func TestCreditNeverZero(t *testing.T) {
	p := new(wish)
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Credits = p })
	raw := w.rawDial(rawPrivate(4096))
	for i, c := range []struct {
		asked  int
		policy int32
		want   wire.Credits
	}{{1, 0, 1}, {0, 0, 1}, {128, -7, 1}, {128, 64, 64}, {128, 1000000, 128}, {8, 64, 8}, {0, 64, 1}, {-1, 64, 64}, {32, 5, 5}} {
		p.n.Store(c.policy)
		raw.send(append(words(i, 1, c.asked, 0, 0, 0, 0), rpcCall(i, procNull)...))
		if h, _ := raw.parse(raw.get().b); h.Credits != c.want {
			t.Errorf("asked for %d, policy %d: granted %d, want %d", c.asked, c.policy, h.Credits, c.want)
		}
		raw.send(head(1, 5, 0, 0, 0)) // an error grants too
		if h, _ := raw.parse(raw.get().b); h.Credits == 0 {
			t.Error("an error grants 0 credits")
		}
	}
	raw.close()
	w.close()
}

// TestRequesterCredits holds the requester to the smaller of its request and the grant.
func TestRequesterCredits(t *testing.T) {
	c, p, w := newRequesterEnv(t, rawPrivate(4096), func(cfg *Config) { cfg.Credits = credit.Static(10) }, nil)
	var rs []*oncrpc.Request
	var done []chan struct{}
	add := func(n int) {
		for range n {
			r, _, err := oncrpc.NewRequest(w.cpool, testProgram, testVersion, procNull, oncrpc.Auth{}, 64)
			if err != nil {
				t.Fatal(err)
			}
			r.Plan.MaxReply = 32
			if err := r.Seal(); err != nil {
				t.Fatal(err)
			}
			rs, done = append(rs, r), append(done, submit(c, r))
		}
	}
	var pending []*wire.Header
	take := func(n int) { // exactly n calls come
		t.Helper()
		for range n {
			h, _ := p.parse(p.get().b)
			if h.Credits != 10 {
				t.Errorf("%d credits asked for", h.Credits)
			}
			pending = append(pending, h)
		}
		p.none()
	}
	answer := func(credits int) {
		h := pending[0]
		pending = pending[1:]
		p.send(append(words(uint32(h.XID), 1, credits, 0, 0, 0, 0), words(uint32(h.XID), 1, 0, 0, 0, 0)...))
	}
	add(40)
	take(1)
	answer(4)
	take(4)
	answer(20) // 10 were requested
	take(7)
	answer(3)
	answer(3)
	answer(3)
	if pending = pending[:7]; true { // 7 are out, 3 allowed
		p.none()
	}
	for range 4 {
		answer(3)
		p.none()
	}
	for sent := 1 + 4 + 7; len(pending) > 0; sent++ {
		answer(3)
		if sent < len(rs) {
			take(1)
		}
	}
	for i := range done {
		<-done[i]
		if rs[i].Err != nil {
			t.Error(rs[i].Err)
		}
		rs[i].Free()
	}
	p.close()
	w.close(c)
}

// TestBudget lets calls wait for bulk memory: first come, first served, and calls without need pass
// them.
func TestBudget(t *testing.T) {
	budget := bufpool.NewBudget(200<<10, 100<<10)
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Budget = budget })
	w.budget = budget
	w.handler.async = true
	a, b := w.dial(nil), w.dial(nil)
	for _, c := range []*Client{a, b} {
		if err := null(c, w.cpool, procNull); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 40 {
		for _, c := range []*Client{a, b} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				m := move{args: []int{60000}, results: []int{30000 + i}}
				if i%4 == 0 {
					m = move{args: []int{5}}
				}
				if err := m.do(c, w.cpool); err != nil {
					t.Error(err)
				}
			}()
		}
	}
	wg.Wait()
	w.close(a, b)
}

// TestBudgetWaiters ends the connection while calls wait for memory that another connection holds.
func TestBudgetWaiters(t *testing.T) {
	budget := bufpool.NewBudget(100<<10, 100<<10)
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Budget = budget })
	w.budget = budget
	var g bufpool.Grant
	if ok, err := budget.Share(netip.Addr{}, nil).Acquire(&g, 90<<10, func() {}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	c := w.dial(nil)
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := (&move{args: []int{60000}}).do(c, w.cpool); err == nil {
				t.Error("a call succeeded that waits for memory")
			}
		}()
	}
	eventually(t, "10 calls wait", func() bool { return budget.Waiting() == 10 })
	if err := null(c, w.cpool, procNull); err != nil {
		t.Errorf("a call without need: %v", err)
	}
	if s := w.pool.Stats(); s.InUse > 1<<20 {
		t.Errorf("waiting calls hold %d bytes", s.InUse)
	}
	c.Close()
	wg.Wait()
	<-c.Done()
	g.Release()
	w.close()
}

// TestRoundTrips counts a client's waits, in virtual time (DESIGN section 6).
func TestRoundTrips(t *testing.T) {
	for _, c := range []struct {
		name string
		m    move
		want float64
	}{
		{"inline", move{args: []int{100}, results: []int{100}}, 1},
		{"read 64 KiB", move{results: []int{65536}}, 1},
		{"write 64 KiB", move{args: []int{65536}}, 2},
		{"both", move{args: []int{65536}, results: []int{65536}}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEnv(t, rdmatest.Options{Delay: time.Millisecond}, nil)
				cl := w.dial(nil)
				call := func(m move) {
					t.Helper()
					if err := m.do(cl, w.cpool); err != nil {
						t.Error(err)
					}
				}
				call(move{})
				start := time.Now()
				call(c.m)
				if n := w.fabric.RoundTrips(start); n != c.want {
					t.Errorf("%v round trips, want %v", n, c.want)
				}
				w.close(cl)
			})
		})
	}
}
