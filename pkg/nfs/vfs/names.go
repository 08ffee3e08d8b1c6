package vfs

import (
	"bytes"

	"golang.org/x/sys/unix"
)

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
