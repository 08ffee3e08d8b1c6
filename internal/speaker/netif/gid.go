package netif

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// Sysfs is where the kernel shows devices.
const Sysfs = "/sys"

// iWARP is the beginning of the node_type of iWARP devices.
const iWARP = "4:"

// RDMADevice returns the name of the RDMA device of an interface, empty if it has none.
func RDMADevice(sysfs, name string) string {
	all, _ := filepath.Glob(filepath.Join(sysfs, "class/net", name, "device/infiniband/*"))
	if len(all) == 0 {
		return ""
	}
	return filepath.Base(all[0])
}

// HasGID says whether an RDMA device answers for ip: adapters know the addresses of their interface
// by a table of limited length. An iWARP device has no such table; it answers for all of them.
func HasGID(sysfs, device string, ip netip.Addr) bool {
	if kind, err := os.ReadFile(filepath.Join(sysfs, "class/infiniband", device, "node_type")); err == nil && strings.HasPrefix(string(kind), iWARP) {
		return true
	}
	files, _ := filepath.Glob(filepath.Join(sysfs, "class/infiniband", device, "ports/*/gids/*"))
	for _, f := range files {
		// of eight groups of four digits; an unused entry of some kernels cannot be read
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if gid, err := netip.ParseAddr(strings.TrimSpace(string(b))); err == nil && gid.Unmap() == ip {
			return true
		}
	}
	return false
}
