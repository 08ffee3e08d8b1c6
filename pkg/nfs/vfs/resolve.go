package vfs

import (
	"bytes"
	"crypto/subtle"
	"errors"

	"golang.org/x/sys/unix"
)

// Cached returns the object of a handle if it is open, nil if not, and ErrBadHandle if the handle
// is surely not this file system's. It does not wait. Call Fresh before using the object.
func (fs *FS) Cached(h []byte) (*Node, error) {
	i, tag, ok := parse(h)
	if !ok || (i.kind() == kindKernel) != fs.kernel {
		return nil, ErrBadHandle
	}
	n := fs.table.get(&i)
	if n == nil {
		return nil, nil
	}
	// The table ignores the tag, which may be that of an older key.
	known := n.Handle()
	if subtle.ConstantTimeCompare(tag, known.b[known.n-tagLen:known.n]) != 1 && !fs.signer.Load().valid(&i, tag) {
		n.Release()
		return nil, ErrBadHandle
	}
	return n, nil
}

// Resolve returns the object of a handle. ESTALE: it is gone or not beneath the root. EAGAIN: a
// search is running.
func (fs *FS) Resolve(h []byte) (*Node, error) {
	n, err := fs.Cached(h)
	if err != nil {
		return nil, err
	}
	if n != nil {
		if fs.Fresh(n) {
			return n, nil
		}
		// It was moved or lost the name by which it was found. It may have another one.
		fs.table.kill(n)
		n.Release()
	}
	i, tag, _ := parse(h)
	if n == nil && !fs.signer.Load().valid(&i, tag) {
		return nil, ErrBadHandle
	}
	return fs.find(&i)
}

// find opens the object of an id.
func (fs *FS) find(i *id) (*Node, error) {
	if n := fs.table.get(i); n != nil {
		if fs.Fresh(n) {
			return n, nil
		}
		fs.table.kill(n)
		n.Release()
	}
	if !fs.kernel {
		return fs.index.openByNames(fs, i)
	}
	var h rawHandle
	i.raw(&h)
	fs.table.makeRoom(1)
	fd, err := fs.table.opened(openByHandle(fs.mount, &h, openPath))
	if err != nil {
		return nil, staleIfGone(err)
	}
	n, err := fs.nodeOf(*i, fd)
	if err != nil {
		return nil, err
	}
	if fs.whole {
		return fs.table.put(n), nil
	}
	now := fs.now()
	where, until := fs.where(n, now)
	if where == inside {
		n.insideUntil.Store(until)
		return fs.table.put(n), nil
	}
	n.close()
	switch {
	case where == outside:
		return nil, unix.ESTALE
	case n.IsDir():
		return fs.locator.locate(i)
	}
	// The kernel knows no name.
	return fs.index.openByNames(fs, i)
}

// passing reports whether an error is unrelated to the object.
func passing(err error) bool {
	return scarce(err) || errors.Is(err, unix.EIO)
}

// scarce reports whether descriptors or memory are short.
func scarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// staleIfGone turns open_by_handle_at(2)'s error for a missing object into ESTALE.
func staleIfGone(err error) error {
	if passing(err) {
		return err
	}
	return unix.ESTALE
}

// nodeOf makes a node that owns fd.
func (fs *FS) nodeOf(i id, fd int) (*Node, error) {
	var st Stat
	if err := fstatBlocking(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if st.Nlink == 0 && !fs.noNlink {
		unix.Close(fd)
		return nil, unix.ESTALE
	}
	fs.learnSubvolume(fd, st.Dev)
	return fs.newNode(i, fd, &st), nil
}

// confirm enters a node that was just found in dir into the table.
func (fs *FS) confirm(n, dir *Node) *Node {
	n.insideUntil.Store(fs.deadline(dir))
	return fs.table.put(n)
}

// deadline returns until when an object just found in dir counts as beneath the root: never longer
// than dir does. Otherwise lookups of "." and of children would keep a directory alive that was
// moved out.
func (fs *FS) deadline(dir *Node) int64 {
	until := fs.now() + int64(fs.opt.Recheck)
	if fs.whole || dir == fs.root {
		return until
	}
	return min(until, dir.insideUntil.Load())
}

// extend moves n's deadline to until, never backwards.
func (n *Node) extend(until int64) {
	for {
		old := n.insideUntil.Load()
		if old >= until || n.insideUntil.CompareAndSwap(old, until) {
			return
		}
	}
}

// Fresh reports whether n is known to lie beneath the root. It does not wait if the FS is
// Nonblocking. On false, Resolve finds out.
func (fs *FS) Fresh(n *Node) bool {
	if fs.whole || n == fs.root {
		return true
	}
	now := fs.now()
	if now < n.insideUntil.Load() {
		return true
	}
	if n.dead.Load() {
		return false
	}
	where, until := fs.where(n, now)
	if where != inside {
		return n.opens.Load() > 0 && n.unlinked()
	}
	n.insideUntil.Store(until)
	return true
}

type location int

const (
	unknown location = iota
	inside
	outside
)

var (
	deleted     = []byte(" (deleted)")
	unreachable = []byte("(unreachable)")
)

// where returns whether n lies beneath the root at the time now, and until when that holds. The
// kernel knows the path of every directory, and of other objects that were reached by names. Beyond
// 4,096 bytes it returns none; then the directories above decide. where does not wait if the FS is
// Nonblocking.
func (fs *FS) where(n *Node, now int64) (_ location, until int64) {
	until = now + int64(fs.opt.Recheck)
	var nodeBuf, rootBuf [pathMax]byte
	root, err := pathOf(fs.root.path, rootBuf[:])
	if err != nil {
		return unknown, 0
	}
	node, err := pathOf(n.path, nodeBuf[:])
	switch {
	case errors.Is(err, unix.ENAMETOOLONG) && n.IsDir():
		return fs.climb(n.path, root, nodeBuf[:]), until
	case errors.Is(err, unix.ENAMETOOLONG):
		return fs.whereRemembered(n)
	case err != nil:
		return unknown, 0
	case bytes.HasSuffix(node, deleted):
		return fs.whereDeletedName(n, node, root), until
	case len(node) == 1 && n.kind != unix.S_IFDIR, bytes.HasPrefix(node, unreachable):
		return unknown, 0
	case isBeneath(node, root):
		return inside, until
	}
	var st Stat
	if n.kind != unix.S_IFDIR && fstatBlocking(n.path, &st) == nil && st.Nlink > 1 {
		return unknown, 0 // another name may be inside
	}
	return outside, until
}

// maxClimb bounds the levels of one step of climb.
const maxClimb = 1024

var upwards = append(bytes.Repeat([]byte("../"), maxClimb), 0)

// climb is where for a directory with a path too long for the kernel. It goes up in doubling steps
// until the path is short enough, and in shorter ones after a step beyond the root. buf holds a
// path.
func (fs *FS) climb(dir int, root, buf []byte) location {
	at, doubling := dir, true
	defer func() {
		if at != dir {
			unix.Close(at)
		}
	}()
	for levels := 8; levels > 0; {
		up, err := fs.table.opened(openAt(at, upwards[3*(maxClimb-levels):], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC))
		if errors.Is(err, unix.ENOENT) {
			return outside // of the directory that is mounted at the root
		}
		if err != nil {
			return unknown
		}
		path, err := pathOf(up, buf)
		if errors.Is(err, unix.ENAMETOOLONG) {
			if at != dir {
				unix.Close(at)
			}
			if at = up; doubling {
				levels = min(2*levels, maxClimb)
			}
			continue
		}
		unix.Close(up)
		switch {
		case err != nil:
			return unknown
		case isBeneath(path, root):
			return inside
		case !isBeneath(root, path):
			return outside
		}
		doubling = false
		levels /= 2
	}
	return outside // the directory right above has a short path and is above the root
}

// whereRemembered is where for an object that is no directory, with a path too long for the kernel:
// it is at its remembered place if it still has that name.
func (fs *FS) whereRemembered(n *Node) (_ location, until int64) {
	p, ok := fs.index.place(&n.id)
	if !ok {
		return unknown, 0
	}
	dir := fs.table.get(&p.dir)
	if dir == nil {
		return unknown, 0
	}
	defer dir.Release()
	if !fs.Fresh(dir) {
		return unknown, 0
	}
	var name Name
	name.n = copy(name.b[:MaxName], p.name)
	if i, err := fs.identify(dir.path, name.terminated()); err != nil || i != n.id {
		return unknown, 0
	}
	return inside, fs.deadline(dir)
}

func isBeneath(node, root []byte) bool {
	if len(root) == 1 { // "/"
		return true
	}
	return bytes.HasPrefix(node, root) && (len(node) == len(root) || node[len(root)] == '/')
}

// whereDeletedName handles a name that itself ends with " (deleted)".
func (fs *FS) whereDeletedName(n *Node, node, root []byte) location {
	if !isBeneath(node, root) || len(node) == len(root) {
		return unknown
	}
	relative := bytes.TrimPrefix(node[len(root):], []byte("/"))
	fd, err := openBeneath(fs.root.path, append(relative, 0), openPath)
	if err != nil {
		return unknown
	}
	defer unix.Close(fd)
	var st Stat
	if fstatBlocking(fd, &st) != nil || st.Ino != n.ino || st.Dev != n.dev {
		return unknown
	}
	return inside
}

// identify returns the id of a name in dir, or of dir itself for an empty name. EXDEV: a mount
// point.
func (fs *FS) identify(dir int, name []byte) (i id, err error) {
	if fs.kernel {
		var h rawHandle
		mount, err := nameToHandle(dir, name, &h)
		if err != nil {
			return i, err
		}
		if mount != fs.mountID {
			return i, unix.EXDEV
		}
		i, ok := kernelID(&h)
		if !ok {
			return i, unix.EOVERFLOW
		}
		return i, nil
	}
	var stx unix.Statx_t
	if err := statx(dir, name, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_MNT_ID, &stx); err != nil {
		return i, err
	}
	if stx.Mnt_id != fs.mntID {
		return i, unix.EXDEV
	}
	if i = indexID(stx.Ino, fs.birthOf(&stx)); i == fs.rootPlace {
		i = fs.root.id
	}
	return i, nil
}

// openEntry returns the object of a name in dir other than "..".
func (fs *FS) openEntry(dir *Node, name []byte) (*Node, error) {
	// Repeat if the name changes its object between two system calls.
	for range 8 {
		i, err := fs.identify(dir.path, name)
		if err != nil {
			return nil, err
		}
		if n := fs.table.get(&i); n != nil {
			n.extend(fs.deadline(dir))
			return n, nil
		}
		fs.table.makeRoom(1)
		fd, err := fs.table.opened(openBeneath(dir.path, name, openPath))
		if err != nil {
			return nil, err
		}
		opened, err := fs.identify(fd, empty)
		if err != nil {
			unix.Close(fd)
			return nil, err
		}
		if opened != i {
			unix.Close(fd)
			continue
		}
		n, err := fs.nodeOf(i, fd)
		if errors.Is(err, unix.ESTALE) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		fs.remember(&i, &dir.id, name)
		return fs.confirm(n, dir), nil
	}
	return nil, unix.EAGAIN
}

// remember records the place of an object that may have to be found there again.
func (fs *FS) remember(i, dir *id, name []byte) {
	if !fs.kernel || !fs.whole {
		fs.index.remember(i, dir, name)
	}
}
