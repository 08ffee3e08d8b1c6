package server

import (
	"bytes"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// hasXattrs returns the status of an operation on extended attributes for an object that has none.
func (c *compound) hasXattrs() nfs4.Status {
	switch {
	case !c.s.fs.Capabilities().Xattrs:
		return nfs4.ErrNotSupp
	case c.cur.Kind() != unix.S_IFREG && !c.cur.IsDir():
		return nfs4.ErrWrongType
	}
	return nfs4.OK
}

// getXattr is GETXATTR (RFC 8276 section 8.4.1).
func (c *compound) getXattr() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.GetXattrArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := c.hasXattrs(); st != nfs4.OK {
		return st
	}
	buf, err := c.call.Pool().Get(vfs.MaxXattr)
	if err != nil {
		return nfs4.ErrDelay
	}
	defer buf.Release()
	n, err := c.s.fs.GetXattr(c.cur, a.Name, buf.B, &c.cred)
	if err != nil {
		return status4(err)
	}
	if !c.need(4 + xdr.Round(n)) {
		return c.tooBig()
	}
	res := nfs4.GetXattrRes{Value: buf.B[:n]}
	res.Encode(c.e)
	return nfs4.OK
}

// setXattr is SETXATTR (RFC 8276 section 8.4.2).
func (c *compound) setXattr() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.SetXattrArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if bytes.IndexByte(a.Name, 0) >= 0 {
		return nfs4.ErrBadChar
	}
	create := a.Option == nfs4.XattrCreate
	flags := [...]int{nfs4.XattrEither: 0, nfs4.XattrCreate: unix.XATTR_CREATE, nfs4.XattrReplace: unix.XATTR_REPLACE}[a.Option]
	if c.dead && !create {
		return nfs4.ErrDelay
	}
	return c.changeXattr(a.Name, create, func() error { return c.s.fs.SetXattr(c.cur, a.Name, a.Value, flags, &c.cred, &c.wcc) })
}

// removeXattr is REMOVEXATTR (RFC 8276 section 8.4.4).
func (c *compound) removeXattr() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.RemoveXattrArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if bytes.IndexByte(a.Name, 0) >= 0 {
		return nfs4.ErrBadChar
	}
	return c.changeXattr(a.Name, true, func() error { return c.s.fs.RemoveXattr(c.cur, a.Name, &c.cred, &c.wcc) })
}

// changeXattr makes a change of an attribute. once: a repetition of it would fail.
func (c *compound) changeXattr(name []byte, once bool, change func() error) nfs4.Status {
	if st := c.hasXattrs(); st != nfs4.OK {
		return st
	}
	if st := c.conflict(c.cur, state.UseChange); st != nfs4.OK {
		return st
	}
	if once && c.recording() {
		var t target
		switch _, err := c.s.fs.GetXattr(c.cur, name, nil, &c.cred); {
		case err == nil:
			t.state = present
		case errors.Is(err, unix.ENODATA):
			t.state = absent
		}
		if st := c.intend(&t); st != nfs4.OK {
			return st
		}
	}
	if c.dead {
		was, is := c.intent.target.state, c.intent.now.state
		if was == unrecorded || is == unrecorded || was == is || c.cur.Sync(false) != nil {
			return nfs4.ErrDelay
		}
		res := nfs4.SetXattrRes{Change: changeBefore(c.cur)}
		res.Encode(c.e)
		return nfs4.OK
	}
	c.wcc = vfs.Wcc{}
	if err := change(); err != nil {
		return status4(err)
	}
	res := nfs4.SetXattrRes{Change: changeInfo(&c.wcc)}
	res.Encode(c.e)
	return nfs4.OK
}

// listXattrsHead is the length of LISTXATTRS's result without names: cookie, count and eof.
const listXattrsHead = 8 + 4 + 4

// listXattrs is LISTXATTRS (RFC 8276 section 8.4.3). The cookie is a place in the sorted names.
func (c *compound) listXattrs() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.ListXattrsArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := c.hasXattrs(); st != nfs4.OK {
		return st
	}
	names, err := c.s.fs.ListXattrs(c.cur)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	if err != nil {
		return status4(err)
	}
	slices.Sort(names)
	if a.Cookie > uint64(len(names)) {
		return nfs4.ErrBadCookie
	}
	names = names[a.Cookie:]
	asked := int(min(a.MaxCount, nfs4.MaxData))
	room := min(asked, c.room()) - listXattrsHead
	fit, size := 0, 0
	for _, name := range names {
		if size+4+xdr.Round(len(name)) > room {
			break
		}
		size += 4 + xdr.Round(len(name))
		fit++
	}
	if room < 0 || fit == 0 && len(names) > 0 {
		if c.room() < asked {
			return c.tooBig()
		}
		return nfs4.ErrTooSmall
	}
	if !c.need(listXattrsHead + size) {
		return c.tooBig()
	}
	c.e.Uint64(a.Cookie + uint64(fit))
	c.e.Uint32(uint32(fit))
	for _, name := range names[:fit] {
		c.e.String(name)
	}
	c.e.Bool(fit == len(names))
	return nfs4.OK
}
