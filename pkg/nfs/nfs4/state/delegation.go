package state

import (
	"encoding/binary"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// Delegation is a delegation of a file to a client (RFC 8881 section 10.4).
type Delegation struct {
	stateid
	write    bool
	handle   []byte
	change   uint64
	recalled time.Time // zero: not recalled
	revoked  bool
	ended    bool
	resource any
	granted  nfs4.ReferringCall
}

// Client returns the holder.
func (d *Delegation) Client() *Client { return d.client }

// Handle returns the filehandle by which the client knows the file.
func (d *Delegation) Handle() []byte { return d.handle }

// Change returns the file's change attribute from the time of the grant.
func (d *Delegation) Change() uint64 { return d.change }

// Granted returns the call that the delegation was granted in.
func (d *Delegation) Granted() nfs4.ReferringCall { return d.granted }

// DelegationRequest asks for a delegation of a file to a client that has just opened it.
type DelegationRequest struct {
	Client *Client
	File   FileID
	Write  bool
	Handle []byte
	Change uint64
	// Wanted: the client asked for it. Reclaim: it had it before the restart.
	Wanted, Reclaim bool
	Granted         nfs4.ReferringCall
}

// contention is how long a file is not delegated after a recall.
const contention = 30 * time.Second

// pressInterval is the shortest time between two requests to return some delegations.
const pressInterval = time.Second

// recentRecalls remembers the files recalled lately, as many as have a place in it.
type recentRecalls [256]struct {
	file  FileID
	until time.Time
}

func (r *recentRecalls) place(f *FileID) int {
	h := uint64(14695981039346656037)
	for at := 0; at < len(f); at += 8 {
		h = (h ^ binary.LittleEndian.Uint64(f[at:])) * 1099511628211
	}
	return int(h >> 32 % uint64(len(r)))
}

func (r *recentRecalls) add(f *FileID, now time.Time) {
	e := &r[r.place(f)]
	e.file, e.until = *f, now.Add(contention)
}

func (r *recentRecalls) has(f *FileID, now time.Time) bool {
	e := &r[r.place(f)]
	return e.file == *f && now.Before(e.until)
}

// Delegate grants a delegation, or returns the reason for none (why_no_delegation4). The caller
// then makes sure that no operation on the file is under way that has not seen it, and undoes it by
// Undelegate if there is one.
func (s *State) Delegate(r *DelegationRequest, now time.Time) (d *Delegation, id nfs4.StateID, why uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, f := r.Client, s.files[r.File]
	// The last quarter is for clients that ask.
	limit := s.cfg.MaxDelegations
	if !r.Wanted && !r.Reclaim {
		limit -= limit / 4
	}
	switch {
	case c.ended || f == nil || len(c.revoked) > 0 || !r.Reclaim && !c.reachable():
		return nil, id, nfs4.WhyResource
	case c.delegations[f] != nil && r.Write && !c.delegations[f].write:
		return nil, id, nfs4.WhyNotSuppUpgrade
	case c.delegations[f] != nil && !r.Write && c.delegations[f].write:
		return nil, id, nfs4.WhyNotSuppDowngrade
	case c.delegations[f] != nil || !r.Reclaim && s.recent.has(&r.File, now):
		return nil, id, nfs4.WhyContention
	case s.delegations+s.revoked >= limit:
		if now.Sub(s.pressedAt) > pressInterval {
			s.pressedAt, s.pressed = now, true
			s.ended.Store(true)
		}
		return nil, id, nfs4.WhyResource
	}
	for _, o := range f.opens {
		if o.access&Write != 0 && (!r.Write || o.client != c) || o.client != c && (r.Write || o.deny&Read != 0) {
			return nil, id, nfs4.WhyContention
		}
	}
	if slices.ContainsFunc(f.delegations, func(o *Delegation) bool { return r.Write || o.write }) {
		return nil, id, nfs4.WhyContention
	}
	d = &Delegation{stateid: s.newStateID(c, f), write: r.Write, handle: slices.Clone(r.Handle), change: r.Change, granted: r.Granted}
	d.delegation = d
	s.stateids[d.number] = &d.stateid
	f.delegations = append(f.delegations, d)
	c.delegations[f] = d
	s.setDelegations(s.delegations + 1)
	return d, s.next(&d.stateid), 0
}

func (s *State) setDelegations(n int) {
	s.delegations = n
	s.delegated.Store(int64(n))
}

// Undelegate ends a delegation before its client knows of it.
func (s *State) Undelegate(d *Delegation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !d.ended && !d.revoked {
		s.endDelegation(d)
	}
}

// AttachDelegation gives a delegation its resource; false if it has ended meanwhile.
func (s *State) AttachDelegation(d *Delegation, resource any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.ended || d.revoked {
		return false
	}
	d.resource = resource
	return true
}

// endDelegation ends a delegation, revoked or not.
func (s *State) endDelegation(d *Delegation) {
	if d.revoked {
		delete(s.stateids, d.number)
		delete(d.client.revoked, d.number)
		s.revoked--
	} else {
		s.withdraw(d)
		s.dropStateID(&d.stateid)
	}
	d.ended = true
}

// withdraw takes a delegation from its file.
func (s *State) withdraw(d *Delegation) {
	f := d.file
	f.delegations = slices.DeleteFunc(f.delegations, func(x *Delegation) bool { return x == d })
	delete(d.client.delegations, f)
	s.setDelegations(s.delegations - 1)
	if len(f.delegations) == 0 {
		s.returned = append(s.returned, f.id)
		s.ended.Store(true)
	}
	s.dropFile(f)
	s.release(d.resource)
	d.resource = nil
}

// revoke ends a delegation that was not returned in time. Its stateid stays, so that the client
// learns about it, until FREE_STATEID.
func (s *State) revoke(d *Delegation) {
	s.withdraw(d)
	d.client.states--
	d.client.revoked[d.number] = d
	d.revoked = true
	s.revoked++
}

// Delegated reports whether there are any delegations.
func (s *State) Delegated() bool { return s.delegated.Load() > 0 }

// Use is a use of a file that may conflict with delegations.
type Use int

const (
	// UseRead needs the present data and attributes.
	UseRead Use = iota
	// UseChange changes attributes or names.
	UseChange
	// UseWrite changes data.
	UseWrite
)

// conflicts reports whether c's use of the file conflicts with d; c is nil for version 3. A
// resource, which guards d against local processes, keeps out every writer, the holder included.
func (d *Delegation) conflicts(c *Client, use Use) bool {
	if d.client == c {
		return use == UseWrite && d.resource != nil && !d.write
	}
	return d.write || use != UseRead
}

// Conflict recalls the delegations that conflict with a use of a file by c, nil for version 3. It
// returns NFS4ERR_DELAY while there are any.
func (s *State) Conflict(f *FileID, c *Client, use Use, now time.Time) nfs4.Status {
	if !s.Delegated() {
		return nfs4.OK
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recallFor(f, c, use, now)
}

func (s *State) recallFor(id *FileID, c *Client, use Use, now time.Time) nfs4.Status {
	f := s.files[*id]
	if f == nil || len(f.delegations) == 0 {
		return nfs4.OK
	}
	var holders []*Client
	for _, d := range slices.Clone(f.delegations) {
		switch {
		case !d.conflicts(c, use):
		case d.overdue(s.cfg.Lease, now):
			s.revoke(d)
		case d.client == c: // the resource keeps out the holder too, so it ends now
			s.recall(d, now)
			s.release(d.resource)
			d.resource = nil
		default:
			holders = append(holders, d.client)
		}
	}
	if len(holders) == 0 || s.courteous(holders, now) {
		return nfs4.OK
	}
	for _, d := range f.delegations {
		if d.conflicts(c, use) {
			s.recall(d, now)
		}
	}
	return nfs4.ErrDelay
}

// overdue reports whether a recalled delegation was not returned for a lease.
func (d *Delegation) overdue(lease time.Duration, now time.Time) bool {
	return !d.recalled.IsZero() && now.After(d.recalled.Add(lease))
}

func (s *State) recall(d *Delegation, now time.Time) {
	if !d.recalled.IsZero() {
		return
	}
	d.recalled = now
	s.recent.add(&d.file.id, now)
	s.recalls = append(s.recalls, d)
	s.ended.Store(true)
}

// Recall recalls the delegations with resources for which broken is true: a local process wants the
// file.
func (s *State) Recall(broken func(resource any) bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		for _, d := range c.delegations {
			if d.resource != nil && d.recalled.IsZero() && broken(d.resource) {
				s.recall(d, now)
			}
		}
	}
}

// Recalls returns the delegations recalled since the last call: the caller sends CB_RECALL to their
// holders.
func (s *State) Recalls() (list []*Delegation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.recalls = s.recalls, nil
	return list
}

// Returned returns the files that lost their last delegation since the last call.
func (s *State) Returned() (files []FileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, s.returned = s.returned, nil
	return files
}

// RecallOf returns the stateid for CB_RECALL; ok is false if the delegation has ended.
func (s *State) RecallOf(d *Delegation) (id nfs4.StateID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present(&d.stateid), !d.ended && !d.revoked
}

// Pressed returns the client with the most delegations, and how many it should keep, if one was
// refused since the last call for lack of memory.
func (s *State) Pressed() (c *Client, keep int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pressed {
		return nil, 0
	}
	s.pressed = false
	for _, k := range s.clients {
		if c == nil || len(k.delegations) > len(c.delegations) {
			c = k
		}
	}
	if c == nil {
		return nil, 0
	}
	return c, len(c.delegations) / 2
}

// ReturnDelegation is DELEGRETURN (RFC 8881 section 18.6).
func (s *State) ReturnDelegation(c *Client, id *nfs4.StateID, f *FileID) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, st := s.findDelegation(c, id, f)
	if st == nfs4.OK {
		s.endDelegation(d)
	}
	return st
}

func (s *State) findDelegation(c *Client, id *nfs4.StateID, f *FileID) (*Delegation, nfs4.Status) {
	t, st := s.find(c, id)
	switch {
	case st != nfs4.OK:
		return nil, st
	case t.delegation == nil || t.file.id != *f:
		return nil, nfs4.ErrBadStateID
	}
	return t.delegation, nfs4.OK
}

// CheckDelegation returns the status of an open that the client has made by a delegation
// (CLAIM_DELEGATE_CUR).
func (s *State) CheckDelegation(c *Client, id *nfs4.StateID, f *FileID, access uint32) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, st := s.findDelegation(c, id, f)
	if st == nfs4.OK && access&Write != 0 && !d.write {
		return nfs4.ErrBadStateID
	}
	return st
}

// revokeOverdue revokes the delegations that were recalled a lease ago.
func (s *State) revokeOverdue(now time.Time) {
	if !s.Delegated() {
		return
	}
	for _, c := range s.clients {
		for _, d := range c.delegations {
			if d.overdue(s.cfg.Lease, now) {
				s.revoke(d)
			}
		}
	}
}

// DelegatedFile reports whether a file is delegated.
func (s *State) DelegatedFile(id *FileID) bool {
	if !s.Delegated() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[*id]
	return f != nil && len(f.delegations) > 0
}

// HeldForWriting returns the delegation for writing that another client than c has of a file, nil
// without one.
func (s *State) HeldForWriting(id *FileID, c *Client) *Delegation {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[*id]
	if f == nil {
		return nil
	}
	at := slices.IndexFunc(f.delegations, func(d *Delegation) bool { return d.write && d.client != c })
	if at < 0 {
		return nil
	}
	return f.delegations[at]
}

// DelegatedForWriting reports whether a file is delegated for writing.
func (s *State) DelegatedForWriting(id *FileID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[*id]
	return f != nil && slices.ContainsFunc(f.delegations, func(d *Delegation) bool { return d.write })
}
