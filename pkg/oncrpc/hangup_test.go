package oncrpc

import (
	"net/netip"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
)

// TestTCPHangUpWhileWaiting: the end of a peer is noticed even while the loop does not read.
func TestTCPHangUpWhileWaiting(t *testing.T) {
	t.Run("for a place", func(t *testing.T) {
		s := startServer(t, Config{MaxCalls: 1})
		conn := dialRaw(t, s.addr)
		if _, err := conn.Write(append(marked(callBytes(1, procHold)), marked(callBytes(2, procHold))...)); err != nil {
			t.Fatal(err)
		}
		c := <-s.service.held
		done := c.Conn.Done
		_ = conn.Close()
		<-done
		c.ReplyAccept(Success)
	})
	t.Run("for memory", func(t *testing.T) {
		budget := bufpool.NewBudget(2<<20, 2<<20)
		s := startServer(t, Config{Budget: budget, MaxRecord: 2 << 20})
		var g bufpool.Grant
		if ok, err := budget.Share(netip.Addr{}, nil).Acquire(&g, 2<<20, func() {}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		defer g.Release()
		conn := dialRaw(t, s.addr)
		if _, err := conn.Write(marked(append(callBytes(7, procSum, 100_000), make([]byte, 100_000)...))); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return budget.Waiting() == 1 })
		_ = conn.Close()
		waitFor(t, func() bool { return budget.Waiting() == 0 })
	})
}
