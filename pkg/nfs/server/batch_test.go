package server

import (
	"maps"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/test/prereq"
)

// inMemory moves an env's directory to a tmpfs, where nothing waits for a disk.
func inMemory(t testing.TB, c *Config) {
	t.Helper()
	const shm = "/dev/shm"
	var s unix.Statfs_t
	if err := unix.Statfs(shm, &s); err != nil || s.Type != unix.TMPFS_MAGIC {
		prereq.Missing(t, "%s is no tmpfs", shm)
	}
	dir, err := os.MkdirTemp(shm, "server-test-") //nolint:usetesting // it has to be a tmpfs
	if err != nil {
		prereq.Missing(t, "%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.Root = dir
}

// newMemoryEnv is newEnv on a tmpfs.
func newMemoryEnv(t testing.TB, change func(*Config)) *env {
	t.Helper()
	var dir string
	r := newEnv(t, func(c *Config) {
		inMemory(t, c)
		dir = c.Root
		change(c)
	})
	r.dir = dir
	return r
}

// TestStalledDisk: while all workers wait for a disk, and more calls for a worker, the calls that
// do not need one are answered.
func TestStalledDisk(t *testing.T) {
	release, stalled := make(chan struct{}), make(chan struct{}, 10)
	resume := sync.OnceFunc(func() { close(release) })
	defer resume()
	r := newMemoryEnv(t, func(c *Config) {
		c.Workers = 2
		c.Files.Sync = func(int, vfs.SyncKind) error {
			stalled <- struct{}{}
			<-release
			return nil
		}
	})
	r.put("file", "content")
	h := r.handle("file")
	r.write(h, 0, "CON", nfs3.Unstable) // by a worker: it opens the file
	r.access(h, nfs3.AccessRead)        // too: it reads the ACL
	var waiting []*wire
	for i := range 4 {
		name := string(rune('a' + i))
		r.put(name, "")
		waiting = append(waiting, r.prepare(r.xid.Add(1), nfs3.Program, nfs3.Version, nfs3.ProcCommit, &nfs3.CommitArgs{File: r.handle(name)}, 0))
	}
	for _, w := range waiting {
		w.send()
	}
	for range 2 {
		<-stalled
	}
	if st := r.s.Stats(); st.Busy != 2 || st.Queued != 2 {
		t.Fatalf("%d workers are busy, %d calls wait, want 2 and 2", st.Busy, st.Queued)
	}
	if res := r.write(h, 3, "T", nfs3.Unstable); res.Status != nfs3.OK || res.Count != 1 || !res.Wcc.HasBefore || !res.Wcc.After.Present {
		t.Errorf("WRITE: %+v", res)
	}
	if res := r.getattr(h); res.Status != nfs3.OK || res.Attr.Size != 7 {
		t.Errorf("GETATTR: %+v", res)
	}
	if res := r.access(h, nfs3.AccessRead); res.Status != nfs3.OK {
		t.Errorf("ACCESS: %+v", res)
	}
	if got := r.content("file"); got != "CONTent" {
		t.Errorf("the file has %q", got)
	}
	// One too long for the receive loop waits for a worker, and so does one that must be stable.
	long := make([]byte, 64<<10+1)
	for _, args := range []*nfs3.WriteArgs{writeArgs(h, 0, string(long), nfs3.Unstable), writeArgs(h, 0, "x", nfs3.DataSync)} {
		waiting = append(waiting, r.prepare(r.xid.Add(1), nfs3.Program, nfs3.Version, nfs3.ProcWrite, args, 0).send())
	}
	if st := r.s.Stats(); st.Queued != 4 {
		t.Errorf("%d calls wait for a worker, want 4", st.Queued)
	}
	resume()
	for _, w := range waiting {
		w.wait()
	}
}

// TestWriteRetransmitted: a retransmission of a WRITE on the receive loop gets the first reply.
func TestWriteRetransmitted(t *testing.T) {
	r := newMemoryEnv(t, func(*Config) {})
	r.put("file", "content")
	h := r.handle("file")
	r.write(h, 0, "0", nfs3.Unstable)
	xid := r.xid.Add(1)
	var first, second nfs3.WriteRes
	r.prepare(xid, nfs3.Program, nfs3.Version, nfs3.ProcWrite, writeArgs(h, 0, "1", nfs3.Unstable), 0).send().wait().results(&first)
	r.put("file", "another")
	r.prepare(xid, nfs3.Program, nfs3.Version, nfs3.ProcWrite, writeArgs(h, 0, "1", nfs3.Unstable), 0).send().wait().results(&second)
	if first.Status != nfs3.OK || second.Wcc != first.Wcc || r.content("file") != "another" {
		t.Errorf("%+v, then %+v; the file has %q", first, second, r.content("file"))
	}
}

// TestBatch: calls of a batch share attributes, also with READ; a change by the batch shows, and so
// does one by others in the next batch.
func TestBatch(t *testing.T) {
	r := newMemoryEnv(t, func(*Config) {})
	r.put("file", "content")
	h := r.handle("file")
	r.write(h, 0, "c", nfs3.Unstable)
	size := func() uint64 { return r.getattr(h).Attr.Size }
	if size() != 7 {
		t.Fatal("the file has another size")
	}
	r.read(h, 0, 1) // by a worker: it opens the file and reads the ACL
	b := r.conn.Batch
	grow := func(by string) {
		f, err := os.OpenFile(r.path("file"), os.O_APPEND|os.O_WRONLY, 0)
		r.must(err)
		_, err = f.WriteString(by)
		r.must(err)
		r.must(f.Close())
	}
	b.Cork()
	if size() != 7 {
		t.Error("the first GETATTR of a batch")
	}
	grow("s of another")
	if n := size(); n != 7 {
		t.Errorf("the second GETATTR of a batch has %d bytes: it made a query of its own", n)
	}
	if res, data := r.read(h, 0, 100); data != "content" || !res.EOF || res.Attr.Attr.Size != 7 {
		t.Errorf("a READ of the batch: %q, %+v", data, res)
	}
	r.write(h, 0, "C", nfs3.Unstable)
	if n := size(); n != 19 {
		t.Errorf("after a WRITE of the batch it has %d bytes, want 19", n)
	}
	b.Uncork()
	grow("!")
	b.Cork()
	if n := size(); n != 20 {
		t.Errorf("in the next batch it has %d bytes, want 20", n)
	}
	r.must(unix.Truncate(r.path("file"), 3))
	if res, data := r.read(h, 0, 100); data != "Con" || !res.EOF || res.Attr.Attr.Size != 3 {
		t.Errorf("a READ of a file that became shorter: %q, %+v", data, res)
	}
	b.Uncork()
	if n := size(); n != 3 {
		t.Errorf("outside of batches it has %d bytes, want 3", n)
	}
}

const callsEnv = "SERVER_TEST_SYSTEM_CALLS"

// counted are the system calls on files and identities, which TestSystemCalls counts.
var counted = map[int]string{
	unix.SYS_FSTAT: "fstat", unix.SYS_NEWFSTATAT: "fstatat", unix.SYS_STATX: "statx", unix.SYS_PREAD64: "pread", unix.SYS_PREADV2: "preadv2",
	unix.SYS_PWRITE64: "pwrite", unix.SYS_PWRITEV: "pwritev", unix.SYS_PWRITEV2: "pwritev2", unix.SYS_GETXATTR: "getxattr",
	unix.SYS_OPENAT: "openat", unix.SYS_OPENAT2: "openat2", unix.SYS_READLINKAT: "readlinkat", unix.SYS_FACCESSAT2: "faccessat2",
	unix.SYS_SETFSUID: "setfsuid", unix.SYS_SETFSGID: "setfsgid", unix.SYS_SETGROUPS: "setgroups",
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_NAME_TO_HANDLE_AT: "name_to_handle_at",
}

// TestSystemCalls: the calls of the data path make no more system calls on files than they need.
func TestSystemCalls(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestSystemCallsChild$", "-test.v")
	cmd.Env = append(os.Environ(), callsEnv+"=1", "GOMAXPROCS=4") // one waits in a system call
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestSystemCallsChild(t *testing.T) {
	if os.Getenv(callsEnv) == "" {
		return
	}
	r := newMemoryEnv(t, func(c *Config) { c.Files.Recheck = time.Hour })
	calls := hot(r)
	for _, c := range calls {
		c.run()
	}
	time.Sleep(100 * time.Millisecond) // longer than vfs distrusts a new ctime
	get := calls["GETATTR"]
	get.run()
	counts := countSystemCalls(t)
	const n = 16
	for _, c := range []struct {
		name   string
		call   func()
		before func()
		after  func()
		want   map[string]int
	}{
		{name: "GETATTR", call: get.run, want: map[string]int{"fstat": n}},
		{name: "GETATTR in a batch", call: get.run, before: r.conn.Batch.Cork, after: r.conn.Batch.Uncork, want: map[string]int{"fstat": 1}},
		{name: "ACCESS in a batch", call: calls["ACCESS"].run, before: r.conn.Batch.Cork, after: r.conn.Batch.Uncork, want: map[string]int{"fstat": 1}},
		{name: "READ 4KiB", call: calls["READ 4KiB"].run, want: map[string]int{"fstat": n, "pread": n}},
		{name: "READ 4KiB in a batch", call: calls["READ 4KiB"].run, before: r.conn.Batch.Cork, after: r.conn.Batch.Uncork, want: map[string]int{"fstat": 1, "pread": n}},
		{name: "WRITE 4KiB", call: calls["WRITE 4KiB"].run, want: map[string]int{"fstat": 2 * n, "pwritev2": n}},
	} {
		counts.take()
		if c.before != nil {
			c.before()
		}
		for range n {
			c.call()
		}
		if c.after != nil {
			c.after()
		}
		got := counts.take()
		delete(got, "getxattr") // by the age of the file's ctime
		if !maps.Equal(got, c.want) {
			t.Errorf("%d calls of %s made the system calls %v, want %v", n, c.name, got, c.want)
		}
	}
}

// systemCalls counts system calls by their number.
type systemCalls [512]atomic.Int64

func (s *systemCalls) take() map[string]int {
	m := map[string]int{}
	for number, name := range counted {
		if n := s[number].Swap(0); n > 0 {
			m[name] = int(n)
		}
	}
	return m
}

// The interface of seccomp_unotify(2).
const (
	seccompNewListener = 1 << 3
	seccompTSyncESRCH  = 1 << 4
	seccompUserNotif   = 0x7fc00000
	seccompNotifRecv   = 0xc0502100
	seccompNotifSend   = 0xc0182101
	seccompNotifGoesOn = 1
)

type seccompNotif struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type seccompNotifResp struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

// countSystemCalls counts the system calls of all threads of the process from now on.
func countSystemCalls(t *testing.T) *systemCalls {
	t.Helper()
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for call := range counted {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(call)},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: seccompUserNotif})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC|seccompTSyncESRCH|seccompNewListener, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		prereq.Missing(t, "the kernel does not report system calls by seccomp: %v", errno)
	}
	runtime.KeepAlive(filter)
	counts := &systemCalls{}
	go func() { // to the end of the process
		for {
			var n seccompNotif
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, seccompNotifRecv, uintptr(unsafe.Pointer(&n))); errno != 0 {
				continue // a signal, or the thread is gone
			}
			counts[n.nr].Add(1)
			resp := seccompNotifResp{id: n.id, flags: seccompNotifGoesOn}
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, seccompNotifSend, uintptr(unsafe.Pointer(&resp)))
		}
	}()
	return counts
}
