package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// crashEnv names a file system with a log, as mkfs and mount do. test/kernel sets it, in a guest.
const crashEnv = "VFS_TEST_CRASH"

// TestCrash: after a file system was cut off at an arbitrary moment and its log recovered, it has
// exactly the changes whose calls returned success. Calls that failed may have left theirs.
func TestCrash(t *testing.T) {
	kind := os.Getenv(crashEnv)
	if kind == "" {
		t.Skip("needs a file system of its own: TestCrash of test/kernel runs it in a guest")
	}
	top := t.TempDir()
	image, dir := top+"/image", top+"/mounted"
	must(t, os.Mkdir(dir, 0o755))
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	run("truncate", "-s", "512M", image)
	run("mkfs."+kind, "-q", image)
	mount := func() { t.Helper(); run("mount", "-o", "loop", image, dir) }
	random := rand.New(rand.NewPCG(1, uint64(len(kind))))
	const rounds = 10
	for round := range rounds + 1 {
		mount()
		sub := filepath.Join(dir, fmt.Sprint(round))
		must(t, os.Mkdir(sub, 0o755))
		fd, err := unix.Open(dir, unix.O_RDONLY, 0)
		must(t, err)
		must(t, unix.Syncfs(fd))
		o := Options{Key: bytes.Repeat([]byte("key."), 8)}
		if round == rounds { // without syncs, to see that their lack is found
			o.Sync = func(int, SyncKind) error { return nil }
		}
		fs, err := Open(sub, o)
		must(t, err)
		if !fs.ordered {
			t.Errorf("the log of %s is not known to be in order", kind)
		}
		w := &crashWork{fs: fs, left: 50 + random.Int64N(500), cut: func() {
			flags := uint32(2) // without flushing the log
			const goingDown = 0x8004587d
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), goingDown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
				t.Errorf("shutdown: %v", errno)
			}
		}}
		var ended sync.WaitGroup
		users := make([]*crashUser, 8)
		for i := range users {
			users[i] = &crashUser{work: w, prefix: fmt.Sprintf("u%d-", i), random: rand.New(rand.NewPCG(uint64(round), uint64(i))),
				names: map[string]*crashEntry{}, unsure: map[string]bool{}, dirs: []string{""}}
			ended.Go(func() { users[i].run() })
		}
		ended.Wait()
		_ = fs.Close()
		unix.Close(fd)
		run("umount", dir)
		mount()
		var wrong []string
		acknowledged := 0
		for _, u := range users {
			if u.failure != nil {
				t.Errorf("round %d: %v", round, u.failure)
			}
			acknowledged += u.acknowledged
			wrong = append(wrong, u.check(sub)...)
		}
		run("umount", dir)
		t.Logf("round %d: %d changes acknowledged, %d differences", round, acknowledged, len(wrong))
		if round == rounds {
			if len(wrong) == 0 {
				t.Error("without syncs nothing was lost: this test sees nothing")
			}
		} else if len(wrong) > 0 {
			t.Errorf("round %d:\n%s", round, strings.Join(wrong[:min(20, len(wrong))], "\n"))
		}
	}
}

// crashWork is common to the users of a round.
type crashWork struct {
	fs   *FS
	left int64 // changes until the file system is cut off
	done atomic.Bool
	once sync.Once
	cut  func()
}

// crashEntry is an object that a user made.
type crashEntry struct {
	kind    uint32
	mode    uint32
	content []byte
	target  string
	links   int
}

// crashUser makes changes, and notes those that were acknowledged, by path.
type crashUser struct {
	work         *crashWork
	prefix       string
	random       *rand.Rand
	count        int
	names        map[string]*crashEntry
	dirs         []string // "" is the root, which all share
	unsure       map[string]bool
	acknowledged int
	failure      error
}

func (u *crashUser) run() {
	for {
		err := u.change()
		if err != nil {
			if !u.work.done.Load() {
				u.failure = err
			}
			return
		}
		if u.work.done.Load() {
			return // xfs and ext4 report syncs as done while they are shut down
		}
		u.acknowledged++
		if atomic.AddInt64(&u.work.left, -1) <= 0 {
			u.work.once.Do(func() {
				u.work.done.Store(true)
				u.work.cut()
			})
		}
	}
}

func (u *crashUser) newPath() string {
	u.count++
	return u.dirs[u.random.IntN(len(u.dirs))] + fmt.Sprintf("/%s%d", u.prefix, u.count)
}

// some returns a path of the kind, "" if there is none.
func (u *crashUser) some(kind uint32) string {
	for path, e := range u.names { // any
		if e.kind == kind {
			return path
		}
	}
	return ""
}

// at returns the directory and the name of a path.
func (u *crashUser) at(path string) (*Node, *Name, error) {
	dir, base := filepath.Split(path)
	n, err := u.node(strings.TrimSuffix(dir, "/"))
	name := &Name{}
	return n, name, errors.Join(err, name.Set([]byte(base)))
}

func (u *crashUser) node(path string) (*Node, error) {
	fs := u.work.fs
	n := fs.Root()
	n.refs.Add(1)
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		if part == "" {
			continue
		}
		var name Name
		if err := name.Set([]byte(part)); err != nil {
			return nil, err
		}
		next, err := fs.Lookup(n, &name, root)
		n.Release()
		if err != nil {
			return nil, err
		}
		n = next
	}
	return n, nil
}

// change makes one change. After an error its paths are in unsure.
func (u *crashUser) change() error {
	fs := u.work.fs
	clear(u.unsure)
	var w, w2 Wcc
	mode := uint32(0o600 | u.random.IntN(8)<<3)
	attrs := &Attrs{SetMode: true, Mode: mode}
	path := u.newPath()
	u.unsure[path] = true
	dir, name, err := u.at(path)
	if err != nil {
		return err
	}
	defer dir.Release()
	old := u.some(unix.S_IFREG)
	switch pick := u.random.IntN(10); {
	case pick < 3 || old == "":
		if pick == 0 { // attributes in a step of their own
			attrs.SetMtime, attrs.Mtime = true, unix.Timespec{Sec: 1_000_000_000}
		}
		n, err := fs.Create(dir, name, Exclusive(u.random.IntN(2)), [8]byte{}, attrs, root, &w)
		if err != nil {
			return err
		}
		n.Release()
		u.names[path] = &crashEntry{kind: unix.S_IFREG, mode: mode, links: 1}
	case pick == 3:
		n, err := fs.Mkdir(dir, name, attrs, root, &w)
		if err != nil {
			return err
		}
		n.Release()
		u.names[path] = &crashEntry{kind: unix.S_IFDIR, mode: mode}
		u.dirs = append(u.dirs, path)
	case pick == 4:
		n, err := fs.Symlink(dir, name, "target"+path, &Attrs{}, root, &w)
		if err != nil {
			return err
		}
		n.Release()
		u.names[path] = &crashEntry{kind: unix.S_IFLNK, target: "target" + path}
	default:
		return u.changeOld(pick, old, path, dir, name, attrs, &w, &w2)
	}
	return nil
}

// changeOld changes the file at old, as pick selects.
func (u *crashUser) changeOld(pick int, old, path string, dir *Node, name *Name, attrs *Attrs, w, w2 *Wcc) error {
	fs := u.work.fs
	e := u.names[old]
	for p, other := range u.names { // its other names too
		if other == e {
			u.unsure[p] = true
		}
	}
	oldDir, oldName, err := u.at(old)
	if err != nil {
		return err
	}
	defer oldDir.Release()
	n, err := u.node(old)
	if err != nil {
		return err
	}
	defer n.Release()
	switch pick {
	case 5:
		if err := fs.Rename(oldDir, oldName, dir, name, root, w, w2); err != nil {
			return err
		}
		delete(u.names, old)
		u.names[path] = e
	case 6:
		if err := fs.Link(n, dir, name, root, w); err != nil {
			return err
		}
		u.names[path] = e
		e.links++
	case 7:
		if err := fs.Remove(oldDir, oldName, root, w); err != nil {
			return err
		}
		delete(u.names, old)
		e.links--
	case 8:
		if err := fs.SetAttr(n, attrs, root, nil, w); err != nil {
			return err
		}
		e.mode = attrs.Mode
	default:
		data := bytes.Repeat([]byte{byte(u.count)}, 1+u.random.IntN(20000))
		var wr Write
		if _, err := wr.Do(n, [][]byte{data}, len(data), uint64(len(e.content)), root); err != nil {
			return err
		}
		if err := n.Sync(true); err != nil {
			return err
		}
		e.content = append(e.content, data...)
	}
	return nil
}

// check compares the user's objects beneath top with its notes.
func (u *crashUser) check(top string) (wrong []string) {
	report := func(path, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s: ", path)+fmt.Sprintf(format, args...))
	}
	found := map[string]bool{}
	_ = filepath.Walk(top, func(path string, _ os.FileInfo, err error) error {
		rel := strings.TrimPrefix(path, top)
		if err == nil && strings.HasPrefix(filepath.Base(path), u.prefix) {
			found[rel] = true
			if u.names[rel] == nil && !u.unsure[rel] {
				report(rel, "is there, and was removed")
			}
		}
		return err
	})
	for path, e := range u.names {
		var st Stat
		switch err := unix.Lstat(top+path, &st); {
		case u.unsure[path]:
		case err != nil:
			report(path, "%v", err)
		case st.Mode&unix.S_IFMT != e.kind:
			report(path, "it has mode %o, its kind is %o", st.Mode, e.kind)
		case e.kind == unix.S_IFLNK:
			if target, err := os.Readlink(top + path); target != e.target {
				report(path, "target %q, %v", target, err)
			}
		case st.Mode&0o7777 != e.mode:
			report(path, "mode %o, want %o", st.Mode&0o7777, e.mode)
		case e.kind == unix.S_IFREG:
			if content, err := os.ReadFile(top + path); !bytes.Equal(content, e.content) {
				report(path, "%d bytes, %v, want %d", len(content), err, len(e.content))
			} else if int(st.Nlink) != e.links {
				report(path, "%d links, want %d", st.Nlink, e.links)
			}
		}
	}
	return wrong
}
