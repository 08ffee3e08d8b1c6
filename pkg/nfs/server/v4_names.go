package server

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// component makes a name of a component4 (RFC 8881 section 14.5).
func (c *compound) component(raw []byte, n *vfs.Name) nfs4.Status {
	switch {
	case len(raw) == 0:
		return nfs4.ErrInval
	case bytes.IndexByte(raw, '/') >= 0 || bytes.IndexByte(raw, 0) >= 0:
		return nfs4.ErrBadChar
	}
	if err := n.Set(raw); err != nil {
		return status4(err)
	}
	if n.Dot() || n.DotDot() {
		return nfs4.ErrBadName
	}
	return nfs4.OK
}

// directory returns the status of an operation on names for an object that has none.
func directory(n *vfs.Node) nfs4.Status {
	if n.IsDir() {
		return nfs4.OK
	}
	return nfs4.ErrNotDir
}

// searchable is directory for the operations that return NFS4ERR_SYMLINK (RFC 8881 section 15.2).
func searchable(n *vfs.Node) nfs4.Status {
	if n.Kind() == unix.S_IFLNK {
		return nfs4.ErrSymlink
	}
	return directory(n)
}

// nameStatus is status4 for a change of names, which has no NFS4ERR_PERM: a sticky bit, a protected
// link or an immutable object.
func nameStatus(err error) nfs4.Status {
	if errors.Is(err, unix.EPERM) {
		return nfs4.ErrAccess
	}
	return status4(err)
}

// lookup is LOOKUP (RFC 8881 section 18.13).
func (c *compound) lookup() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.LookupArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := searchable(c.cur); st != nfs4.OK {
		return st
	}
	n, st := c.find(a.Name)
	if st == nfs4.OK {
		c.setCur(n)
	}
	return st
}

// find returns the object of a name in the current directory.
func (c *compound) find(name []byte) (*vfs.Node, nfs4.Status) {
	if st := directory(c.cur); st != nfs4.OK {
		return nil, st
	}
	if st := c.component(name, &c.name); st != nfs4.OK {
		return nil, st
	}
	n, err := c.s.fs.Lookup(c.cur, &c.name, &c.cred)
	return n, status4(err)
}

// parent returns the directory above the current one.
func (c *compound) parent() (*vfs.Node, nfs4.Status) {
	if st := directory(c.cur); st != nfs4.OK {
		return nil, st
	}
	if c.cur == c.s.fs.Root() {
		return nil, nfs4.ErrNoEnt
	}
	if err := c.name.Set(dotdot); err != nil {
		return nil, status4(err)
	}
	n, err := c.s.fs.Lookup(c.cur, &c.name, &c.cred)
	return n, status4(err)
}

// lookupP is LOOKUPP (RFC 8881 section 18.14).
func (c *compound) lookupP() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	if st := searchable(c.cur); st != nfs4.OK {
		return st
	}
	n, st := c.parent()
	if st == nfs4.OK {
		c.setCur(n)
	}
	return st
}

// create is CREATE (RFC 8881 section 18.4).
func (c *compound) create() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	a := &c.makeArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	switch a.Type {
	case nfs4.Dir, nfs4.Lnk, nfs4.Blk, nfs4.Chr, nfs4.Sock, nfs4.FIFO:
	default:
		return nfs4.ErrBadType
	}
	if st := directory(c.cur); st != nfs4.OK {
		return st
	}
	if st := c.component(a.Name, &c.name); st != nfs4.OK {
		return st
	}
	var set setAttrs
	if st := c.settable(&a.Attrs, &set); st != nfs4.OK {
		return st
	}
	if set.SetSize || a.Type == nfs4.Lnk && a.LinkLength == 0 {
		return nfs4.ErrInval
	}
	c.initial(c.cur, &set)
	c.wcc = vfs.Wcc{}
	if st := c.intendNew(c.cur, &c.name); st != nfs4.OK {
		return st
	}
	if c.dead {
		return c.createdBefore(set.Mask)
	}
	n, err := c.makeObject(a, &set.Attrs)
	if err != nil {
		return status4(err)
	}
	c.setCur(n)
	if set.SetACL {
		if st := c.setACL(set.ACL); st != nfs4.OK {
			return st
		}
	}
	res := nfs4.CreateRes{Change: changeInfo(&c.wcc), Set: c.created(set.Mask)}
	res.Encode(c.e)
	return nfs4.OK
}

// createdBefore answers a retry of CREATE.
func (c *compound) createdBefore(mask nfs4.Bitmap) nfs4.Status {
	n := c.madeBefore(c.cur)
	if n == nil {
		return nfs4.ErrDelay
	}
	res := nfs4.CreateRes{Change: changeBefore(c.cur), Set: c.created(mask)}
	c.setCur(n)
	res.Encode(c.e)
	return nfs4.OK
}

func (c *compound) makeObject(a *nfs4.CreateArgs, attrs *vfs.Attrs) (*vfs.Node, error) {
	fs := c.s.fs
	switch a.Type {
	case nfs4.Dir:
		return fs.Mkdir(c.cur, &c.name, attrs, &c.cred, &c.wcc)
	case nfs4.Lnk:
		target := bytes.Join(a.Link, nil)
		if bytes.IndexByte(target, 0) >= 0 {
			return nil, nfs4.ErrBadChar
		}
		return fs.Symlink(c.cur, &c.name, string(target), attrs, &c.cred, &c.wcc)
	}
	return fs.Mknod(c.cur, &c.name, kinds[a.Type], a.Device.Major, a.Device.Minor, attrs, &c.cred, &c.wcc)
}

// remove is REMOVE (RFC 8881 section 18.25), of directories too.
func (c *compound) remove() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.RemoveArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := directory(c.cur); st != nfs4.OK {
		return st
	}
	if st := c.component(a.Name, &c.name); st != nfs4.OK {
		return st
	}
	n, st := c.conflictOf(c.cur, &c.name)
	if st != nfs4.OK {
		return st
	}
	if n != nil {
		defer n.Release()
	}
	if st := c.intendName(c.cur, &c.name); st != nfs4.OK {
		return st
	}
	if c.dead {
		if !c.removedBefore() || c.cur.Sync(false) != nil {
			return nfs4.ErrDelay
		}
		res := nfs4.RemoveRes{Change: changeBefore(c.cur)}
		res.Encode(c.e)
		return nfs4.OK
	}
	c.wcc = vfs.Wcc{}
	err := c.s.fs.Remove(c.cur, &c.name, &c.cred, &c.wcc)
	if errors.Is(err, unix.EISDIR) {
		c.wcc = vfs.Wcc{}
		err = c.s.fs.Rmdir(c.cur, &c.name, &c.cred, &c.wcc)
	}
	if errors.Is(err, unix.EEXIST) { // some file systems' ENOTEMPTY
		err = unix.ENOTEMPTY
	}
	if err != nil {
		return nameStatus(err)
	}
	res := nfs4.RemoveRes{Change: changeInfo(&c.wcc)}
	res.Encode(c.e)
	return nfs4.OK
}

// rename is RENAME (RFC 8881 section 18.26).
func (c *compound) rename() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.RenameArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	for _, dir := range [...]*vfs.Node{c.saved, c.cur} {
		if st := directory(dir); st != nfs4.OK {
			return st
		}
	}
	if st := c.component(a.OldName, &c.name); st != nfs4.OK {
		return st
	}
	if st := c.component(a.NewName, &c.name2); st != nfs4.OK {
		return st
	}
	for _, k := range [...]struct {
		dir  *vfs.Node
		name *vfs.Name
	}{{c.saved, &c.name}, {c.cur, &c.name2}} {
		n, st := c.conflictOf(k.dir, k.name)
		if st != nfs4.OK {
			return st
		}
		if n != nil {
			defer n.Release()
		}
	}
	if st := c.intendName(c.saved, &c.name); st != nfs4.OK {
		return st
	}
	if c.dead {
		if !c.renamedBefore(c.cur, &c.name2) || errors.Join(c.cur.Sync(false), c.saved.Sync(false)) != nil {
			return nfs4.ErrDelay
		}
		res := nfs4.RenameRes{Source: changeBefore(c.saved), Target: changeBefore(c.cur)}
		res.Encode(c.e)
		return nfs4.OK
	}
	c.wcc, c.wcc2 = vfs.Wcc{}, vfs.Wcc{}
	err := c.s.fs.Rename(c.saved, &c.name, c.cur, &c.name2, &c.cred, &c.wcc, &c.wcc2)
	// Both are directories, so these are about the objects: their types do not fit.
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTDIR) {
		err = unix.EEXIST
	}
	if err != nil {
		return nameStatus(err)
	}
	res := nfs4.RenameRes{Source: changeInfo(&c.wcc), Target: changeInfo(&c.wcc2)}
	res.Encode(c.e)
	return nfs4.OK
}

// link is LINK (RFC 8881 section 18.9).
func (c *compound) link() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.LinkArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if c.saved.IsDir() {
		return nfs4.ErrIsDir
	}
	if st := searchable(c.cur); st != nfs4.OK {
		return st
	}
	if st := c.component(a.Name, &c.name); st != nfs4.OK {
		return st
	}
	if st := c.conflict(c.saved, state.UseChange); st != nfs4.OK {
		return st
	}
	if st := c.intendName(c.cur, &c.name); st != nfs4.OK {
		return st
	}
	if c.dead {
		if !c.linkedBefore(c.saved) || errors.Join(c.saved.Sync(false), c.cur.Sync(false)) != nil {
			return nfs4.ErrDelay
		}
		res := nfs4.LinkRes{Change: changeBefore(c.cur)}
		res.Encode(c.e)
		return nfs4.OK
	}
	c.wcc = vfs.Wcc{}
	if err := c.s.fs.Link(c.saved, c.cur, &c.name, &c.cred, &c.wcc); err != nil {
		return nameStatus(err)
	}
	res := nfs4.LinkRes{Change: changeInfo(&c.wcc)}
	res.Encode(c.e)
	return nfs4.OK
}

// readlink is READLINK (RFC 8881 section 18.24).
func (c *compound) readlink() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	if c.cur.Kind() != unix.S_IFLNK {
		return nfs4.ErrWrongType
	}
	if c.items == len(c.data) {
		return nfs4.ErrResource
	}
	buf, err := c.call.Pool().Get(nfs4.MaxPath)
	if err != nil {
		return nfs4.ErrDelay
	}
	k, err := c.s.fs.Readlink(c.cur, buf.B)
	if err != nil || k+3 > c.room()-4 {
		buf.Release()
		if err != nil {
			return status4(err)
		}
		return c.tooBig()
	}
	c.call.Reply.Own(buf)
	data := &c.data[c.items]
	c.items++
	data[0] = buf.B[:k]
	res := nfs4.ReadlinkRes{Link: data[:], Length: k}
	res.Encode(c.e)
	return nfs4.OK
}

// secFlavors are those that the server accepts, the preferred one first.
var secFlavors = nfs4.SecInfoRes{Flavors: []uint32{nfs4.AuthSys, nfs4.AuthNone}}

// secInfo is SECINFO (RFC 8881 section 18.29). It consumes the current filehandle.
func (c *compound) secInfo() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.SecInfoArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	n, st := c.find(a.Name)
	return c.answerSecInfo(n, st)
}

// secInfoNoName is SECINFO_NO_NAME (RFC 8881 section 18.45).
func (c *compound) secInfoNoName() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.SecInfoNoNameArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if a.Style == nfs4.StyleCurrentFH {
		return c.answerSecInfo(nil, nfs4.OK)
	}
	n, st := c.parent()
	return c.answerSecInfo(n, st)
}

func (c *compound) answerSecInfo(n *vfs.Node, st nfs4.Status) nfs4.Status {
	if n != nil {
		n.Release()
	}
	if st != nfs4.OK {
		return st
	}
	if !c.need(4 + 4*len(secFlavors.Flavors)) {
		return c.tooBig()
	}
	secFlavors.Encode(c.e)
	c.setCur(nil)
	return nfs4.OK
}
