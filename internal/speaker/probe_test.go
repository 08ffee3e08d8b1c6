package speaker

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/internal/speaker/fsm"
)

// answers stands in for the gateway's page.
type answers struct{ code atomic.Int32 } // 0: no answer

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	code := int(a.code.Load())
	if code == 0 {
		return nil, http.ErrHandlerTimeout
	}
	return &http.Response{StatusCode: code, Body: http.NoBody, Request: r}, nil
}

// TestWatchGateway: a pod takes addresses while its gateway is ready, keeps them while it drains,
// and gives them up when it is gone.
func TestWatchGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gw := new(answers)
		var fit atomic.Pointer[fsm.Fit]
		go watchGateway(ctx, "http://gateway/readyz", gw, lease, func(f fsm.Fit) { fit.Store(&f) })
		for _, c := range []struct {
			code int
			wait time.Duration
			want fsm.Fit
		}{
			{0, time.Second, fsm.Fit{Take: false, Keep: true}},
			{200, 2 * time.Second, fsm.Fit{Take: true, Keep: true}},
			{503, time.Minute, fsm.Fit{Take: false, Keep: true}},
			{0, lease - 2*time.Second, fsm.Fit{Take: false, Keep: true}},
			{0, 4 * time.Second, fsm.Fit{}},
			{200, 2 * time.Second, fsm.Fit{Take: true, Keep: true}},
		} {
			gw.code.Store(int32(c.code))
			time.Sleep(c.wait)
			synctest.Wait()
			if fit := *fit.Load(); fit != c.want {
				t.Errorf("code %d for %v: %+v, want %+v", c.code, c.wait, fit, c.want)
			}
		}
	})
}
