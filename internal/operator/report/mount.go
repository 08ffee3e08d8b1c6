package report

import (
	"fmt"
	"net/netip"
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
