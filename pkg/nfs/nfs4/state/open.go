package state

import (
	"slices"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// openOwner is an open-owner of a client.
type openOwner struct {
	name  string
	opens map[*file]*Open
}

// Open is an open of a file by an open-owner.
type Open struct {
	stateid
	owner        *openOwner
	access, deny uint32
	// modes has a bit for each access and deny that OPEN asked for, for OPEN_DOWNGRADE.
	modes    uint32
	locks    []*Lock
	resource any
}

func modeBit(access, deny uint32) uint32 { return 1 << (access&3 | deny&3<<2) }

// OpenRequest is a request of OPEN for an existing file. Deny is of the same bits as Access.
type OpenRequest struct {
	Client       *Client
	Owner        []byte
	File         FileID
	Access, Deny uint32
	Reclaim      bool
	// Delegated: the client has made the open by its delegation (CLAIM_DELEGATE_CUR).
	Delegated bool
	// Truncate: the OPEN itself writes, whatever its Access.
	Truncate bool
	// Resource is kept with a new open.
	Resource any
}

// Opened is the outcome of Open.
type Opened struct {
	ID nfs4.StateID
	// New: the open did not exist, so it has the resource.
	New bool

	open                *Open
	access, deny, modes uint32 // from before
}

// Open is the part of OPEN that grants the open (RFC 8881 sections 9.7 and 18.16).
func (s *State) Open(r *OpenRequest, now time.Time) (o Opened, st nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := r.Client
	if c.ended {
		return o, nfs4.ErrExpired
	}
	st = s.mayGrant(c, now)
	if r.Reclaim {
		st = s.mayReclaim(c, now)
	}
	if st != nfs4.OK {
		return o, st
	}
	if st := s.shareConflict(r, now); st != nfs4.OK {
		if r.Reclaim {
			return o, nfs4.ErrReclaimConflict
		}
		return o, st
	}
	if !r.Delegated && !r.Reclaim {
		if st := s.recallFor(&r.File, c, OpenUse(r.Access, r.Deny), now); st != nfs4.OK {
			return o, st
		}
	}
	if !s.makeRoom(c.host, opens, 1, false, now) {
		return o, nfs4.ErrDelay
	}
	f := s.fileOf(&r.File)
	w := c.owners[string(r.Owner)]
	var op *Open
	if w != nil {
		op = w.opens[f]
	}
	if op == nil {
		if w == nil {
			w = &openOwner{name: string(r.Owner), opens: map[*file]*Open{}}
			c.owners[w.name] = w
		}
		op = &Open{stateid: s.newStateID(c, f), owner: w, resource: r.Resource}
		op.open = op
		s.stateids[op.number] = &op.stateid
		w.opens[f] = op
		f.opens = append(f.opens, op)
		s.take(c.host, opens, 1)
		o.New = true
	}
	o.open, o.access, o.deny, o.modes = op, op.access, op.deny, op.modes
	op.access |= r.Access
	op.deny |= r.Deny
	op.modes |= modeBit(r.Access, r.Deny)
	o.ID = s.next(&op.stateid)
	return o, nfs4.OK
}

// OpenUse is the use of a file by an open. A holder of a delegation opens the file without the
// server, so every denial conflicts with it.
func OpenUse(access, deny uint32) Use {
	switch {
	case access&Write != 0:
		return UseWrite
	case deny != 0:
		return UseChange
	}
	return UseRead
}

// shareConflict compares a request with the opens of other owners.
func (s *State) shareConflict(r *OpenRequest, now time.Time) nfs4.Status {
	f := s.files[r.File]
	if f == nil {
		return nfs4.OK
	}
	used := r.Access
	if r.Truncate {
		used |= Write
	}
	var holders []*Client
	for _, o := range f.opens {
		if o.client == r.Client && o.owner.name == string(r.Owner) {
			continue
		}
		if o.deny&used != 0 || o.access&r.Deny != 0 {
			if o.client == r.Client {
				return nfs4.ErrShareDenied
			}
			holders = append(holders, o.client)
		}
	}
	if len(holders) > 0 && !s.courteous(holders, now) {
		return nfs4.ErrShareDenied
	}
	return nfs4.OK
}

// MayOpen returns the status that Open would return, before a file is created.
func (s *State) MayOpen(c *Client, reclaim bool, now time.Time) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reclaim {
		return s.mayReclaim(c, now)
	}
	return s.mayGrant(c, now)
}

// UndoOpen undoes an Open, since a later part of OPEN failed.
func (s *State) UndoOpen(o *Opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.New {
		s.endOpen(o.open)
		return
	}
	o.open.access, o.open.deny, o.open.modes = o.access, o.deny, o.modes
	o.open.seq--
}

// Downgrade is OPEN_DOWNGRADE (RFC 8881 section 18.18).
func (s *State) Downgrade(c *Client, id *nfs4.StateID, f *FileID, access, deny uint32) (nfs4.StateID, nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, st := s.findOpen(c, id, f)
	switch {
	case st != nfs4.OK:
		return nfs4.StateID{}, st
	case access&^o.access != 0 || deny&^o.deny != 0 || !o.composed(access, deny):
		return nfs4.StateID{}, nfs4.ErrInval
	}
	o.access, o.deny = access, deny
	for bit := range uint32(16) {
		if bit&3&^access != 0 || bit>>2&^deny != 0 {
			o.modes &^= 1 << bit
		}
	}
	return s.next(&o.stateid), nfs4.OK
}

// composed reports whether access and deny are the union of some requests of OPEN.
func (o *Open) composed(access, deny uint32) bool {
	var a, d uint32
	for bit := range uint32(16) {
		if o.modes&(1<<bit) != 0 && bit&3&^access == 0 && bit>>2&^deny == 0 {
			a, d = a|bit&3, d|bit>>2
		}
	}
	return a == access && d == deny
}

// Close is CLOSE (RFC 8881 section 18.2). It ends the locks of the open too.
func (s *State) Close(c *Client, id *nfs4.StateID, f *FileID) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, st := s.findOpen(c, id, f)
	if st == nfs4.OK {
		s.endOpen(o)
	}
	return st
}

func (s *State) endOpen(o *Open) {
	if s.stateids[o.number] != &o.stateid {
		return
	}
	for len(o.locks) > 0 {
		s.endLock(o.locks[0])
	}
	s.dropStateID(&o.stateid)
	s.take(o.client.host, opens, -1)
	f := o.file
	f.opens = slices.DeleteFunc(f.opens, func(x *Open) bool { return x == o })
	delete(o.owner.opens, f)
	if len(o.owner.opens) == 0 {
		delete(o.client.owners, o.owner.name)
	}
	s.dropFile(f)
	s.release(o.resource)
	o.resource = nil
}
