package server

import (
	"bytes"
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// listing4 is a running READDIR of version 4.
type listing4 struct {
	c       *compound
	mask    nfs4.Bitmap
	search  bool // the caller may search the directory, as access to the entries takes
	left    int  // bytes left for entries
	dirLeft int  // of names and cookies alone
	entries int
	handle  vfs.Handle
	stat    vfs.Stat
}

// Lengths of READDIR's result, in bytes.
const (
	readdirHead = 8     // verifier
	readdirTail = 4 + 4 // the end of the list, and eof
	minMaxCount = readdirHead + readdirTail
)

// readdir is READDIR (RFC 8881 section 18.23).
func (c *compound) readdir() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.ReaddirArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := directory(c.cur); st != nfs4.OK {
		return st
	}
	if a.Request.And(setOnlyAttrs) != (nfs4.Bitmap{}) {
		return nfs4.ErrInval
	}
	if err := c.cur.Stat(&c.stat); err != nil {
		return status4(err)
	}
	may, err := c.s.fs.PermitBlocking(c.cur, &c.stat, &c.cred, vfs.MayRead|vfs.MayExec)
	switch verf := nfs4.Verifier(cookieVerifier(c.cur)); {
	case err != nil:
		return status4(err)
	case may&vfs.MayRead == 0:
		return nfs4.ErrAccess
	case a.Cookie == 1 || a.Cookie == 2 || a.Cookie > math.MaxInt64: // reserved
		return nfs4.ErrBadCookie
	case a.Cookie != 0 && a.Verf != verf && a.Verf != (nfs4.Verifier{}):
		return nfs4.ErrNotSame
	case a.MaxCount < minMaxCount:
		return nfs4.ErrTooSmall
	}
	l := listing4{
		c: c, mask: a.Request.And(c.s.supportedAttrs(c.head.Minor)), search: may&vfs.MayExec != 0,
		dirLeft: int(min(a.DirCount, nfs4.MaxData)),
	}
	if a.DirCount == 0 { // no hint
		l.dirLeft = nfs4.MaxData
	}
	return l.list(&a)
}

// list writes the result: entries from the cookie on, until the room or the directory ends.
func (l *listing4) list(a *nfs4.ReaddirArgs) nfs4.Status {
	c := l.c
	total := min(int(min(a.MaxCount, nfs4.MaxData)), c.room())
	if !c.need(max(total, minMaxCount)) {
		return c.tooBig()
	}
	start := c.e.Mark()
	verf := nfs4.Verifier(cookieVerifier(c.cur))
	verf.Encode(c.e)
	l.left = total - minMaxCount
	eof, st := l.fill(int64(a.Cookie), min(max(total, minDirents), maxDirents))
	if st != nfs4.OK {
		c.e.Truncate(start)
		if st == nfs4.ErrTooSmall && total < int(min(a.MaxCount, nfs4.MaxData)) {
			return c.tooBig() // the client has asked for enough
		}
		return st
	}
	c.e.Bool(false)
	c.e.Bool(eof)
	return nfs4.OK
}

func (l *listing4) fill(cookie int64, size int) (eof bool, st nfs4.Status) {
	c := l.c
	buf, err := c.call.Pool().Get(size)
	if err != nil {
		return false, nfs4.ErrDelay
	}
	defer buf.Release()
	for {
		n, err := c.s.fs.ReadDir(c.cur, cookie, buf.B)
		switch {
		case err != nil && l.entries > 0: // the next call gets the error again
			return false, nfs4.OK
		case errors.Is(err, unix.EINVAL): // an invalid position for the file system
			return false, nfs4.ErrBadCookie
		case err != nil:
			return false, status4(err)
		case n == 0:
			return true, nfs4.OK
		}
		for d := vfs.Entries(buf.B[:n]); d.Next(); {
			full, st := l.add(&d)
			if st != nfs4.OK && l.entries == 0 {
				return false, st
			}
			if full || st != nfs4.OK {
				return false, nfs4.OK
			}
			cookie = d.Off
		}
	}
}

// add writes an entry. full: it did not fit.
func (l *listing4) add(d *vfs.Dirents) (full bool, st nfs4.Status) {
	if bytes.Equal(d.Name, dot) || bytes.Equal(d.Name, dotdot) {
		return false, nfs4.OK
	}
	attrs, skip, st := l.attributes(d)
	if st == wait && l.entries > 0 { // the next READDIR begins with this entry, and waits
		l.c.waitFor, l.c.ask = state.FileID{}, nil
		return true, nfs4.OK
	}
	if skip || st != nfs4.OK {
		return false, st
	}
	dirSize := 8 + 4 + xdr.Round(len(d.Name))
	size := 4 + dirSize + maxBitmapLen + 4 + len(attrs.Values)
	if size > l.left || dirSize > l.dirLeft && l.entries > 0 {
		if l.entries == 0 {
			return true, nfs4.ErrTooSmall
		}
		return true, nfs4.OK
	}
	e, before := l.c.e, l.c.e.Pos()
	e.Bool(true)
	e.Uint64(uint64(d.Off))
	e.Opaque(d.Name)
	attrs.Encode(e)
	l.left -= e.Pos() - before
	l.dirLeft -= dirSize
	l.entries++
	return false, nfs4.OK
}

// attributes returns the attributes of an entry. skip: it is gone.
func (l *listing4) attributes(d *vfs.Dirents) (attrs nfs4.Attrs, skip bool, st nfs4.Status) {
	c := l.c
	if l.mask.Empty() {
		return attrs, false, nfs4.OK
	}
	src := attrSource{st: &l.stat}
	err := error(unix.EACCES)
	if l.search {
		err = l.locate(d.Name, &src)
	}
	if src.node != nil {
		defer src.node.Release()
	}
	mask := l.mask
	if st := nfs4.Status(0); errors.As(err, &st) && (st == wait || st == nfs4.ErrDelay) {
		return attrs, false, st
	}
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE):
		return attrs, true, nfs4.OK
	case err != nil && !mask.Has(nfs4.AttrRdattrError):
		return attrs, false, status4(err)
	case err != nil:
		src.err = status4(err)
		mask = nfs4.BitmapOf(nfs4.AttrRdattrError)
	}
	values, st := c.attrValues(mask, &src)
	return nfs4.Attrs{Mask: mask, Values: values}, false, st
}

// locate finds the object of an entry. It opens it if the attributes take that.
func (l *listing4) locate(name []byte, src *attrSource) error {
	c := l.c
	if err := c.name.Set(name); err != nil {
		return err
	}
	if l.mask.And(objectAttrs) != (nfs4.Bitmap{}) {
		return l.open(src)
	}
	err := c.s.fs.Identify(c.cur, &c.name, &l.handle, &l.stat)
	if errors.Is(err, unix.EXDEV) { // a mount point
		err = unix.EACCES
	}
	if err != nil {
		return err
	}
	if f := state.FileID(l.handle.Key()); l.mask.And(heldAttrs) != (nfs4.Bitmap{}) && c.s.v4.state.DelegatedFile(&f) {
		return l.open(src)
	}
	src.handle, src.change = l.handle.Bytes(), c.s.fs.ChangeOf(&l.handle, &l.stat)
	return nil
}

// open opens the object of c.name. Another client may have to be asked for its attributes.
func (l *listing4) open(src *attrSource) error {
	c := l.c
	n, err := c.s.fs.Lookup(c.cur, &c.name, &c.cred)
	if err != nil {
		return err
	}
	src.node, src.handle = n, n.Handle().Bytes()
	f := state.FileID(n.Key())
	if d := c.s.v4.state.HeldForWriting(&f, c.client); d != nil && l.entries > 0 && (c.query == nil || c.query.d != d) {
		return wait
	}
	if st := c.statOf(n, l.mask, &l.stat); st != nfs4.OK {
		return st
	}
	src.change = n.Change(&l.stat)
	return nil
}
