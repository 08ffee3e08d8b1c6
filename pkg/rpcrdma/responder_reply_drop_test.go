package rpcrdma

import (
	"errors"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// dropper drops calls of procHang, and hands others on.
type dropper struct{ oncrpc.Handler }

func (d dropper) ServeRPC(c *oncrpc.Call) {
	if c.Procedure == procHang {
		c.Drop()
		return
	}
	d.Handler.ServeRPC(c)
}

// TestDrop has a server with one credit drop a call: its connection ends, in both versions, and the
// client learns that at once. It does not wait for the credit with its next call.
func TestDrop(t *testing.T) {
	for _, version := range []int{wire.Version1, wire.Version2} {
		change := func(cfg *Config) { cfg.Versions, cfg.Credits = []int{version}, credit.Static(1) }
		w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
			change(cfg)
			cfg.Handler = dropper{cfg.Handler}
		})
		c := w.dial(change)
		if err := null(c, w.cpool, procNull); err != nil {
			t.Fatal(err)
		}
		for _, procedure := range []uint32{procHang, procNull} {
			var lost *LostError
			if err := null(c, w.cpool, procedure); !errors.As(err, &lost) {
				t.Errorf("version %d: procedure %d ended with %v", version, procedure, err)
			}
		}
		<-c.Done()
		if n := w.counts.faults(Dropped); n != 1 {
			t.Errorf("version %d: dropped counted %d times", version, n)
		}
		again := w.dial(change)
		if err := null(again, w.cpool, procNull); err != nil {
			t.Errorf("version %d: on another connection: %v", version, err)
		}
		w.close(c, again)
	}
}

// TestSupersede ends a call without an answer, and leaves its connection.
func TestSupersede(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, nil)
	p := w.rawDial(rawPrivate(4096))
	p.null(1)
	p.send(plainMsg(2, rpcCall(2, procHang)))
	eventually(t, "the call hangs", func() bool { return w.handler.hanging() == 1 })
	w.handler.mu.Lock()
	call := w.handler.hung[0]
	w.handler.hung = nil
	w.handler.mu.Unlock()
	call.Supersede()
	p.null(2) // the call that took its place
	p.none()
	w.waitIdle()
	p.close()
	w.close()
}
