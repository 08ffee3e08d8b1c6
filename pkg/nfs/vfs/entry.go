package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

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

// nodeOf makes a node that owns fd.
func (fs *FS) nodeOf(i objectID, fd int) (*Node, error) {
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

// remember records the place of an object that may have to be found there again.
func (fs *FS) remember(i, dir *objectID, name []byte) {
	if !fs.kernel || !fs.whole {
		fs.index.remember(i, dir, name)
	}
}
