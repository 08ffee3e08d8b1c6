package server

import (
	"errors"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// open is OPEN (RFC 8881 section 18.16).
func (c *compound) open() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	a := &c.openArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := c.checkOpen(a); st != nfs4.OK {
		return st
	}
	if c.dead {
		return c.openedBefore(a)
	}
	if st := c.s.v4.state.MayOpen(c.client, a.Claim == nfs4.ClaimPrevious, c.now); st != nfs4.OK {
		return st
	}
	// Without OPEN4_RESULT_PRESERVE_UNLINKED a client renames a file that it has open, rather than
	// remove it, so that the file survives a restart of the server.
	r := nfs4.OpenRes{Flags: nfs4.OpenLockTypePOSIX, Delegation: noDelegation(a.Access)}
	n, k, st := c.openTarget(a, &r)
	if st != nfs4.OK {
		return st
	}
	if st := c.openFile(a, n, k, &r); st != nfs4.OK {
		n.Release()
		return st
	}
	if c.s.v4.state.Reachable(c.client) {
		r.Flags |= nfs4.OpenMayNotifyLock
	}
	c.delegate(a, n, &r)
	c.setCur(n)
	if len(k.acl) > 0 {
		if st := c.setACL(k.acl); st != nfs4.OK {
			_ = c.closeState(&r.StateID)
			return st
		}
	}
	c.setState(r.StateID)
	r.Encode(c.e)
	return nfs4.OK
}

// openedBefore answers a retry of OPEN that created or truncated a file. The open ended with the
// earlier process, so the client reclaims it.
func (c *compound) openedBefore(a *nfs4.OpenArgs) nfs4.Status {
	if !a.Create {
		return nfs4.ErrDelay
	}
	if st := c.component(a.Name, &c.name); st != nfs4.OK {
		return st
	}
	var set setAttrs
	if a.Mode != nfs4.Exclusive {
		if st := c.settable(&a.Attrs, &set); st != nfs4.OK {
			return st
		}
	}
	if st := c.intendNew(c.cur, &c.name); st != nfs4.OK {
		return st
	}
	r := nfs4.OpenRes{StateID: c.oldStateID(), Change: changeBefore(c.cur), Flags: nfs4.OpenLockTypePOSIX, Delegation: noDelegation(a.Access)}
	n := c.madeBefore(c.cur)
	switch {
	case n != nil:
		if a.Mode == nfs4.Exclusive || a.Mode == nfs4.Exclusive1 {
			set.Mask = set.Mask.Or(verifierAttrs)
		}
		r.AttrSet = c.created(set.Mask)
	case c.changedBefore():
		var err error
		if n, err = c.s.fs.Resolve(c.intent.now.handle[:c.intent.now.n]); err != nil {
			return nfs4.ErrDelay
		}
		if err := n.Sync(false); err != nil {
			n.Release()
			return nfs4.ErrDelay
		}
		r.AttrSet = nfs4.BitmapOf(nfs4.AttrSize)
		r.Change.Before = r.Change.After
	default:
		return nfs4.ErrDelay
	}
	c.setCur(n)
	c.setState(r.StateID)
	r.Encode(c.e)
	return nfs4.OK
}

// wantFlags are the bits of share_access behind the access.
const wantFlags = nfs4.WantDelegMask | nfs4.WantSignalDelegWhenResrcAvail | nfs4.WantPushDelegWhenUncontended

// checkOpen checks arguments that need no file.
func (c *compound) checkOpen(a *nfs4.OpenArgs) nfs4.Status {
	access := a.Access &^ wantFlags
	switch {
	case access == 0 || access&^nfs4.ShareAccessBoth != 0 || a.Deny&^nfs4.ShareDenyBoth != 0 || a.Access&nfs4.WantDelegMask > nfs4.WantCancel:
		return nfs4.ErrInval
	case c.readOnly && (a.Create || access&nfs4.ShareAccessWrite != 0):
		return nfs4.ErrROFS
	}
	switch a.Claim {
	case nfs4.ClaimNull:
		return searchable(c.cur)
	case nfs4.ClaimDelegateCur:
		if a.Create {
			return nfs4.ErrInval
		}
		return searchable(c.cur)
	case nfs4.ClaimFH, nfs4.ClaimPrevious, nfs4.ClaimDelegCurFH:
		if a.Create {
			return nfs4.ErrInval
		}
		return regular(c.cur)
	}
	return nfs4.ErrNotSupp
}

// noDelegation is the answer to a wish for a delegation, or the lack of one.
func noDelegation(access uint32) nfs4.Delegation {
	switch access & nfs4.WantDelegMask {
	case nfs4.WantNoPreference:
		return nfs4.Delegation{Type: nfs4.DelegNone}
	case nfs4.WantNoDeleg:
		return nfs4.Delegation{Type: nfs4.DelegNoneExt, Why: nfs4.WhyNotWanted}
	case nfs4.WantCancel:
		return nfs4.Delegation{Type: nfs4.DelegNoneExt, Why: nfs4.WhyCancelled}
	}
	return nfs4.Delegation{Type: nfs4.DelegNoneExt, Why: nfs4.WhyResource}
}

// creation is the part of OPEN's attributes that applies to the file found.
type creation struct {
	created  bool // by this OPEN: the caller may use the file whatever its mode
	truncate bool
	acl      []nfs4.ACE // of a new file
}

// openTarget returns the file to open, with a reference, and creates it if that is asked for.
func (c *compound) openTarget(a *nfs4.OpenArgs, r *nfs4.OpenRes) (n *vfs.Node, k creation, st nfs4.Status) {
	if a.Claim != nfs4.ClaimNull && a.Claim != nfs4.ClaimDelegateCur {
		c.cur.Acquire()
		return c.cur, k, nfs4.OK
	}
	if st := c.component(a.Name, &c.name); st != nfs4.OK {
		return nil, k, st
	}
	c.wcc = vfs.Wcc{}
	if a.Create {
		n, k, st = c.createFile(a, r)
	} else {
		var dir vfs.Stat
		if err := c.cur.Stat(&dir); err != nil {
			return nil, k, status4(err)
		}
		change := c.cur.Change(&dir)
		r.Change = nfs4.ChangeInfo{Before: change, After: change}
		var err error
		n, err = c.s.fs.Lookup(c.cur, &c.name, &c.cred)
		st = status4(err)
	}
	if st != nfs4.OK {
		return nil, k, st
	}
	if st := regular(n); st != nfs4.OK {
		n.Release()
		return nil, k, st
	}
	return n, k, nfs4.OK
}

// createFile is OPEN4_CREATE. An existing file is truncated only after its share reservations were
// checked.
func (c *compound) createFile(a *nfs4.OpenArgs, r *nfs4.OpenRes) (n *vfs.Node, k creation, st nfs4.Status) {
	var set setAttrs
	if a.Mode != nfs4.Exclusive {
		if st := c.settable(&a.Attrs, &set); st != nfs4.OK {
			return nil, k, st
		}
	}
	if a.Mode == nfs4.Exclusive1 && set.Mask.And(verifierSetters) != (nfs4.Bitmap{}) {
		return nil, k, nfs4.ErrInval
	}
	c.initial(c.cur, &set)
	how := vfs.Guarded
	if a.Mode == nfs4.Exclusive || a.Mode == nfs4.Exclusive1 {
		how = vfs.Verified
		set.Mask = set.Mask.Or(verifierAttrs)
	}
	if st := c.intendNew(c.cur, &c.name); st != nfs4.OK {
		return nil, k, st
	}
	fs := c.s.fs
	for range maxCreates {
		c.wcc = vfs.Wcc{Made: c.wcc.Made}
		n, err := fs.Create(c.cur, &c.name, how, a.Verifier, &set.Attrs, &c.cred, &c.wcc)
		r.Change = changeInfo(&c.wcc)
		switch {
		case err == nil:
			k.created = true
			r.AttrSet = c.created(set.Mask)
			if set.SetACL && c.wcc.Created {
				k.acl = set.ACL
			}
			return n, k, nfs4.OK
		case a.Mode != nfs4.Unchecked || !errors.Is(err, unix.EEXIST):
			return nil, k, status4(err)
		}
		n, err = fs.Lookup(c.cur, &c.name, &c.cred)
		if errors.Is(err, unix.ENOENT) { // removed meanwhile
			continue
		}
		if k.truncate = set.SetSize && set.Size == 0; k.truncate {
			r.AttrSet = nfs4.BitmapOf(nfs4.AttrSize)
		}
		return n, k, status4(err)
	}
	return nil, k, nfs4.ErrDelay
}

// maxCreates bounds the attempts to create a file that others create and remove meanwhile.
const maxCreates = 8

// openFile opens n: permissions, share reservations, and the truncation of UNCHECKED4.
func (c *compound) openFile(a *nfs4.OpenArgs, n *vfs.Node, k creation, r *nfs4.OpenRes) nfs4.Status {
	fs := c.s.fs
	access := a.Access & nfs4.ShareAccessBoth
	need := uint32(0)
	if access&nfs4.ShareAccessRead != 0 {
		need |= vfs.MayRead
	}
	if access&nfs4.ShareAccessWrite != 0 {
		need |= vfs.MayWrite
	}
	if access&nfs4.ShareAccessWrite != 0 && fs.ReadOnly() {
		return nfs4.ErrROFS
	}
	want := need
	if k.truncate {
		want |= vfs.MayWrite
	}
	// The owner may reclaim an open although the mode has changed.
	if err := n.Stat(&c.stat); err != nil {
		return status4(err)
	}
	again := byDelegation(a) || a.Claim == nfs4.ClaimPrevious
	if !k.created && (!again || !fs.Owns(&c.stat, &c.cred)) {
		may, err := fs.PermitBlocking(n, &c.stat, &c.cred, want|vfs.MayExec)
		if err != nil {
			return status4(err)
		}
		if may&vfs.MayExec != 0 { // whoever may execute a file may read it
			may |= vfs.MayRead
		}
		if may&want != want {
			return nfs4.ErrAccess
		}
	}
	if st := c.openConflict(a, n, k); st != nfs4.OK {
		return st
	}
	file, err := fs.OpenFile(n, need)
	if err != nil {
		return status4(err)
	}
	o, st := c.s.v4.state.Open(&state.OpenRequest{
		Client: c.client, Owner: a.Owner.Owner, File: n.Key(), Access: access, Deny: a.Deny,
		Truncate: k.truncate, Reclaim: a.Claim == nfs4.ClaimPrevious, Delegated: byDelegation(a), Resource: file,
	}, c.now)
	if st != nfs4.OK || !o.New {
		file.Close()
	}
	if st != nfs4.OK {
		return st
	}
	if k.truncate {
		if st := c.intendNode(n, &c.stat); st != nfs4.OK {
			c.s.v4.state.UndoOpen(&o)
			return st
		}
		c.wcc2 = vfs.Wcc{}
		if err := fs.SetAttr(n, &vfs.Attrs{SetSize: true, Opened: true}, &c.cred, nil, &c.wcc2); err != nil {
			c.s.v4.state.UndoOpen(&o)
			return status4(err)
		}
	}
	r.StateID = o.ID
	return nfs4.OK
}

// byDelegation reports whether the client has made the open by its delegation.
func byDelegation(a *nfs4.OpenArgs) bool {
	return a.Claim == nfs4.ClaimDelegateCur || a.Claim == nfs4.ClaimDelegCurFH
}

// openConflict recalls delegations that an OPEN of n conflicts with, or checks the delegation that
// the open was made by.
func (c *compound) openConflict(a *nfs4.OpenArgs, n *vfs.Node, k creation) nfs4.Status {
	access := a.Access & nfs4.ShareAccessBoth
	switch {
	case byDelegation(a):
		if st := c.resolveState(&a.DelegStateID); st != nfs4.OK {
			return st
		}
		f := state.FileID(n.Key())
		return c.s.v4.state.CheckDelegation(c.client, &a.DelegStateID, &f, access)
	case a.Claim == nfs4.ClaimPrevious || k.created:
		return nfs4.OK
	case k.truncate:
		return c.conflict(n, state.UseWrite)
	}
	return c.conflict(n, state.OpenUse(access, a.Deny))
}

// openDowngrade is OPEN_DOWNGRADE (RFC 8881 section 18.18).
func (c *compound) openDowngrade() nfs4.Status {
	var a nfs4.OpenDowngradeArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	access := a.Access &^ wantFlags
	if access == 0 || access&^nfs4.ShareAccessBoth != 0 || a.Deny&^nfs4.ShareDenyBoth != 0 {
		return nfs4.ErrInval
	}
	if st := c.resolveState(&a.StateID); st != nfs4.OK {
		return st
	}
	f := c.file()
	id, st := c.s.v4.state.Downgrade(c.client, &a.StateID, &f, access, a.Deny)
	if st != nfs4.OK {
		return st
	}
	c.setState(id)
	r := nfs4.OpenDowngradeRes{StateID: id}
	r.Encode(c.e)
	return nfs4.OK
}

// close is CLOSE (RFC 8881 section 18.2). It releases the locks of the open too. The stateid that
// it returns is of no use.
func (c *compound) close() nfs4.Status {
	if !c.mayWait { // closing a file may wait
		return wait
	}
	var a nfs4.CloseArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := c.resolveState(&a.StateID); st != nfs4.OK {
		return st
	}
	if st := c.closeState(&a.StateID); st != nfs4.OK {
		return st
	}
	c.setState(nfs4.InvalidStateID)
	r := nfs4.CloseRes{StateID: nfs4.InvalidStateID}
	r.Encode(c.e)
	return nfs4.OK
}

// closeState ends an open of the current file.
func (c *compound) closeState(id *nfs4.StateID) nfs4.Status {
	f := c.file()
	return c.s.v4.state.Close(c.client, id, &f)
}
