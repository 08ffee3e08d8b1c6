package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func userChecks() []check {
	checks := []check{
		{"others-files", othersFiles}, {"groups", userGroups}, {"own-files", ownFiles}, {"sticky", sticky}, {"setgid", setgid},
		{"executable-only", executableOnly}, {"access", access},
	}
	if hasACLs() {
		checks = append(checks, check{"posix-acl", posixACL}, check{"posix-acl-inherited", inheritedACL}, check{"posix-acl-long", longACL})
	}
	return checks
}

// as runs do as another user, with the group of the same number and the given groups.
func (t *T) as(uid int, do func(), groups ...int) {
	become := func(uid, gid int, groups []int) {
		for _, err := range []error{syscall.Setresuid(0, 0, 0), syscall.Setgroups(groups), syscall.Setresgid(gid, gid, 0), syscall.Setresuid(uid, uid, 0)} {
			if err != nil {
				t.fail(2, "becoming user %d: %v", uid, err)
			}
		}
	}
	become(uid, uid, append(groups, uid))
	defer become(0, 0, nil)
	do()
}

// t0 is an arbitrary time.
var t0 = time.Unix(1e9, 0)

func read(name string) error {
	_, err := fetch(name)
	return err
}

func create(name string, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return f.Close()
}

func (t *T) owner(name string, uid, gid uint32) {
	if st := t.stat(name); st.Uid != uid || st.Gid != gid {
		t.fail(1, "%s belongs to %d:%d, must belong to %d:%d", name, st.Uid, st.Gid, uid, gid)
	}
}

func othersFiles(t *T) {
	t.write("secret", "secret")
	t.ok(os.Chmod("secret", 0o600))
	t.as(1000, func() {
		t.refused(read("secret"), unix.EACCES)
		t.refused(os.WriteFile("secret", nil, 0), unix.EACCES)
		t.refused(os.Truncate("secret", 0), unix.EACCES)
		t.refused(os.Chmod("secret", 0o777), unix.EPERM)
		t.refused(os.Chown("secret", 1000, 1000), unix.EPERM)
		t.refused(create("f", 0o644), unix.EACCES)
		t.refused(os.Mkdir("d", 0o755), unix.EACCES)
		t.refused(os.Symlink("x", "l"), unix.EACCES)
		t.refused(os.Remove("secret"), unix.EACCES)
		t.refused(os.Rename("secret", "s"), unix.EACCES)
		// by the server's fs.protected_hardlinks
		if err := os.Link("secret", "s"); !errors.Is(err, unix.EPERM) {
			t.refused(err, unix.EACCES)
		}
	})
	t.ok(os.Chmod("secret", 0o644))
	t.as(65534, func() { t.ok(read("secret")) })
	t.holds("secret", "secret")
	t.ok(os.Mkdir("closed", 0o700))
	t.write("closed/f", "")
	t.as(1000, func() {
		t.refused(read("closed/f"), unix.EACCES)
		_, err := os.ReadDir("closed")
		t.refused(err, unix.EACCES)
	})
}

func userGroups(t *T) {
	t.write("f", "for the group")
	t.ok(os.Chown("f", 0, 2000))
	t.ok(os.Chmod("f", 0o640))
	t.as(1000, func() { t.refused(read("f"), unix.EACCES) })
	t.as(1000, func() { t.ok(read("f")) }, 2000)
	t.as(1000, func() { t.ok(read("f")) }, 3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010, 3011, 3012, 3013, 2000)
	t.as(2000, func() { t.ok(read("f")) })
	t.as(1000, func() { t.refused(read("f"), unix.EACCES) })
}

func ownFiles(t *T) {
	t.ok(os.Mkdir("own", 0o755))
	t.ok(os.Chown("own", 1000, 1000))
	t.as(1000, func() {
		t.ok(os.WriteFile("own/f", []byte("mine"), 0o644))
		t.owner("own/f", 1000, 1000)
		t.ok(os.Chown("own/f", -1, 2000)) // to a group of the caller
		t.owner("own/f", 1000, 2000)
		t.refused(os.Chown("own/f", -1, 4000), unix.EPERM)
		t.refused(os.Chown("own/f", 1001, -1), unix.EPERM)
		t.ok(os.Mkdir("own/d", 0o700))
		t.ok(os.Symlink("f", "own/l"))
		t.owner("own/l", 1000, 1000)
		// The mode at creation does not stop the creator's open file.
		t.ok(os.WriteFile("own/readonly", []byte("written"), 0o444))
		t.ok(read("own/readonly"))
		f, err := os.OpenFile("own/f", os.O_RDWR|unix.O_DIRECT, 0)
		t.ok(err)
		t.ok(os.Chmod("own/f", 0)) // nor does a later mode stop an open file
		_, err = f.WriteAt([]byte("M"), 0)
		t.ok(err)
		got := make([]byte, 4)
		_, err = f.ReadAt(got, 0)
		t.ok(err)
		t.equal("content", string(got), "Mine")
		t.ok(f.Close())
		t.refused(read("own/f"), unix.EACCES)
	}, 2000)
	t.holds("own/f", "Mine") // root may
	t.as(1001, func() {
		t.refused(os.Chmod("own/readonly", 0o777), unix.EPERM)
		t.refused(create("own/g", 0o644), unix.EACCES)
		t.refused(os.Remove("own/readonly"), unix.EACCES)
		t.refused(os.Chtimes("own/readonly", t0, t0), unix.EPERM)
	})
	t.as(1000, func() { t.ok(os.Chtimes("own/readonly", t0, t0)) })
}

func sticky(t *T) {
	t.ok(os.Mkdir("shared", 0o777))
	t.ok(os.Chmod("shared", 0o777|os.ModeSticky))
	t.write("shared/roots", "")
	t.as(1000, func() {
		t.ok(create("shared/f", 0o644))
		t.refused(os.Remove("shared/roots"), unix.EPERM)
		t.refused(os.Rename("shared/f", "shared/roots"), unix.EPERM)
	})
	t.as(1001, func() { t.refused(os.Remove("shared/f"), unix.EPERM) })
	t.as(1000, func() { t.ok(os.Remove("shared/f")) })
}

func setgid(t *T) {
	t.ok(os.Mkdir("d", 0o775))
	t.ok(os.Chown("d", 0, 2000))
	t.ok(os.Chmod("d", 0o775|os.ModeSetgid))
	t.as(1000, func() {
		t.ok(create("d/f", 0o644))
		t.owner("d/f", 1000, 2000)
		t.ok(os.Mkdir("d/d", 0o755))
		t.owner("d/d", 1000, 2000)
		t.equal("setgid of d/d", t.stat("d/d").Mode&unix.S_ISGID, uint32(unix.S_ISGID))
	}, 2000)
}

// executableOnly: a server lets a user with execute permission alone read a program, in order to
// run it (RFC 1813 section 4.4).
func executableOnly(t *T) {
	t.ok(copyProgram("prog", 0o711))
	t.as(1000, func() { t.ok(exec.Command("./prog").Run()) })
	t.ok(os.Chmod("prog", 0o700))
	t.as(1000, func() { t.refused(exec.Command("./prog").Run(), unix.EACCES) })
}

func access(t *T) {
	for mode := range uint32(8) {
		name := fmt.Sprintf("f%d", mode)
		t.write(name, "")
		t.ok(unix.Chmod(name, 0o700|mode))
		t.as(1000, func() {
			for want := range uint32(8) {
				err := unix.Faccessat(unix.AT_FDCWD, name, want, unix.AT_EACCESS)
				if mode&want == want {
					t.ok(err)
				} else {
					t.refused(err, unix.EACCES)
				}
			}
		})
	}
}
