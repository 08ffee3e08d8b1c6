package adminpage

import (
	"context"
	"sync"
	"time"

	status "sluice.dev/sluice/api/status/v1alpha1"
)

// The history of an export covers the last 10 min.
const (
	sampleInterval = 5 * time.Second
	maxSamples     = 121
)

// history keeps samples of each export's counters. The zero value is ready.
type history struct {
	mu      sync.Mutex
	exports map[string][]sample
}

// sample has the counters of an export at a time.
type sample struct {
	at    time.Time
	calls status.Calls
}

// rate has the calls and bytes per second between two samples.
type rate struct{ rpcs, in, out float64 }

// run samples until ctx ends.
func (h *history) run(ctx context.Context, get func() []status.Export) {
	t := time.NewTicker(sampleInterval)
	defer t.Stop()
	for {
		h.add(time.Now(), get())
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// add adds a sample of each export, and forgets exports that are gone.
func (h *history) add(now time.Time, exports []status.Export) {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := make(map[string][]sample, len(exports))
	for i := range exports {
		e := &exports[i]
		s := h.exports[e.Name]
		s = append(s, sample{now, e.Counters.Calls})
		current[e.Name] = s[max(0, len(s)-maxSamples):]
	}
	h.exports = current
}

// rates returns the rates of an export between its samples, the oldest first.
func (h *history) rates(export string) []rate {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.exports[export]
	var rates []rate
	for i := 1; i < len(all); i++ {
		a, b := &all[i-1], &all[i]
		seconds := b.at.Sub(a.at).Seconds()
		if seconds <= 0 || b.calls.RPCs < a.calls.RPCs { // another export of the same name
			rates = append(rates, rate{})
			continue
		}
		rates = append(rates, rate{
			float64(b.calls.RPCs-a.calls.RPCs) / seconds,
			float64(b.calls.BytesIn-a.calls.BytesIn) / seconds,
			float64(b.calls.BytesOut-a.calls.BytesOut) / seconds,
		})
	}
	return rates
}

// Lines keeps the last lines written to it. The zero value is ready.
type Lines struct {
	mu   sync.Mutex
	last []string // the newest last
}

// maxLines is the number of log lines on the page.
const maxLines = 20

// Write implements io.Writer. b is one line.
func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, string(b))
	l.last = l.last[max(0, len(l.last)-maxLines):]
	return len(b), nil
}

// newestFirst returns the lines.
func (l *Lines) newestFirst() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for i := len(l.last) - 1; i >= 0; i-- {
		all = append(all, l.last[i])
	}
	return all
}
