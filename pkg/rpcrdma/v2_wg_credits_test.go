package rpcrdma

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// TestWGGrantUnsent has an adapter that completes a Send long after it has arrived. The peer uses
// the credits of a GRANT meanwhile. It gets more when the GRANT has completed.
func TestWGGrantUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, rdmatest.Options{SentDelay: time.Millisecond}, func(cfg *Config) {
			workingGroup(cfg)
			cfg.Credits = credit.Static(1)
		})
		c := w.dial(workingGroup)
		done := make(chan error, 1)
		go func() { done <- plain(c, w.cpool, 60_000, 60_000) }()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("a call of several messages stands still")
			c.Close()
			<-done
		}
		w.close(c)
	})
}

// TestWGGrantWithoutMemory has no memory for the first GRANT. The peer may wait for it, and nothing
// else would bring it: the connection ends.
func TestWGGrantWithoutMemory(t *testing.T) {
	var q workQueue
	var ended error
	r := &recvCredits{posted: 5}
	q.init(r, func(err error) { ended = err }, 8, mostSends)
	g := newSendGate(&q, r, false)
	r.window.Receive() // with the one credit of the beginning
	g.refresh(bufpool.New(1))
	if !errors.Is(ended, bufpool.ErrExhausted) {
		t.Errorf("the connection ends with %v, want %v", ended, bufpool.ErrExhausted)
	}
}
