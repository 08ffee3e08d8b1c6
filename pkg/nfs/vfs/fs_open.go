package vfs

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
		startWriteback: startWriteback, writebacks: make(chan writeback, 16), stop: make(chan struct{})}
	fs.signer.Store(signer)
	var random [8]byte
	rand.Read(random[:])
	fs.verifier.Store(binary.BigEndian.Uint64(random[:]))
	fs.table.init(o.MaxFiles, o.Logger)
	fs.locator.init()
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
	fs.ordered = ordersJournal(st.Dev, sfs.Type)
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
func (fs *FS) probeHandles(root int) (rootID objectID, err error) {
	var stx unix.Statx_t
	if err := statx(root, empty, unix.STATX_BASIC_STATS|unix.STATX_BTIME|unix.STATX_MNT_ID, &stx); err != nil {
		return objectID{}, fmt.Errorf("statx(2): %w", err)
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
func (fs *FS) kernelRoot(root int) (rootID objectID, reason string) {
	var h rawHandle
	mount, err := nameToHandle(root, empty, &h)
	if err != nil {
		return objectID{}, fmt.Sprintf("the file system has no handles: %v", err)
	}
	rootID, ok := kernelID(&h)
	if !ok {
		return objectID{}, fmt.Sprintf("the file system's handles have %d bytes, at most %d can be used", h.bytes, maxID)
	}
	fd, err := openByHandle(fs.mount, &h, openPath)
	if err != nil {
		return objectID{}, fmt.Sprintf("the process may not open by handle, CAP_DAC_READ_SEARCH would allow it: %v", err)
	}
	defer unix.Close(fd)
	var a, b Stat
	if unix.Fstat(fd, &a) != nil || unix.Fstat(root, &b) != nil || a.Ino != b.Ino || a.Dev != b.Dev {
		return objectID{}, "a handle of the root leads elsewhere"
	}
	fs.mountID = mount
	return rootID, ""
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

// ordersJournal reports whether a file system, given by device and type, writes its journal in
// order: a sync of an object then makes every earlier change of that object durable, together with
// all changes made in the same step. So a new object's sync includes its name, and a directory's
// sync the other directory of a rename and the link count of a file. That holds for xfs, and for
// ext4 with a journal.
func ordersJournal(dev uint64, kind int64) bool {
	switch kind {
	case unix.XFS_SUPER_MAGIC:
		return true
	case unix.EXT4_SUPER_MAGIC:
		// The name in /proc/fs/jbd2 is that of the device, with a suffix.
		device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
		if err != nil {
			return false
		}
		journals, _ := filepath.Glob("/proc/fs/jbd2/" + filepath.Base(device) + "-*")
		return len(journals) > 0
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

// Close closes all files. No operation may be running.
func (fs *FS) Close() error {
	close(fs.stop)
	close(fs.writebacks)
	fs.locator.close()
	fs.done.Wait()
	fs.table.closeAll()
	return unix.Close(fs.mount)
}
