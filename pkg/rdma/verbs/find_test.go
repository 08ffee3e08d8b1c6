package verbs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestAssignedDevices reads environments of several versions of the plugin.
func TestAssignedDevices(t *testing.T) {
	files, err := filepath.Glob("testdata/environ/*.env")
	if err != nil || len(files) == 0 {
		t.Fatalf("no environments: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all, err := AssignedDevices(strings.Split(string(text), "\n"))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, a := range all {
				fmt.Fprintf(&got, "%s: %s device=%s verbs=%s\n", a.Variable, a.ID, a.Device, a.Verbs)
			}
			golden := strings.TrimSuffix(file, ".env") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got\n%swant\n%s", got.String(), want)
			}
		})
	}
}

func TestAssignedDevicesBad(t *testing.T) {
	many := "PCIDEVICE_MANY=" + strings.Repeat("0000:01:00.1,", maxAssigned) + "0000:01:00.1"
	for _, c := range []struct{ entry, words string }{
		{"PCIDEVICE_A=../../etc", "PCIDEVICE_A"},
		{"PCIDEVICE_A=..", "PCIDEVICE_A"},
		{"PCIDEVICE_A=0000:01:00.1,,", "PCIDEVICE_A"},
		{`PCIDEVICE_A_INFO={"0000:01:00.1":`, "PCIDEVICE_A_INFO"},
		{`PCIDEVICE_A_INFO={"0000:01:00.1":{"rdma":{"rdma_dev":5}}}`, "PCIDEVICE_A_INFO"},
		{many, "more than 256"},
	} {
		all, err := AssignedDevices([]string{c.entry})
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%.60s: %v, %v; want an error with %q", c.entry, all, err, c.words)
		}
	}
}

func FuzzAssignedDevices(f *testing.F) {
	files, _ := filepath.Glob("testdata/environ/*.env")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			f.Add(string(text))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := AssignedDevices(strings.Split(text, "\n"))
		if err == nil && len(all) > maxAssigned {
			t.Errorf("%d devices", len(all))
		}
		for _, a := range all {
			if strings.Contains(a.ID, "/") || strings.Trim(a.ID, ".") == "" {
				t.Errorf("%q is no name of a folder", a.ID)
			}
		}
	})
}

// sys is a /sys with RDMA devices, each of an interface and of a PCI device.
func sys(devices ...[3]string) fstest.MapFS {
	m := fstest.MapFS{}
	for _, d := range devices {
		m["class/infiniband/"+d[0]+"/ports/1/gid_attrs/ndevs/0"] = &fstest.MapFile{Data: []byte(d[1] + "\n")}
		m["bus/pci/devices/"+d[2]+"/infiniband/"+d[0]] = &fstest.MapFile{}
	}
	return m
}

func TestFind(t *testing.T) {
	two := sys([3]string{"mlx5_4", "net1", "0000:3b:02.0"}, [3]string{"mlx5_5", "net2", "0000:3b:02.1"})
	noGIDs := fstest.MapFS{
		"class/infiniband/mlx5_4/node_type": {}, "bus/pci/devices/0000:3b:02.0/infiniband/mlx5_4": {}, "class/net/net1/device/infiniband/mlx5_4": {},
		"class/infiniband/mlx5_5/node_type": {}, "bus/pci/devices/0000:3b:02.1/infiniband/mlx5_5": {}, "class/net/net2/device/infiniband/mlx5_5": {},
	}
	iwarp := fstest.MapFS{
		"class/infiniband/siw0/node_type":      {Data: []byte("4: RNIC\n")},
		"class/infiniband/siw0/ports/1/gids/0": {Data: []byte("5254:0012:3456:0000:0000:0000:0000:0000\n")},
		"class/net/eth0/address":               {Data: []byte("52:54:00:12:34:56\n")},
		"class/net/eth1/address":               {Data: []byte("52:54:00:12:34:57\n")},
	}
	infiniband := fstest.MapFS{
		"class/infiniband/mlx5_0/ports/1/gids/0":           {Data: []byte("fe80:0000:0000:0000:5054:00ff:fe12:3456\n")},
		"class/infiniband/mlx5_1/ports/1/gids/0":           {Data: []byte("fe80:0000:0000:0000:5054:00ff:fe12:3457\n")},
		"class/net/ib0/device/infiniband/mlx5_0/node_type": {},
		"class/net/ib1/device/infiniband/mlx5_1/node_type": {},
		"class/net/ib1.8001/parent":                        {Data: []byte("ib1\n")},
		"class/net/loop/parent":                            {Data: []byte("loop\n")},
		"class/net/bad/parent":                             {Data: []byte("../../etc\n")},
	}
	for _, c := range []struct {
		name  string
		from  Sources
		want  Found
		words string // of the error
	}{
		{name: "any", from: Sources{Sys: two}},
		{name: "by name", from: Sources{Sys: two, Name: "mlx5_5", Environ: []string{"PCIDEVICE_A=0000:3b:02.0"}, Interface: "net1"}, want: Found{"mlx5_5", "its name"}},
		{name: "no such name", from: Sources{Sys: two, Name: "mlx5_6"}, words: "there are mlx5_4, mlx5_5"},
		{name: "no device", from: Sources{Sys: fstest.MapFS{}, Name: "mlx5_6"}, words: "there are none"},
		{name: "by address", from: Sources{Sys: two, Environ: []string{"PCIDEVICE_A=0000:3b:02.1"}, Interface: "net1"}, want: Found{"mlx5_5", "PCIDEVICE_A"}},
		{name: "by the plugin's word", from: Sources{Sys: two, Environ: []string{`PCIDEVICE_A_INFO={"0000:99:02.1":{"rdma":{"rdma_dev":"mlx5_4"}}}`}}, want: Found{"mlx5_4", "PCIDEVICE_A"}},
		{name: "the kernel's word before the plugin's, since a driver was bound again", from: Sources{Sys: two, Environ: []string{`PCIDEVICE_A_INFO={"0000:3b:02.1":{"rdma":{"rdma_dev":"mlx5_4"}}}`}}, want: Found{"mlx5_5", "PCIDEVICE_A"}},
		{name: "a device that the plugin names, and that is gone", from: Sources{Sys: two, Environ: []string{`PCIDEVICE_A_INFO={"0000:99:02.1":{"rdma":{"rdma_dev":"mlx5_9"}}}`}}, words: "PCIDEVICE_A gives 0000:99:02.1"},
		{name: "no name for a device", from: Sources{Sys: two, Environ: []string{`PCIDEVICE_A_INFO={"0000:99:02.1":{"rdma":{"rdma_dev":"../infiniband"}}}`}}, words: "PCIDEVICE_A gives 0000:99:02.1"},
		{name: "the second, since the first is none of RDMA", from: Sources{Sys: two, Environ: []string{"PCIDEVICE_A=0000:3b:07.1,0000:3b:02.0"}}, want: Found{"mlx5_4", "PCIDEVICE_A"}},
		{name: "the assigned one of the interface", from: Sources{Sys: two, Environ: []string{"PCIDEVICE_A=0000:3b:02.0,0000:3b:02.1"}, Interface: "net2"}, want: Found{"mlx5_5", "PCIDEVICE_A and the interface net2"}},
		{name: "of another resource", from: Sources{Sys: two, Environ: []string{"PCIDEVICE_A=0000:3b:02.0", "PCIDEVICE_B=0000:3b:02.1"}, Interface: "net2"}, want: Found{"mlx5_5", "PCIDEVICE_B and the interface net2"}},
		{name: "its interface has no GID yet", from: Sources{Sys: noGIDs, Environ: []string{"PCIDEVICE_A=0000:3b:02.0,0000:3b:02.1"}, Interface: "net2"}, want: Found{"mlx5_5", "PCIDEVICE_A and the interface net2"}},
		{name: "several assigned, none of the interface", from: Sources{Sys: two, Environ: []string{"PCIDEVICE_A=0000:3b:02.0", "PCIDEVICE_B=0000:3b:02.1"}, Interface: "eth0"},
			words: "the interface eth0 is of none of the devices mlx5_4 (PCIDEVICE_A), mlx5_5 (PCIDEVICE_B)"},
		{name: "elsewhere", from: Sources{Sys: two, Environ: []string{"PCIDEVICE_A=0000:3b:07.1"}}, words: "PCIDEVICE_A gives 0000:3b:07.1"},
		{name: "unreadable", from: Sources{Sys: two, Environ: []string{"PCIDEVICE_A=/"}}, words: "want PCI addresses"},
		{name: "by interface", from: Sources{Sys: two, Interface: "net2"}, want: Found{"mlx5_5", "the interface net2"}},
		{name: "by interface, iWARP", from: Sources{Sys: iwarp, Interface: "eth0"}, want: Found{"siw0", "the interface eth0"}},
		{name: "another interface, iWARP", from: Sources{Sys: iwarp, Interface: "eth1"}, words: "eth1 has no RDMA device"},
		{name: "InfiniBand", from: Sources{Sys: infiniband, Interface: "ib0"}, want: Found{"mlx5_0", "the interface ib0"}},
		{name: "InfiniBand, a partition", from: Sources{Sys: infiniband, Interface: "ib1.8001"}, want: Found{"mlx5_1", "the interface ib1.8001"}},
		{name: "InfiniBand, its own parent", from: Sources{Sys: infiniband, Interface: "loop"}, words: "loop has no RDMA device"},
		{name: "InfiniBand, no name for a parent", from: Sources{Sys: infiniband, Interface: "bad"}, words: "bad has no RDMA device"},
		{name: "interface without", from: Sources{Sys: two, Interface: "eth0"}, words: "eth0 has no RDMA device"},
	} {
		got, err := Find(c.from)
		if c.words != "" {
			if err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s: %v, %v; want an error with %q", c.name, got, err, c.words)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
}
