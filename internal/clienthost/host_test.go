package clienthost

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// node is a made-up node: directories for /lib/modules and /sys, and a network.
type node struct {
	*host
	present  []device
	netdevs  []string
	standard atomic.Value // interface of the default route
	refused  error        // of add
	inserted []string
}

func (n *node) devices() ([]device, error)        { return n.present, nil }
func (n *node) interfaces() ([]string, error)     { return n.netdevs, nil }
func (n *node) defaultInterface() (string, error) { return n.standard.Load().(string), nil }

func (n *node) add(name, kind, netdev string) error {
	if n.refused == nil {
		n.present = append(n.present, device{name, netdev, kinds[kind].protocol})
	}
	return n.refused
}

func (n *node) remove(name string) error {
	n.present = slices.DeleteFunc(n.present, func(d device) bool { return d.name == name })
	return nil
}

const release = "6.12.1-test"

// newNode has eth0 and eth1, and modules as a distribution's: some compressed, some built in.
func newNode(t *testing.T, want link) *node {
	t.Helper()
	n := &node{netdevs: []string{"lo", "eth0", "eth1"}}
	n.standard.Store("eth0")
	m := &modules{dir: t.TempDir(), sys: t.TempDir(), release: release}
	m.insert = func(file string, compressed bool) error {
		if compressed != strings.HasSuffix(file, ".xz") {
			t.Errorf("%s: compressed: %v", file, compressed)
		}
		n.inserted = append(n.inserted, moduleName(file))
		n.setUsers(t, moduleName(file), 0)
		return nil
	}
	n.host = &host{want: want, modules: m, network: n, state: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	n.file(t, "modules.dep", `kernel/net/sunrpc/sunrpc.ko.xz:
kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz: kernel/drivers/rdma-cm.ko.xz kernel/drivers/ib_core.ko.xz kernel/net/sunrpc/sunrpc.ko.xz
kernel/drivers/ib_core.ko.xz:
kernel/drivers/rdma-cm.ko.xz: kernel/drivers/ib_core.ko.xz
extra/siw.ko: kernel/drivers/ib_core.ko.xz
`)
	n.file(t, "modules.builtin", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko\n")
	return n
}

func (n *node) file(t *testing.T, name, text string) {
	t.Helper()
	write(t, filepath.Join(n.modules.dir, release, name), text)
}

// setUsers makes a module look loaded, with so many users.
func (n *node) setUsers(t *testing.T, module string, users int) {
	t.Helper()
	write(t, filepath.Join(n.modules.sys, "module", module, "refcnt"), string(rune('0'+users))+"\n")
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// ensures calls ensure, whose error must have the text, or be nil for the empty text.
func (n *node) ensures(t *testing.T, want string) {
	t.Helper()
	n.saw(t, n.ensure(), want)
}

func (n *node) saw(t *testing.T, err error, want string) {
	t.Helper()
	if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func (n *node) has(t *testing.T, want ...device) {
	t.Helper()
	if !slices.Equal(n.present, want) {
		t.Errorf("RDMA devices %v, want %v", n.present, want)
	}
}

var siw = link{kind: "siw", name: "siw0"}

func TestLinkIsMadeKeptAndRemoved(t *testing.T) {
	n := newNode(t, siw)
	n.ensures(t, "")
	n.has(t, device{"siw0", "eth0", "iw"})
	if want := []string{"sunrpc", "ib_core", "rdma_cm", "rpcrdma", "siw"}; !slices.Equal(n.inserted, want) {
		t.Errorf("modules loaded: %v, want %v", n.inserted, want)
	}
	n.present = nil // the interface was made again
	n.ensures(t, "")
	n.ensures(t, "")
	n.has(t, device{"siw0", "eth0", "iw"})
	n.saw(t, n.release(), "")
	n.has(t)
	n.saw(t, n.release(), "")
}

func TestLinkInUseStays(t *testing.T) {
	for _, module := range []string{rpcrdma, "siw"} {
		n := newNode(t, siw)
		n.ensures(t, "")
		n.setUsers(t, module, 2)
		n.saw(t, n.release(), "RDMA device siw0 stays, since module "+module+" has 2 users: unmount")
		n.has(t, device{"siw0", "eth0", "iw"})

		// The next pod takes it over, and moves it to another interface when it is free.
		n.ensures(t, "")
		n.want.netdev = "eth1"
		n.ensures(t, "siw0 stays")
		n.has(t, device{"siw0", "eth0", "iw"})
		n.setUsers(t, module, 0)
		n.ensures(t, "")
		n.has(t, device{"siw0", "eth1", "iw"})
		n.want = link{}
		n.ensures(t, "")
		n.has(t)
	}
}

func TestOthersDevicesStay(t *testing.T) {
	for _, d := range []device{{"siw0", "eth0", "iw"}, {"other", "eth0", "iw"}} {
		n := newNode(t, siw)
		n.present = []device{d}
		n.ensures(t, "")
		n.saw(t, n.release(), "")
		n.has(t, d)
	}
}

func TestProblems(t *testing.T) {
	tests := []struct {
		name string
		want link
		make func(t *testing.T, n *node)
		text string
	}{
		{"no modules of this kernel", siw, func(_ *testing.T, n *node) { n.modules.release = "6.12.2" }, "6.12.2 has no modules.dep: install the modules of the running kernel"},
		{"module absent", link{kind: "siw", name: "siw0"}, func(t *testing.T, n *node) { n.file(t, "modules.dep", "kernel/rpcrdma.ko:\n") }, "module siw: not in "},
		{"rpcrdma absent, link made", link{kind: "rxe", name: "rxe0"}, func(t *testing.T, n *node) { n.file(t, "modules.dep", "") }, "module rpcrdma: not in "},
		{"no capability", siw, func(_ *testing.T, n *node) { n.modules.insert = func(string, bool) error { return unix.EPERM } }, "the pod needs the capability SYS_MODULE"},
		{"kernel does not unpack", siw, func(_ *testing.T, n *node) { n.modules.insert = func(string, bool) error { return unix.EOPNOTSUPP } }, "/etc/modules-load.d"},
		{"signature", siw, func(_ *testing.T, n *node) { n.modules.insert = func(string, bool) error { return unix.EKEYREJECTED } }, "key was rejected by service"},
		{"no interface", link{kind: "siw", name: "siw0", netdev: "eth9"}, nil, "interface eth9: not on this node, which has lo, eth0, eth1"},
		{"no default route", siw, func(_ *testing.T, n *node) { n.standard.Store("") }, "there is no default route: set clientHosts.link.interface to one of lo, eth0, eth1"},
		{"name conflict", siw, func(_ *testing.T, n *node) { n.present = []device{{"siw0", "eth1", "iw"}} }, `siw0 is there already, with protocol iw on interface "eth1": want iw on eth0`},
		{"name conflict by protocol", siw, func(_ *testing.T, n *node) { n.present = []device{{"siw0", "", "ib"}} }, `siw0 is there already, with protocol ib on interface ""`},
		{"refused", siw, func(_ *testing.T, n *node) { n.refused = unix.EPERM }, "RDMA device siw0 of type siw on interface eth0: operation not permitted"},
		{"record", siw, func(t *testing.T, n *node) { write(t, filepath.Join(n.state, "device"), "siw0\n") }, "remove the file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, tt.want)
			if tt.make != nil {
				tt.make(t, n)
			}
			before := slices.Clone(n.present)
			n.ensures(t, tt.text)
			if tt.want.kind == "rxe" { // built in
				before = []device{{"rxe0", "eth0", "roce"}}
			}
			n.has(t, before...)
			if made, err := n.record(); err == nil && made != (device{}) && len(before) == 0 {
				t.Errorf("record of %v, which was not made", made)
			}
		})
	}
}

func TestModulesOnly(t *testing.T) {
	n := newNode(t, link{})
	n.ensures(t, "")
	n.has(t)
	if !slices.Contains(n.inserted, rpcrdma) || slices.Contains(n.inserted, "siw") {
		t.Errorf("modules loaded: %v", n.inserted)
	}
}
