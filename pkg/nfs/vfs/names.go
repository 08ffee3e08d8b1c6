package vfs

import (
	"bytes"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxName is the longest name of a directory entry, in bytes.
const MaxName = 255

// Name is a NUL-terminated name in a directory. It is reusable.
type Name struct {
	b [MaxName + 1]byte
	n int
}

// Set sets the name. An empty name, or one with a slash or a NUL, is EINVAL; one that is too long
// ENAMETOOLONG.
func (n *Name) Set(b []byte) error {
	n.n = 0
	if len(b) == 0 || bytes.IndexByte(b, '/') >= 0 || bytes.IndexByte(b, 0) >= 0 {
		return unix.EINVAL
	}
	if len(b) > MaxName {
		return unix.ENAMETOOLONG
	}
	n.n = copy(n.b[:], b)
	n.b[n.n] = 0
	return nil
}

func (n *Name) String() string     { return string(n.b[:n.n]) }
func (n *Name) bytes() []byte      { return n.b[:n.n] }
func (n *Name) terminated() []byte { return n.b[:n.n+1] }

// Dot reports whether the name is ".".
func (n *Name) Dot() bool { return n.n == 1 && n.b[0] == '.' }

// DotDot reports whether the name is "..".
func (n *Name) DotDot() bool { return n.n == 2 && n.b[0] == '.' && n.b[1] == '.' }

// Wcc are an object's attributes before and after a change, with no other change through this FS in
// between (weak cache consistency, RFC 1813 section 2.6).
type Wcc struct {
	Before, After       Stat
	HasBefore, HasAfter bool
	// ChangeBefore and ChangeAfter are the change attributes.
	ChangeBefore, ChangeAfter uint64
	// Created: the operation made a new object.
	Created bool
	// Made, if not nil, is called with a new object before its attributes are set and anything is
	// synced.
	Made func(*Node)
}

func (w *Wcc) made(n *Node) {
	w.Created = true
	if w.Made != nil {
		w.Made(n)
	}
}

// Lookup returns the object of a name in dir. A mount point is out of reach: EACCES.
func (fs *FS) Lookup(dir *Node, name *Name, c *Cred) (*Node, error) {
	if !dir.IsDir() {
		return nil, unix.ENOTDIR
	}
	var st Stat
	if err := dir.Stat(&st); err != nil {
		return nil, err
	}
	if err := fs.requirePermission(dir, &st, c, MayExec); err != nil {
		return nil, err
	}
	if name.DotDot() {
		return fs.parent(dir)
	}
	return fs.openName(dir, name)
}

// LookupSelf is Lookup as the process.
func (fs *FS) LookupSelf(dir *Node, name *Name) (*Node, error) {
	switch {
	case !dir.IsDir():
		return nil, unix.ENOTDIR
	case name.DotDot():
		return fs.parent(dir)
	}
	return fs.openName(dir, name)
}

// hidden reports whether the name is Options.Hidden.
func (fs *FS) hidden(dir *Node, name []byte) bool {
	return fs.opt.Hidden != "" && dir.id == fs.root.id && len(name) == len(fs.opt.Hidden) && strings.EqualFold(string(name), fs.opt.Hidden)
}

// openName is openEntry for a caller, to whom mount points are out of reach, with or without
// handles.
func (fs *FS) openName(dir *Node, name *Name) (*Node, error) {
	if fs.hidden(dir, name.bytes()) {
		return nil, unix.ENOENT
	}
	n, err := fs.openEntry(dir, name.terminated())
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EOPNOTSUPP) {
		err = unix.EACCES
	}
	return n, err
}

// parent returns the directory above dir; the root is its own parent.
func (fs *FS) parent(dir *Node) (*Node, error) {
	if dir == fs.root {
		fs.root.refs.Add(1)
		return fs.root, nil
	}
	fs.table.makeRoom(1)
	fd, err := fs.table.opened(unix.Openat(dir.path, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	if err != nil {
		return nil, err
	}
	i, err := fs.identify(fd, empty)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	n, err := fs.nodeOf(i, fd)
	if err != nil {
		return nil, err
	}
	if !fs.whole {
		where, until := fs.where(n, fs.now())
		if where != inside { // dir was moved out a moment ago
			n.close()
			return nil, unix.ESTALE
		}
		n.insideUntil.Store(until)
	}
	return fs.table.put(n), nil
}

// Identify returns the handle and the attributes of a name in dir, without keeping it open. EXDEV:
// a mount point.
func (fs *FS) Identify(dir *Node, name *Name, h *Handle, st *Stat) error {
	if fs.hidden(dir, name.bytes()) {
		return unix.ENOENT
	}
	fd, err := openBeneath(dir.path, name.terminated(), openPath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	i, err := fs.identify(fd, empty)
	if err != nil {
		return err
	}
	if err := fstatBlocking(fd, st); err != nil {
		return err
	}
	fs.learnSubvolume(fd, st.Dev)
	fs.signer.Load().sign(&i, h)
	fs.remember(&i, &dir.id, name.terminated())
	return nil
}

// Remove removes a name of an object that is no directory.
func (fs *FS) Remove(dir *Node, name *Name, c *Cred, w *Wcc) error {
	return fs.unlink(dir, name, c, 0, w)
}

// Rmdir removes an empty directory.
func (fs *FS) Rmdir(dir *Node, name *Name, c *Cred, w *Wcc) error {
	return fs.unlink(dir, name, c, unix.AT_REMOVEDIR, w)
}

func (fs *FS) unlink(dir *Node, name *Name, c *Cred, flags int, w *Wcc) error {
	if !dir.IsDir() {
		return unix.ENOTDIR
	}
	if fs.hidden(dir, name.bytes()) {
		return unix.ENOENT
	}
	dir.change.Lock()
	w.before(dir)
	victim := fs.cachedEntry(dir, name)
	entered, err := fs.ids.enter(c)
	if err == nil {
		err = retry(func() error { return unix.Unlinkat(dir.path, name.String(), flags) })
		fs.ids.leave(entered)
	}
	w.after(dir, err == nil)
	dir.change.Unlock()
	fs.releaseRemoved(victim)
	if err != nil {
		return err
	}
	return dir.Sync(false)
}

// cachedEntry returns the object of a name in dir if it is open, nil if not.
func (fs *FS) cachedEntry(dir *Node, name *Name) *Node {
	i, err := fs.identify(dir.path, name.terminated())
	if err != nil {
		return nil
	}
	return fs.table.get(&i)
}

// releaseRemoved releases an object that may have lost a name; with the last one its space is
// freed.
func (fs *FS) releaseRemoved(n *Node) {
	if n == nil {
		return
	}
	var st Stat
	_ = n.Stat(&st) // kills it if no link is left
	n.insideUntil.Store(0)
	n.Release()
}

// Rename renames an object. If both names are of the same object, nothing happens (rename(2)).
func (fs *FS) Rename(from *Node, fromName *Name, to *Node, toName *Name, c *Cred, fromWcc, toWcc *Wcc) error {
	switch {
	case !from.IsDir() || !to.IsDir():
		return unix.ENOTDIR
	case fs.hidden(from, fromName.bytes()):
		return unix.ENOENT
	case fs.hidden(to, toName.bytes()):
		return unix.EACCES
	}
	lockBoth(from, to)
	fromWcc.before(from)
	toWcc.before(to)
	victim := fs.cachedEntry(to, toName)
	moved, lost := fs.identify(from.path, fromName.terminated())
	target, missing := fs.identify(to.path, toName.terminated())
	idle := lost == nil && missing == nil && moved == target
	entered, err := fs.ids.enter(c)
	if err == nil {
		err = retry(func() error { return unix.Renameat(from.path, fromName.String(), to.path, toName.String()) })
		fs.ids.leave(entered)
	}
	fromWcc.after(from, err == nil && !idle)
	toWcc.after(to, err == nil && !idle && from != to)
	unlockBoth(from, to)
	fs.releaseRemoved(victim)
	if err != nil {
		return err
	}
	if lost == nil {
		fs.remember(&moved, &to.id, toName.terminated())
	}
	if err = to.Sync(false); err == nil && from != to && !fs.ordered {
		err = from.Sync(false)
	}
	return err
}

// lockBoth locks two nodes in a fixed order.
func lockBoth(a, b *Node) {
	switch bytes.Compare(a.id[:], b.id[:]) {
	case -1:
		a.change.Lock()
		b.change.Lock()
	case 1:
		b.change.Lock()
		a.change.Lock()
	default:
		a.change.Lock()
	}
}

func unlockBoth(a, b *Node) {
	a.change.Unlock()
	if a.id != b.id {
		b.change.Unlock()
	}
}

// Link gives n another name in dir.
func (fs *FS) Link(n, dir *Node, name *Name, c *Cred, w *Wcc) error {
	if !dir.IsDir() {
		return unix.ENOTDIR
	}
	if n.IsDir() {
		return unix.EPERM
	}
	if fs.hidden(dir, name.bytes()) {
		return unix.EACCES
	}
	dir.change.Lock()
	w.before(dir)
	entered, err := fs.ids.enter(c)
	if err == nil {
		var p procFD
		path := p.set(n.path)
		err = retry(func() error {
			return unix.Linkat(unix.AT_FDCWD, string(path[:len(path)-1]), dir.path, name.String(), unix.AT_SYMLINK_FOLLOW)
		})
		fs.ids.leave(entered)
	}
	w.after(dir, err == nil)
	dir.change.Unlock()
	if err != nil {
		return err
	}
	fs.remember(&n.id, &dir.id, name.terminated())
	if n.kind == unix.S_IFREG && !fs.ordered { // the link count
		if err = n.Sync(false); err != nil {
			return err
		}
	}
	return dir.Sync(false)
}
