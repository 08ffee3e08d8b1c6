package conns

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/oncrpc"
)

// fakeControl is the Controller of a connection.
type fakeControl struct {
	busy  atomic.Bool
	cause atomic.Pointer[error]
}

func (f *fakeControl) Busy() bool      { return f.busy.Load() }
func (f *fakeControl) End(cause error) { f.cause.Store(&cause) }

// ended returns the cause of the end, nil before.
func (f *fakeControl) ended() error {
	if c := f.cause.Load(); c != nil {
		return *c
	}
	return nil
}

// TestSweep checks which connections are idle.
func TestSweep(t *testing.T) {
	for _, tt := range []struct {
		name   string
		idle   config.IdleTimeout
		calls  uint64 // at the start
		change func(i *oncrpc.Conn, f *fakeControl, at time.Duration)
		want   error
		after  time.Duration // until the end
	}{
		{"no call", config.IdleTimeout{BeforeFirstCall: config.Duration(30 * time.Second), AfterCall: config.Duration(time.Hour)}, 0, nil, errNoFirstCall, 30 * time.Second},
		{"no call, no limit", config.IdleTimeout{AfterCall: config.Duration(time.Hour)}, 0, nil, nil, 0},
		{"a call", config.IdleTimeout{BeforeFirstCall: config.Duration(30 * time.Second), AfterCall: config.Duration(time.Hour)}, 1, nil, errNoCall, time.Hour},
		{"a call, no limit", config.IdleTimeout{BeforeFirstCall: config.Duration(30 * time.Second)}, 1, nil, nil, 0},
		{"a call now and then", config.IdleTimeout{AfterCall: config.Duration(time.Minute)}, 1, func(i *oncrpc.Conn, _ *fakeControl, at time.Duration) {
			if at%(50*time.Second) == 0 && at < time.Hour {
				i.Calls.Add(1)
			}
		}, errNoCall, time.Hour + 10*time.Second},
		{"a callback that is not answered", config.IdleTimeout{AfterCall: config.Duration(time.Minute)}, 1, func(_ *oncrpc.Conn, f *fakeControl, at time.Duration) {
			f.busy.Store(at < time.Hour)
		}, errNoCall, time.Hour + time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(slog.New(slog.DiscardHandler), new(Totals))
				f := &fakeControl{}
				i := &oncrpc.Conn{Control: f}
				i.Calls.Store(tt.calls)
				c.Open(TCP, i, nil)
				c.idle.Store(&tt.idle)
				go c.Sweep(t.Context())
				begin := time.Now()
				for f.ended() == nil && time.Since(begin) < 4*time.Hour {
					if tt.change != nil {
						tt.change(i, f, time.Since(begin))
					}
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if got := f.ended(); !errors.Is(got, tt.want) {
					t.Fatalf("ended with %v, want %v", got, tt.want)
				}
				if took := time.Since(begin); tt.want != nil && (took < tt.after || took > tt.after+longestSweep+20*time.Second) {
					t.Errorf("ended after %v, want %v or little more", took, tt.after)
				}
			})
		})
	}
}
