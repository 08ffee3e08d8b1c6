package vfs

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Node is an open object. Every Node that an FS returns needs a Release.
type Node struct {
	fs     *FS
	id     objectID
	handle Handle
	signer *signer // of handle
	// resigned is the handle under the present keys, after they changed.
	resigned atomic.Pointer[signedHandle]
	kind     uint32 // S_IFMT
	ino      uint64
	dev      uint64
	path     int // O_PATH descriptor

	refs    atomic.Int32
	opens   atomic.Int32 // Files
	dead    atomic.Bool  // removed from the table: the last Release closes it
	closed  atomic.Bool
	touched atomic.Bool // used since the clock hand passed

	opening        sync.Mutex
	reader, writer atomic.Int32 // descriptors, or -1
	used           atomic.Int64 // last use of reader or writer

	// change is held during changes of the object, so that the attributes before and after belong
	// to one change.
	change sync.Mutex
	// sameTick counts changes that left the ctime as it was; see Change.
	sameTick atomic.Uint64
	fresh    fresh // unstable data, guarded by change
	// listing guards the position of a directory's reader, as long as the node is in use.
	listing  sync.Mutex
	position int64

	insideUntil atomic.Int64  // the object counts as beneath the root until then
	acl         atomic.Uint64 // see aclState
	seen        atomic.Bool   // an ACL was queried, so it is in the kernel's memory

	// written counts unstable writes; committed is how many of them are stable.
	written, committed atomic.Uint64
	syncs              [2]SyncGroup // by SyncKind, of one object

	prev, next *Node // the shard's ring
}

func (fs *FS) newNode(i objectID, path int, st *Stat) *Node {
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

// Handle returns the node's handle under the present keys.
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

// Acquire adds a use of n by a user of n, which needs a Release of its own.
func (n *Node) Acquire() { n.refs.Add(1) }

// Key identifies the object, as long as it exists.
func (n *Node) Key() [len(objectID{})]byte { return n.id }

// Release ends a use of n.
func (n *Node) Release() {
	if n.refs.Add(-1) == 0 {
		n.closeIfUnused()
	}
}

// kill makes n unfindable; its last user closes it. The root stays.
func (n *Node) kill() {
	if n != n.fs.root {
		n.fs.table.remove(n)
		n.closeIfUnused()
	}
}

// closeIfUnused closes n if nobody can find it. Another user may have found and killed it since the
// last Release, and then closes it. A dead node gets no new users, so the count is read after dead.
func (n *Node) closeIfUnused() {
	if n.dead.Load() && n.refs.Load() == 0 {
		n.close()
	}
}

// Stat fills in st. An object without links is stale, unless it has Files.
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
	if st.Nlink == 0 && !n.fs.noNlink && n.opens.Load() == 0 {
		n.kill()
		return unix.ESTALE
	}
	return nil
}

// files returns the number of n's descriptors. Only a goroutine that may close them calls it.
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

// close runs when nobody uses n or can find it.
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

// dirty reports whether there are uncommitted writes.
func (n *Node) dirty() bool { return n.written.Load() != n.committed.Load() }

// readerFD returns a descriptor for reading a file or listing a directory. n owns it until Release.
func (n *Node) readerFD() (int, error) {
	flags := unix.O_RDONLY | unix.O_NOCTTY
	if n.IsDir() {
		flags |= unix.O_DIRECTORY
	}
	return n.openFD(&n.reader, flags)
}

// writerFD returns a descriptor for writing a file.
func (n *Node) writerFD() (int, error) { return n.openFD(&n.writer, unix.O_WRONLY|unix.O_NOCTTY) }

// openFD returns the descriptor in slot, opened as the process: callers check permissions. It does
// not open devices, pipes and sockets, which has effects. While another process has a lease on the
// file (fcntl(2)), it fails with EAGAIN.
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
	// for leases; no effect otherwise
	fd, err := n.fs.table.opened(reopen(n.path, flags|unix.O_NONBLOCK))
	if err != nil {
		return -1, err
	}
	n.fs.table.files.Add(1)
	slot.Store(int32(fd))
	return fd, nil
}

// adoptWriter makes fd, which created the object, its writer, unless it has one.
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

// syncableFD returns a descriptor for syncing n, or -1: n is no file or directory, or the process
// is not root and may change n but not open it.
func (n *Node) syncableFD() (int, error) {
	if fd := n.writer.Load(); fd >= 0 {
		return int(fd), nil
	}
	if n.kind != unix.S_IFREG && n.kind != unix.S_IFDIR {
		return -1, nil
	}
	fd, err := n.readerFD()
	// a process other than root may write but not read
	if errors.Is(err, unix.EACCES) && n.kind == unix.S_IFREG {
		fd, err = n.writerFD()
	}
	if errors.Is(err, unix.EACCES) {
		return -1, nil
	}
	return fd, err
}

// Sync syncs the object, data alone or metadata too.
func (n *Node) Sync(dataOnly bool) error {
	written := n.written.Load()
	fd, err := n.syncableFD()
	if err != nil {
		return err
	}
	kind := SyncFile
	switch {
	case fd < 0: // no descriptor: sync all
		fd, kind = n.fs.mount, SyncFS
	case dataOnly:
		kind = SyncData
	}
	if kind == SyncFS {
		err = n.fs.sync(fd, kind)
	} else {
		err = n.syncs[kind].Do(func() error { return n.fs.sync(fd, kind) })
	}
	// After a failure the pages are lost and there is nothing to wait for; the verifier informs
	// callers.
	for {
		c := n.committed.Load()
		if c >= written || n.committed.CompareAndSwap(c, written) {
			return err
		}
	}
}

// unlinked reports whether the object has lost its last name.
func (n *Node) unlinked() bool {
	var st Stat
	return !n.fs.noNlink && fstat(n.path, &st) == nil && st.Nlink == 0
}

// Birth returns the object's time of birth; false if the file system has none.
func (n *Node) Birth() (t unix.Timespec, ok bool) {
	var stx unix.Statx_t
	if statx(n.path, empty, unix.STATX_BTIME, &stx) != nil || stx.Mask&unix.STATX_BTIME == 0 {
		return t, false
	}
	return unix.Timespec{Sec: stx.Btime.Sec, Nsec: int64(stx.Btime.Nsec)}, true
}

// procPath is a path of the object, whatever its names are.
func (n *Node) procPath() string {
	var p procFD
	path := p.set(n.path)
	return string(path[:len(path)-1])
}
