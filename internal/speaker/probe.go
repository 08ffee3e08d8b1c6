package speaker

import (
	"context"
	"io"
	"net/http"
	"time"

	"sluice.dev/sluice/internal/speaker/fsm"
)

const gatewayEvery = time.Second

// watchGateway polls the gateway's readiness page until ctx ends, and calls report: whether the pod
// may take addresses and may keep those it has. A gateway that answers nothing for as long as a
// Lease lasts is gone, and its addresses are useless. One that answers that it is not ready, as
// while it drains, keeps them.
func watchGateway(ctx context.Context, url string, by http.RoundTripper, lease time.Duration, report func(fsm.Fit)) {
	client := &http.Client{Transport: by, Timeout: max(gatewayEvery, lease/10)}
	answered := time.Now()
	t := time.NewTicker(gatewayEvery)
	defer t.Stop()
	for {
		ready := false
		if req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil); err == nil {
			if r, err := client.Do(req); err == nil {
				_, _ = io.CopyN(io.Discard, r.Body, 4096)
				_ = r.Body.Close()
				answered, ready = time.Now(), r.StatusCode == http.StatusOK
			}
		}
		report(fsm.Fit{Take: ready, Keep: time.Since(answered) < lease})
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
