package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// Lease guards a regular file against local processes that would change its data: opening it for
// writing, or truncating it, waits until the lease is closed, for at most the kernel's
// /proc/sys/fs/lease-break-time (fcntl(2), F_SETLEASE). The process gets SIGIO then, and Broken
// reports true. A lease does not guard names and attributes.
type Lease struct {
	fs *FS
	fd int
}

// Quiet reports whether nobody uses n but its Files and the caller, who has the given number of
// references. So any operation that has found n before the caller called Quiet is complete.
func (fs *FS) Quiet(n *Node, references int) bool {
	s := fs.table.of(&n.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return n.quietLocked(references)
}

// quietLocked is Quiet. The shard is locked.
func (n *Node) quietLocked(references int) bool {
	return !n.dead.Load() && n.refs.Load() == int32(references)+n.opens.Load()
}

// Lease takes a lease for reading, if n is Quiet and nobody has it open for writing; otherwise it
// fails with EAGAIN. Unstable writes prevent it too.
func (fs *FS) Lease(n *Node, references int) (*Lease, error) {
	if n.kind != unix.S_IFREG {
		return nil, unix.EINVAL
	}
	if !fs.closeWriter(n, references) {
		return nil, unix.EAGAIN
	}
	var st Stat
	if err := n.Stat(&st); err != nil {
		return nil, err
	}
	fs.table.makeRoom(1)
	fd, err := fs.table.opened(reopen(n.path, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK))
	if err != nil {
		return nil, err
	}
	// SIGIO goes to the process. By default it would go to the calling thread, which may end.
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_SETOWN, os.Getpid()); err == nil {
		err = fs.setLease(fd, &st)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	fs.table.files.Add(1)
	return &Lease{fs: fs, fd: fd}, nil
}

// setLease takes the lease as the file's owner, since others need CAP_LEASE.
func (fs *FS) setLease(fd int, st *Stat) error {
	owner := Cred{UID: st.Uid, GID: st.Gid}
	entered, err := fs.ids.enter(&owner)
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	fs.ids.leave(entered)
	return err
}

// closeWriter closes the descriptor for writing of a Quiet node.
func (fs *FS) closeWriter(n *Node, references int) bool {
	s := fs.table.of(&n.id)
	s.mu.Lock()
	if !n.quietLocked(references) || n.dirty() {
		s.mu.Unlock()
		return false
	}
	w := n.writer.Swap(-1)
	s.mu.Unlock()
	if w >= 0 {
		unix.Close(int(w))
		fs.table.files.Add(-1)
	}
	return true
}

// Broken reports whether a local process waits for the end of the lease, or the kernel has ended
// it.
func (l *Lease) Broken() bool {
	kind, err := unix.FcntlInt(uintptr(l.fd), unix.F_GETLEASE, 0)
	return err != nil || kind != unix.F_RDLCK
}

// Close ends the lease.
func (l *Lease) Close() {
	unix.Close(l.fd)
	l.fs.table.files.Add(-1)
}
