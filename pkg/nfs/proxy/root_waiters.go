package proxy

import (
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
)

// rootWaiters are the calls that wait for the export's root. They count among those that wait for the backend, and end with their client's connection.
type rootWaiters struct {
	s *Server

	mu       sync.Mutex
	calls    []*forwardedCall
	closed   bool
	watching bool // there is a goroutine that watches the soft timeout
}

// wait keeps a call until roots are found that are not those which it lacked one of: that of one version may be found, and that of another not.
func (w *rootWaiters) wait(f *forwardedCall, lacking *rewrite.Roots) {
	if err := w.enqueue(f); err != nil {
		f.abandon("forward call failed", err)
		return
	}
	switch {
	case w.s.export.Roots.Load() != lacking: // found just now
		w.resume()
	case lacking == nil:
		w.s.roots.trigger()
	} // else the roots are looked for again anyway
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

// takeLocked takes out the calls that which says. The list is locked.
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

// resume sends all calls on their way.
func (w *rootWaiters) resume() {
	w.mu.Lock()
	taken := w.takeLocked(all)
	w.mu.Unlock()
	for _, f := range taken {
		f.rewriteAndSend()
	}
}

// dropClient ends the calls of a client whose connection is gone.
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

// watchTimeouts sees to the soft timeout as long as calls wait. However many there are, their list is gone through few times within that time, and none exceeds it by much.
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

// expireCalls ends the calls whose time is over, and reports whether others wait.
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
