package vfs

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

func TestPermissionsOfGroups(t *testing.T) {
	d := identities{able: true, override: true}
	st := Stat{Mode: unix.S_IFREG | 0o751, Uid: 10, Gid: 20}
	for _, c := range []struct {
		cred Cred
		want uint32
	}{
		{Cred{UID: 10, GID: 5}, 7}, {Cred{UID: 11, GID: 20}, 5}, {Cred{UID: 11, GID: 5, Groups: []uint32{7, 20}}, 5}, {Cred{UID: 11, GID: 5}, 1}, {Cred{}, 7},
	} {
		if got := d.byMode(&st, &c.cred); got != c.want {
			t.Errorf("%+v may %o, want %o", c.cred, got, c.want)
		}
	}
}

// TestACLsAreLookedUpOnce, as long as the object's ctime stays.
func TestACLsAreLookedUpOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	fs := open(t, dir, Options{})
	if !fs.acls {
		prereq.Missing(t, "the file system of temporary files has no ACLs")
	}
	n := walk(t, fs, "file")
	defer n.Release()
	var st Stat
	must(t, n.Stat(&st))
	if _, known := fs.Permit(n, &st, root, MayRead); known {
		t.Error("the kernel was not asked, and nobody else")
	}
	if _, err := fs.PermitBlocking(n, &st, root, MayRead); err != nil {
		t.Error(err)
	}
	if _, known := fs.Permit(n, &st, root, MayRead); !known {
		t.Error("asked once, and not known")
	}
	time.Sleep(time.Duration(2 * coarse))
	fs.Permit(n, &st, root, MayRead)
	if n.acl.Load() == 0 {
		t.Error("what is known of an old file is not kept")
	}
}
