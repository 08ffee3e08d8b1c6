package speaker

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/internal/speaker/api"
)

// pair is an environment in which each of two pods carries a group.
func pair(t *testing.T) (*env, *pod, *pod) {
	t.Helper()
	if testing.Short() {
		t.Skip("NOT RUN: processes in network namespaces are not for -short")
	}
	t.Parallel()
	r := newEnv(t, 2)
	a, b := r.pods[0], r.pods[1]
	a.start(true)
	b.start(true)
	r.eventually("each pod carries a group", func() bool {
		n := map[string]int{}
		for _, ip := range r.vips {
			n[r.who(ip)]++
		}
		return n[a.name] == 2 && n[b.name] == 2
	})
	return r, a, b
}

// TestGivenUp: the gateway is gone and the kubelet ends the speaker. The other pod gets the
// addresses at once, and keeps them.
func TestGivenUp(t *testing.T) {
	r, a, b := pair(t)
	a.signal(syscall.SIGTERM)
	if err := a.process.Wait(); err != nil {
		t.Errorf("the speaker ended with %v", err)
	}
	a.process = nil
	if n := a.addresses(); n != 0 {
		t.Errorf("%d addresses are left behind", n)
	}
	r.eventually("the other pod carries all", r.all(b))
	a.start(true)
	time.Sleep(leaseTime)
	if !r.all(b)() {
		t.Error("a pod that came back took a group")
	}
	st, err := b.status()
	if err != nil || len(st.Groups) != 2 || len(st.Problems) != 0 || st.Interface.MAC != hw(1).String() {
		t.Fatalf("status %+v, %v", st, err)
	}
	for _, g := range st.Groups {
		if pod, _ := api.PodOf(r.api.holder(g.Lease)); pod != b.name || !g.Holding || !g.LeaseValid || g.Addresses[0].State != "Carried" {
			t.Errorf("Lease held by %q, group %+v", r.api.holder(g.Lease), g)
		}
	}
}

// TestStopped: the holder's speaker is stopped, and continues when another has its addresses.
func TestStopped(t *testing.T) {
	r, a, b := pair(t)
	a.talk() // its gateway still sends to clients
	var conns []net.Conn
	for _, ip := range r.vips {
		if c, name, err := r.dial(ip); err != nil {
			t.Fatal(err)
		} else if name == a.name {
			conns = append(conns, c)
		}
	}
	held := func() (n int) {
		for _, lease := range []string{"vip-0", "vip-1"} {
			if pod, _ := api.PodOf(r.api.holder(lease)); pod == a.name {
				n++
			}
		}
		return n
	}
	a.signal(syscall.SIGSTOP)
	for end := time.Now().Add(leaseTime); time.Now().Before(end) && held() > 0; time.Sleep(askEvery) {
		for _, c := range conns {
			if err := echo(c); err != nil && held() > 0 {
				t.Fatalf("a connection that there was, to %v: %v", c.RemoteAddr(), err)
			}
		}
	}
	r.eventually("the other pod carries all", r.all(b))
	time.Sleep(time.Second)
	a.signal(syscall.SIGCONT)
	r.eventually("who lost has removed its addresses", func() bool { return a.addresses() == 0 })
	if !r.all(b)() {
		t.Error("the other pod no longer carries all")
	}
	for _, c := range conns {
		if err := echo(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection to %v is not over: %v", c.RemoteAddr(), err)
		}
		_ = c.Close()
	}
}

// TestStoppedAndCutOff is TestStopped for a speaker that cannot reach the API server when it
// continues.
func TestStoppedAndCutOff(t *testing.T) {
	r, a, b := pair(t)
	a.signal(syscall.SIGSTOP)
	a.cut(true)
	r.eventually("the other pod carries all", r.all(b))
	a.signal(syscall.SIGCONT)
	r.eventually("who lost has removed its addresses", func() bool { return a.addresses() == 0 })
	a.cut(false)
	if !r.all(b)() {
		t.Error("the other pod no longer carries all")
	}
}

// TestCutOff: a holder without the API server keeps its addresses. After a restart it probes before
// it answers again; meanwhile the other pod may take over.
func TestCutOff(t *testing.T) {
	r, a, b := pair(t)
	a.cut(true)
	for end := time.Now().Add(leaseTime + 2*time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		n := map[string]int{}
		for _, ip := range r.vips {
			n[r.who(ip)]++
		}
		if n[a.name] != 2 || n[b.name] != 2 {
			t.Fatalf("clients are answered by %v", n)
		}
	}
	r.eventually("LeaseUnreachable is told", func() bool {
		st, err := a.status()
		return err == nil && len(st.Problems) > 0 && st.Problems[0].Reason == api.LeaseUnreachable
	})
	a.kill()
	a.start(false)
	a.cut(false)
	r.eventually("each group has a valid Lease, and its addresses are carried", func() bool {
		valid := map[string]bool{}
		for _, p := range []*pod{a, b} {
			st, err := p.status()
			if err != nil {
				return false
			}
			for _, g := range st.Groups {
				for _, x := range g.Addresses {
					if g.Holding && g.LeaseValid && x.State == "Carried" {
						valid[x.Address.String()] = true
					}
				}
			}
		}
		return len(valid) == len(r.vips)
	})
}

// TestKilled: a pod disappears with its interface.
func TestKilled(t *testing.T) {
	r, a, b := pair(t)
	a.kill()
	r.eventually("the other pod carries all", r.all(b))
	// The kubelet restarts its speaker, which removes the addresses of an earlier one.
	if a.addresses() == 0 {
		t.Error("kill -9 removed the addresses")
	}
	a.start(false)
	r.eventually("what the earlier speaker left is removed", func() bool { return a.addresses() == 0 })
}

// TestConfigChanges: groups change, and faults are reported.
func TestConfigChanges(t *testing.T) {
	r, a, b := pair(t)
	r.write(`{"interface": "rdma0", "groups": [{"lease": "vip-0", "addresses": ["192.0.2.10"]}]}`)
	r.eventually("three addresses are gone", func() bool { return a.addresses()+b.addresses() == 1 })
	r.eventually("vip-1 is free", func() bool { return r.api.holder("vip-1") == "" })
	problem := func(reason, text string) func() bool {
		return func() bool {
			st, err := a.status()
			if err != nil {
				return false
			}
			for _, p := range st.Problems {
				if p.Reason == reason && strings.Contains(p.Message, text) {
					return true
				}
			}
			return false
		}
	}
	r.write(`{"interface": "rdma0", "group": []}`)
	r.eventually("ConfigInvalid", problem(api.ConfigInvalid, "group"))
	r.write(`{"interface": "rdma7", "groups": [{"lease": "vip-0", "addresses": ["192.0.2.10"]}]}`)
	r.eventually("InterfaceMissing", problem(api.InterfaceMissing, "rdma7"))
	r.eventually("no address is left", func() bool { return a.addresses()+b.addresses() == 0 })
	r.write(`{"interface": "rdma0", "groups": [{"lease": "none", "addresses": ["192.0.2.11"]}]}`)
	r.eventually("LeaseUnreachable", problem(api.LeaseUnreachable, "none"))
}
