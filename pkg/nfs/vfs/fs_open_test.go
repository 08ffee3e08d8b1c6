package vfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

const childEnv = "VFS_TEST_CHILD"

// inChild runs tests of this binary in another process. names must pass there, subtests with their
// path; all their subtests run, and none may be skipped.
func inChild(t *testing.T, attr *syscall.SysProcAttr, dir string, names ...string) {
	t.Helper()
	var top []string
	for _, name := range names {
		first, _, _ := strings.Cut(name, "/")
		top = append(top, first)
	}
	// By this path, since the binary's directory is closed to other users.
	cmd := exec.Command("/proc/self/exe", "-test.run=^("+strings.Join(top, "|")+")$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+dir)
	cmd.Dir = dir
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		prereq.Missing(t, "no such process can be made: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	for _, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "--- SKIP") {
			prereq.Missing(t, "skipped in a process of its own:\n%s", out)
		}
	}
	for _, name := range names {
		passed := func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "--- PASS: "+name+" ") }
		if !slices.ContainsFunc(lines, passed) {
			t.Errorf("%s did not run:\n%s", name, out)
		}
	}
}

// TestWithoutPrivileges runs the tests of handles and confinement as an ordinary user.
func TestWithoutPrivileges(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("", "vfs-unprivileged-") //nolint:usetesting // t.TempDir's parents are not for other users
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chown(dir, 12345, 12346))
	inChild(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12346}}, dir,
		"TestUnprivileged", "TestHandlesSurviveRestart/index", "TestHandlesWithoutTimesOfBirth", "TestHandlesAreSigned/index",
		"TestStaleAfterRemoval/index", "TestNothingOutside/index", "TestSearch", "TestMovedDirectoryGoesStale/index", "TestLongPaths/30x200/index")
}

func TestUnprivileged(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("for an ordinary user")
	}
	dir := t.TempDir()
	fs := open(t, dir, Options{})
	info := fs.Info()
	if info.Identities || info.Handles != "index" || len(info.Notes) < 2 {
		t.Errorf("%+v", info)
	}
	// Every caller is the process.
	var w Wcc
	attrs := Attrs{SetMode: true, Mode: 0o640, SetUID: true, UID: 5}
	n, err := fs.Create(fs.Root(), nameOf(t, "file"), Guarded, [8]byte{}, &attrs, alice, &w)
	must(t, err)
	defer n.Release()
	var st Stat
	must(t, n.Stat(&st))
	if st.Uid != uint32(os.Geteuid()) || st.Mode&0o7777 != 0o640 {
		t.Errorf("a new file: %+v", st)
	}
	if may, err := fs.PermitBlocking(n, &st, root, 7); may != MayRead|MayWrite || err != nil {
		t.Errorf("root may %d, %v", may, err)
	}
	if !fs.Owns(&st, bob) {
		t.Error("bob is the process, which is the owner")
	}
	err = fs.SetAttr(n, &Attrs{SetUID: true, UID: 5}, root, nil, &w)
	wantErr(t, "chown", err, unix.EPERM)
	must(t, os.Chmod(filepath.Join(dir, "file"), 0))
	must(t, n.Stat(&st))
	if may, _ := fs.PermitBlocking(n, &st, root, 7); may != 0 {
		t.Errorf("root may %d of a file without mode", may)
	}
}

// TestKeptCapabilitiesInChild has a process other than root, with capabilities that survive a
// change of identity.
func TestKeptCapabilitiesInChild(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("", "vfs-capabilities-") //nolint:usetesting // t.TempDir's parents are not for other users
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chown(dir, 12345, 12346))
	inChild(t, &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: 12345, Gid: 12346},
		AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_DAC_OVERRIDE},
	}, dir, "TestKeptCapabilities")
}

func TestKeptCapabilities(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs in a child")
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	fs := open(t, dir, Options{})
	var w Wcc
	n, err := fs.Create(fs.Root(), nameOf(t, "file"), Guarded, [8]byte{}, &Attrs{}, alice, &w)
	if err == nil {
		n.Release()
	}
	// Either the mode binds alice, or Info reports that she is not alice.
	if info := fs.Info(); info.Identities == (err == nil) || !info.Identities && !strings.Contains(strings.Join(info.Notes, " "), "root") {
		t.Errorf("a file in somebody else's directory: %v; %+v", err, info)
	}
}

// TestMountsInChild runs tests in a mount namespace of their own.
func TestMountsInChild(t *testing.T) {
	needRoot(t)
	inChild(t, &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}, t.TempDir(), "TestMounts/kernel", "TestMounts/index")
}

func TestMounts(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs in a child")
	}
	modes(t, func(t *testing.T, o Options) {
		dir := t.TempDir()
		if err := unix.Mount("export", dir, "tmpfs", 0, "size=1m"); err != nil {
			prereq.Missing(t, "a tmpfs cannot be mounted: %v", err)
		}
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
		must(t, os.MkdirAll(filepath.Join(dir, "sub/mounted"), 0o755))
		write(t, filepath.Join(dir, "sub/file"), "content")
		inner := filepath.Join(dir, "sub/mounted")
		must(t, unix.Mount("inner", inner, "tmpfs", 0, ""))
		write(t, filepath.Join(inner, "secret"), "secret")

		fs := reopened(t, dir, o)
		if !fs.Info().Whole {
			t.Error("the root of a file system is not seen as the whole of it")
		}
		_, err := tryWalk(t, fs, "sub/mounted", root)
		wantErr(t, "lookup of a mount point", err, unix.EACCES)
		sub := walk(t, fs, "sub")
		var h Handle
		var st Stat
		wantErr(t, "identification of a mount point", fs.Identify(sub, nameOf(t, "mounted"), &h, &st), unix.EXDEV)
		var w Wcc
		wantErr(t, "removal of a mount point", fs.Rmdir(sub, nameOf(t, "mounted"), root, &w), unix.EBUSY)
		sub.Release()
		file := handleOf(t, fs, "sub/file")
		shut(t, fs)
		fs = reopened(t, dir, o)
		if got, err := read(t, fs, file); got != "content" || err != nil {
			t.Errorf("after a restart: %q, %v", got, err)
		}
		shut(t, fs)

		// A mounted subdirectory, as with a volume's subPath: its siblings are out of reach.
		must(t, os.Mkdir(filepath.Join(dir, "beside"), 0o755))
		bound := t.TempDir()
		must(t, unix.Mount(filepath.Join(dir, "sub"), bound, "", unix.MS_BIND, ""))
		defer func() { _ = unix.Unmount(bound, unix.MNT_DETACH) }()
		fs = reopened(t, bound, o)
		if fs.Info().Whole {
			t.Error("a part of a file system is seen as the whole")
		}
		file = handleOf(t, fs, "file")
		must(t, os.Rename(filepath.Join(dir, "sub/file"), filepath.Join(dir, "beside/file")))
		for _, cached := range []bool{true, false} {
			if !cached {
				forget(fs)
			}
			_, err = read(t, fs, file)
			wantErr(t, "a file that was moved beside the root", err, unix.ESTALE)
		}
		up := walk(t, fs, "..")
		if up != fs.Root() {
			t.Error(".. leads out of a mounted directory")
		}
		up.Release()
		shut(t, fs)

		// A read-only file system, and a full one.
		must(t, os.Mkdir(filepath.Join(dir, "full"), 0o777))
		fs = reopened(t, dir, o)
		full := walk(t, fs, "full")
		n, err := fs.Create(full, nameOf(t, "file"), Guarded, [8]byte{}, &Attrs{}, root, &w)
		must(t, err)
		var wr Write
		chunk := make([]byte, 256<<10)
		off := uint64(0)
		for err = nil; err == nil && off < 8<<20; off += uint64(len(chunk)) {
			_, err = wr.Do(n, [][]byte{chunk}, len(chunk), off, root)
		}
		wantErr(t, "writing to a full file system", err, unix.ENOSPC)
		n.Release()
		full.Release()
		shut(t, fs)
		must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		fs = reopened(t, dir, o)
		_, err = fs.Create(fs.Root(), nameOf(t, "other"), Guarded, [8]byte{}, &Attrs{}, root, &w)
		wantErr(t, "creating on a read-only file system", err, unix.EROFS)
		n = walk(t, fs, "full/file")
		wantErr(t, "changing on a read-only file system", fs.SetAttr(n, &Attrs{SetMode: true, Mode: 0o600}, root, nil, &w), unix.EROFS)
		_, err = wr.Do(n, [][]byte{chunk}, len(chunk), 0, root)
		wantErr(t, "writing to a read-only file system", err, unix.EROFS)
		n.Release()
		shut(t, fs)
	})
}

func TestOptions(t *testing.T) {
	dir := t.TempDir()
	for what, o := range map[string]Options{"no key": {}, "short key": {Key: []byte("short")}, "files": {Key: testKey, MaxFiles: -1}, "recheck": {Key: testKey, Recheck: -1}} {
		if fs, err := Open(dir, o); err == nil {
			fs.Close()
			t.Errorf("%s: no error", what)
		}
	}
	write(t, filepath.Join(dir, "file"), "")
	for _, path := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "nothing")} {
		if fs, err := Open(path, Options{Key: testKey}); err == nil {
			fs.Close()
			t.Errorf("%s: no error", path)
		}
	}
}
