package vfs

import "sync"

// SyncGroup lets callers that wait for the same sync share one. A sync covers everything from
// before its begin, so a caller that comes while one runs waits for the next.
type SyncGroup struct {
	mu      sync.Mutex
	current *syncRound // running, or nil
	next    *syncRound // the one after it
	free    *syncRound
}

// syncRound is one sync.
type syncRound struct {
	callers int
	begins  sync.Cond // for the caller that is to run it, and the others
	done    bool
	err     error
	link    *syncRound
}

// Do returns the outcome of a call of sync that began after Do.
func (g *SyncGroup) Do(sync func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.next
	if r == nil {
		r = g.newRound()
		g.next = r
	}
	r.callers++
	for !r.done && (g.current != nil || g.next != r) {
		r.begins.Wait()
	}
	if !r.done { // this caller runs it, for all
		g.current, g.next = r, nil
		g.mu.Unlock()
		err := sync()
		g.mu.Lock()
		r.done, r.err = true, err
		g.current = nil
		r.begins.Broadcast()
		if g.next != nil {
			g.next.begins.Signal()
		}
	}
	err := r.err
	if r.callers--; r.callers == 0 {
		r.link, g.free = g.free, r
	}
	return err
}

func (g *SyncGroup) newRound() *syncRound {
	r := g.free
	if r == nil {
		r = &syncRound{}
		r.begins.L = &g.mu
		return r
	}
	g.free = r.link
	r.done, r.err, r.link = false, nil, nil
	return r
}
