package server

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

const readOnlyEnv = "SERVER_TEST_READ_ONLY"

// TestAccessReadOnlyVolume remounts the volume of a running server, and checks ACCESS. It runs in a
// process and a mount namespace of its own.
func TestAccessReadOnlyVolume(t *testing.T) {
	needRoot(t)
	if os.Getenv(readOnlyEnv) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestAccessReadOnlyVolume$", "-test.v")
		cmd.Env = append(os.Environ(), readOnlyEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	volume := t.TempDir()
	if err := unix.Mount("volume", volume, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal("mount a tmpfs: ", err)
	}
	defer func() { _ = unix.Unmount(volume, unix.MNT_DETACH) }()
	r := newEnv(t, func(c *Config) { c.Root = volume })
	defer r.stop()
	r.dir = volume
	r.put("file", "")
	h := r.handle("file")
	const change = nfs3.AccessModify | nfs3.AccessExtend
	for _, ro := range []bool{false, true, false} {
		flags := uintptr(unix.MS_REMOUNT)
		want := uint32(change)
		if ro {
			flags |= unix.MS_RDONLY
			want = 0
		}
		r.must(unix.Mount("", volume, "", flags, ""))
		for what, object := range map[string]nfs3.Handle{"the file": h, "the root": r.root} {
			for range 2 { // on a worker, then on the receive loop
				if res := r.access(object, nfs3.AccessRead|change); res.Access != nfs3.AccessRead|want {
					t.Errorf("read-only %v: ACCESS of %s grants %#x, want %#x", ro, what, res.Access, nfs3.AccessRead|want)
				}
			}
		}
	}
}
