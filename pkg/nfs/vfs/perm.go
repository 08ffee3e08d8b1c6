package vfs

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Permissions, numbered as for access(2).
const (
	MayExec  = 1 // execute a file, search a directory
	MayWrite = 2
	MayRead  = 4
)

// Permit returns the subset of want that c may do to n, whose attributes are st. known is false if
// an ACL may decide, which takes the kernel. It does not wait if the FS is Nonblocking.
func (fs *FS) Permit(n *Node, st *Stat, c *Cred, want uint32) (may uint32, known bool) {
	if fs.acls && !fs.lacksACL(n, st, false) {
		return 0, false
	}
	return fs.ids.byMode(st, c) & want, true
}

// PermitBlocking is Permit with the kernel's answer where an ACL may decide.
func (fs *FS) PermitBlocking(n *Node, st *Stat, c *Cred, want uint32) (may uint32, err error) {
	if !fs.acls || fs.lacksACL(n, st, true) {
		return fs.ids.byMode(st, c) & want, nil
	}
	entered, err := fs.ids.enter(c)
	if err != nil {
		return 0, nil // the process cannot act as the caller
	}
	defer fs.ids.leave(entered)
	for _, bit := range [...]uint32{MayExec, MayWrite, MayRead} {
		if want&bit == 0 {
			continue
		}
		err := access(n.path, bit)
		if err == nil {
			may |= bit
		} else if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EROFS) {
			return 0, err
		}
	}
	return may, nil
}

// requirePermission returns EACCES unless c may do all of want.
func (fs *FS) requirePermission(n *Node, st *Stat, c *Cred, want uint32) error {
	may, err := fs.PermitBlocking(n, st, c, want)
	if err == nil && may != want {
		err = unix.EACCES
	}
	return err
}

// Owns reports whether c owns the object. The owner may read and write its data whatever the mode
// is: the mode may have changed since open(2), which would not matter locally (RFC 1813 section
// 4.4).
func (fs *FS) Owns(st *Stat, c *Cred) bool {
	if !fs.ids.able {
		c = &fs.ids.self
	}
	return st.Uid == c.UID
}

// ReadOnly reports whether the file system is mounted read-only. A remount shows within
// [Options.Recheck]. It does not wait if the FS is Nonblocking.
func (fs *FS) ReadOnly() bool {
	now := fs.now()
	known := fs.readOnly.Load() // next check; the lowest bit is the result
	if now < known&^1 {
		return known&1 != 0
	}
	err := access(fs.root.path, MayWrite)
	ro := errors.Is(err, unix.EROFS)
	if errors.Is(err, unix.EACCES) { // the process may not write to the root
		var s unix.Statfs_t
		ro = unix.Fstatfs(fs.mount, &s) == nil && s.Flags&unix.ST_RDONLY != 0
	}
	known = (now + int64(fs.opt.Recheck)) &^ 1
	if ro {
		known |= 1
	}
	fs.readOnly.Store(known)
	return ro
}

// byMode returns the permissions by the mode bits.
func (d *identities) byMode(st *Stat, c *Cred) uint32 {
	if !d.able {
		c = &d.self
	}
	if d.override && (c.UID == 0 || !d.able) {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR || st.Mode&0o111 != 0 {
			return MayRead | MayWrite | MayExec
		}
		return MayRead | MayWrite
	}
	switch {
	case st.Uid == c.UID:
		return st.Mode >> 6 & 7
	case st.Gid == c.GID || slices.Contains(c.Groups, st.Gid):
		return st.Mode >> 3 & 7
	}
	return st.Mode & 7
}

// coarse exceeds the granularity of file times: an object with an older ctime has not changed
// since.
const coarse = int64(50 * time.Millisecond)

// lacksACL reports whether an object surely has no ACL. The result is kept with the ctime, which
// changes with the ACL. The first query may read from disk: without wait it returns false then.
func (fs *FS) lacksACL(n *Node, st *Stat, wait bool) bool {
	if n.kind == unix.S_IFLNK {
		return true
	}
	ctime := st.Ctim.Nano()
	if n.acl.Load() == uint64(ctime)<<1|1 {
		return true
	}
	if !wait && !n.seen.Load() {
		return false
	}
	has, err := aclOf(n.path)
	n.seen.Store(true)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) || has {
		return false
	}
	if time.Now().UnixNano()-ctime > coarse {
		n.acl.Store(uint64(ctime)<<1 | 1)
	}
	return true
}
