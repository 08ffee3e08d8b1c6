package credit

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestCreditLimits(t *testing.T) {
	good := Limits{Min: 8, Max: 128, Memory: 32768, ReceiveSize: 4096}
	p, err := NewAdaptive(good, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*Limits)
		want   string
	}{
		{func(l *Limits) { l.Min = 0 }, "Min 0 and Max 128"},
		{func(l *Limits) { l.Min = 129 }, "Min 129 and Max 128"},
		{func(l *Limits) { l.Max = 4097 }, "Max 4097, must be 1 to 4096"},
		{func(l *Limits) { l.ReceiveSize = 0 }, "ReceiveSize is 0"},
		{func(l *Limits) { l.Memory = 32767 }, "Memory is 32767, must be at least 32768: 8 receives of 4096 bytes"},
	} {
		l := good
		c.change(&l)
		if _, err := NewAdaptive(l, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", l, err, c.want)
		}
		if err := p.SetLimits(l); err == nil {
			t.Errorf("%+v is taken", l)
		}
	}
	if got := p.Stats().Limits; got != good {
		t.Errorf("limits are %+v after bad ones were refused", got)
	}
}

// TestAdaptiveBounds applies random operations to a policy and checks its invariants.
func TestAdaptiveBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(low, high int, what string) int { return rapid.IntRange(low, high).Draw(rt, what) }
		limits := func() Limits {
			l := Limits{Min: draw(1, 16, "min"), ReceiveSize: 4096}
			l.Max = l.Min + draw(0, 200, "more")
			l.Memory = int64(l.Min+draw(0, 500, "memory")) * 4096
			return l
		}
		l := limits()
		s := newAdaptiveSim(t, l)
		n := 0
		// after a cut of the budget, existing grants shrink only as they are used up
		over := l.Memory
		for range draw(1, 60, "steps") {
			switch step := draw(0, 9, "step"); {
			case step == 0 || len(s.names) == 0:
				c := s.open(fmt.Sprint(n))
				c.lag, c.asks = draw(0, 5, "lag"), draw(1, 300, "asks")
				n++
			case step == 1:
				i := draw(0, len(s.names)-1, "which")
				c := s.conns[s.names[i]]
				c.account.Close()
				c.answer() // a reply in preparation
				c.account.Close()
				delete(s.conns, s.names[i])
				s.names = append(s.names[:i:i], s.names[i+1:]...)
			case step == 2:
				l = limits()
				if err := s.p.SetLimits(l); err != nil {
					rt.Fatal(err)
				}
				over = max(over, l.Memory, s.p.Stats().Promised)
			case step == 3:
				s.latency, s.kind = time.Duration(draw(0, 100, "ms"))*time.Millisecond, draw(0, 2, "kind")
			case step == 4:
				s.now += time.Duration(draw(0, 100, "s")) * time.Second
			default:
				name := s.names[draw(0, len(s.names)-1, "which")]
				calls, d := draw(1, 300, "calls"), time.Duration(draw(1, 3000, "in ms"))*time.Millisecond
				for range calls {
					s.busy([]string{name}, 1, d/time.Duration(calls))
					c := s.conns[name]
					got, most := c.account.(*account).grant, min(c.asks, c.account.Max())
					if got < min(l.Min, most) || got > min(l.Max, most) {
						rt.Fatalf("%d credits are granted, %d asked for with queues for %d, the limits are %d to %d", got, c.asks, c.account.Max(), l.Min, l.Max)
					}
				}
			}
			st := s.p.Stats()
			if m := s.memory(); m > st.Promised {
				rt.Fatalf("there are receives of %d bytes, %d are accounted for", m, st.Promised)
			}
			if most := over + int64(len(s.names)*16)*4096; st.Promised > most {
				rt.Fatalf("%d bytes are promised, the budget is %d, for %d connections with %d credits at least", st.Promised, l.Memory, len(s.names), l.Min)
			}
			s.check(rt)
		}
	})
}

// TestAdaptiveMax: a connection keeps the limit of its start, for which it has queues. A later,
// higher limit applies to new connections only.
func TestAdaptiveMax(t *testing.T) {
	l := Limits{Min: 8, Max: 8, Memory: 1 << 30, ReceiveSize: 4096}
	p, err := NewAdaptive(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	old := p.Open()
	for _, c := range []struct{ max, old int }{{4, 4}, {64, 8}, {8, 8}, {Max, 8}} {
		l.Min, l.Max = c.max, c.max
		if err := p.SetLimits(l); err != nil {
			t.Fatal(err)
		}
		fresh := p.Open()
		if n, m := old.Credits(Max, 0), fresh.Credits(Max, 0); n != c.old || m != c.max || old.Max() != 8 || fresh.Max() != c.max {
			t.Errorf("limit %d: grants of %d (at most %d) and %d (at most %d), want %d and %d", c.max, n, old.Max(), m, fresh.Max(), c.old, c.max)
		}
		fresh.Close()
	}
}

func (s *adaptiveSim) check(t *rapid.T) {
	sh := &s.p.shares
	var used, claimed int64
	wantsMore, granted := 0, 0
	for i, m := range sh.members {
		used += int64(m.charge) * int64(m.size)
		granted += m.grant
		if m.wantsMore {
			wantsMore++
		} else {
			claimed += m.claim
		}
		if m.at != i || m.charge < m.grant {
			t.Fatalf("member %d: %+v", i, m)
		}
	}
	if used != sh.used || claimed != sh.claimed || wantsMore != sh.wantsMore || granted != sh.granted || len(sh.members) != len(s.names) {
		t.Fatalf("the sums are %d, %d, %d, %d of %d, want %d, %d, %d, %d of %d",
			sh.used, sh.claimed, sh.wantsMore, sh.granted, len(sh.members), used, claimed, wantsMore, granted, len(s.names))
	}
}

// TestAdaptiveFair: whatever the history, equally busy connections converge to equal grants. Then
// nothing changes any more: all usable memory is in use, and no other.
func TestAdaptiveFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(low, high int, what string) int { return rapid.IntRange(low, high).Draw(rt, what) }
		busy, idle, low := draw(1, 8, "busy"), draw(0, 4, "idle"), draw(1, 8, "min")
		l := Limits{Min: low, Max: draw(low, 128, "max"), Memory: int64(low+draw(0, 500, "memory")) * 4096, ReceiveSize: 4096}
		s := newAdaptiveSim(t, l)
		for i := range busy + idle {
			s.open(fmt.Sprint(i)).lag = draw(0, 3, "lag")
			s.busy(s.names[:1+draw(0, i, "which")], draw(1, 300, "calls"), time.Millisecond)
		}
		all := s.names
		for range 15 { // idle connections make a few calls, and lose their former grants
			s.busy(all[busy:], 20, 20*time.Second)
		}
		s.busy(all[:busy], 1500, 150*time.Millisecond)
		before := s.p.Stats()
		s.busy(all[:busy], 1500, 150*time.Millisecond)
		st := s.p.Stats()
		if st.Raised != before.Raised || st.Lowered != before.Lowered {
			rt.Errorf("grants change under constant use: %v %v", st, before)
		}
		want := int(min(int64(l.Max), max(int64(low), (l.Memory/4096-int64(idle*low))/int64(busy))))
		for i, name := range all {
			got := s.conns[name].account.(*account).grant
			if i < busy && got != want {
				rt.Fatalf("busy connection %d has %d credits, want %d: %s", i, got, want, s.grants())
			}
			if i >= busy && got != low {
				rt.Fatalf("idle connection %d has %d credits, want %d", i-busy, got, low)
			}
		}
		if m := s.memory(); m != st.Promised || m > max(l.Memory, int64((busy+idle)*low)*4096) {
			rt.Errorf("receives take %d bytes, %d are promised, the budget is %d", m, st.Promised, l.Memory)
		}
	})
}

// TestAdaptiveStatic: with equal limits the policy acts like Static.
func TestAdaptiveStatic(t *testing.T) {
	s := newAdaptiveSim(t, Limits{Min: 128, Max: 128, Memory: math.MaxInt64, ReceiveSize: 4096})
	for i := range 50 {
		c := s.open(fmt.Sprint(i))
		want := 128
		if i%2 > 0 {
			c.asks, want = 10, 10
		}
		s.latency = time.Duration(1+i) * time.Second
		for range 300 {
			s.busy([]string{fmt.Sprint(i)}, 1, time.Millisecond)
			if n := c.account.(*account).grant; n != want {
				t.Fatalf("%d credits are granted, want %d", n, want)
			}
		}
	}
	if st := s.p.Stats(); st.Promised != 25*(128+10)*4096 || st.Raised != [Reasons]uint64{} || st.Lowered != [Reasons]uint64{} {
		t.Errorf("%+v", st)
	}
}

// TestAdaptiveSizes: a size of receives that is reported late counts from then on.
func TestAdaptiveSizes(t *testing.T) {
	s := newAdaptiveSim(t, Limits{Min: 4, Max: 128, Memory: 100 * 4096, ReceiveSize: 4096})
	a, b := s.open("a"), s.open("b")
	a.size = 4 * 4096
	s.busy([]string{"a", "b"}, 1000, time.Millisecond)
	if g := s.grants(); g != "a 12, b 50, 392 of 400 KiB" {
		t.Error(g)
	}
	a.account.Close()
	b.account.Close()
	if st := s.p.Stats(); st.Promised != 0 || st.Granted != 0 || st.Connections != 0 {
		t.Errorf("%+v", st)
	}
}

// TestAdaptiveLatencyLoop closes the loop: a backend that handles 16 calls of 1 ms at a time, and
// clients that use their whole grants. The grants settle where the backend is busy, and change no
// faster than permitted.
func TestAdaptiveLatencyLoop(t *testing.T) {
	s := newAdaptiveSim(t, Limits{Min: 2, Max: 128, Memory: 1 << 30, ReceiveSize: 4096})
	names := []string{"a", "b", "c", "d"}
	for _, n := range names {
		s.open(n)
	}
	s.latency = time.Millisecond
	s.busy(names, 100, 100*time.Millisecond) // a time without load
	from := s.p.Stats()
	worst := 0
	for tick := range 100 * 20 {
		load := s.p.Stats().Granted
		s.latency = time.Millisecond * time.Duration(max(load, 16)) / 16
		s.busy(names, 4, time.Millisecond)
		if tick > 1000 {
			worst = max(worst, load)
			if load < 16 {
				t.Fatalf("only %d calls are let in, the backend can do 16 at a time", load)
			}
		}
	}
	if worst > 64 {
		t.Errorf("%d calls are let in, the backend can do 16 at a time", worst)
	}
	st := s.p.Stats()
	changes := st.Raised[ByLatency] + st.Lowered[ByLatency] - from.Raised[ByLatency] - from.Lowered[ByLatency]
	if most := uint64(len(names) * 10 * 2); changes > most { // 2 s have passed
		t.Errorf("latency changed grants %d times in 2 s, want %d at most", changes, most)
	}
}

func TestLog2(t *testing.T) {
	last := int64(0)
	for d := quick; d < time.Hour; d += d/97 + 1 {
		got := log2(d)
		if want := math.Log2(float64(d)) * 256; got < last || math.Abs(float64(got)-want) > 24 {
			t.Fatalf("%v: %d, want %.0f", d, got, want)
		}
		last = got
	}
}

func TestAdaptiveConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewAdaptive(Limits{Min: 2, Max: 64, Memory: 200 * 4096, ReceiveSize: 4096}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for range 10 {
					c := &simConn{account: p.Open(), asks: 128, size: 4096, credits: 1, there: 1}
					for range 500 {
						if n := c.answer(); n < 1 || n > 64 {
							t.Errorf("%d credits are granted", n)
						}
						p.Latency(i%3, time.Duration(1+i)*time.Millisecond)
						time.Sleep(time.Duration(100+i) * time.Microsecond)
					}
					c.account.Close()
				}
			})
		}
		for i := range 50 {
			time.Sleep(10 * time.Millisecond)
			if err := p.SetLimits(Limits{Min: 1 + i%3, Max: 64, Memory: int64(200+i) * 4096, ReceiveSize: 4096}); err != nil {
				t.Error(err)
			}
			if st := p.Stats(); st.Promised > (250+20*3)*4096 {
				t.Errorf("%d bytes are promised", st.Promised)
			}
		}
		wg.Wait()
		if st := p.Stats(); st.Promised != 0 || st.Granted != 0 || st.Connections != 0 {
			t.Errorf("after all connections are gone: %+v", st)
		}
	})
}
