package server

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/test/prereq"
)

func TestGetattr(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "12345")
	r.must(os.Symlink("target", r.path("link")))
	r.must(os.Mkdir(r.path("dir"), 0o750))
	r.must(unix.Mkfifo(r.path("fifo"), 0o600))
	r.must(os.Chtimes(r.path("file"), time.Unix(1000, 500), time.Unix(1<<32-1, 7)))
	for name, typ := range map[string]nfs3.Type{"file": nfs3.Reg, "link": nfs3.Lnk, "dir": nfs3.Dir, "fifo": nfs3.FIFO} {
		h := r.handle(name)
		for range 2 { // on a worker, then on the receive loop
			res := r.getattr(h)
			wantStatus(t, name, res.Status, nfs3.OK)
			st := r.lstat(name)
			a := res.Attr
			if a.Type != typ || a.Mode != st.Mode&0o7777 || a.Size != uint64(st.Size) || a.FileID != st.Ino || a.Nlink != uint32(st.Nlink) ||
				a.Used != uint64(st.Blocks)*512 || a.UID != st.Uid || a.Mtime.Nsec != uint32(st.Mtim.Nsec) || a.Ctime.Sec != uint32(st.Ctim.Sec) {
				t.Errorf("%s: %+v, the file system has %+v", name, a, st)
			}
		}
	}
	if a := r.getattr(r.handle("file")).Attr; a.Atime != (nfs3.Time{Sec: 1000, Nsec: 500}) || a.Mtime != (nfs3.Time{Sec: 1<<32 - 1, Nsec: 7}) {
		t.Errorf("times are %v, %v", a.Atime, a.Mtime)
	}
	if a, b := r.getattr(r.root).Attr.FSID, r.getattr(r.handle("file")).Attr.FSID; a != b || a == 0 {
		t.Errorf("fsids are %#x and %#x", a, b)
	}
	r.must(os.Remove(r.path("dir")))
	wantStatus(t, "bad handle", r.getattr([]byte("no handle")).Status, nfs3.ErrBadHandle)
	wantStatus(t, "empty handle", r.getattr(nil).Status, nfs3.ErrBadHandle)
}

func TestTimesOutOfRange(t *testing.T) {
	for _, c := range []struct {
		in   unix.Timespec
		want nfs3.Time
	}{
		{unix.Timespec{Sec: -1, Nsec: 5}, nfs3.Time{}},
		{unix.Timespec{Sec: 1 << 32, Nsec: 5}, nfs3.Time{Sec: 1<<32 - 1, Nsec: 999_999_999}},
		{unix.Timespec{Sec: 1<<32 - 1, Nsec: 5}, nfs3.Time{Sec: 1<<32 - 1, Nsec: 5}},
	} {
		if got := timeOf(c.in); got != c.want {
			t.Errorf("%v became %v, want %v", c.in, got, c.want)
		}
	}
}

func TestSetattr(t *testing.T) {
	needRoot(t)
	r := newEnv(t, nil)
	r.put("file", "0123456789")
	h := r.handle("file")
	before := r.getattr(h).Attr
	res := r.setattr(h, nfs3.SetAttrs{SetMode: true, Mode: 0o4711, SetUID: true, UID: 1001, SetGID: true, GID: 70000, SetSize: true, Size: 4,
		AtimeHow: nfs3.SetToClientTime, Atime: nfs3.Time{Sec: 5, Nsec: 6}, MtimeHow: nfs3.SetToClientTime, Mtime: nfs3.Time{Sec: 3e9, Nsec: 999_999_999}})
	wantStatus(t, "all at once", res.Status, nfs3.OK)
	if !res.Wcc.HasBefore || res.Wcc.Before != (nfs3.WccAttr{Size: 10, Mtime: before.Mtime, Ctime: before.Ctime}) {
		t.Errorf("before: %+v, was %+v", res.Wcc.Before, before)
	}
	a := res.Wcc.After.Attr
	if !res.Wcc.After.Present || a.Mode != 0o4711 || a.UID != 1001 || a.GID != 70000 || a.Size != 4 || a.Atime != (nfs3.Time{Sec: 5, Nsec: 6}) || a.Mtime != (nfs3.Time{Sec: 3e9, Nsec: 999_999_999}) {
		t.Errorf("after: %+v", res.Wcc.After)
	}
	if got := r.content("file"); got != "0123" {
		t.Errorf("content is %q", got)
	}
	res = r.setattr(h, nfs3.SetAttrs{SetSize: true, Size: 8})
	if got := r.content("file"); got != "0123\x00\x00\x00\x00" || res.Status != nfs3.OK {
		t.Errorf("extended: %q, %v", got, res.Status)
	}
	now := time.Now()
	res = r.setattr(h, nfs3.SetAttrs{AtimeHow: nfs3.SetToServerTime, MtimeHow: nfs3.SetToServerTime})
	if got := res.Wcc.After.Attr.Mtime.Time(); got.Before(now.Add(-time.Second)) || res.Status != nfs3.OK {
		t.Errorf("server's time is %v, %v", got, res.Status)
	}

	for what, c := range map[string]struct {
		set  nfs3.SetAttrs
		want nfs3.Status
	}{
		"size beyond 2^63":     {nfs3.SetAttrs{SetSize: true, Size: 1 << 63}, nfs3.ErrFBig},
		"size beyond ext4":     {nfs3.SetAttrs{SetSize: true, Size: 1<<63 - 1}, nfs3.ErrFBig},
		"uid -1":               {nfs3.SetAttrs{SetUID: true, UID: 1<<32 - 1}, nfs3.ErrInval},
		"gid -1":               {nfs3.SetAttrs{SetGID: true, GID: 1<<32 - 1}, nfs3.ErrInval},
		"uid beyond 2^31":      {nfs3.SetAttrs{SetUID: true, UID: 1<<32 - 2}, nfs3.OK},
		"a billion nsec":       {nfs3.SetAttrs{MtimeHow: nfs3.SetToClientTime, Mtime: nfs3.Time{Nsec: 1e9}}, nfs3.ErrInval},
		"the kernel's \"now\"": {nfs3.SetAttrs{AtimeHow: nfs3.SetToClientTime, Atime: nfs3.Time{Nsec: unix.UTIME_NOW}}, nfs3.ErrInval},
		"nothing":              {nfs3.SetAttrs{}, nfs3.OK},
	} {
		if what == "size beyond ext4" && r.s.fs.Capabilities().MaxFileSize == 1<<63-1 {
			continue
		}
		wantStatus(t, what, r.setattr(h, c.set).Status, c.want)
	}
	if st := r.lstat("file"); st.Uid != 1<<32-2 {
		t.Errorf("uid is %d", st.Uid)
	}
	size := r.lstat("file").Size
	wantStatus(t, "size and uid -1", r.setattr(h, nfs3.SetAttrs{SetSize: true, Size: uint64(size) + 100, SetUID: true, UID: 1<<32 - 1}).Status, nfs3.ErrInval)
	if st := r.lstat("file"); st.Size != size {
		t.Errorf("the file has %d bytes after a refused SETATTR, had %d", st.Size, size)
	}

	r.must(os.Mkdir(r.path("dir"), 0o755))
	wantStatus(t, "size of a directory", r.setattr(r.handle("dir"), nfs3.SetAttrs{SetSize: true}).Status, nfs3.ErrIsDir)
	r.must(os.Symlink("file", r.path("link")))
	link := r.handle("link")
	wantStatus(t, "mode of a link", r.setattr(link, nfs3.SetAttrs{SetMode: true, Mode: 0o600}).Status, nfs3.OK)
	wantStatus(t, "owner of a link", r.setattr(link, nfs3.SetAttrs{SetUID: true, UID: 5}).Status, nfs3.OK)
	if st := r.lstat("link"); st.Uid != 5 {
		t.Error("the link's owner did not change")
	}
	if st := r.lstat("file"); st.Uid == 5 || st.Mode&0o777 != 0o711 {
		t.Errorf("what the link points to was changed: %+v", st)
	}
}

func TestSetattrGuard(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "")
	h := r.handle("file")
	ctime := r.getattr(h).Attr.Ctime
	wrong := ctime
	wrong.Nsec ^= 1
	for _, c := range []struct {
		guard nfs3.Time
		want  nfs3.Status
		mode  uint32
	}{{wrong, nfs3.ErrNotSync, 0o644}, {ctime, nfs3.OK, 0o600}} {
		var res nfs3.WccRes
		r.do(nfs3.ProcSetAttr, &nfs3.SetAttrArgs{Object: h, New: nfs3.SetAttrs{SetMode: true, Mode: 0o600}, Guard: true, GuardCtime: c.guard}, &res)
		wantStatus(t, "guarded", res.Status, c.want)
		if st := r.lstat("file"); st.Mode&0o777 != c.mode || res.Wcc.After.Attr.Mode != c.mode {
			t.Errorf("mode is %o, told %o, want %o", st.Mode, res.Wcc.After.Attr.Mode, c.mode)
		}
	}
}

const allAccess = nfs3.AccessRead | nfs3.AccessLookup | nfs3.AccessModify | nfs3.AccessExtend | nfs3.AccessDelete | nfs3.AccessExecute

func TestAccess(t *testing.T) {
	needRoot(t)
	r := newEnv(t, nil)
	const (
		rd, lk, md, ex, dl, x = nfs3.AccessRead, nfs3.AccessLookup, nfs3.AccessModify, nfs3.AccessExtend, nfs3.AccessDelete, nfs3.AccessExecute
	)
	make := func(name string, dir bool, mode uint32) nfs3.Handle {
		if dir {
			r.must(os.Mkdir(r.path(name), 0o777))
		} else {
			r.put(name, "")
		}
		r.must(os.Chown(r.path(name), 1001, 1001))
		r.must(unix.Chmod(r.path(name), mode))
		return r.handle(name)
	}
	for _, c := range []struct {
		name     string
		dir      bool
		mode     uint32
		uid, gid uint32
		groups   []uint32
		want     uint32
	}{
		{"owner's", false, 0o640, 1001, 5, nil, rd | md | ex},
		{"group's", false, 0o640, 1002, 1001, nil, rd},
		{"further group's", false, 0o650, 1002, 5, []uint32{9, 1001}, rd | x},
		{"others'", false, 0o640, 1002, 5, nil, 0},
		{"owner has less", false, 0o077, 1001, 1001, nil, 0},
		{"root reads all", false, 0o000, 0, 0, nil, rd | md | ex},
		{"root executes", false, 0o001, 0, 0, nil, rd | md | ex | x},
		{"dir of owner", true, 0o700, 1001, 1001, nil, rd | lk | md | ex | dl},
		{"dir without search", true, 0o600, 1001, 1001, nil, rd},
		{"dir to search", true, 0o711, 1002, 5, nil, lk},
		{"dir of root", true, 0o000, 0, 0, nil, rd | lk | md | ex | dl},
	} {
		h := make(c.name, c.dir, c.mode)
		u := r.as(c.uid, c.gid, c.groups...)
		for range 2 {
			res := u.access(h, allAccess|0xffffff00)
			if res.Status != nfs3.OK || res.Access != c.want || !res.Attr.Present {
				t.Errorf("%s: %v, %#x, want %#x", c.name, res.Status, res.Access, c.want)
			}
		}
		if res := u.access(h, nfs3.AccessRead); res.Access != c.want&nfs3.AccessRead {
			t.Errorf("%s: asked for read alone: %#x", c.name, res.Access)
		}
	}
}

// acl is an access ACL in Linux's format: permissions of the owner, of the user uid, none for
// others, and a mask.
func acl(owner, user uint16, uid uint32, mask uint16) []byte {
	b := []byte{2, 0, 0, 0}
	entry := func(tag, perm uint16, id uint32) {
		b = append(b, byte(tag), byte(tag>>8), byte(perm), byte(perm>>8), byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
	}
	const none = 1<<32 - 1
	entry(0x01, owner, none)
	entry(0x02, user, uid)
	entry(0x04, 0, none)
	entry(0x10, mask, none)
	entry(0x20, 0, none)
	return b
}

func TestAccessWithACL(t *testing.T) {
	needRoot(t)
	r := newEnv(t, nil)
	r.put("file", "content")
	r.must(unix.Chmod(r.path("file"), 0o600))
	h := r.handle("file")
	user := r.as(1002, 1002)
	if res := user.access(h, allAccess); res.Access != 0 {
		t.Errorf("before: %#x", res.Access)
	}
	if _, got := r.read(h, 0, 100); got != "content" {
		t.Errorf("root reads %q", got)
	}
	if err := unix.Setxattr(r.path("file"), "system.posix_acl_access", acl(6, 4, 1002, 7), 0); err != nil {
		prereq.Missing(t, "the file system of temporary files has no ACLs: %v", err)
	}
	for range 2 {
		if res := user.access(h, allAccess); res.Access != nfs3.AccessRead {
			t.Errorf("with an ACL: %#x", res.Access)
		}
		if res, got := user.read(h, 0, 100); got != "content" {
			t.Errorf("with an ACL: read %v, %q", res.Status, got)
		}
		// The mask is in the group's bits, which would let this one read.
		if res := r.as(1003, 0).access(h, allAccess); res.Access != 0 {
			t.Errorf("somebody else with an ACL: %#x", res.Access)
		}
		wantStatus(t, "write with an ACL for reading", user.write(h, 0, "x", nfs3.Unstable).Status, nfs3.ErrAcces)
	}
	r.must(unix.Removexattr(r.path("file"), "system.posix_acl_access"))
	if res := user.access(h, allAccess); res.Access != 0 {
		t.Errorf("after: %#x", res.Access)
	}
}
