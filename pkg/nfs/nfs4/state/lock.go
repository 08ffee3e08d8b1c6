package state

import (
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// lockOwner is a lock-owner of a client.
type lockOwner struct {
	name  string
	locks map[*file]*Lock
}

// Range is a range of bytes, Last included.
type Range struct {
	First, Last uint64
	Write       bool
}

// Lock is the byte-range locks of a lock-owner on a file: a lock stateid.
type Lock struct {
	stateid
	owner  *lockOwner
	ranges []Range // sorted, disjoint
	ended  bool

	resource any

	// IO serializes the caller's changes of the real locks behind l.
	IO sync.Mutex
}

// Conflict is a lock that conflicts with a request.
type Conflict struct {
	Range
	ClientID uint64
	Owner    []byte
	// For is the lock-owner that asked.
	For []byte
}

// LockRequest is a request of LOCK. With NewOwner, OpenID and Owner name the lock-owner, otherwise
// ID does.
type LockRequest struct {
	Client   *Client
	File     FileID
	NewOwner bool
	OpenID   nfs4.StateID
	Owner    []byte
	ID       nfs4.StateID
	Range    Range
	Reclaim  bool
}

// Locked is the outcome of Lock.
type Locked struct {
	ID   nfs4.StateID
	Lock *Lock

	created bool
	before  []Range
}

// Lock is LOCK (RFC 8881 section 18.10). With NFS4ERR_DENIED it returns a conflict. The caller sets
// the real lock afterwards, and calls UndoLock if it cannot.
func (s *State) Lock(r *LockRequest, now time.Time) (out Locked, conflict *Conflict, st nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, l, st := s.locker(r)
	if st != nfs4.OK {
		return out, nil, st
	}
	need := uint32(Read)
	if r.Range.Write {
		need = Write
	}
	st = s.mayGrant(r.Client, now)
	if r.Reclaim {
		st = s.mayReclaim(r.Client, now)
	}
	switch {
	case o.access&need == 0:
		return out, nil, nfs4.ErrOpenMode
	case st != nfs4.OK:
		return out, nil, st
	}
	owner := string(r.Owner)
	if l != nil {
		owner = l.owner.name
	}
	if conflict := s.conflict(o.file, r.Client, owner, r.Range, now); conflict != nil {
		if r.Reclaim {
			return out, nil, nfs4.ErrReclaimConflict
		}
		conflict.For = []byte(owner)
		return out, conflict, nfs4.ErrDenied
	}
	// A range splits at most one other into two.
	if !s.makeRoom(r.Client.host, ranges, 2, false, now) || l == nil && !s.makeRoom(r.Client.host, locks, 1, false, now) {
		return out, nil, nfs4.ErrDelay
	}
	if l == nil {
		l = s.newLock(o, owner)
		out.created = true
	}
	out.Lock, out.before = l, slices.Clone(l.ranges)
	s.dropWaiter(o.file, r.Client, owner)
	s.setRanges(l, apply(l.ranges, r.Range, true))
	out.ID = s.next(&l.stateid)
	return out, nil, nfs4.OK
}

// locker returns the open and the lock of a request; the lock is nil if the owner has none on the
// file.
func (s *State) locker(r *LockRequest) (*Open, *Lock, nfs4.Status) {
	if !r.NewOwner {
		t, st := s.find(r.Client, &r.ID)
		switch {
		case st != nfs4.OK:
			return nil, nil, st
		case t.lock == nil || t.file.id != r.File:
			return nil, nil, nfs4.ErrBadStateID
		}
		return t.open, t.lock, nfs4.OK
	}
	o, st := s.findOpen(r.Client, &r.OpenID, &r.File)
	if st != nfs4.OK {
		return nil, nil, st
	}
	if w := r.Client.lockers[string(r.Owner)]; w != nil {
		return o, w.locks[o.file], nfs4.OK
	}
	return o, nil, nfs4.OK
}

func (s *State) newLock(o *Open, owner string) *Lock {
	w := o.client.lockers[owner]
	if w == nil {
		w = &lockOwner{name: owner, locks: map[*file]*Lock{}}
		o.client.lockers[owner] = w
	}
	l := &Lock{stateid: s.newStateID(o.client, o.file), owner: w}
	l.open, l.lock = o, l
	s.stateids[l.number] = &l.stateid
	w.locks[o.file] = l
	o.locks = append(o.locks, l)
	o.file.locks = append(o.file.locks, l)
	s.take(o.client.host, locks, 1)
	return l
}

func (s *State) endLock(l *Lock) {
	l.ended = true
	s.setRanges(l, nil)
	s.dropStateID(&l.stateid)
	s.take(l.client.host, locks, -1)
	same := func(x *Lock) bool { return x == l }
	l.open.locks = slices.DeleteFunc(l.open.locks, same)
	l.file.locks = slices.DeleteFunc(l.file.locks, same)
	delete(l.owner.locks, l.file)
	if len(l.owner.locks) == 0 {
		delete(l.client.lockers, l.owner.name)
	}
	s.dropFile(l.file)
	s.release(l.resource)
	l.resource = nil
}

func (s *State) setRanges(l *Lock, to []Range) {
	s.take(l.client.host, ranges, len(to)-len(l.ranges))
	l.ranges = to
	if len(l.file.waiters) > 0 {
		s.wakeWaiters(l.file)
	}
}

// conflict returns a lock of another owner that conflicts with r. Expired clients give way.
func (s *State) conflict(f *file, c *Client, owner string, r Range, now time.Time) *Conflict {
	for again := true; again; {
		again = false
		for _, l := range f.locks {
			if l.client == c && l.owner.name == owner {
				continue
			}
			k := l.overlap(r)
			if k == nil {
				continue
			}
			if l.client != c && s.courteous([]*Client{l.client}, now) {
				again = true // the list has changed
				break
			}
			return &Conflict{Range: *k, ClientID: l.client.id, Owner: []byte(l.owner.name)}
		}
	}
	return nil
}

// overlap returns a range of l that conflicts with r.
func (l *Lock) overlap(r Range) *Range {
	for i := range l.ranges {
		k := &l.ranges[i]
		if k.First <= r.Last && r.First <= k.Last && (k.Write || r.Write) {
			return k
		}
	}
	return nil
}

// apply returns ranges with r set, or cleared, and neighbours of one kind joined.
func apply(ranges []Range, r Range, set bool) []Range {
	out := make([]Range, 0, len(ranges)+2)
	add := func(k Range) {
		if n := len(out); n > 0 && out[n-1].Write == k.Write && out[n-1].Last+1 == k.First {
			out[n-1].Last = k.Last
			return
		}
		out = append(out, k)
	}
	for _, k := range ranges {
		if set && k.Last >= r.First { // r comes before the end of k
			if k.First < r.First {
				add(Range{k.First, r.First - 1, k.Write})
			}
			add(r)
			set = false
		} else if k.First < r.First {
			add(Range{k.First, min(k.Last, r.First-1), k.Write})
		}
		if k.Last > r.Last {
			add(Range{max(k.First, r.Last+1), k.Last, k.Write})
		}
	}
	if set {
		add(r)
	}
	return out
}

// UndoLock undoes a Lock, since the real lock was refused.
func (s *State) UndoLock(o *Locked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch l := o.Lock; {
	case l.ended:
	case o.created:
		s.endLock(l)
	default:
		s.setRanges(l, o.before)
		l.seq--
	}
}

// Resource returns the resource of a lock.
func (s *State) Resource(l *Lock) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.resource
}

// Attach gives a lock its resource; false if the lock has ended meanwhile.
func (s *State) Attach(l *Lock, resource any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.ended {
		return false
	}
	l.resource = resource
	return true
}

// LockOf returns the lock of a stateid, for LOCKU.
func (s *State) LockOf(c *Client, id *nfs4.StateID, f *FileID) (*Lock, nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, st := s.find(c, id)
	switch {
	case st != nfs4.OK:
		return nil, st
	case t.lock == nil || t.file.id != *f:
		return nil, nfs4.ErrBadStateID
	}
	return t.lock, nfs4.OK
}

// Unlock is LOCKU (RFC 8881 section 18.12), after the real lock was released.
func (s *State) Unlock(l *Lock, r Range) (nfs4.StateID, nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.ended {
		return nfs4.StateID{}, nfs4.ErrBadStateID
	}
	s.setRanges(l, apply(l.ranges, r, false))
	return s.next(&l.stateid), nfs4.OK
}

// TestLock is LOCKT (RFC 8881 section 18.11). Without a conflict it returns the owner's lock on the
// file, nil if it has none.
func (s *State) TestLock(c *Client, owner []byte, f *FileID, r Range, now time.Time) (*Conflict, *Lock, nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inGrace(now) {
		return nil, nil, nfs4.ErrGrace
	}
	t := s.files[*f]
	if t == nil {
		return nil, nil, nfs4.OK
	}
	if k := s.conflict(t, c, string(owner), r, now); k != nil {
		return k, nil, nfs4.ErrDenied
	}
	if w := c.lockers[string(owner)]; w != nil {
		return nil, w.locks[t], nfs4.OK
	}
	return nil, nil, nfs4.OK
}
