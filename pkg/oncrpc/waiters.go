package oncrpc

import "sync"

// Waiters are the channels on which [Do] waits. A [Requester] that embeds them keeps them for its
// later calls; for another one, Do makes a channel for each call. They belong to a connection and
// not to the requests, which are reused elsewhere: in a testing/synctest bubble channels are the
// bubble's own.
type Waiters struct {
	mu   sync.Mutex
	free []chan struct{}
}

// waiting is a requester that embeds Waiters.
type waiting interface{ waiters() *Waiters }

func (w *Waiters) waiters() *Waiters { return w }

// waitersOf returns those of a requester, nil if it has none.
func waitersOf(rq Requester) *Waiters {
	if w, ok := rq.(waiting); ok {
		return w.waiters()
	}
	return nil
}

// take returns a channel that holds one signal.
func (w *Waiters) take() chan struct{} {
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.free); n > 0 {
			ch := w.free[n-1]
			w.free = w.free[:n-1]
			return ch
		}
	}
	return make(chan struct{}, 1)
}

// put gives an empty channel back.
func (w *Waiters) put(ch chan struct{}) {
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.free = append(w.free, ch)
	}
}
