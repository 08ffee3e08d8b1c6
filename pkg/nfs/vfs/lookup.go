package vfs

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

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
