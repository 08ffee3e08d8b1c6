package server

import (
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// setCur replaces the current filehandle and takes over n's reference. There is no current stateid
// afterwards (RFC 8881 section 16.2.3.1.2).
func (c *compound) setCur(n *vfs.Node) {
	if c.cur != nil {
		c.cur.Release()
	}
	c.cur, c.curState = n, nfs4.StateID{}
}

// setState sets the current stateid.
func (c *compound) setState(id nfs4.StateID) { c.curState = id }

func (c *compound) putFH() nfs4.Status {
	var h nfs4.Handle
	if h.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	fs := c.s.fs
	if !c.mayWait {
		n, err := fs.Cached(h)
		switch {
		case err != nil:
			return status4(err)
		case n == nil:
			return wait
		case !fs.Nonblocking() || !fs.Fresh(n):
			n.Release()
			return wait
		}
		c.setCur(n)
		return nfs4.OK
	}
	n, err := fs.Resolve(h)
	if err != nil {
		return status4(err)
	}
	c.setCur(n)
	return nfs4.OK
}

// putRootFH is PUTROOTFH and PUTPUBFH: the public filehandle is the root's (RFC 8881 section
// 18.20).
func (c *compound) putRootFH() nfs4.Status {
	n, err := c.s.fs.Cached(c.s.fs.Root().Handle().Bytes())
	switch {
	case err != nil:
		return status4(err)
	case n == nil:
		return nfs4.ErrServerFault // the root is always open
	}
	c.setCur(n)
	return nfs4.OK
}

func (c *compound) getFH() nfs4.Status {
	b := c.cur.Handle().Bytes()
	if !c.need(4 + len(b)) {
		return c.tooBig()
	}
	c.e.Opaque(b)
	return nfs4.OK
}

func (c *compound) saveFH() nfs4.Status {
	// A second reference: the node is in use, so it is found.
	n := c.cur
	n.Acquire()
	if c.saved != nil {
		c.saved.Release()
	}
	c.saved, c.savedState = n, c.curState
	return nfs4.OK
}

func (c *compound) restoreFH() nfs4.Status {
	if c.saved == nil {
		return nfs4.ErrNoFileHandle
	}
	c.saved.Acquire()
	state := c.savedState
	c.setCur(c.saved)
	c.curState = state
	return nfs4.OK
}
