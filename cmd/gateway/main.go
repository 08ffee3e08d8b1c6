// Gateway serves directories and NFS servers to NFS clients over RPC-over-RDMA and TCP. It is the
// data plane of Sluice, and works without Kubernetes:
//
//	gateway --config sluice.yaml
//	gateway --volume DIR
//
// See docs/gateway.md.
package main

import (
	"os"

	"sluice.dev/sluice/internal/gateway"
)

// version is set by the linker.
var version = "development"

func main() {
	os.Exit(gateway.Main(os.Args[1:], version, os.Stdout, os.Stderr))
}
