package rpcrdma

import (
	"testing"
	"testing/synctest"
	"time"

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
