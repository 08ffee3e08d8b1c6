package neighbour

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/speaker/fsm"
	"sluice.dev/sluice/test/prereq"
)

// end is one end of a cable.
type end struct {
	*Port
	heard chan fsm.Heard
}

// cable makes two ports that hear each other, in a network namespace of the test's own.
func cable(t *testing.T) (a, b end) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread is not used again
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		runtime.UnlockOSThread()
		prereq.Missing(t, "making a network namespace wants root: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", HardwareAddr: us[:]}, PeerName: "b", PeerHardwareAddr: them[:]}); err != nil {
		t.Fatal(err)
	}
	open := func(name string, mac fsm.MAC) end {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			t.Fatal(err)
		}
		e := end{heard: make(chan fsm.Heard, 16)}
		if e.Port, err = Open(l.Attrs().Index, mac, func(h fsm.Heard) { e.heard <- h }); err != nil {
			t.Fatal(err)
		}
		if err := e.Watch([]netip.Addr{ip4, ip6}); err != nil {
			t.Fatal(err)
		}
		return e
	}
	return open("a", us), open("b", them)
}

// want waits for something to be heard. Probes that came later than expected are passed over.
func (e end) want(t *testing.T, kind fsm.Kind, ip netip.Addr, from fsm.MAC) {
	t.Helper()
	for late := time.After(10 * time.Second); ; {
		select {
		case h := <-e.heard:
			if h.Kind == fsm.Probe && kind != fsm.Probe {
				continue
			}
			if h.Kind != kind || h.Address != ip || h.From != from || h.Age < 0 || h.Age > 10*time.Second {
				t.Errorf("heard %+v, want kind %d of %v from %x", h, kind, ip, from)
			}
			return
		case <-late:
			t.Fatalf("kind %d of %v was not heard", kind, ip)
		}
	}
}

func TestPorts(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b := cable(t)
	defer a.Close()
	defer b.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, ip := range []netip.Addr{ip4, ip6} {
		var h fsm.Heard
		for heard := false; !heard; { // the cable drops frames before it is up
			_ = a.Ask(ip)
			select {
			case h = <-b.heard:
				heard = true
			case <-time.After(100 * time.Millisecond):
			}
		}
		if h.Kind != fsm.Probe || h.Address != ip || h.From != us || h.IP != map[bool]netip.Addr{true: netip.IPv4Unspecified(), false: netip.IPv6Unspecified()}[ip.Is4()] {
			t.Errorf("heard %+v, want a probe for %v", h, ip)
		}
		must(b.Reply(h))
		a.want(t, fsm.Claim, ip, them)
		must(a.Announce(ip))
		b.want(t, fsm.Claim, ip, us)
		if ip.Is4() {
			b.want(t, fsm.Claim, ip, us) // in its other form
		}
	}
	// An address that is not watched is not heard.
	must(b.Watch([]netip.Addr{ip6}))
	must(a.Ask(ip4))
	must(a.Ask(ip6))
	b.want(t, fsm.Probe, ip6, us)
	if len(b.joined) != 1 {
		t.Errorf("%d multicast groups are joined, want 1", len(b.joined))
	}
	must(b.Watch(nil))
	if len(b.joined) != 0 {
		t.Errorf("%d multicast groups are joined, want none", len(b.joined))
	}
}
