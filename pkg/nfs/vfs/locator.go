package vfs

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxWaiting bounds the callers that wait, so that a search does not occupy all workers.
	maxWaiting = 4
	// missingTTL is how long the result of a vain search holds.
	missingTTL = 10 * time.Second
)

// locator has the objects to search the whole directory for. One search serves all callers.
type locator struct {
	mu      sync.Mutex
	wanted  map[uint64][]*search // by inode number
	missing map[objectID]int64   // not found; valid until then
	running bool
	waiting int
	count   uint64 // of searches
	stop    chan struct{}
	done    sync.WaitGroup
}

// search is a wanted object.
type search struct {
	id    objectID
	round bool          // wanted before the running search began
	done  chan struct{} // closed when the object is in the table, or the search ended without it
}

func (l *locator) init() {
	l.wanted, l.missing, l.stop = map[uint64][]*search{}, map[objectID]int64{}, make(chan struct{})
}

func (l *locator) close() {
	close(l.stop)
	l.done.Wait()
}

func (l *locator) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// enqueue adds a wanted object with the inode number ino, and starts run unless it runs already.
func (l *locator) enqueue(i *objectID, ino uint64, now int64, run func()) (*search, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, until := range l.missing {
		if until < now {
			delete(l.missing, k)
		}
	}
	if _, missing := l.missing[*i]; missing {
		return nil, unix.ESTALE
	}
	var s *search
	for _, w := range l.wanted[ino] {
		if w.id == *i {
			s = w
		}
	}
	if s == nil {
		s = &search{id: *i, done: make(chan struct{})}
		l.wanted[ino] = append(l.wanted[ino], s)
	}
	if !l.running {
		l.running = true
		l.count++
		l.done.Add(1)
		go run()
	}
	if l.waiting >= maxWaiting {
		return nil, unix.EAGAIN
	}
	l.waiting++
	return s, nil
}

// wait waits for the end of s, and reports whether the object is missing.
func (l *locator) wait(s *search, timeout time.Duration) (missing bool) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	case <-l.stop:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
	_, missing = l.missing[s.id]
	return missing
}

// beginRound marks the objects that the next walk is for. It returns false, and the search ends, if
// no object is wanted.
func (l *locator) beginRound() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wanted) == 0 || l.stopped() {
		l.running = false
		return false
	}
	for _, list := range l.wanted {
		for _, s := range list {
			s.round = true
		}
	}
	return true
}

// wants reports whether an object with the inode number ino is wanted.
func (l *locator) wants(ino uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted[ino] != nil
}

// idle reports whether no object is wanted.
func (l *locator) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.wanted) == 0
}

// giveUp ends the searches that a whole walk did not satisfy. Unless sure, the walk may have missed
// something, and no object counts as missing.
func (l *locator) giveUp(sure bool, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := now + int64(missingTTL)
	for ino, list := range l.wanted {
		var left []*search
		for _, s := range list {
			if !s.round {
				left = append(left, s)
				continue
			}
			if sure {
				l.missing[s.id] = until
			}
			close(s.done)
		}
		if l.wanted[ino] = left; left == nil {
			delete(l.wanted, ino)
		}
	}
}

// found ends the search for an object, which is in the table.
func (l *locator) found(ino uint64, i *objectID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.wanted[ino]
	for k, s := range list {
		if s.id == *i {
			close(s.done)
			list = append(list[:k:k], list[k+1:]...)
			break
		}
	}
	if l.wanted[ino] = list; len(list) == 0 {
		delete(l.wanted, ino)
	}
}
