// Operator runs gateways for the NFSGateways and NFSExports of a cluster. It is the control plane
// of Sluice: clients work without it.
//
//	operator [--namespace NAMESPACE] …
//	operator speaker --config FILE …
//	operator check-uninstall [--force] …
//	operator client-host [--link-type siw|rxe] …
//
// The second form is the sidecar of gateway pods that carry virtual IPs. The third runs before the
// operator is removed. The fourth prepares a node as a client.
package main

import (
	"os"

	"sluice.dev/sluice/internal/operator"
)

// version is set by the linker.
var version = "development"

func main() {
	os.Exit(operator.Main(os.Args[1:], version, os.Stdout, os.Stderr))
}
