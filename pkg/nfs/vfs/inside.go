package vfs

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

type location int

const (
	unknown location = iota
	inside
	outside
)

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
