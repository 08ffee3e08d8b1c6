package fsm

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// requireHolders fails unless every address is carried by the holder of its Lease.
func requireHolders(t interface {
	Helper()
	Fatalf(format string, a ...any)
}, w *env) {
	t.Helper()
	for _, g := range w.groups {
		for _, ip := range g.Addresses {
			n := w.holder(ip)
			if n == nil {
				t.Fatalf("nobody answers for %v:\n%v%+v", ip, w, w.leases)
			}
			if h := w.leases[g.Lease].Holder; h != n.name {
				t.Fatalf("%s answers for %v, whose Lease %s has:\n%v", n.name, ip, h, w)
			}
			for _, o := range w.nodes {
				if o != n && o.m != nil && !o.paused && o.on[ip] {
					t.Fatalf("%s answers for %v, which is on the interface of %s too", n.name, ip, o.name)
				}
			}
		}
	}
}

// TestAtMostOneAnswers: whatever stops, dies, restarts or loses the API server, two never answer,
// and soon after the end one does.
func TestAtMostOneAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(2, 3).Draw(t, "speakers")
		w := newEnv(rapid.Uint64().Draw(t, "seed"), nodes, rapid.IntRange(1, 3).Draw(t, "groups"), t.Fatalf)
		w.lossy = true
		for _, n := range w.nodes {
			w.after(w.delay(15*time.Second), n.start)
		}
		ms := func(most int, label string) time.Duration {
			return time.Duration(rapid.IntRange(1, most).Draw(t, label)) * time.Millisecond
		}
		for range rapid.IntRange(2, 16).Draw(t, "faults") {
			n := w.nodes[rapid.IntRange(0, nodes-1).Draw(t, "which")]
			at, long := ms(60_000, "at"), ms(rapid.SampledFrom([]int{1_000, 5_000, 15_000, 40_000}).Draw(t, "most"), "for")
			switch rapid.SampledFrom([]string{"pause", "pause", "kill", "cut", "cut", "stop"}).Draw(t, "fault") {
			case "pause":
				w.after(at, n.pause)
				w.after(at+long, n.wake)
			case "kill":
				w.after(at, n.kill)
				w.after(at+long, func() {
					if n.m == nil {
						n.start()
					}
				})
			case "cut":
				w.after(at, func() { n.cut = true })
				w.after(at+long, n.connect)
			case "stop":
				w.after(at, func() { n.wake(); n.step(Stop{}) })
				w.after(at+long, func() { n.kill(); n.start() })
			}
		}
		w.run(95 * time.Second)
		w.run(45 * time.Second)
		requireHolders(t, w)
	})
}

// TestEveryPause: the holder stops at every moment for every length of time, with and without the
// API server, and the challenger stops too.
func TestEveryPause(t *testing.T) {
	for pause := 100 * time.Millisecond; pause < 20*time.Second; pause += 230 * time.Millisecond {
		for _, c := range []struct {
			cut bool
			// the challenger stops for this, shortly before the Lease has expired
			other time.Duration
		}{{false, 0}, {true, 0}, {false, 700 * time.Millisecond}, {true, 3 * time.Second}, {true, 1500 * time.Millisecond}} {
			w := newEnv(uint64(pause), 2, 1, t.Fatalf)
			w.nodes[0].start()
			w.run(5 * time.Second)
			w.nodes[1].start()
			w.run(3 * time.Second)
			requireHolders(t, w)
			w.nodes[0].cut = c.cut
			w.nodes[0].pause()
			if c.other > 0 {
				w.after(11500*time.Millisecond, w.nodes[1].pause)
				w.after(11500*time.Millisecond+c.other, w.nodes[1].wake)
			}
			w.after(pause, w.nodes[0].wake)
			w.after(26*time.Second, w.nodes[0].connect)
			w.run(60 * time.Second)
			requireHolders(t, w)
		}
	}
}

// steady is an environment in which each of n speakers carries one of n groups.
func steady(t *testing.T, n int) *env {
	t.Helper()
	w := newEnv(7, n, n, t.Fatalf)
	for i, x := range w.nodes {
		w.after(time.Duration(i)*2*time.Second, x.start)
	}
	w.run(20 * time.Second)
	requireHolders(t, w)
	return w
}

func TestGroupsSpreadOverPods(t *testing.T) {
	w := steady(t, 3)
	for _, n := range w.nodes {
		if len(n.on) != 2 {
			t.Errorf("%s carries %d addresses, want those of one group:\n%v", n.name, len(n.on), w)
		}
	}
}

// The gateways get ready long after the Leases exist.
func TestGroupsSpreadOverPodsThatAreReadyLate(t *testing.T) {
	w := newEnv(7, 3, 3, t.Fatalf)
	for i, n := range w.nodes {
		n.start()
		n.step(Fit{Keep: true})
		w.after(time.Minute+time.Duration(i)*2*time.Second, func() { n.step(Fit{Take: true, Keep: true}) })
	}
	w.run(80 * time.Second)
	requireHolders(t, w)
	for _, n := range w.nodes {
		if len(n.on) != 2 {
			t.Errorf("%s carries %d addresses, want those of one group:\n%v", n.name, len(n.on), w)
		}
	}
}

// carriesAll waits until n answers for everything and returns the duration.
func carriesAll(t *testing.T, w *env, n *node, most time.Duration) time.Duration {
	t.Helper()
	from := w.now
	for ; w.now < from+most; w.run(50 * time.Millisecond) {
		all := true
		for _, g := range w.groups {
			for _, ip := range g.Addresses {
				all = all && n.answers(ip)
			}
		}
		if all {
			return w.now - from
		}
	}
	t.Fatalf("%s does not carry all after %v:\n%v", n.name, most, w)
	return 0
}

func TestTakeover(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(w *env)
		most  time.Duration
	}{
		"given up":     {func(w *env) { w.nodes[0].step(Stop{}) }, 3 * time.Second},
		"killed":       {func(w *env) { w.nodes[0].kill() }, 14 * time.Second},
		"stopped":      {func(w *env) { w.nodes[0].pause() }, 14 * time.Second},
		"unfit":        {func(w *env) { w.nodes[0].step(Fit{}) }, 3 * time.Second},
		"not to be on": {func(w *env) { w.nodes[0].cut = true; w.nodes[0].step(Stop{}) }, 14 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := steady(t, 2)
			c.fault(w)
			t.Log(carriesAll(t, w, w.nodes[1], c.most))
			w.run(30 * time.Second)
			carriesAll(t, w, w.nodes[1], time.Second) // and keeps it
		})
	}
}

// TestWithoutTheServer: without the API server the addresses stay, and a restarted pod takes its
// own up again.
func TestWithoutTheServer(t *testing.T) {
	w := steady(t, 2)
	before := map[*node]int{}
	for _, n := range w.nodes {
		n.cut = true
		before[n] = len(n.on)
	}
	w.run(time.Minute)
	w.nodes[0].kill()
	w.run(time.Second)
	w.nodes[0].start()
	w.run(10 * time.Second)
	for _, n := range w.nodes {
		if len(n.on) != before[n] {
			t.Fatalf("%s carries %d addresses, before %d", n.name, len(n.on), before[n])
		}
		n.connect()
	}
	requireHolders(t, w)
	w.run(10 * time.Second)
	requireHolders(t, w)
}

// TestCutOffHolderKeeps: the holder is cut off from the API server, but not from the network: the
// other one probes and is answered.
func TestCutOffHolderKeeps(t *testing.T) {
	w := steady(t, 2)
	w.nodes[0].cut = true
	for range 600 {
		w.run(100 * time.Millisecond)
		for ip := range w.nodes[0].on {
			if !w.nodes[0].answers(ip) {
				t.Fatalf("at %v nobody answers for %v:\n%v", w.now, ip, w)
			}
		}
	}
	if len(w.nodes[0].on) != 2 {
		t.Fatalf("the holder was left with %d addresses", len(w.nodes[0].on))
	}
}

// TestSplitNetworkHeals: a split network has at most two holders until it is one again.
func TestSplitNetworkHeals(t *testing.T) {
	w := steady(t, 2)
	w.nodes[0].cut, w.nodes[0].split = true, 1
	w.run(30 * time.Second)
	carriesAll(t, w, w.nodes[1], time.Second)
	report := w.report
	w.report = func(string, ...any) {}
	w.nodes[0].split = 0
	w.run(Default.Check + time.Second)
	w.report = report
	w.run(20 * time.Second)
	carriesAll(t, w, w.nodes[1], time.Second)
	if len(w.nodes[0].on) != 0 {
		t.Fatalf("who lost did not give way:\n%v", w)
	}
}

// TestRefusedAddresses: a pod whose interface refuses addresses leaves its groups to the others.
func TestRefusedAddresses(t *testing.T) {
	w := steady(t, 2)
	w.nodes[1].full = true
	w.nodes[0].step(Stop{})
	w.run(2 * time.Second)
	w.nodes[0].kill()
	w.nodes[0].start()
	w.run(40 * time.Second)
	requireHolders(t, w)
	if len(w.nodes[0].on) != 2 || len(w.nodes[1].on) != 2 {
		t.Fatalf("carried: %d and %d addresses", len(w.nodes[0].on), len(w.nodes[1].on))
	}
}

// Groups and addresses come and go.
func TestConfigure(t *testing.T) {
	w := steady(t, 1)
	n, all := w.nodes[0], w.groups
	ip := all[0].Addresses
	check := func(what string, want ...bool) {
		t.Helper()
		w.run(5 * time.Second)
		for i, on := range want {
			if n.answers(ip[i]) != on || n.on[ip[i]] != on {
				t.Errorf("%s: %v is answered for: %v, on the interface: %v; want %v", what, ip[i], n.answers(ip[i]), n.on[ip[i]], on)
			}
		}
	}
	check("at first", true, true)
	n.step(Configure{[]Group{{Lease: all[0].Lease, Addresses: ip[1:]}}})
	check("one address less", false, true)
	n.step(Configure{all})
	check("it comes back", true, true)
	n.step(Configure{nil})
	check("no group", false, false)
	if h := w.leases[all[0].Lease].Holder; h != "" {
		t.Errorf("the Lease is still held by %q", h)
	}
}

// TestLeaseIsGone: a gateway with fewer replicas has fewer Leases. The operator deletes them, and
// the right to write them, before all speakers know.
func TestLeaseIsGone(t *testing.T) {
	w := steady(t, 1)
	n := w.nodes[0]
	delete(w.leases, w.groups[0].Lease)
	w.groups = nil
	n.step(Configure{nil})
	w.run(time.Minute)
	if len(n.on) != 0 || len(n.m.groups) != 0 {
		t.Fatalf("%d addresses are left, and the groups %+v", len(n.on), n.m.Status(w.now))
	}
}

// TestForeignHost: a host without Leases that has one of the addresses keeps it, and the group's
// other address is served.
func TestForeignHost(t *testing.T) {
	w := newEnv(3, 1, 1, t.Fatalf)
	n, ip := w.nodes[0], w.groups[0].Addresses
	n.start()
	for range 400 {
		w.run(50 * time.Millisecond)
		n.step(Heard{Kind: Claim, Address: ip[0], From: MAC{2, 9}})
	}
	if n.answers(ip[0]) || !n.answers(ip[1]) {
		t.Fatalf("want the second address alone:\n%v", w)
	}
	if s := n.m.Status(w.now)[0].Addresses[0]; s.State != "Taken" || s.Foreign != (MAC{2, 9}) {
		t.Errorf("status %+v", s)
	}
	w.run(10 * time.Second)
	requireHolders(t, w)
}

// A request that waited too long is not answered: its sender asks again.
func TestOldRequestsAreNotAnswered(t *testing.T) {
	w := steady(t, 1)
	ask := Heard{Kind: Request, Address: w.groups[0].Addresses[0], From: MAC{2, 9}}
	for age, want := range map[time.Duration]int{0: 1, Default.Probe: 1, Default.Probe + 1: 0} {
		ask.Age = age
		replies := 0
		for _, a := range w.nodes[0].m.Step(w.now, ask) {
			if _, ok := a.(Reply); ok {
				replies++
			}
		}
		if replies != want {
			t.Errorf("a request %v old got %d replies, want %d", age, replies, want)
		}
	}
}

// TestLeaseMargin: a holder takes its Lease for expired a tenth earlier than others do, counted
// from before its write.
func TestLeaseMargin(t *testing.T) {
	w := steady(t, 1)
	n := w.nodes[0]
	g := n.m.groups[0]
	for g.writing {
		w.run(10 * time.Millisecond)
	}
	n.cut = true
	if early := g.seenAt + g.record.Duration - g.valid; early < Default.Lease/10 {
		t.Errorf("the holder's Lease ends %v before others may take it, want %v at least", early, Default.Lease/10)
	}
	end := g.started + Default.Lease*9/10
	w.run(end - time.Millisecond - w.now)
	if s := n.m.Status(w.now)[0]; !s.Valid {
		t.Errorf("%v after it began to renew, the holder's Lease is no longer valid", w.now-g.started)
	}
	w.run(2 * time.Millisecond)
	if s := n.m.Status(w.now)[0]; s.Valid {
		t.Errorf("%v after it began to renew, the holder's Lease is still valid", w.now-g.started)
	}
}

// A challenger waits until the Lease has expired by its own clock, and does not wait much longer.
func TestChallengerWaits(t *testing.T) {
	w := steady(t, 2)
	dead, heir := w.nodes[0], w.nodes[1]
	var g *group
	for _, x := range heir.m.groups {
		if x.state == following {
			g = x
		}
	}
	dead.kill()
	for w.now-g.seenAt < Default.Lease {
		if g.state != following {
			t.Fatalf("a challenger acted %v after it saw the Lease renewed, want %v at least", w.now-g.seenAt, Default.Lease)
		}
		w.run(50 * time.Millisecond)
	}
	w.run(Default.Spread + Default.Jitter + time.Second)
	if g.state == following {
		t.Errorf("%v after it saw the Lease renewed, the challenger has done nothing", w.now-g.seenAt)
	}
}
