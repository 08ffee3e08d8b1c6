package verbs

import (
	"io/fs"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// gidOf converts a GID, which over RoCE is an IP address. The zero GID becomes the zero Addr.
func gidOf(raw [16]byte) netip.Addr {
	if raw == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(raw).Unmap()
}

// gidType returns the type of an entry in a port's table of GIDs, as the kernel writes it, and ""
// where the kernel gives none. sys is the directory /sys.
func gidType(sys fs.FS, device string, port, index int) string {
	file := path.Join(class, device, "ports", strconv.Itoa(port), "gid_attrs/types", strconv.Itoa(index))
	b, err := fs.ReadFile(sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
