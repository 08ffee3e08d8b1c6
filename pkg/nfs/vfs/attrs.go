package vfs

import "golang.org/x/sys/unix"

// Attrs are attributes to set. A nil time stays; unix.UTIME_NOW as nanoseconds is the present time.
type Attrs struct {
	SetMode, SetUID, SetGID, SetSize bool
	Mode, UID, GID                   uint32
	Size                             uint64
	SetAtime, SetMtime               bool
	Atime, Mtime                     unix.Timespec
	// Opened: the caller opened the file for writing, so a change of size needs no permission.
	Opened bool
}

const modeBits = 0o7777

// SetAttr changes attributes and syncs them. A guard that is not nil checks the attributes first;
// if it returns false, nothing changes and the error is EBUSY. A failure may leave a part of the
// changes.
func (fs *FS) SetAttr(n *Node, a *Attrs, c *Cred, guard func(*Stat) bool, w *Wcc) error {
	n.change.Lock()
	w.before(n)
	var err error
	switch {
	case !w.HasBefore:
		err = unix.ESTALE
	case guard != nil && !guard(&w.Before):
		err = unix.EBUSY
	default:
		err = fs.setAttrs(n, &w.Before, a, c)
	}
	w.after(n, err == nil)
	n.change.Unlock()
	if err != nil {
		return err
	}
	return n.Sync(false)
}

// setAttrs sets the size first, since it fails most. The owner precedes the mode, since chown(2)
// clears setuid bits. The times come last, since all else changes them.
func (fs *FS) setAttrs(n *Node, st *Stat, a *Attrs, c *Cred) error {
	if a.setsNoID() {
		return unix.EINVAL
	}
	if a.SetSize {
		if err := fs.truncate(n, st, a, c); err != nil {
			return err
		}
		if a.SetMtime && !a.SetAtime && a.Mtime.Nsec == unix.UTIME_NOW {
			// The size change has set the time. Setting it alone takes the owner, but ftruncate(2)
			// on a client sends both and takes a writer.
			rest := *a
			rest.SetMtime = false
			a = &rest
		}
	}
	entered, err := fs.ids.enter(c)
	if err != nil {
		return err
	}
	defer fs.ids.leave(entered)
	if a.SetUID || a.SetGID {
		uid, gid := -1, -1
		if a.SetUID {
			uid = int(a.UID)
		}
		if a.SetGID {
			gid = int(a.GID)
		}
		if err := unix.Fchownat(n.path, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if a.SetMode && n.kind != unix.S_IFLNK { // links have no mode
		var p procFD
		path := p.set(n.path)
		if err := unix.Chmod(string(path[:len(path)-1]), a.Mode&modeBits); err != nil {
			return err
		}
	}
	if a.SetAtime || a.SetMtime {
		return unix.UtimesNanoAt(n.path, "", a.times(), unix.AT_EMPTY_PATH)
	}
	return nil
}

// setsNoID reports whether a sets the owner to an id that cannot exist.
func (a *Attrs) setsNoID() bool { return a.SetUID && a.UID == noID || a.SetGID && a.GID == noID }

// check returns the error that setAttrs would return for a new object, as far as it is known
// beforehand: a call that fails should leave nothing behind.
func (a *Attrs) check(maxSize uint64) error {
	switch {
	case a.setsNoID():
		return unix.EINVAL
	case a.SetSize && a.Size > maxSize:
		return unix.EFBIG
	}
	return nil
}

func (a *Attrs) times() []unix.Timespec {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if a.SetAtime {
		ts[0] = a.Atime
	}
	if a.SetMtime {
		ts[1] = a.Mtime
	}
	return ts
}

func (fs *FS) truncate(n *Node, st *Stat, a *Attrs, c *Cred) error {
	switch n.kind {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return unix.EISDIR
	default:
		return unix.EINVAL
	}
	if a.Size > maxOffset {
		return unix.EFBIG
	}
	if !a.Opened && !fs.Owns(st, c) {
		if err := fs.requirePermission(n, st, c, MayWrite); err != nil {
			return err
		}
	}
	fd, err := n.writerFD()
	if err != nil {
		return err
	}
	entered, err := fs.ids.enter(c)
	if err != nil {
		return err
	}
	defer fs.ids.leave(entered)
	return retry(func() error { return unix.Ftruncate(fd, int64(a.Size)) })
}
