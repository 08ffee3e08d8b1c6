package sluicectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// TestPatience: --timeout bounds each answer, but not an outage.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{app: &app{opts: options{timeout: 10 * time.Second}}, outages: &outages{}}
		ctx, answered, cancel := s.patienceEach(t.Context())
		defer cancel()
		sleep := func(d time.Duration, ends bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if err := context.Cause(ctx); ends != errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("after %v: %v", d, err)
			}
		}
		sleep(9*time.Second, false)
		answered()
		sleep(9*time.Second, false)
		s.outages.begin()
		sleep(time.Minute, false)
		s.outages.end()
		sleep(9*time.Second, false)
		sleep(2*time.Second, true)
		short, end := s.patience(t.Context())
		end()
		if err := context.Cause(short); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// TestDelayed: waits that the server asks for are noted after a second, once in a while.
func TestDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		a := &app{Streams: Streams{Err: &errs}}
		a.delayed(nfs3.ErrJukebox, 700*time.Millisecond)
		a.delayed(fmt.Errorf("OPEN: %w", nfs4.ErrGrace), 1500*time.Millisecond)
		a.delayed(nfs4.ErrGrace, 3*time.Second)
		time.Sleep(noteDelayEach)
		a.delayed(nfs4.ErrDelay, 33*time.Second)
		want := "sluicectl: waiting: the server has restarted, and first lets its former clients reclaim their files (NFS4ERR_GRACE)\n" +
			"sluicectl: waiting: the server needs more time, try again (NFS4ERR_DELAY)\n"
		if errs.String() != want {
			t.Errorf("%q, want %q", &errs, want)
		}
	})
}
