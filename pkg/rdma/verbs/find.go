package verbs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Assigned is a device that the SR-IOV network device plugin gave to this container, as described
// in the environment.
type Assigned struct {
	// Variable names the device: PCIDEVICE_, the resource's prefix and name.
	Variable string
	// ID is the PCI address of a virtual function, "0000:3b:02.1", or the name of an auxiliary
	// device, "mlx5_core.sf.4".
	ID string
	// Device is the RDMA device, "mlx5_4"; "" where the plugin does not name it (plugins before
	// 2025, and devices without isRdma).
	Device string
	// Verbs is the character device, "/dev/infiniband/uverbs11"; "" where the plugin does not name
	// it.
	Verbs string
}

const (
	pluginPrefix = "PCIDEVICE_"
	infoSuffix   = "_INFO"
	maxAssigned  = 256 // devices in all variables
)

// AssignedDevices reads the variables PCIDEVICE_* and PCIDEVICE_*_INFO of an environment in the
// form of os.Environ. The order is that of the variables' names, and within one that of its list. A
// name may have hyphens, though no shell can read it then.
func AssignedDevices(environ []string) ([]Assigned, error) {
	infos := map[string]map[string]pluginInfo{}
	lists := map[string][]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, pluginPrefix) || value == "" {
			continue
		}
		// A resource's own name may end in "_INFO". The value decides.
		if base, ok := strings.CutSuffix(name, infoSuffix); ok && strings.HasPrefix(strings.TrimSpace(value), "{") {
			info := map[string]pluginInfo{}
			if err := json.Unmarshal([]byte(value), &info); err != nil {
				return nil, fmt.Errorf("verbs: %s is not the JSON of the SR-IOV device plugin: %w", name, err)
			}
			infos[base] = info
			continue
		}
		lists[name] = strings.Split(value, ",")
	}
	for name, info := range infos {
		if lists[name] == nil { // the list has the same devices as the keys
			for id := range info {
				lists[name] = append(lists[name], id)
			}
			slices.Sort(lists[name])
		}
	}
	var names []string
	for name := range lists {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []Assigned
	for _, name := range names {
		for _, id := range lists[name] {
			id = strings.TrimSpace(id)
			if !validID(id) {
				return nil, fmt.Errorf("verbs: %s names %q, want PCI addresses as 0000:3b:02.1 with commas between them", name, id)
			}
			info := infos[name][id]
			if len(all) == maxAssigned {
				return nil, fmt.Errorf("verbs: the variables %s* name more than %d devices", pluginPrefix, maxAssigned)
			}
			all = append(all, Assigned{Variable: name, ID: id, Device: info.RDMA.Device, Verbs: info.RDMA.Verbs})
		}
	}
	return all, nil
}

// pluginInfo has the required fields of the plugin's description of a device.
type pluginInfo struct {
	RDMA struct {
		Device string `json:"rdma_dev"`
		Verbs  string `json:"uverbs"`
	} `json:"rdma"`
}

// validID reports whether id can be a PCI address or an auxiliary device, and so the name of a
// directory.
func validID(id string) bool {
	if id == "" || len(id) > 64 || strings.Trim(id, ".") == "" {
		return false
	}
	const allowed = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:._-"
	return !strings.ContainsFunc(id, func(r rune) bool { return !strings.ContainsRune(allowed, r) })
}

// Sources are the criteria for finding a device.
type Sources struct {
	// Name is the chosen device, or "".
	Name string
	// Environ is the environment, as in os.Environ.
	Environ []string
	// Sys is the directory /sys.
	Sys fs.FS
	// Interface is the network interface of the address to listen on, "" if that is any address.
	Interface string
}

// Found is a device and its criterion.
type Found struct {
	Device, By string
}

// Find chooses the RDMA device: the named one; else, of those that the SR-IOV device plugin gave to
// this container, the only one or the one of the interface; else that of the interface. Several
// assigned devices and no interface give the first. Without any of these every device may be used,
// and Found is empty.
func Find(s Sources) (Found, error) {
	present, err := devices(s.Sys)
	if err != nil {
		return Found{}, err
	}
	if s.Name != "" {
		if !slices.Contains(present, s.Name) {
			return Found{}, fmt.Errorf("verbs: there is no RDMA device %q; %s", s.Name, list(present))
		}
		return Found{s.Name, "its name"}, nil
	}
	assigned, err := AssignedDevices(s.Environ)
	if err != nil {
		return Found{}, err
	}
	var candidates []Found
	for _, a := range assigned {
		if name := a.RDMADevice(s.Sys); name != "" {
			candidates = append(candidates, Found{name, a.Variable})
		}
	}
	switch {
	case len(candidates) > 1 && s.Interface != "":
		return ofInterface(s, candidates)
	case len(candidates) > 0:
		return candidates[0], nil
	case len(assigned) > 0:
		a := assigned[0]
		return Found{}, fmt.Errorf("verbs: %s gives %s to this container, which has no RDMA device here: does the plugin's selector say isRdma, "+
			"and is the device in this network namespace (rdma system)? %s", a.Variable, a.ID, list(present))
	}
	if s.Interface == "" {
		return Found{}, nil
	}
	if name := DeviceOf(s.Sys, s.Interface); name != "" {
		return Found{name, "the interface " + s.Interface}, nil
	}
	return Found{}, fmt.Errorf("verbs: the interface %s has no RDMA device; %s", s.Interface, list(present))
}

// ofInterface returns the assigned device that the interface belongs to.
func ofInterface(s Sources, candidates []Found) (Found, error) {
	var names []string
	for _, c := range candidates {
		if carries(s.Sys, c.Device, s.Interface) {
			return Found{c.Device, c.By + " and the interface " + s.Interface}, nil
		}
		names = append(names, fmt.Sprintf("%s (%s)", c.Device, c.By))
	}
	return Found{}, fmt.Errorf("verbs: the interface %s is of none of the devices %s, which this container was given: name the device in the configuration, or "+
		"attach the container to a network of one of their resources", s.Interface, strings.Join(names, ", "))
}

func list(present []string) string {
	if len(present) == 0 {
		return "there are none (is the driver loaded, and /sys/class/infiniband visible?)"
	}
	return "there are " + strings.Join(present, ", ")
}

const class = "class/infiniband"

// devices lists the RDMA devices, sorted.
func devices(sys fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(sys, class)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("verbs: listing the RDMA devices: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// RDMADevice returns the RDMA device in this network namespace, "" if none. sys is the directory
// /sys. Since the plugin's description is as old as the container, the device that the kernel shows
// comes first: the name changes when a driver is bound again.
func (a *Assigned) RDMADevice(sys fs.FS) string {
	for _, name := range []string{deviceOfPCI(sys, a.ID), a.Device} {
		if !validName(name) {
			continue
		}
		if _, err := fs.Stat(sys, path.Join(class, name)); err == nil {
			return name
		}
	}
	return ""
}

// validName reports whether name can be that of a device, and so of a directory.
func validName(name string) bool {
	return name != "" && len(name) <= 64 && name != "." && name != ".." && !strings.ContainsAny(name, "/")
}

// deviceOfPCI returns the RDMA device of a PCI or auxiliary device, "" if it has none.
func deviceOfPCI(sys fs.FS, id string) string {
	for _, bus := range []string{"pci", "auxiliary"} {
		entries, err := fs.ReadDir(sys, path.Join("bus", bus, "devices", id, "infiniband"))
		if err == nil && len(entries) > 0 {
			return entries[0].Name()
		}
	}
	return ""
}

// DeviceOf returns the RDMA device of a network interface, "" if it has none. sys is the directory
// /sys.
func DeviceOf(sys fs.FS, link string) string {
	present, err := devices(sys)
	if err != nil {
		return ""
	}
	for range 4 { // bounded, whatever sysfs has: parents of interfaces have no parent
		if !validInterface(link) {
			return ""
		}
		for _, name := range present {
			if carries(sys, name, link) {
				return name
			}
		}
		// A partition of IP over InfiniBand (ib0.8001) is an interface of another one.
		parent, err := fs.ReadFile(sys, path.Join("class/net", link, "parent"))
		if err != nil {
			return ""
		}
		link = strings.TrimSpace(string(parent))
	}
	return ""
}

// validInterface reports whether link can be the name of a network interface, and so that of a
// directory.
func validInterface(link string) bool {
	return link != "" && len(link) <= 15 && link != "." && link != ".." && !strings.ContainsAny(link, "/: \t\n")
}

// carries reports whether a network interface is the device's: both are of one function of an
// adapter, or a GID of the device belongs to the interface, as with VLANs. The GID of an iWARP
// device is the interface's MAC; kernels before 6.6 do not name its interface.
func carries(sys fs.FS, device, link string) bool {
	if _, err := fs.Stat(sys, path.Join("class/net", link, "device/infiniband", device)); err == nil {
		return true
	}
	owners, _ := fs.Glob(sys, path.Join(class, device, "ports/*/gid_attrs/ndevs/*"))
	for _, owner := range owners {
		// Most of the table's entries are empty, and cannot be read.
		if name, err := fs.ReadFile(sys, owner); err == nil && strings.TrimSpace(string(name)) == link {
			return true
		}
	}
	kind, _ := fs.ReadFile(sys, path.Join(class, device, "node_type"))
	gid, err1 := fs.ReadFile(sys, path.Join(class, device, "ports/1/gids/0"))
	mac, err2 := fs.ReadFile(sys, path.Join("class/net", link, "address"))
	hex := func(b []byte) string { return strings.ReplaceAll(strings.TrimSpace(string(b)), ":", "") }
	return strings.Contains(string(kind), "RNIC") && err1 == nil && err2 == nil && len(hex(mac)) == 12 && hex(gid) == hex(mac)+strings.Repeat("0", 20)
}
