package report

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// newest returns the newest of the versions; "" if there is none.
func newest(versions []string) string {
	best := ""
	for _, v := range versions {
		best = max(best, v) // "3" < "4.0" < "4.2"
	}
	return best
}

// mountLine returns the mount command of a Linux client over network, rdma or tcp; "" if there is
// nothing to mount.
func mountLine(network, address string, port, tcpPort int32, versions []string) string {
	version := newest(versions)
	if address == "" || version == "" {
		return ""
	}
	tcp := "tcp"
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() {
		network, tcp, address = network+"6", tcp+"6", "["+address+"]"
	}
	options := []string{"vers=" + version, "proto=" + network, fmt.Sprintf("port=%d", port)}
	if version == "3" {
		// MOUNT has the port of NFS, and NLM is not served.
		options = append(options, "mountproto="+tcp, fmt.Sprintf("mountport=%d", tcpPort), "nolock")
	}
	return fmt.Sprintf("mount -t nfs -o %s %s:/ /mnt", strings.Join(options, ","), address)
}

// Mount is a mount command of an NFSExport's status, parsed.
type Mount struct {
	Server  string // without brackets
	Options []string
}

// ParseMount parses a mount command of an NFSExport's status.
func ParseMount(line string) (m Mount, ok bool) {
	words := strings.Fields(line)
	if len(words) != 7 || !slices.Equal(words[:4], []string{"mount", "-t", "nfs", "-o"}) {
		return m, false
	}
	server, ok := strings.CutSuffix(words[5], ":/")
	return Mount{strings.Trim(server, "[]"), strings.Split(words[4], ",")}, ok && server != ""
}
