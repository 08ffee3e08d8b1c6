package bufpool

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// testPeer is a Peer whose bytes the test moves.
type testPeer struct {
	in, out atomic.Int64
	ended   atomic.Pointer[error]
	onEnd   func()
}

func (p *testPeer) Progress() (in, out int64) { return p.in.Load(), p.out.Load() }
func (p *testPeer) Stalled(err error) {
	if p.ended.CompareAndSwap(nil, &err) && p.onEnd != nil {
		p.onEnd()
	}
}

func host(i byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, i}) }

// TestNoProgress has a connection that holds all memory, with and without waiters.
func TestNoProgress(t *testing.T) {
	const total, rate = 1 << 20, 64 << 10
	every := func(d time.Duration, f func()) func() {
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-time.After(d):
					f()
				case <-stop:
					return
				}
			}
		}()
		return func() { close(stop) }
	}
	for name, tt := range map[string]struct {
		lane     Lane // 0: the call waits for the backend
		move     func(p *testPeer, s *Share, g *Grant) (stop func())
		nobody   bool // waits
		tolerate bool // minProgress is 0
		ends     bool
	}{
		"unanswered Reads":  {lane: In, ends: true},
		"a reply not taken": {lane: Out, ends: true},
		"a slow backend":    {},
		"nobody waits":      {lane: In, nobody: true},
		"without the limit": {lane: In, tolerate: true},
		"the wrong lane":    {lane: In, ends: true, move: func(p *testPeer, _ *Share, _ *Grant) func() { return every(time.Second, func() { p.out.Add(rate) }) }},
		"too slow": {lane: In, ends: true, move: func(p *testPeer, _ *Share, _ *Grant) func() {
			// Six of these in five seconds are too few: they come at the ticks.
			return every(time.Second, func() { p.in.Add(rate * 8 / 10) })
		}},
		"fast enough": {lane: In, move: func(p *testPeer, _ *Share, _ *Grant) func() {
			return every(time.Second/3, func() { p.in.Add(rate / 2) })
		}},
		"fast enough, out": {lane: Out, move: func(p *testPeer, _ *Share, _ *Grant) func() {
			return every(time.Second/3, func() { p.out.Add(rate / 2) })
		}},
		"in gusts": {lane: In, move: func(p *testPeer, _ *Share, _ *Grant) func() {
			return every(4*time.Second, func() { p.in.Add(5 * rate) })
		}},
		"stalls after a gust": {lane: In, ends: true, move: func(p *testPeer, _ *Share, _ *Grant) func() { p.in.Add(total); return func() {} }},
		"now the peer, now the backend": {lane: In, move: func(_ *testPeer, _ *Share, g *Grant) func() {
			return every(time.Second/4, func() {
				g.PeerDone()
				g.AwaitPeer(In)
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBudget(0, 0)
				l := Limits{Total: total, MinProgress: rate}
				if tt.tolerate {
					l.MinProgress = 0
				}
				b.SetLimits(l)
				var p testPeer
				var held, waits Grant
				s := b.Share(host(1), &p)
				if ok, err := s.Acquire(&held, total, nil); !ok || err != nil {
					t.Fatal(ok, err)
				}
				p.onEnd = held.Release
				if tt.lane != noLane {
					held.AwaitPeer(tt.lane)
				}
				stop := func() {}
				if tt.move != nil {
					stop = tt.move(&p, s, &held)
				}
				time.Sleep(time.Minute) // nobody waits
				if p.ended.Load() != nil {
					t.Fatal("ended although nobody waits")
				}
				start, granted := time.Now(), time.Duration(0)
				if !tt.nobody {
					other := b.Share(host(2), &testPeer{})
					if ok, err := other.Acquire(&waits, 1, func() { granted = time.Since(start) }); ok || err != nil {
						t.Fatal(ok, err)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				switch err := p.ended.Load(); {
				case tt.ends && (err == nil || !errors.Is(*err, ErrNoProgress)):
					t.Errorf("not ended: %v", err)
				case tt.ends && (granted < window*tick || granted > (window+1)*tick):
					t.Errorf("the other got its memory after %v", granted)
				case !tt.ends && err != nil:
					t.Errorf("ended: %v", *err)
				}
				stop()
				synctest.Wait()
				waits.Release()
				held.Release()
				time.Sleep(2 * tick)
				if b.Used() != 0 || b.monitor.armed.Load() {
					t.Errorf("%d bytes are used, the monitor runs: %v", b.Used(), b.monitor.armed.Load())
				}
			})
		})
	}
}

// TestNoProgressUnderCeiling: memory held in one budget under a ceiling blocks waiters of another
// one.
func TestNoProgressUnderCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCeiling(100)
		var budgets [2]*Budget
		for i := range budgets {
			budgets[i] = NewBudget(0, 0)
			budgets[i].Under(c)
			budgets[i].SetLimits(Limits{Total: 100, MinProgress: 1})
		}
		var p testPeer
		var held, waits Grant
		p.onEnd = held.Release
		_, _ = budgets[0].Share(host(1), &p).Acquire(&held, 90, nil)
		held.AwaitPeer(Out)
		got := false
		_, _ = budgets[1].Share(host(2), &testPeer{}).Acquire(&waits, 20, func() { got = true })
		time.Sleep(window * tick)
		if p.ended.Load() != nil {
			t.Error("ended too early")
		}
		time.Sleep(2 * tick)
		synctest.Wait()
		if p.ended.Load() == nil || !got {
			t.Errorf("not ended, or the other got nothing: %v", got)
		}
		waits.Release()
		for _, b := range budgets {
			b.Close()
		}
		if len(c.monitor.budgets) != 0 {
			t.Error("the ceiling still has budgets")
		}
	})
}

// TestPerClient: one address may use all, until another one waits.
func TestPerClient(t *testing.T) {
	b := NewBudget(0, 0)
	b.SetLimits(Limits{Total: 100, PerClient: 25})
	var log []string
	needs := map[string]*need{}
	acquire := func(s *Share, name string, n int64, want bool) {
		t.Helper()
		needs[name] = &need{name: name, log: &log}
		if ok, err := s.Acquire(&needs[name].g, n, needs[name].ready); ok != want || err != nil {
			t.Fatalf("%s: %v, %v", name, ok, err)
		}
	}
	release := func(name string, want ...string) {
		t.Helper()
		log = nil
		needs[name].g.Release()
		if !slices.Equal(log, want) {
			t.Fatalf("after %s: %v, want %v", name, log, want)
		}
	}
	a1, a2, other := b.Share(host(1), nil), b.Share(host(1), nil), b.Share(host(2), nil)
	acquire(a1, "a", 40, true)
	acquire(a2, "b", 40, true)
	acquire(a1, "c", 20, true) // all of it, alone
	acquire(a2, "d", 5, false) // older than the other client's, and beyond the part
	acquire(other, "e", 24, false)
	acquire(other, "f", 1, false)
	release("c")
	release("b", "e", "f", "d") // "d" is beyond the part, and comes when nobody else waits
	if b.Used() != 40+24+1+5 {
		t.Errorf("%d bytes are used", b.Used())
	}
	for _, n := range needs {
		n.g.Release()
	}
	for _, s := range []*Share{a1, a2, other} {
		s.Close()
	}
	if len(b.clients) != 0 {
		t.Errorf("%d clients are left", len(b.clients))
	}
}
