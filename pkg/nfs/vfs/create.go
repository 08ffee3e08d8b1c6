package vfs

import (
	"encoding/binary"
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// Exclusive selects how Create treats an existing name.
type Exclusive int

const (
	// Shared uses an existing file, and sets only its size.
	Shared Exclusive = iota
	// Guarded fails with EEXIST.
	Guarded
	// Verified fails with EEXIST unless the same call created the file before, by its verifier.
	Verified
)

// Create makes a regular file in dir. The verifier of an exclusive create is in the file's times,
// 31 bits in the seconds of each, as in Linux. So it survives a restart, until the client sets
// attributes, its first step (RFC 1813 section 3.3.8). The other attributes of an exclusive create
// are those of EXCLUSIVE4_1 (RFC 8881 section 18.16.3). Without a mode only the owner has access.
// w.Created reports whether the file is new.
func (fs *FS) Create(dir *Node, name *Name, how Exclusive, verifier [8]byte, a *Attrs, c *Cred, w *Wcc) (*Node, error) {
	attrs := *a
	if how == Verified {
		attrs.SetAtime, attrs.Atime = true, verifierTime(verifier[4:])
		attrs.SetMtime, attrs.Mtime = true, verifierTime(verifier[:4])
	}
	if err := attrs.check(fs.capabilities.MaxFileSize); err != nil {
		return nil, err
	}
	mode := uint32(0o600)
	if attrs.SetMode {
		mode = attrs.Mode & modeBits
	}
	file := -1
	n, err := fs.makeEntry(dir, name, c, w, func() (err error) {
		fs.table.makeRoom(2)
		file, err = fs.table.opened(unix.Openat(dir.path, name.String(), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, mode))
		return err
	}, func(err error) (*Node, error) {
		switch {
		case err == nil:
			return fs.openFile(dir, name, file)
		case errors.Is(err, unix.EEXIST) && how != Guarded:
			return fs.openExisting(dir, name, c)
		}
		return nil, err
	})
	switch {
	case err != nil:
		return nil, err
	case file >= 0:
		w.made(n)
		err = fs.finish(n, dir, &attrs, c)
	default:
		err = fs.createOver(n, dir, how, &attrs, c)
	}
	if err != nil {
		n.Release()
		return nil, err
	}
	return n, nil
}

// openFile makes a node of a file that was just created, whatever has its name by now. The node
// owns the descriptor.
func (fs *FS) openFile(dir *Node, name *Name, file int) (*Node, error) {
	i, err := fs.identify(file, empty)
	var path int
	if err == nil {
		path, err = fs.table.opened(reopen(file, unix.O_PATH))
	}
	var n *Node
	if err == nil {
		n, err = fs.nodeOf(i, path)
	}
	if err != nil {
		unix.Close(file)
		return nil, err
	}
	fs.remember(&i, &dir.id, name.terminated())
	n = fs.confirm(n, dir)
	n.adoptWriter(file)
	return n, nil
}

// openExisting finds the object that a create ran into. It takes the right to search, as Lookup
// does.
func (fs *FS) openExisting(dir *Node, name *Name, c *Cred) (*Node, error) {
	var st Stat
	if err := dir.Stat(&st); err != nil {
		return nil, err
	}
	if err := fs.requirePermission(dir, &st, c, MayExec); err != nil {
		return nil, err
	}
	return fs.openName(dir, name)
}

func verifierTime(b []byte) unix.Timespec {
	return unix.NsecToTimespec(int64(binary.BigEndian.Uint32(b)&0x7fffffff) * 1e9)
}

// createOver is Create for an existing object.
func (fs *FS) createOver(n, dir *Node, how Exclusive, a *Attrs, c *Cred) error {
	var st Stat
	if err := n.Stat(&st); err != nil {
		return err
	}
	if n.kind != unix.S_IFREG {
		return unix.EEXIST
	}
	if how == Verified {
		if st.Atim.Sec != a.Atime.Sec || st.Mtim.Sec != a.Mtime.Sec || st.Size != 0 && (!a.SetSize || uint64(st.Size) != a.Size) {
			return unix.EEXIST
		}
		return fs.syncMade(n, dir, false)
	}
	if !a.SetSize {
		return nil
	}
	var w Wcc
	return fs.SetAttr(n, &Attrs{SetSize: true, Size: a.Size}, c, nil, &w)
}

// Mkdir makes a directory.
func (fs *FS) Mkdir(dir *Node, name *Name, a *Attrs, c *Cred, w *Wcc) (*Node, error) {
	mode := uint32(0o700)
	if a.SetMode {
		mode = a.Mode & modeBits
	}
	return fs.makeNew(dir, name, a, c, w, func() error { return unix.Mkdirat(dir.path, name.String(), mode) })
}

// Symlink makes a symbolic link. It does not check the target.
func (fs *FS) Symlink(dir *Node, name *Name, target string, a *Attrs, c *Cred, w *Wcc) (*Node, error) {
	return fs.makeNew(dir, name, a, c, w, func() error { return unix.Symlinkat(target, dir.path, name.String()) })
}

// Mknod makes a device, a pipe or a socket; kind is S_IFCHR, S_IFBLK, S_IFIFO or S_IFSOCK.
func (fs *FS) Mknod(dir *Node, name *Name, kind, major, minor uint32, a *Attrs, c *Cred, w *Wcc) (*Node, error) {
	mode := kind | 0o600
	if a.SetMode {
		mode = kind | a.Mode&modeBits
	}
	dev := uint64(0)
	if kind == unix.S_IFCHR || kind == unix.S_IFBLK {
		// the kernel would drop the higher bits and make another device
		if dev = unix.Mkdev(major, minor); dev > math.MaxUint32 {
			return nil, unix.EINVAL
		}
	}
	return fs.makeNew(dir, name, a, c, w, func() error { return unix.Mknodat(dir.path, name.String(), mode, int(dev)) })
}

// makeNew makes an object that must not exist, and syncs it.
func (fs *FS) makeNew(dir *Node, name *Name, a *Attrs, c *Cred, w *Wcc, call func() error) (*Node, error) {
	if err := a.check(fs.capabilities.MaxFileSize); err != nil {
		return nil, err
	}
	n, err := fs.makeEntry(dir, name, c, w, call, func(err error) (*Node, error) {
		if err != nil {
			return nil, err
		}
		return fs.openName(dir, name)
	})
	if err != nil {
		return nil, err
	}
	w.made(n)
	if err = fs.finish(n, dir, a, c); err != nil {
		n.Release()
		return nil, err
	}
	return n, nil
}

// makeEntry runs call, which creates name in dir, as the caller, then find as the process.
func (fs *FS) makeEntry(dir *Node, name *Name, c *Cred, w *Wcc, call func() error, find func(error) (*Node, error)) (*Node, error) {
	if !dir.IsDir() {
		return nil, unix.ENOTDIR
	}
	if name.Dot() || name.DotDot() {
		return nil, unix.EEXIST
	}
	if fs.hidden(dir, name.bytes()) {
		return nil, unix.EACCES
	}
	dir.change.Lock()
	defer dir.change.Unlock()
	w.before(dir)
	entered, err := fs.ids.enter(c)
	if err != nil {
		w.after(dir, false)
		return nil, err
	}
	err = retry(call)
	fs.ids.leave(entered)
	w.after(dir, err == nil)
	return find(err)
}

// finish sets the attributes that a new object in dir lacks, and syncs it with its name. Only root
// gives files away.
func (fs *FS) finish(n, dir *Node, a *Attrs, c *Cred) error {
	rest := *a
	if c.UID != 0 || !fs.ids.able {
		rest.SetUID, rest.SetGID = false, false
	}
	if rest.SetSize && rest.Size == 0 {
		rest.SetSize = false
	}
	// A change of size or owner clears these bits of the mode.
	rest.SetMode = rest.SetMode && rest.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && (rest.SetSize || rest.SetUID || rest.SetGID)
	if rest.SetUID || rest.SetGID || rest.SetSize || rest.SetAtime || rest.SetMtime {
		var st Stat
		if err := n.Stat(&st); err != nil {
			return err
		}
		if err := fs.setAttrs(n, &st, &rest, c); err != nil {
			return err
		}
	}
	// Without further attributes a device or a link is made together with its name, and stable with
	// it.
	withName := n.kind != unix.S_IFREG && n.kind != unix.S_IFDIR && !rest.SetUID && !rest.SetGID && !rest.SetAtime && !rest.SetMtime
	return fs.syncMade(n, dir, withName)
}

// syncMade syncs an object that was made in dir, and its name. withName: the object has changed in
// no other step since.
func (fs *FS) syncMade(n, dir *Node, withName bool) error {
	if !withName {
		if err := n.Sync(false); err != nil || fs.ordered {
			return err
		}
	}
	return dir.Sync(false)
}
