package doctor

import (
	"io/fs"
	"net/netip"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// tree returns files of /sys, as the Linux guest has them with software RoCE. A line has a path and
// its content, or the target of a link behind ->.
func tree(t *testing.T, file string, change ...string) fstest.MapFS {
	t.Helper()
	text, err := os.ReadFile(path.Join("testdata/sysfs", file))
	if err != nil {
		t.Fatal(err)
	}
	sys := fstest.MapFS{}
	for line := range strings.Lines(strings.NewReplacer(change...).Replace(string(text))) {
		name, content, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		f := &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o444}
		if target, link := strings.CutPrefix(content, "-> "); link {
			f = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
		} else if strings.HasSuffix(name, "/") {
			f = &fstest.MapFile{Mode: fs.ModeDir}
		}
		sys[strings.TrimSuffix(name, "/")] = f
	}
	return sys
}

// TestFaults checks the files of /sys of a host with software RoCE, and with its faults.
func TestFaults(t *testing.T) {
	on := Wanted{Device: "rxe0", Address: netip.MustParseAddr("10.9.0.1"), Interface: "g0"}
	ok := func(string) error { return nil }
	for _, c := range []struct {
		name, file string
		change     []string
		environ    []string
		open       func(string) error
		want       Wanted
		says       []string
	}{
		{name: "healthy", file: "healthy.txt", want: on},
		{name: "a device that programs keep from being removed", file: "healthy.txt", change: []string{"uverbs0/ibdev rxe0", "abi_version 6"}, want: on, says: []string{"DeviceMissing: the RDMA device rxe0 is being removed|programs that have it open"}},
		{name: "no GID", file: "no-gid.txt", want: on, says: []string{"GIDMissing: rxe0 has no GID for the address 10.9.0.1 yet, although g0"}},
		{name: "version 1", file: "healthy.txt", change: []string{"RoCE v2", "IB/RoCE v1"}, want: on, says: []string{"RoCEv1Only: the GID of rxe0 for 10.9.0.1"}},
		{name: "interface down", file: "interface-down.txt", want: on, says: []string{"PortDown: port 1 of rxe0 is DOWN, because its network interface g0 is down"}},
		{name: "no carrier", file: "no-carrier.txt", want: on, says: []string{"PortDown: port 1 of rxe0 is DOWN, because its network interface g0 has no carrier"}},
		{name: "a file that is denied", file: "healthy.txt", open: func(file string) error {
			if strings.HasSuffix(file, "rdma_cm") {
				return nil
			}
			return syscall.EPERM
		}, want: on, says: []string{"DeviceNodeDenied: /dev/infiniband/uverbs|of rxe0|cgroup"}},
		{name: "a container of another namespace, mode shared", file: "pod-shared.txt", want: Wanted{Device: "rxe0", Address: netip.MustParseAddr("10.8.0.1"), Interface: "p0"},
			says: []string{"GIDMissing: rxe0 has no GID for the address 10.8.0.1 (it is on p0)"}},
		{name: "a container of another namespace, mode exclusive", file: "pod-exclusive.txt", says: []string{"DeviceInOtherNamespace: no RDMA device is in this network namespace"}},
		{name: "a function without RDMA", file: "healthy.txt", environ: []string{"PCIDEVICE_A=" + nic}, says: []string{"FunctionWithoutDevice: |its driver virtio-pci has no RDMA device"}},
		{name: "the same, mode exclusive", file: "pod-exclusive.txt", environ: []string{"PCIDEVICE_A=" + nic}, says: []string{"DeviceInOtherNamespace: PCIDEVICE_A gives " + nic}},
		{name: "a function without a driver", file: "no-driver.txt", environ: []string{"PCIDEVICE_A=" + nic}, says: []string{"FunctionWithoutDevice: |has no driver"}},
		{name: "a function that is gone", file: "removed.txt", environ: []string{"PCIDEVICE_A=" + nic}, says: []string{"FunctionWithoutDevice: |the host has no such device"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.open == nil {
				c.open = ok
			}
			h := readHost(tree(t, c.file, c.change...), c.environ, c.open)
			h.Folder, h.IPCLock = true, true // of the test's own host
			got := lines(h.Check(c.want))
			t.Logf("%q", got)
			compare(t, got, c.says)
		})
	}
}

// nic is the guest's network adapter, a PCI function.
const nic = "0000:00:02.0"
