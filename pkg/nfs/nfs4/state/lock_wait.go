package state

import (
	"bytes"
	"slices"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// lockWaiter is a lock-owner that waits for a range to become free.
type lockWaiter struct {
	LockNotice
	wants Range
}

// LockNotice is a lock-owner to be notified that a lock may be free (CB_NOTIFY_LOCK).
type LockNotice struct {
	Client *Client
	Owner  []byte
	Handle []byte
}

// maxLockWaiters bounds the lock-owners that wait for a notice. Others try again by themselves.
const maxLockWaiters = 4096

// WaitLock makes a notice for a lock-owner whose LOCK was denied, when the range is free. handle is
// the filehandle by which the client knows the file.
func (s *State) WaitLock(c *Client, owner []byte, f *FileID, handle []byte, r Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ended {
		return
	}
	w := lockWaiter{LockNotice{c, bytes.Clone(owner), bytes.Clone(handle)}, r}
	t := s.files[*f]
	if t == nil || !w.conflicts(t) { // free meanwhile
		s.notice(w)
		return
	}
	s.dropWaiter(t, c, string(owner))
	if s.waiters < maxLockWaiters {
		t.waiters = append(t.waiters, w)
		s.waiters++
	}
}

func (w *lockWaiter) conflicts(f *file) bool {
	return slices.ContainsFunc(f.locks, func(l *Lock) bool {
		return (l.client != w.Client || l.owner.name != string(w.Owner)) && l.overlap(w.wants) != nil
	})
}

func (s *State) notice(w lockWaiter) {
	s.notices = append(s.notices, w.LockNotice)
	s.ended.Store(true)
}

// dropWaiter forgets a lock-owner that waits for a lock on f.
func (s *State) dropWaiter(f *file, c *Client, owner string) {
	before := len(f.waiters)
	f.waiters = slices.DeleteFunc(f.waiters, func(w lockWaiter) bool { return w.Client == c && string(w.Owner) == owner })
	s.waiters -= before - len(f.waiters)
}

// wakeWaiters makes the notices for ranges of f that are free now.
func (s *State) wakeWaiters(f *file) {
	f.waiters = slices.DeleteFunc(f.waiters, func(w lockWaiter) bool {
		if w.conflicts(f) {
			return false
		}
		s.waiters--
		s.notice(w)
		return true
	})
}

// LockNotices returns the lock-owners to be notified since the last call.
func (s *State) LockNotices() (list []LockNotice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.notices = s.notices, nil
	return list
}

// Reachable reports whether callbacks reach the client.
func (s *State) Reachable(c *Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.reachable()
}

// Owner returns the lock-owner and its client.
func (l *Lock) Owner() nfs4.Owner {
	return nfs4.Owner{ClientID: l.client.id, Owner: []byte(l.owner.name)}
}
