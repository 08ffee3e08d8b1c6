package proxy

import (
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
)

// rootWaiters holds the calls that wait for the export's root. They count as waiting for the
// backend, and end with their client's connection.
type rootWaiters struct {
	s *Server

	mu       sync.Mutex
	calls    []*forwardedCall
	closed   bool
	watching bool // watchTimeouts runs
}

// wait keeps a call until the roots change. lacking are the roots that it was rewritten with: they
// may lack the root of one version and have the other.
func (w *rootWaiters) wait(f *forwardedCall, lacking *rewrite.Roots) {
	if err := w.enqueue(f); err != nil {
		f.abandon("forward call failed", err)
		return
	}
	switch {
	case w.s.export.Roots.Load() != lacking: // found meanwhile
		w.resume()
	case lacking == nil:
		w.s.roots.trigger()
	} // Otherwise a search is running.
}

func (w *rootWaiters) enqueue(f *forwardedCall) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed || f.client.gone:
		return upstream.ErrClosed
	case !w.s.backend.Admit(f.call.Len()):
		return upstream.ErrOverloaded
	}
	if f.waitingSince.IsZero() {
		f.waitingSince = time.Now()
	}
	w.calls = append(w.calls, f)
	if !w.watching && w.s.cfg.SoftTimeout > 0 {
		w.watching = true
		w.s.running.Go(w.watchTimeouts)
	}
	return nil
}

// takeLocked removes and returns the matching calls.
func (w *rootWaiters) takeLocked(which func(*forwardedCall) bool) (taken []*forwardedCall) {
	w.calls = slices.DeleteFunc(w.calls, func(f *forwardedCall) bool {
		if !which(f) {
			return false
		}
		w.s.backend.Dismiss(f.call.Len())
		taken = append(taken, f)
		return true
	})
	return taken
}

func all(*forwardedCall) bool { return true }

// resume rewrites and sends all calls.
func (w *rootWaiters) resume() {
	w.mu.Lock()
	taken := w.takeLocked(all)
	w.mu.Unlock()
	for _, f := range taken {
		f.rewriteAndSend()
	}
}

// dropClient drops the calls of a disconnected client.
func (w *rootWaiters) dropClient(p *clientConn) {
	w.mu.Lock()
	p.gone = true
	taken := w.takeLocked(func(f *forwardedCall) bool { return f.client == p })
	w.mu.Unlock()
	abandonClosed(taken)
}

func (w *rootWaiters) dropAll() {
	w.mu.Lock()
	w.closed = true
	taken := w.takeLocked(all)
	w.mu.Unlock()
	abandonClosed(taken)
}

func abandonClosed(calls []*forwardedCall) {
	for _, f := range calls {
		f.abandon("forward call failed", upstream.ErrClosed)
	}
}

// watchTimeouts applies the soft timeout while calls wait. It visits the list 16 times in that
// time, so the delay is small.
func (w *rootWaiters) watchTimeouts() {
	t := time.NewTicker(max(w.s.cfg.SoftTimeout/16, 1))
	defer t.Stop()
	for w.expireCalls() {
		select {
		case <-t.C:
		case <-w.s.closed:
			return
		}
	}
}

// expireCalls ends the timed-out calls, and reports whether others wait.
func (w *rootWaiters) expireCalls() bool {
	w.mu.Lock()
	taken := w.takeLocked(func(f *forwardedCall) bool { return time.Since(f.waitingSince) >= w.s.cfg.SoftTimeout })
	w.watching = len(w.calls) > 0
	more := w.watching
	w.mu.Unlock()
	for _, f := range taken {
		f.answerFailure(upstream.ErrSoftTimeout)
	}
	return more
}
