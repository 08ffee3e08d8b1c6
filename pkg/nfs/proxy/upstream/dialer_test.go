package upstream

import (
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// TestFinalRDMA checks that connection errors and XID conflicts of RPC-over-RDMA are not final.
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
