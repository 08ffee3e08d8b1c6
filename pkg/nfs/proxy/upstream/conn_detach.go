package upstream

import (
	"slices"
	"time"
)

// detach takes the connection from lk, whose client has disconnected. It is kept for the client if
// the backend identifies replays by XID and address; otherwise it is closed.
func (bc *backendConn) detach(lk *Link) {
	bc.mu.Lock()
	if bc.owner.Load() != lk {
		bc.mu.Unlock()
		return
	}
	if bc.replays[ReplayBySession] || !bc.replays[ReplayByXID] {
		bc.mu.Unlock()
		bc.close()
		return
	}
	bc.owner.Store(nil)
	unsent := bc.takeUnsentLocked()
	for r := bc.queue.first; r != nil; r = r.next {
		r.orphanLocked()
		if r.inFlight != nil {
			r.inFlight.orphanLocked()
		}
	}
	bc.mu.Unlock()
	finishAll(unsent, ErrClosed)
	if bc.b.orphaned.Load() > bc.b.cfg.WaitLimit {
		bc.b.cfg.Logger.Warn("close backend connection of disconnected client: too many unanswered bytes",
			"client", bc.address)
		bc.close()
		return
	}
	bc.b.keepDetached(bc)
}

// close ends the connection. Calls in flight finish when their connection gives them back.
func (bc *backendConn) close() {
	bc.mu.Lock()
	if bc.closed {
		bc.mu.Unlock()
		return
	}
	bc.closed = true
	bc.owner.Store(nil)
	unsent := bc.takeUnsentLocked()
	lc := bc.live.Load()
	if bc.softTimer != nil {
		bc.softTimer.Stop()
	}
	running := bc.running
	bc.mu.Unlock()
	bc.cancel()
	finishAll(unsent, ErrClosed)
	if lc != nil {
		_ = lc.Close()
	}
	if !running {
		bc.b.ports.put(bc.port)
	}
	bc.b.forget(bc)
}

// takeUnsentLocked removes the calls that no connection has. They are chained by next.
func (bc *backendConn) takeUnsentLocked() (first *Request) {
	at := &first
	for r := bc.queue.first; r != nil; {
		next := r.next
		if r.sentOn == nil {
			bc.removeLocked(r)
			*at, at = r, &r.next
		}
		r = next
	}
	return first
}

// reattachLocked gives lk a detached connection of its client. Among several (nconnect) it prefers
// the connection that saw the XID, then the oldest. It returns nil if there is none.
func (b *Backend) reattachLocked(lk *Link, xid uint32) *backendConn {
	found := -1
	for i, bc := range b.detached {
		if bc.address != lk.client.Remote.Addr().Unmap() {
			continue
		}
		if bc.sawXID(xid) {
			found = i
			break
		}
		if found < 0 {
			found = i
		}
	}
	if found < 0 {
		return nil
	}
	bc := b.detached[found]
	b.detached = slices.Delete(b.detached, found, found+1)
	bc.detachTimer.Stop()
	bc.mu.Lock()
	bc.owner.Store(lk)
	bc.mu.Unlock()
	return bc
}

// keepDetached keeps a connection without owner for the client at its address.
func (b *Backend) keepDetached(bc *backendConn) {
	var evicted *backendConn
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		bc.close()
		return
	}
	b.detached = append(b.detached, bc)
	if len(b.detached) > b.cfg.MaxDetached {
		evicted = b.detached[0]
		evicted.detachTimer.Stop()
		b.detached = slices.Delete(b.detached, 0, 1)
	}
	if evicted != bc {
		bc.detachTimer = time.AfterFunc(b.cfg.ReattachTimeout, func() { b.expireDetached(bc) })
	}
	b.mu.Unlock()
	if evicted != nil {
		evicted.close()
	}
}

// expireDetached closes a connection whose client has not returned in time.
func (b *Backend) expireDetached(bc *backendConn) {
	b.mu.Lock()
	i := slices.Index(b.detached, bc)
	if i >= 0 {
		b.detached = slices.Delete(b.detached, i, i+1)
	}
	b.mu.Unlock()
	if i >= 0 {
		bc.close()
	}
}
