package report

import (
	"fmt"
	"net/netip"
	"strings"
)

// newest returns the newest of the versions of NFS that are served; empty if none is.
func newest(versions []string) string {
	best := ""
	for _, v := range versions {
		best = max(best, v) // "3" < "4.0" < "4.2"
	}
	return best
}

// mountLine is how a Linux client mounts address over network, rdma or tcp; empty if there is nothing to mount.
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
		// MOUNT answers where NFS does, and NLM nowhere.
		options = append(options, "mountproto="+tcp, fmt.Sprintf("mountport=%d", tcpPort), "nolock")
	}
	return fmt.Sprintf("mount -t nfs -o %s %s:/ /mnt", strings.Join(options, ","), address)
}
