package conns

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// TestEndings checks the reason of each cause of an end, wrapped or not.
func TestEndings(t *testing.T) {
	for want, causes := range map[Ending][]error{
		ByPeer:          {io.EOF, &net.OpError{Err: os.NewSyscallError("read", syscall.ECONNRESET)}},
		ByShutdown:      {oncrpc.ErrShutdown, net.ErrClosed},
		BeforeFirstCall: {errNoFirstCall},
		AfterCall:       {errNoCall},
		NoProgress:      {fmt.Errorf("peer: %w", bufpool.ErrNoProgress)},
		NoReads:         {fmt.Errorf("peer: %w", rpcrdma.ErrReadTimeout)},
		ByProtocol:      {fmt.Errorf("%w: long", oncrpc.ErrRecord)},
		ByNetwork:       {syscall.ETIMEDOUT, io.ErrUnexpectedEOF},
	} {
		for _, cause := range causes {
			if got := EndingOf(cause); got != want {
				t.Errorf("%v is counted as %s, want %s", cause, got, want)
			}
		}
	}
}
