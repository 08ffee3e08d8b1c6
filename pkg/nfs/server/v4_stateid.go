package server

import (
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
)

// stateScratch is the memory of the operations on state.
type stateScratch struct {
	exchangeArgs    nfs4.ExchangeIDArgs
	createArgs      nfs4.CreateSessionArgs
	backchannelArgs nfs4.BackchannelCtlArgs
	testArgs        nfs4.TestStateIDArgs
	openArgs        nfs4.OpenArgs
}

// endState drops views of the call's memory.
func (c *compound) endState() {
	c.exchangeArgs.Owner = nil
	c.openArgs = nfs4.OpenArgs{}
}

// resolveState replaces the current stateid by its value (RFC 8881 section 16.2.3.1.2).
func (c *compound) resolveState(id *nfs4.StateID) nfs4.Status {
	if *id != nfs4.CurrentStateID {
		return nfs4.OK
	}
	if *id = c.curState; *id == (nfs4.StateID{}) {
		return nfs4.ErrBadStateID
	}
	return nfs4.OK
}

func (c *compound) file() state.FileID { return c.cur.Key() }

// ioState checks the stateid of an operation that reads or writes the current file; want is
// state.Read or state.Write. open: the access was granted by OPEN, so permissions need no check.
func (c *compound) ioState(id *nfs4.StateID, want uint32) (open bool, st nfs4.Status) {
	if st := c.resolveState(id); st != nfs4.OK {
		return false, st
	}
	f := c.file()
	switch {
	case *id == nfs4.BypassStateID && want == state.Read:
		return false, c.conflict(c.cur, state.UseRead)
	case *id == nfs4.AnonymousStateID || *id == nfs4.BypassStateID:
		if st := c.s.v4.state.CheckNone(&f, want, c.now); st != nfs4.OK {
			return false, st
		}
		return false, c.conflict(c.cur, state.UseRead)
	}
	access, st := c.s.v4.state.Check(c.client, id, &f, want)
	return st == nfs4.OK && access&want == want, st
}

func (c *compound) testStateID() nfs4.Status {
	a := &c.testArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if !c.need(4 + 4*len(a.StateIDs)) {
		return c.tooBig()
	}
	c.e.Uint32(uint32(len(a.StateIDs)))
	for i := range a.StateIDs {
		c.e.Uint32(uint32(c.s.v4.state.Test(c.client, &a.StateIDs[i])))
	}
	return nfs4.OK
}

func (c *compound) freeStateID() nfs4.Status {
	var id nfs4.StateID
	if id.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := c.resolveState(&id); st != nfs4.OK {
		return st
	}
	return c.s.v4.state.Free(c.client, &id)
}
