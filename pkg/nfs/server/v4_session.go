package server

import (
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/oncrpc"
)

// principal is the identity that owns a client: the credential as it was sent, before squashing.
func (c *compound) principal() state.Principal {
	p := state.Principal{Flavor: c.call.Cred.Flavor}
	if p.Flavor == oncrpc.AuthSys {
		p.UID, p.GID = c.auth.UID, c.auth.GID
	}
	return p
}

// exchangeID is EXCHANGE_ID (RFC 8881 section 18.35). State protection needs RPCSEC_GSS:
// SP4_MACH_CRED is NFS4ERR_INVAL without it, and no algorithm of SP4_SSV is supported.
func (c *compound) exchangeID() nfs4.Status {
	a := &c.exchangeArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	allowed := uint32(nfs4.ExchangeArgs)
	if c.head.Minor < 2 {
		allowed &^= nfs4.ExchangeSupportsFenceOps
	}
	switch {
	case a.Flags&^allowed != 0:
		return nfs4.ErrInval
	case a.Protect == nfs4.ProtectMachCred:
		return nfs4.ErrInval
	case a.Protect == nfs4.ProtectSSV:
		return nfs4.ErrEncrAlgUnsupp
	}
	if !c.need(256) {
		return c.tooBig()
	}
	x, st := c.s.v4.state.ExchangeID(a.Owner, a.Verifier, c.principal(), c.call.Conn.Remote.Addr().Unmap(), a.Flags&nfs4.ExchangeUpdateConfirmed != 0, c.now)
	if st != nfs4.OK {
		return st
	}
	r := nfs4.ExchangeIDRes{
		ClientID: x.ClientID, Sequence: x.Sequence, Flags: nfs4.ExchangeUseNonPNFS,
		MajorID: c.s.v4.owner, Scope: c.s.v4.scope,
	}
	if x.Confirmed {
		r.Flags |= nfs4.ExchangeConfirmed
	}
	r.Encode(c.e)
	return nfs4.OK
}

func (c *compound) createSession() nfs4.Status {
	a := &c.createArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if a.Flags&^nfs4.SessionFlags != 0 {
		return nfs4.ErrInval
	}
	if c.call.Conn.Back == nil {
		a.Flags &^= nfs4.SessionConnBackChan
	}
	j := c.s.v4.journal
	persist := j != nil && a.Flags&nfs4.SessionPersist != 0
	if persist && !c.mayWait {
		return wait
	}
	r, st := c.s.v4.state.CreateSession(a, c.head.Minor, c.principal(), c.call.Conn, c.now)
	if st != nfs4.OK {
		return st
	}
	if persist && j.open(r.Session, int(r.Fore.MaxRequests), c.s.v4.state.HasSession, c.s.v4.state.Config().Lease) {
		r.Flags |= nfs4.SessionPersist
		c.s.v4.state.Persist(r.Session)
	}
	if r.Flags&nfs4.SessionConnBackChan != 0 {
		c.bound = r.Session
	}
	r.Encode(c.e)
	return nfs4.OK
}

// destroySession is DESTROY_SESSION (RFC 8881 section 18.37). In the session's own COMPOUND it is
// the last operation.
func (c *compound) destroySession() nfs4.Status {
	var a nfs4.DestroySessionArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if c.session != nil && c.session.ID() == a.Session && c.index+1 < c.head.Count {
		return nfs4.ErrNotOnlyOp
	}
	st := c.s.v4.state.DestroySession(a.Session, c.session, c.call.Conn)
	if j := c.s.v4.journal; j != nil && st == nfs4.ErrBadSession && j.dead(a.Session) {
		if !j.destroy(a.Session) {
			return nfs4.ErrDelay
		}
		return nfs4.OK
	}
	return st
}

func (c *compound) destroyClientID() nfs4.Status {
	var a nfs4.DestroyClientIDArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	return c.s.v4.state.DestroyClientID(a.ClientID)
}

// bindConnToSession is BIND_CONN_TO_SESSION (RFC 8881 section 18.34). Without state protection any
// connection may be bound, and SEQUENCE binds the fore channel.
func (c *compound) bindConnToSession() nfs4.Status {
	var a nfs4.BindConnToSessionArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	dir, back := uint32(nfs4.ChannelFore), a.Dir != nfs4.ChannelFore && c.call.Conn.Back != nil
	switch {
	case back && a.Dir == nfs4.ChannelBack:
		dir = nfs4.ChannelBack
	case back:
		dir = nfs4.ChannelBoth
	case a.Dir == nfs4.ChannelBack:
		return nfs4.ErrInval
	}
	if st := c.s.v4.state.BindConn(a.Session, c.call.Conn, dir != nfs4.ChannelBack, back, c.now); st != nfs4.OK {
		return st
	}
	if back {
		c.bound = a.Session
	}
	r := nfs4.BindConnToSessionRes{Session: a.Session, Dir: dir}
	r.Encode(c.e)
	return nfs4.OK
}

func (c *compound) backchannelCtl() nfs4.Status {
	a := &c.backchannelArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	st := c.s.v4.state.BackchannelCtl(c.session, a.CBProgram, a.SecParms)
	if st == nfs4.OK {
		c.bound = c.session.ID()
	}
	return st
}

// setSSV is SET_SSV (RFC 8881 section 18.47). No client has SP4_SSV.
func (c *compound) setSSV() nfs4.Status {
	c.d.Opaque(nfs4.MaxOpaque)
	c.d.Opaque(nfs4.MaxOpaque)
	if c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	return nfs4.ErrInval
}

// reclaimComplete is RECLAIM_COMPLETE (RFC 8881 section 18.51). An export is one file system, so
// rca_one_fs, which is for migration, has nothing to do.
func (c *compound) reclaimComplete() nfs4.Status {
	var a nfs4.ReclaimCompleteArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	switch {
	case a.OneFS && c.cur == nil:
		return nfs4.ErrNoFileHandle
	case a.OneFS:
		return nfs4.OK
	case !c.mayWait:
		return wait
	}
	if st := c.recordClient(); st != nfs4.OK {
		return st
	}
	return c.s.v4.state.ReclaimComplete(c.client, c.now)
}

// recordClient puts the client on stable storage, so that it may reclaim its state after a restart.
func (c *compound) recordClient() nfs4.Status {
	if c.s.v4.state.Recorded(c.client) {
		return nfs4.OK
	}
	if err := c.s.v4.records.add(c.client.Owner()); err != nil {
		c.s.log.Error("client record failed; the client must wait", "error", err)
		return nfs4.ErrDelay
	}
	c.s.v4.state.SetRecorded(c.client)
	return nfs4.OK
}
