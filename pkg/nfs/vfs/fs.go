package vfs

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strconv"
	"strings"
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
	rootPlace id
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
	ordered    bool // see ordered
	writebacks chan writeback
	// startWriteback is the function of that name; tests replace it.
	startWriteback func(fd int, from, length int64) error

	epoch time.Time
	stop  chan struct{}
	kick  chan struct{}
	done  sync.WaitGroup
}

// local are the file systems that serve cached metadata and pages without waiting for a server.
var local = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true,
	unix.RAMFS_MAGIC: true, unix.F2FS_SUPER_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
	0x2fc12fc1: true, // ZFS
	0xca451a4e: true, // bcachefs
}

// Open opens the directory at path. It changes the process's umask and capabilities; see the
// package's documentation.
func Open(path string, o Options) (*FS, error) {
	signer, err := newSigner(append([][]byte{o.Key}, o.OlderKeys...), o.Scope)
	if err != nil {
		return nil, err
	}
	if o.MaxFiles < 0 || o.Recheck < 0 {
		return nil, fmt.Errorf("vfs: MaxFiles is %d, Recheck is %v: neither may be negative", o.MaxFiles, o.Recheck)
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = defaultMaxFiles()
	}
	if o.Recheck == 0 {
		o.Recheck = 100 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	fs := &FS{opt: o, log: o.Logger, epoch: time.Now(), mount: -1, statfs: unix.Fstatfs,
		startWriteback: startWriteback, writebacks: make(chan writeback, 16), stop: make(chan struct{}), kick: make(chan struct{}, 1)}
	fs.signer.Store(signer)
	var random [8]byte
	rand.Read(random[:])
	fs.verifier.Store(binary.BigEndian.Uint64(random[:]))
	fs.table.init(fs)
	fs.locator.init(fs)
	prepareProcess()
	if err := fs.openRoot(path); err != nil {
		if fs.root != nil {
			fs.root.close()
		}
		if fs.mount >= 0 {
			unix.Close(fs.mount)
		}
		return nil, fmt.Errorf("vfs: %s: %w", path, err)
	}
	fs.done.Add(2)
	go fs.janitor()
	go fs.writer()
	return fs, nil
}

func defaultMaxFiles() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 256
	}
	return int(max(64, min(16384, r.Cur/4)))
}

func (fs *FS) openRoot(path string) (err error) {
	if fs.mount, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open the directory: %w", err)
	}
	fd, err := reopen(fs.mount, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open the directory through /proc, which must be mounted: %w", err)
	}
	var st Stat
	var sfs unix.Statfs_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.Fstatfs(fd, &sfs)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	if err := fs.checkOpenat2(fd); err != nil {
		unix.Close(fd)
		return err
	}
	fs.nonblocking = local[sfs.Type]
	fs.ordered = ordered(st.Dev, sfs.Type)
	fs.inMemory = sfs.Type == unix.TMPFS_MAGIC || sfs.Type == unix.RAMFS_MAGIC
	fs.noNlink = st.Nlink == 0
	_, err = aclOf(fd)
	fs.acls = !errors.Is(err, unix.EOPNOTSUPP)
	fs.readNow.Store(fs.nonblocking)
	fs.writeNow.Store(fs.nonblocking)
	fs.ids.probe(fs.opt.SelfOnly)
	rootID, err := fs.probeHandles(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	fs.rootDev = st.Dev
	fs.root = fs.newNode(rootID, fd, &st)
	fs.root.refs.Store(1) // the file system's own reference
	fs.table.put(fs.root)
	fs.fsid = fsidOf(fs.opt.Scope)
	fs.capabilities = probeCapabilities(fs.mount, &sfs)
	fs.capabilities.ACLs, fs.capabilities.Xattrs = fs.acls, probeXattrs(fd)
	_, fs.capabilities.Births = fs.root.Birth()
	fs.initInfo()
	return nil
}

func (fs *FS) checkOpenat2(fd int) error {
	dot, err := openBeneath(fd, []byte(".\x00"), openPath)
	if err != nil {
		return fmt.Errorf("openat2(2) (Linux 5.6 or later): %w", err)
	}
	return unix.Close(dot)
}

// probeHandles determines the kind of handles, and returns the root's.
func (fs *FS) probeHandles(root int) (rootID id, err error) {
	var stx unix.Statx_t
	if err := statx(root, empty, unix.STATX_BASIC_STATS|unix.STATX_BTIME|unix.STATX_MNT_ID, &stx); err != nil {
		return id{}, fmt.Errorf("statx(2): %w", err)
	}
	fs.mntID = stx.Mnt_id
	fs.whole = stx.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 && mountsWhole(stx.Mnt_id)
	if stx.Mask&unix.STATX_BTIME == 0 || fs.opt.noBirth {
		var random [8]byte
		rand.Read(random[:])
		fs.birth = binary.BigEndian.Uint64(random[:]) | 1
	}
	reason := "that was asked for"
	if !fs.opt.IndexOnly {
		rootID, reason = fs.kernelRoot(root)
	}
	if fs.kernel = reason == ""; fs.kernel {
		return rootID, nil
	}
	fs.info.Notes = append(fs.info.Notes, fmt.Sprintf("file handles are found by inode number (%s): after a restart, the first use of a handle searches the directory", reason))
	if fs.birth != 0 {
		fs.info.Notes = append(fs.info.Notes, "the file system has no times of birth, so handles of all but the root become stale with every restart")
	}
	// The root's id has no inode number. So clients keep their mounts whatever happens to their
	// other handles.
	fs.rootPlace = indexID(stx.Ino, fs.birthOf(&stx))
	return indexID(0, 0), nil
}

// kernelRoot tries the kernel's handles on the root; reason is empty on success.
func (fs *FS) kernelRoot(root int) (rootID id, reason string) {
	var h rawHandle
	mount, err := nameToHandle(root, empty, &h)
	if err != nil {
		return id{}, fmt.Sprintf("the file system has no handles: %v", err)
	}
	rootID, ok := kernelID(&h)
	if !ok {
		return id{}, fmt.Sprintf("the file system's handles have %d bytes, at most %d can be used", h.bytes, maxID)
	}
	fd, err := openByHandle(fs.mount, &h, openPath)
	if err != nil {
		return id{}, fmt.Sprintf("the process may not open by handle, CAP_DAC_READ_SEARCH would allow it: %v", err)
	}
	defer unix.Close(fd)
	var a, b Stat
	if unix.Fstat(fd, &a) != nil || unix.Fstat(root, &b) != nil || a.Ino != b.Ino || a.Dev != b.Dev {
		return id{}, "a handle of the root leads elsewhere"
	}
	fs.mountID = mount
	return rootID, ""
}

// birthOf is the second half of an index id.
func (fs *FS) birthOf(stx *unix.Statx_t) uint64 {
	if fs.birth != 0 {
		return fs.birth
	}
	return uint64(stx.Btime.Sec)*1e9 + uint64(stx.Btime.Nsec)
}

// mountsWhole reports whether a mount starts at the root of its file system.
func mountsWhole(mntID uint64) bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line)) // mount id, parent id, major:minor, root, …
		if len(f) > 3 && f[0] == strconv.FormatUint(mntID, 10) {
			return f[3] == "/"
		}
	}
	return false
}

func (fs *FS) initInfo() {
	fs.info.Handles = "index"
	if fs.kernel {
		fs.info.Handles = "kernel"
	}
	fs.info.Whole = fs.whole
	fs.info.Identities = fs.ids.able
	if !fs.ids.able {
		fs.info.Notes = append(fs.info.Notes, fmt.Sprintf("all callers act as uid %d, gid %d (%s)", fs.ids.self.UID, fs.ids.self.GID, fs.ids.reason))
	} else if fs.ids.resource {
		fs.info.Notes = append(fs.info.Notes, "the process keeps CAP_SYS_RESOURCE: quotas and reserved blocks do not bind callers")
	}
}

// Info describes how the file system works here.
func (fs *FS) Info() Info { return fs.info }

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

// FSID returns the id of the object's file system, the same after a restart. A btrfs subvolume has
// its own, as it has its own inode numbers. So has each layer of an overlayfs without unique inode
// numbers (xino=off); its id comes from the device number, which another mount may change.
func (fs *FS) FSID(st *Stat) uint64 {
	if st.Dev == fs.rootDev {
		return fs.fsid
	}
	number := st.Dev
	if known := fs.subvolumes.Load(); known != nil {
		if id, ok := (*known)[st.Dev]; ok {
			number = id
		}
	}
	return fs.fsid ^ (number*0x9e3779b97f4a7c15 | 1)
}

// learnSubvolume records the lasting id of an object's subvolume, since the device number changes
// with each mount.
func (fs *FS) learnSubvolume(fd int, dev uint64) {
	known := fs.subvolumes.Load()
	if dev == fs.rootDev || known != nil && (*known)[dev] != 0 {
		return
	}
	var s unix.Statfs_t
	if fs.statfs(fd, &s) != nil || s.Type != unix.BTRFS_SUPER_MAGIC {
		return
	}
	more := map[uint64]uint64{dev: uint64(uint32(s.Fsid.Val[0]))<<32 | uint64(uint32(s.Fsid.Val[1]))}
	if known != nil {
		maps.Copy(more, *known)
	}
	if !fs.subvolumes.CompareAndSwap(known, &more) {
		fs.learnSubvolume(fd, dev)
	}
}

// Verifier changes with every Open and every failed sync, when unstable data may be lost.
func (fs *FS) Verifier() uint64 { return fs.verifier.Load() }

// Close closes all files. No operation may be running.
func (fs *FS) Close() error {
	close(fs.stop)
	close(fs.writebacks)
	fs.locator.close()
	fs.done.Wait()
	fs.table.closeAll()
	return unix.Close(fs.mount)
}

func (fs *FS) now() int64 { return int64(time.Since(fs.epoch)) }

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
