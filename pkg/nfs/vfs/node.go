package vfs

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Node is an object of the file system that is held open. Who gets a Node from the FS releases it.
type Node struct {
	fs     *FS
	id     id
	handle Handle
	signer *signer // of handle
	// resigned is the handle under the present keys, once they are not those of signer any more.
	resigned atomic.Pointer[signedHandle]
	kind     uint32 // S_IFMT
	ino      uint64
	dev      uint64
	path     int // O_PATH descriptor

	refs    atomic.Int32
	dead    atomic.Bool // out of the table: the last Release closes it
	closed  atomic.Bool
	touched atomic.Bool // used since the clock hand passed

	opening        sync.Mutex
	reader, writer atomic.Int32 // descriptors, -1 while there is none
	used           atomic.Int64 // when reader or writer were last asked for

	// change is held around what changes the object, so that the attributes before and after belong to that alone.
	change sync.Mutex
	// listing guards the position of a directory's reader, as long as the node is in use.
	listing  sync.Mutex
	position int64

	insideUntil atomic.Int64  // until when the object counts as beneath the root
	acl         atomic.Uint64 // see aclState
	seen        atomic.Bool   // an ACL was asked for before, so that the kernel has it in memory

	// written counts unstable writes, committed is how far they are known to be on stable storage.
	written, committed atomic.Uint64

	prev, next *Node // the shard's ring
}

func (fs *FS) newNode(i id, path int, st *Stat) *Node {
	n := &Node{fs: fs, id: i, path: path, signer: fs.signer.Load(), kind: st.Mode & unix.S_IFMT, ino: st.Ino, dev: st.Dev}
	n.signer.sign(&i, &n.handle)
	n.reader.Store(-1)
	n.writer.Store(-1)
	n.refs.Store(1)
	fs.table.files.Add(1)
	return n
}

type signedHandle struct {
	signer *signer
	handle Handle
}

// Handle returns the node's handle, under the keys of now.
func (n *Node) Handle() *Handle {
	now := n.fs.signer.Load()
	if n.signer == now {
		return &n.handle
	}
	r := n.resigned.Load()
	if r == nil || r.signer != now {
		r = &signedHandle{signer: now}
		now.sign(&n.id, &r.handle)
		n.resigned.Store(r)
	}
	return &r.handle
}

// Kind returns the object's type, as unix.S_IFMT masks it.
func (n *Node) Kind() uint32 { return n.kind }

// IsDir reports whether the object is a directory.
func (n *Node) IsDir() bool { return n.kind == unix.S_IFDIR }

// Release ends the use of n.
func (n *Node) Release() {
	if n.refs.Add(-1) == 0 {
		n.closeIfUnused()
	}
}

// closeIfUnused closes n if nobody can find it any more. Since its last user let go of it others may have found it, and one of them may have killed it:
// then it is theirs to close. A dead node gets no new users, so whether there are any is asked after that.
func (n *Node) closeIfUnused() {
	if n.dead.Load() && n.refs.Load() == 0 {
		n.close()
	}
}

// Stat fills in st. An object without any link left is stale.
func (n *Node) Stat(st *Stat) error {
	var err error
	if n.fs.nonblocking {
		err = fstat(n.path, st)
	} else {
		err = fstatBlocking(n.path, st)
	}
	if err != nil {
		return err
	}
	if st.Nlink == 0 && !n.fs.noNlink {
		n.fs.table.kill(n)
		return unix.ESTALE
	}
	return nil
}

// files returns how many descriptors n has. Only who may close them asks.
func (n *Node) files() int64 {
	k := int64(1)
	if n.reader.Load() >= 0 {
		k++
	}
	if n.writer.Load() >= 0 {
		k++
	}
	return k
}

// close is called when nobody uses n and nobody can find it any more.
func (n *Node) close() {
	if n.closed.Swap(true) {
		return
	}
	n.fs.table.files.Add(-n.files())
	unix.Close(n.path)
	for _, fd := range [...]int32{n.reader.Load(), n.writer.Load()} {
		if fd >= 0 {
			unix.Close(int(fd))
		}
	}
}

// dirty reports whether there are unstable writes that were not committed.
func (n *Node) dirty() bool { return n.written.Load() != n.committed.Load() }

// readerFD returns a descriptor for reading a file or listing a directory, which is n's and stays open until Release.
func (n *Node) readerFD() (int, error) {
	flags := unix.O_RDONLY | unix.O_NOCTTY
	if n.IsDir() {
		flags |= unix.O_DIRECTORY
	}
	return n.openFD(&n.reader, flags)
}

// writerFD returns a descriptor for writing a file.
func (n *Node) writerFD() (int, error) { return n.openFD(&n.writer, unix.O_WRONLY|unix.O_NOCTTY) }

// openFD returns the descriptor in slot, which it opens under the process's own identity: callers check permissions themselves.
// It is not for devices, pipes and sockets, whose opening has effects. While another process has a lease on the file (fcntl(2)), it fails with EAGAIN.
func (n *Node) openFD(slot *atomic.Int32, flags int) (int, error) {
	n.used.Store(n.fs.now())
	if fd := slot.Load(); fd >= 0 {
		return int(fd), nil
	}
	if n.kind != unix.S_IFREG && n.kind != unix.S_IFDIR {
		return -1, unix.EINVAL
	}
	n.opening.Lock()
	defer n.opening.Unlock()
	if fd := slot.Load(); fd >= 0 {
		return int(fd), nil
	}
	n.fs.table.makeRoom(1)
	fd, err := n.fs.table.opened(reopen(n.path, flags|unix.O_NONBLOCK)) // for leases, it means nothing else here
	if err != nil {
		return -1, err
	}
	n.fs.table.files.Add(1)
	slot.Store(int32(fd))
	return fd, nil
}

// adoptWriter makes fd, with which the object was created, its writer, unless it has one.
func (n *Node) adoptWriter(fd int) {
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.writer.Load() >= 0 {
		unix.Close(fd)
		return
	}
	n.used.Store(n.fs.now())
	n.fs.table.files.Add(1)
	n.writer.Store(int32(fd))
}

// syncableFD returns a descriptor by which n can be synced; -1 if there is none: it is no file and no directory, or the process,
// which is not root, may change it but not open it.
func (n *Node) syncableFD() (int, error) {
	if fd := n.writer.Load(); fd >= 0 {
		return int(fd), nil
	}
	if n.kind != unix.S_IFREG && n.kind != unix.S_IFDIR {
		return -1, nil
	}
	fd, err := n.readerFD()
	if errors.Is(err, unix.EACCES) && n.kind == unix.S_IFREG { // the process is not root, and may write but not read
		fd, err = n.writerFD()
	}
	if errors.Is(err, unix.EACCES) {
		return -1, nil
	}
	return fd, err
}

// Sync brings the object to stable storage, data alone or metadata too.
func (n *Node) Sync(dataOnly bool) error {
	written := n.written.Load()
	fd, err := n.syncableFD()
	if err != nil {
		return err
	}
	kind := SyncFile
	switch {
	case fd < 0: // there is nothing that could be synced but all
		fd, kind = n.fs.mount, SyncFS
	case dataOnly:
		kind = SyncData
	}
	err = n.fs.sync(fd, kind)
	// After a failure, too, there is nothing left to wait for: the pages are lost, and callers learn it from the verifier.
	for {
		c := n.committed.Load()
		if c >= written || n.committed.CompareAndSwap(c, written) {
			return err
		}
	}
}
