package proxy

import (
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
)

// waiting are the calls that wait for the export's root. They count among those that wait for the backend, and end with their client's connection.
type waiting struct {
	s *Server

	mu      sync.Mutex
	calls   []*flight
	closed  bool
	watched bool // there is a goroutine that watches the soft timeout
}

// await keeps a call until roots are found that are not those which it lacked one of: that of one version may be found, and that of another not.
func (w *waiting) await(f *flight, lacking *rewrite.Roots) {
	if err := w.add(f); err != nil {
		f.fail("a call cannot be forwarded", err)
		return
	}
	switch {
	case w.s.export.Roots.Load() != lacking: // found just now
		w.release()
	case lacking == nil:
		w.s.roots.look()
	} // else the roots are looked for again anyway
}

func (w *waiting) add(f *flight) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed || f.peer.gone:
		return upstream.ErrClosed
	case !w.s.up.Admit(f.call.Len()):
		return upstream.ErrOverloaded
	}
	if f.waits.IsZero() {
		f.waits = time.Now()
	}
	w.calls = append(w.calls, f)
	if !w.watched && w.s.cfg.SoftTimeout > 0 {
		w.watched = true
		w.s.running.Go(w.watch)
	}
	return nil
}

// take takes out the calls that which says. The list is locked.
func (w *waiting) take(which func(*flight) bool) (taken []*flight) {
	w.calls = slices.DeleteFunc(w.calls, func(f *flight) bool {
		if !which(f) {
			return false
		}
		w.s.up.Dismiss(f.call.Len())
		taken = append(taken, f)
		return true
	})
	return taken
}

func all(*flight) bool { return true }

// release sends all calls on their way.
func (w *waiting) release() {
	w.mu.Lock()
	taken := w.take(all)
	w.mu.Unlock()
	for _, f := range taken {
		f.decide()
	}
}

// leave ends the calls of a client whose connection is gone.
func (w *waiting) leave(p *peer) {
	w.mu.Lock()
	p.gone = true
	taken := w.take(func(f *flight) bool { return f.peer == p })
	w.mu.Unlock()
	drop(taken)
}

func (w *waiting) close() {
	w.mu.Lock()
	w.closed = true
	taken := w.take(all)
	w.mu.Unlock()
	drop(taken)
}

func drop(calls []*flight) {
	for _, f := range calls {
		f.fail("a call cannot be forwarded", upstream.ErrClosed)
	}
}

// watch sees to the soft timeout as long as calls wait. However many there are, their list is gone through few times within that time, and none exceeds it by much.
func (w *waiting) watch() {
	t := time.NewTicker(max(w.s.cfg.SoftTimeout/16, 1))
	defer t.Stop()
	for w.tick() {
		select {
		case <-t.C:
		case <-w.s.closed:
			return
		}
	}
}

// tick ends the calls whose time is over, and reports whether others wait.
func (w *waiting) tick() bool {
	w.mu.Lock()
	taken := w.take(func(f *flight) bool { return time.Since(f.waits) >= w.s.cfg.SoftTimeout })
	w.watched = len(w.calls) > 0
	more := w.watched
	w.mu.Unlock()
	for _, f := range taken {
		f.failed(upstream.ErrSoftTimeout)
	}
	return more
}
