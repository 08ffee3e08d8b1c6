package upstream

import (
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// TestFinalRDMA: of the errors of RPC-over-RDMA, those of the connection are not the request's, nor is that its XID is taken there.
func TestFinalRDMA(t *testing.T) {
	for err, want := range map[error]bool{
		&rpcrdma.LostError{}: false,
		rpcrdma.ErrClosed:    false,
		fmt.Errorf("rpcrdma: %w: 7", oncrpc.ErrXIDInUse):   false,
		&rpcrdma.RequestError{Reason: "it has 5000 bytes"}: true,
	} {
		if got := (rdmaConn{}).Final(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
