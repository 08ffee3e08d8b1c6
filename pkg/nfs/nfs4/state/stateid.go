package state

import (
	"encoding/binary"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// stateid is the part of an Open, a Lock, a Delegation or an Offload behind its stateid.
type stateid struct {
	number     uint64
	seq        uint32
	client     *Client
	file       *file
	open       *Open
	lock       *Lock       // nil: the stateid is the open's, or the delegation's
	delegation *Delegation // nil: it is no delegation's
	offload    *Offload    // nil: it is no copy's
}

// file has the state of a file; it exists while there is any.
type file struct {
	id          FileID
	opens       []*Open
	locks       []*Lock
	delegations []*Delegation
	waiters     []lockWaiter
}

func (s *State) fileOf(id *FileID) *file {
	f := s.files[*id]
	if f == nil {
		f = &file{id: *id}
		s.files[*id] = f
	}
	return f
}

func (s *State) dropFile(f *file) {
	if len(f.opens) == 0 && len(f.locks) == 0 && len(f.delegations) == 0 {
		delete(s.files, f.id)
	}
}

func (s *State) newStateID(c *Client, f *file) stateid {
	c.states++
	return stateid{number: s.nextID(), client: c, file: f}
}

func (s *State) dropStateID(t *stateid) {
	delete(s.stateids, t.number)
	t.client.states--
}

// next is the stateid after a change.
func (s *State) next(t *stateid) nfs4.StateID {
	if t.seq++; t.seq == 0 { // 0 means the latest
		t.seq = 1
	}
	return s.present(t)
}

func (s *State) present(t *stateid) (id nfs4.StateID) {
	id.Seq = t.seq
	binary.BigEndian.PutUint32(id.Other[:], s.cfg.Boot)
	binary.BigEndian.PutUint64(id.Other[4:], t.number)
	return id
}

// number returns the part of a stateid that identifies it in this instance.
func number(id *nfs4.StateID) uint64 { return binary.BigEndian.Uint64(id.Other[4:]) }

// find returns the state of a stateid of c (RFC 8881 section 8.2.4).
func (s *State) find(c *Client, id *nfs4.StateID) (*stateid, nfs4.Status) {
	if binary.BigEndian.Uint32(id.Other[:]) != s.cfg.Boot {
		return nil, nfs4.ErrBadStateID
	}
	t := s.stateids[number(id)]
	switch {
	case t == nil || t.client != c:
		return nil, nfs4.ErrBadStateID
	case t.delegation != nil && t.delegation.revoked:
		return nil, nfs4.ErrDelegRevoked
	case id.Seq == 0 || id.Seq == t.seq:
		return t, nfs4.OK
	case int32(id.Seq-t.seq) > 0: // sequence numbers wrap
		return nil, nfs4.ErrBadStateID
	}
	return nil, nfs4.ErrOldStateID
}

// findOpen is find for the open of a file.
func (s *State) findOpen(c *Client, id *nfs4.StateID, f *FileID) (*Open, nfs4.Status) {
	t, st := s.find(c, id)
	switch {
	case st != nfs4.OK:
		return nil, st
	case t.lock != nil || t.delegation != nil || t.offload != nil || t.file.id != *f:
		return nil, nfs4.ErrBadStateID
	}
	return t.open, nfs4.OK
}

// Kinds of access, as OPEN4_SHARE_ACCESS_READ and OPEN4_SHARE_ACCESS_WRITE.
const (
	Read  = 1
	Write = 2
)

// access returns the access that a stateid gives to its file.
func (t *stateid) access() uint32 {
	switch {
	case t.delegation == nil:
		return t.open.access
	case t.delegation.write:
		return Read | Write
	}
	return Read
}

// Check returns the access that an open, lock or delegation stateid gives to a file. A client may
// read a file that it opened for writing: then the access lacks Read, and its permissions decide.
// Missing Write is NFS4ERR_OPENMODE.
func (s *State) Check(c *Client, id *nfs4.StateID, f *FileID, want uint32) (access uint32, st nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, st := s.find(c, id)
	switch {
	case st != nfs4.OK:
		return 0, st
	case t.file.id != *f || t.offload != nil:
		return 0, nfs4.ErrBadStateID
	case want&Write != 0 && t.access()&Write == 0:
		return 0, nfs4.ErrOpenMode
	}
	return t.access(), nfs4.OK
}

// CheckNone returns the status of an access without state: NFS4ERR_LOCKED if an open denies it.
func (s *State) CheckNone(f *FileID, want uint32, now time.Time) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.files[*f]
	if t == nil {
		return nfs4.OK
	}
	var holders []*Client
	for _, o := range t.opens {
		if o.deny&want != 0 {
			holders = append(holders, o.client)
		}
	}
	if len(holders) > 0 && !s.courteous(holders, now) {
		return nfs4.ErrLocked
	}
	return nfs4.OK
}

// Test is TEST_STATEID for one stateid (RFC 8881 section 18.48).
func (s *State) Test(c *Client, id *nfs4.StateID) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, st := s.find(c, id)
	return st
}

// Free is FREE_STATEID (RFC 8881 section 18.38). Only a lock stateid without locks and a revoked
// delegation can be freed: an open ends with CLOSE, a delegation with DELEGRETURN.
func (s *State) Free(c *Client, id *nfs4.StateID) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, st := s.find(c, id)
	switch {
	case st == nfs4.ErrDelegRevoked:
		s.endDelegation(s.stateids[number(id)].delegation)
		return nfs4.OK
	case st != nfs4.OK:
		return st
	case t.lock == nil || len(t.lock.ranges) > 0:
		return nfs4.ErrLocksHeld
	}
	s.endLock(t.lock)
	return nfs4.OK
}
