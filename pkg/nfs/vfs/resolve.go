package vfs

import (
	"crypto/subtle"

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
		n.kill()
		n.Release()
	}
	i, tag, _ := parse(h)
	if n == nil && !fs.signer.Load().valid(&i, tag) {
		return nil, ErrBadHandle
	}
	return fs.find(&i)
}

// find opens the object of an id.
func (fs *FS) find(i *objectID) (*Node, error) {
	if n := fs.table.get(i); n != nil {
		if fs.Fresh(n) {
			return n, nil
		}
		n.kill()
		n.Release()
	}
	if !fs.kernel {
		return fs.openByNames(i)
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
		return fs.locate(i)
	}
	// The kernel knows no name.
	return fs.openByNames(i)
}

// maxDepth bounds the names of a path, since stale entries may form a loop.
const maxDepth = 1 << 16

// openByNames opens the object of i by its remembered names, and searches for it if they fail.
func (fs *FS) openByNames(i *objectID) (*Node, error) {
	// From the object up to a directory that is open, then down again.
	var names []string
	at := *i
	var dir *Node
	for dir == nil {
		n, ok := fs.index.place(&at)
		if !ok || len(names) > maxDepth {
			return fs.locate(i)
		}
		names = append(names, n.name)
		at = n.dir
		if fs.kernel { // found by its handle
			var err error
			if dir, err = fs.find(&at); passing(err) {
				return nil, err
			} else if err != nil {
				return fs.locate(i)
			}
		} else if dir = fs.table.get(&at); dir != nil && !fs.Fresh(dir) {
			dir.Release()
			dir = nil
		}
	}
	for k := len(names) - 1; k >= 0; k-- {
		n, err := fs.openEntry(dir, append([]byte(names[k]), 0))
		dir.Release()
		if err == nil {
			dir = n
			continue
		}
		if passing(err) {
			return nil, err
		}
		return fs.locate(i)
	}
	if dir.id != *i {
		dir.Release()
		return fs.locate(i)
	}
	return dir, nil
}
