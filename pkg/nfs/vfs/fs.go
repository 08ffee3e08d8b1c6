package vfs

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Options configure Open. Key is required.
type Options struct {
	// Key signs handles: at least MinKey bytes, secret, and the same after a restart. See LoadKey.
	Key []byte
	// OlderKeys are accepted too.
	OlderKeys [][]byte
	// Scope is part of the key: file systems of different scopes refuse each other's handles.
	Scope string
	// MaxFiles bounds the open descriptors; 0 means a quarter of RLIMIT_NOFILE, at most 16384.
	MaxFiles int
	// Recheck is how long an object counts as beneath the root after a check; 0 means 100 ms.
	Recheck time.Duration
	// SelfOnly makes all callers the process itself, even if it may act as others.
	SelfOnly bool
	// IndexOnly uses handles of kind "index" even if the kernel's are available.
	IndexOnly bool
	// Hidden is a name in the root that callers cannot see or make, in any case of letters; empty
	// means none.
	Hidden string
	// Sync replaces the system call of SyncKind; nil means that call.
	Sync func(fd int, kind SyncKind) error
	// Logger gets errors that no caller sees; nil discards them.
	Logger *slog.Logger

	noBirth bool // for tests: the file system has no times of birth
}

// Info describes how a file system works here.
type Info struct {
	// Handles is "kernel" or "index", see the package's documentation.
	Handles string
	// Whole: the root is that of its file system, so nothing can be moved out.
	Whole bool
	// Identities: operations run as their callers; otherwise all run as the process.
	Identities bool
	// Notes are sentences for administrators: restrictions, and their remedies.
	Notes []string
}

// FS is an open directory. Its methods may be called concurrently.
type FS struct {
	opt          Options
	log          *slog.Logger
	signer       atomic.Pointer[signer]
	ids          identities
	table        table
	root         *Node
	mount        int // O_RDONLY, for open_by_handle_at
	info         Info
	capabilities Capabilities

	mountID     int32
	mntID       uint64
	kernel      bool // handles are the kernel's
	whole       bool
	nonblocking bool // cached metadata are served without waiting: a local file system
	inMemory    bool // file contents are memory too
	acls        bool
	noNlink     bool // the file system does not count links
	fsid        uint64
	birth       uint64 // for file systems without times of birth
	// rootPlace is the root's index id, which its handle does not contain.
	rootPlace objectID
	readNow   atomic.Bool
	writeNow  atomic.Bool
	index     index
	locator   locator
	verifier  atomic.Uint64
	readOnly  atomic.Int64 // see ReadOnly
	// subvolumes maps device numbers to the lasting ids of btrfs's subvolumes; see learnSubvolume.
	subvolumes atomic.Pointer[map[uint64]uint64]
	rootDev    uint64
	statfs     func(fd int, s *unix.Statfs_t) error
	ordered    bool // see ordersJournal
	writebacks chan writeback
	// startWriteback is the function of that name; tests replace it.
	startWriteback func(fd int, from, length int64) error

	epoch time.Time
	stop  chan struct{}
	done  sync.WaitGroup
}

// Info describes how the file system works here.
func (fs *FS) Info() Info { return fs.info }

// Capabilities returns the file system's constant properties.
func (fs *FS) Capabilities() Capabilities { return fs.capabilities }

// Root returns the root directory, which needs no Release.
func (fs *FS) Root() *Node { return fs.root }

// Nonblocking reports whether [Node.Stat], [FS.Fresh], [FS.Permit], [FS.ReadNow] and [Write.Now]
// never wait on this file system.
func (fs *FS) Nonblocking() bool { return fs.nonblocking }

// Files returns the number of open descriptors.
func (fs *FS) Files() int64 { return fs.table.files.Load() }

// Searches counts searches of the whole directory.
func (fs *FS) Searches() uint64 {
	fs.locator.mu.Lock()
	defer fs.locator.mu.Unlock()
	return fs.locator.count
}

// Usage are a file system's bytes and files: total, free, and available to ordinary callers.
type Usage struct {
	TotalBytes, FreeBytes, AvailBytes uint64
	TotalFiles, FreeFiles             uint64
}

// Usage queries the file system.
func (fs *FS) Usage() (u Usage, err error) {
	var s unix.Statfs_t
	err = retry(func() error { return unix.Fstatfs(fs.mount, &s) })
	if err != nil {
		return u, err
	}
	unit := uint64(s.Frsize)
	if unit == 0 {
		unit = uint64(s.Bsize)
	}
	return Usage{s.Blocks * unit, s.Bfree * unit, s.Bavail * unit, s.Files, s.Ffree}, nil
}

// SetKeys replaces the keys of Options from the next handle on: the first one signs, all are
// accepted. After an error nothing has changed.
func (fs *FS) SetKeys(keys [][]byte) error {
	s, err := newSigner(keys, fs.opt.Scope)
	if err == nil {
		fs.signer.Store(s)
	}
	return err
}

// Verifier changes with every Open and every failed sync, when unstable data may be lost.
func (fs *FS) Verifier() uint64 { return fs.verifier.Load() }

// SyncKind selects the data to sync.
type SyncKind int

const (
	// SyncFile is a file or directory with its metadata: fsync(2).
	SyncFile SyncKind = iota
	// SyncData is a file's data and the metadata to find them: fdatasync(2).
	SyncData
	// SyncFS is a whole file system, for an object that cannot be synced alone: syncfs(2).
	SyncFS
)

// sync brings data to stable storage. A failure changes the verifier.
func (fs *FS) sync(fd int, kind SyncKind) error {
	var err error
	if fs.opt.Sync != nil {
		err = fs.opt.Sync(fd, kind)
	} else {
		err = syncFD(fd, kind)
	}
	if err != nil {
		fs.verifier.Add(1)
		fs.log.Error("sync failed; clients must write uncommitted data again", "error", err)
	}
	return err
}

func syncFD(fd int, kind SyncKind) error {
	err := retry(func() error {
		switch kind {
		case SyncData:
			return unix.Fdatasync(fd)
		case SyncFile:
			return unix.Fsync(fd)
		}
		return unix.Syncfs(fd)
	})
	// this file system cannot sync such an object alone
	if errors.Is(err, unix.EINVAL) && kind != SyncFS {
		err = unix.Syncfs(fd)
	}
	return err
}

func (fs *FS) now() int64 { return int64(time.Since(fs.epoch)) }

// writeback is a range of a file to be written back early. It holds a use of the node.
type writeback struct {
	n            *Node
	from, length int64
}
