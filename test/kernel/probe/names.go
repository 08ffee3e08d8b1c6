package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var nameChecks = []check{
	{"renames", renames}, {"links", links}, {"symlinks", symlinks}, {"truncates", truncates}, {"modes", modes}, {"owners", owners},
	{"times", times}, {"nodes", nodes}, {"odd-names", oddNames}, {"unlinked", unlinked}, {"exclusive", exclusive}, {"holes", holes},
	{"append", appends}, {"listed-while-removed", listedWhileRemoved}, {"mapped", mapped}, {"executed", executed}, {"statistics", statistics},
}

func renames(t *T) {
	full := unix.ENOTEMPTY
	if lacks("enotempty") {
		full = unix.EEXIST // POSIX leaves the choice
	}
	t.ok(os.Mkdir("a", 0o755))
	t.ok(os.Mkdir("b", 0o755))
	t.write("a/f", "one")
	t.write("b/f", "two")
	t.ok(os.Rename("a/f", "b/g"))
	t.ok(os.Rename("b/g", "b/f")) // over a file
	t.holds("b/f", "one")
	t.ok(os.Mkdir("a/d", 0o755))
	t.write("a/d/x", "three")
	t.ok(os.Rename("a/d", "b/d"))
	t.holds("b/d/x", "three")
	t.refused(unix.Rmdir("b"), unix.ENOTEMPTY)
	t.ok(os.Mkdir("c", 0o755))
	t.ok(unix.Rename("c", "a")) // over an empty directory, not over a full one
	t.refused(unix.Rename("a", "b"), full)
	t.refused(unix.Rename("b", "b/d/e"), unix.EINVAL)
	t.refused(unix.Rename("b/f", "a"), unix.EISDIR)
	t.refused(unix.Rename("a", "b/f"), unix.ENOTDIR)
	t.refused(unix.Rename("none", "b/n"), unix.ENOENT)
	t.equal("links of b", t.stat("b").Nlink, uint64(3))
}

func links(t *T) {
	t.write("f", "one")
	t.ok(os.Link("f", "g"))
	t.equal("links", t.stat("f").Nlink, uint64(2))
	t.equal("fileid", t.stat("g").Ino, t.stat("f").Ino)
	t.write("g", "two")
	t.holds("f", "two")
	t.ok(os.Remove("f"))
	t.equal("links", t.stat("g").Nlink, uint64(1))
	t.refused(os.Link("g", "g"), unix.EEXIST)
	t.refused(os.Link(".", "d"), unix.EPERM)
}

// symlinks have targets around every inline threshold of a call; 4095 is the longest.
func symlinks(t *T) {
	for _, n := range []int{1, 2, 3, 4, 5, 255, 1021, 1022, 1023, 1024, 1500, 3800, 3850, 3900, 3901, 3902, 3903, 3950, 4000, 4094, 4095} {
		if n >= 1024 && lacks("long-symlinks") {
			break
		}
		name := fmt.Sprintf("l%d", n)
		target := strings.Repeat(fmt.Sprint(n%10), n)
		t.ok(os.Symlink(target, name))
		got, err := os.Readlink(name)
		t.ok(err)
		t.equal(name, got, target)
		t.equal("size", t.stat(name).Size, int64(n))
	}
	t.ok(os.Mkdir("d", 0o755))
	t.write("d/f", "there")
	t.ok(os.Symlink("d/f", "to"))
	t.holds("to", "there")
	t.ok(os.Symlink("d", "dir"))
	t.holds("dir/f", "there")
	t.ok(os.Symlink("nowhere", "lost"))
	_, err := fetch("lost")
	t.refused(err, unix.ENOENT)
	t.ok(os.Symlink("loop", "loop"))
	_, err = fetch("loop")
	t.refused(err, unix.ELOOP)
}

func truncates(t *T) {
	text := strings.Repeat("0123456789abcde\n", 6250)
	t.write("f", text)
	t.ok(os.Truncate("f", 12345))
	t.holds("f", text[:12345])
	t.ok(os.Truncate("f", 70001))
	t.holds("f", text[:12345]+strings.Repeat("\x00", 70001-12345))
	t.ok(os.Truncate("f", 0))
	t.holds("f", "")
	t.write("g", "a long one")
	t.write("g", "short") // O_TRUNC
	t.holds("g", "short")
	const far = 5 << 30
	t.write("h", "")
	t.ok(os.Truncate("h", far))
	t.equal("size", t.stat("h").Size, int64(far))
	f, err := os.OpenFile("h", os.O_RDWR|unix.O_DIRECT, 0)
	t.ok(err)
	defer f.Close()
	_, err = f.WriteAt([]byte("end"), far-1)
	t.ok(err)
	got := make([]byte, 5)
	n, err := f.ReadAt(got, far-2)
	t.equal("read", fmt.Sprintf("%q %v", got[:n], err), `"\x00end" EOF`)
	t.ok(f.Truncate(1 << 20))
	t.equal("size", t.stat("h").Size, int64(1<<20))
	t.refused(os.Truncate("none", 0), unix.ENOENT)
	t.ok(os.Mkdir("d", 0o755))
	t.refused(os.Truncate("d", 0), unix.EISDIR)
}

func modes(t *T) {
	t.write("f", "")
	t.ok(os.Mkdir("d", 0o755))
	for _, m := range []uint32{0, 1, 0o777, 0o4755, 0o2755, 0o1777, 0o6000, 0o640} {
		t.ok(unix.Chmod("f", m))
		t.equal("mode", t.stat("f").Mode&0o7777, m)
	}
	for _, m := range []uint32{0o2775, 0o1777, 0o700} {
		t.ok(unix.Chmod("d", m))
		t.equal("mode", t.stat("d").Mode&0o7777, m)
	}
	defer unix.Umask(unix.Umask(0o27))
	f, err := os.OpenFile("g", os.O_CREATE|os.O_WRONLY, 0o666)
	t.ok(err)
	t.ok(f.Close())
	t.equal("mode", t.stat("g").Mode&0o7777, uint32(0o640))
	t.ok(os.Mkdir("e", 0o777))
	t.equal("mode", t.stat("e").Mode&0o7777, uint32(0o750))
}

func owners(t *T) {
	t.write("f", "")
	t.ok(os.Chown("f", 1000, 2000))
	t.ok(os.Chown("f", -1, 3000))
	st := t.stat("f")
	t.equal("owner", [2]uint32{st.Uid, st.Gid}, [2]uint32{1000, 3000})
	t.ok(os.Chown("f", math.MaxUint32-1, math.MaxUint32-1))
	t.equal("owner", t.stat("f").Uid, uint32(math.MaxUint32-1))
	t.ok(os.Symlink("f", "l"))
	t.ok(os.Lchown("l", 5, 6))
	t.equal("owner", t.stat("l").Gid, uint32(6))
	t.write("s", "")
	t.ok(unix.Chmod("s", 0o6755))
	t.ok(os.Chown("s", 7, 7)) // takes away the right to run as its owner
	t.equal("mode", t.stat("s").Mode&0o7777, uint32(0o755))
}

func times(t *T) {
	t.write("f", "")
	then := unix.NsecToTimespec(981173106789012345)
	t.ok(unix.UtimesNanoAt(unix.AT_FDCWD, "f", []unix.Timespec{then, then}, 0))
	t.equal("mtime", t.stat("f").Mtim, then)
	t.equal("atime", t.stat("f").Atim, then)
	atime := unix.Timespec{Sec: 915148800}
	t.ok(unix.UtimesNanoAt(unix.AT_FDCWD, "f", []unix.Timespec{atime, {Nsec: unix.UTIME_OMIT}}, 0))
	t.equal("mtime", t.stat("f").Mtim, then)
	t.equal("atime", t.stat("f").Atim, atime)
	t.ok(unix.UtimesNanoAt(unix.AT_FDCWD, "f", []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}, 0))
	if age := t.age("f"); age > time.Hour {
		t.fail(0, "the mtime that the server sets is %v old", age)
	}
	if !lacks("symlink-times") {
		t.ok(os.Symlink("f", "l"))
		t.ok(unix.UtimesNanoAt(unix.AT_FDCWD, "l", []unix.Timespec{then, then}, unix.AT_SYMLINK_NOFOLLOW))
		t.equal("mtime", t.stat("l").Mtim, then)
	}
	t.write("g", "")
	t.ok(unix.UtimesNanoAt(unix.AT_FDCWD, "g", []unix.Timespec{then, then}, 0))
	t.write("g", "more")
	if t.stat("g").Mtim == then {
		t.fail(0, "a write did not change the mtime")
	}
}

// age is the time since a file's last change.
func (t *T) age(name string) time.Duration {
	mtime := t.stat(name).Mtim
	return time.Since(time.Unix(mtime.Unix())).Abs()
}

func nodes(t *T) {
	t.ok(unix.Mkfifo("pipe", 0o600))
	t.ok(unix.Mknod("char", unix.S_IFCHR|0o660, int(unix.Mkdev(1, 3))))
	t.ok(unix.Mknod("block", unix.S_IFBLK|0o660, int(unix.Mkdev(259, 70000))))
	t.ok(unix.Mknod("socket", unix.S_IFSOCK|0o600, 0))
	for name, want := range map[string]struct {
		kind uint32
		dev  uint64
	}{"pipe": {unix.S_IFIFO, 0}, "char": {unix.S_IFCHR, unix.Mkdev(1, 3)}, "block": {unix.S_IFBLK, unix.Mkdev(259, 70000)}, "socket": {unix.S_IFSOCK, 0}} {
		st := t.stat(name)
		t.equal("type of "+name, st.Mode&unix.S_IFMT, want.kind)
		t.equal("device of "+name, st.Rdev, want.dev)
	}
	through, err := os.OpenFile("pipe", os.O_RDWR, 0)
	t.ok(err)
	defer through.Close()
	_, err = through.WriteString("through")
	t.ok(err)
	got := make([]byte, 7)
	_, err = io.ReadFull(through, got)
	t.ok(err)
	t.equal("the pipe's content", string(got), "through")
	t.refused(unix.Mkfifo("pipe", 0o600), unix.EEXIST)
}

func oddNames(t *T) {
	long := strings.Repeat("n", 255)
	names := []string{long, " ", "new\nline", "grüße", "\x80\xff", "-", "...", "\\", "*", "a:b", "\x01"}
	for _, n := range names {
		t.write(n, n)
		t.holds(n, n)
	}
	_, err := os.Create(long + "n")
	t.refused(err, unix.ENAMETOOLONG)
	got := t.names()
	slices.Sort(got)
	slices.Sort(names)
	t.equal("the list of names", fmt.Sprintf("%q", got), fmt.Sprintf("%q", names))
	deep := strings.Repeat("d/", 20)
	t.ok(os.MkdirAll(deep, 0o755))
	t.write(deep+"f", "deep")
	t.holds(deep+"f", "deep")
}

// unlinked: an open file stays readable when its name is gone.
func unlinked(t *T) {
	for _, lose := range []func() error{
		func() error { return os.Remove("f") },
		func() error { t.write("g", "new"); return os.Rename("g", "f") },
	} {
		t.write("f", "still here")
		f, err := os.OpenFile("f", os.O_RDONLY|unix.O_DIRECT, 0)
		t.ok(err)
		t.ok(lose())
		got := make([]byte, 10)
		_, err = f.ReadAt(got, 0)
		t.ok(err)
		t.equal("the content", string(got), "still here")
		t.ok(f.Close())
	}
	// After the close, the client removes the file that it had renamed because it was open.
	left := t.names()
	for wait := time.Now().Add(10 * time.Second); len(left) > 1 && time.Now().Before(wait); left = t.names() {
		time.Sleep(10 * time.Millisecond)
	}
	t.equal("entries left", fmt.Sprint(left), "[f]")
}

func exclusive(t *T) {
	f, err := os.OpenFile("f", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	t.ok(err)
	_, err = f.WriteString("mine")
	t.ok(err)
	t.ok(f.Close())
	t.equal("mode", t.stat("f").Mode&0o7777, uint32(0o640))
	if age := t.age("f"); age > time.Hour {
		t.fail(0, "its mtime is %v old: is the verifier of CREATE still in it?", age)
	}
	_, err = os.OpenFile("f", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	t.refused(err, unix.EEXIST)
	t.holds("f", "mine")
	t.ok(os.Mkdir("d", 0o755))
	t.refused(unix.Mkdir("d", 0o755), unix.EEXIST)
	t.refused(unix.Mkdir("f", 0o755), unix.EEXIST)
	t.refused(unix.Rmdir("f"), unix.ENOTDIR)
	t.refused(unix.Unlink("d"), unix.EISDIR)
	t.refused(unix.Mkdir("f/d", 0o755), unix.ENOTDIR)
}

func holes(t *T) {
	f, err := os.OpenFile("f", os.O_CREATE|os.O_RDWR, 0o644)
	t.ok(err)
	defer f.Close()
	want := make([]byte, 300_001)
	for _, at := range []int{299_990, 70_001, 4095, 1, 131_071} {
		copy(want[at:], "0123456789a")
		_, err = f.WriteAt([]byte("0123456789a"), int64(at))
		t.ok(err)
	}
	t.ok(f.Sync())
	t.holds("f", string(want))
}

func appends(t *T) {
	var want strings.Builder
	for i := range 40 {
		f, err := os.OpenFile("f", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		t.ok(err)
		line := fmt.Sprintf("%d %s\n", i, strings.Repeat("x", i))
		_, err = f.WriteString(line)
		t.ok(err)
		want.WriteString(line)
		t.ok(f.Close())
	}
	t.holds("f", want.String())
}

// listedWhileRemoved removes files between two parts of a listing: no other file is skipped or
// listed twice.
func listedWhileRemoved(t *T) {
	const files = 120
	for i := range files {
		t.write(fmt.Sprintf("%03d %s", i, strings.Repeat("long ", 45)), "")
	}
	d, err := os.Open(".")
	t.ok(err)
	defer d.Close()
	seen := map[string]int{}
	for {
		names, err := d.Readdirnames(1)
		if err == io.EOF {
			break
		}
		t.ok(err)
		for _, n := range names {
			seen[n]++
			t.ok(os.Remove(n))
		}
	}
	t.equal("names seen", len(seen), files)
	for n, times := range seen {
		if times != 1 {
			t.fail(0, "%q was listed %d times", n, times)
		}
	}
	t.equal("entries left", len(t.names()), 0)
}

func mapped(t *T) {
	f, err := os.OpenFile("f", os.O_CREATE|os.O_RDWR, 0o644)
	t.ok(err)
	defer f.Close()
	t.ok(f.Truncate(100_003))
	mem, err := unix.Mmap(int(f.Fd()), 0, 100_003, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	t.ok(err)
	copy(mem[50_001:], "in the middle")
	t.ok(unix.Msync(mem, unix.MS_SYNC))
	t.ok(unix.Munmap(mem))
	want := make([]byte, 100_003)
	copy(want[50_001:], "in the middle")
	t.holds("f", string(want))
}

func executed(t *T) {
	t.ok(copyProgram("prog", 0o755))
	t.ok(exec.Command("./prog").Run())
}

// copyProgram copies a program that exits with 0.
func copyProgram(name string, mode uint32) error {
	self, err := os.ReadFile("/bin/true")
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, self, 0o700); err != nil {
		return err
	}
	return unix.Chmod(name, mode)
}

func statistics(t *T) {
	var fs unix.Statfs_t
	t.ok(unix.Statfs(".", &fs))
	t.equal("the longest name", fs.Namelen, int64(255))
	if fs.Blocks == 0 || fs.Bavail > fs.Blocks || fs.Files == 0 {
		t.fail(0, "%d blocks, %d of them available, %d files", fs.Blocks, fs.Bavail, fs.Files)
	}
}
