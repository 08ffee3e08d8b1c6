package server

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// wantWcc checks that w reports a change of a directory, or none.
func wantWcc(t *testing.T, what string, w *nfs3.WccData, changed bool) {
	t.Helper()
	if !w.HasBefore || !w.After.Present {
		t.Errorf("%s: the directory's attributes before: %v, after: %v", what, w.HasBefore, w.After.Present)
		return
	}
	after := nfs3.WccAttr{Size: w.After.Attr.Size, Mtime: w.After.Attr.Mtime, Ctime: w.After.Attr.Ctime}
	if (w.Before != after) != changed {
		t.Errorf("%s: the directory was %+v, is %+v; changed should be %v", what, w.Before, after, changed)
	}
}

// age sets a directory's times back, so that any change shows however coarse they are.
func (r *env) age(name string) {
	r.t.Helper()
	ts := []unix.Timespec{{Sec: 1000}, {Sec: 1000}}
	r.must(unix.UtimesNanoAt(unix.AT_FDCWD, r.path(name), ts, 0))
}

func TestLookup(t *testing.T) {
	r := newEnv(t, nil)
	r.must(os.Mkdir(r.path("dir"), 0o755))
	r.put("dir/file", "")
	dir := r.handle("dir")
	res := r.lookup(dir, "file")
	if res.Status != nfs3.OK || res.Attr.Attr.FileID != r.lstat("dir/file").Ino || res.DirAttr.Attr.FileID != r.lstat("dir").Ino {
		t.Errorf("%+v", res)
	}
	if again := r.lookup(dir, "file"); !bytes.Equal(again.Object, res.Object) {
		t.Error("another handle the second time")
	}
	long := strings.Repeat("n", 255)
	r.put(long, "")
	for _, c := range []struct {
		dir  nfs3.Handle
		name string
		want nfs3.Status
		same nfs3.Handle
	}{
		{dir, ".", nfs3.OK, dir}, {dir, "..", nfs3.OK, r.root}, {r.root, "..", nfs3.OK, r.root}, {r.root, ".", nfs3.OK, r.root},
		{dir, "nothing", nfs3.ErrNoEnt, nil}, {dir, "", nfs3.ErrInval, nil}, {dir, "a/b", nfs3.ErrInval, nil}, {dir, "../secret", nfs3.ErrInval, nil},
		{dir, "a\x00b", nfs3.ErrInval, nil}, {r.root, long, nfs3.OK, nil}, {dir, long + "n", nfs3.ErrNameTooLong, nil},
		{dir, strings.Repeat("n", nfs3.MaxPath), nfs3.ErrNameTooLong, nil}, {res.Object, "x", nfs3.ErrNotDir, nil}, {res.Object, "..", nfs3.ErrNotDir, nil},
	} {
		got := r.lookup(c.dir, c.name)
		wantStatus(t, fmt.Sprintf("%.20q", c.name), got.Status, c.want)
		if !got.DirAttr.Present {
			t.Errorf("%.20q: no attributes of the directory", c.name)
		}
		if c.same != nil && !bytes.Equal(got.Object, c.same) {
			t.Errorf("%.20q has another handle than expected", c.name)
		}
	}
	if os.Geteuid() == 0 {
		r.must(unix.Chmod(r.path("dir"), 0o600))
		r.must(os.Chown(r.path("dir"), 1001, 1001))
		wantStatus(t, "without search", r.as(1001, 1001).lookup(dir, "file").Status, nfs3.ErrAcces)
		wantStatus(t, "root without search", r.lookup(dir, "file").Status, nfs3.OK)
	}
}

func TestCreateModes(t *testing.T) {
	needRoot(t)
	r := newEnv(t, nil)
	u := r.as(1001, 1002, 1003)
	r.must(os.Mkdir(r.path("d"), 0o777))
	r.must(unix.Chmod(r.path("d"), 0o777))
	d := r.handle("d")
	r.age("d")
	attrs := nfs3.SetAttrs{SetMode: true, Mode: 0o4751, SetSize: true, Size: 3, MtimeHow: nfs3.SetToClientTime, Mtime: nfs3.Time{Sec: 77}}
	res := u.create(d, "guarded", nfs3.Guarded, attrs)
	wantStatus(t, "GUARDED", res.Status, nfs3.OK)
	wantWcc(t, "GUARDED", &res.Wcc, true)
	if a := res.Attr.Attr; a.Mode != 0o4751 || a.UID != 1001 || a.GID != 1002 || a.Size != 3 || a.Mtime.Sec != 77 || !bytes.Equal(res.Object.Handle, r.lookup(d, "guarded").Object) {
		t.Errorf("GUARDED: %+v", a)
	}
	// Root gives the file away, and the set-user-ID bit is cleared.
	res = r.create(d, "given-with-bits", nfs3.Guarded, nfs3.SetAttrs{SetMode: true, Mode: 0o6751, SetUID: true, UID: 1001, SetGID: true, GID: 1002})
	if a := res.Attr.Attr; res.Status != nfs3.OK || a.Mode != 0o6751 || a.UID != 1001 || a.GID != 1002 {
		t.Errorf("for another: %v, %+v", res.Status, a)
	}
	res = u.create(d, "guarded", nfs3.Guarded, attrs)
	wantStatus(t, "GUARDED again", res.Status, nfs3.ErrExist)
	wantWcc(t, "GUARDED again", &res.Wcc, false)

	// UNCHECKED uses the existing file, and sets only its size.
	res = u.create(d, "guarded", nfs3.Unchecked, nfs3.SetAttrs{SetMode: true, Mode: 0o600})
	if res.Status != nfs3.OK || res.Attr.Attr.Mode != 0o4751 || res.Attr.Attr.Size != 3 {
		t.Errorf("UNCHECKED over it: %v, %+v", res.Status, res.Attr.Attr)
	}
	res = u.create(d, "guarded", nfs3.Unchecked, nfs3.SetAttrs{SetSize: true})
	if res.Status != nfs3.OK || res.Attr.Attr.Size != 0 {
		t.Errorf("UNCHECKED with size 0: %v, %+v", res.Status, res.Attr.Attr)
	}
	wantStatus(t, "UNCHECKED truncation of another's", r.as(5, 5).create(d, "guarded", nfs3.Unchecked, nfs3.SetAttrs{SetSize: true}).Status, nfs3.ErrAcces)
	wantStatus(t, "UNCHECKED anew", u.create(d, "unchecked", nfs3.Unchecked, nfs3.SetAttrs{}).Status, nfs3.OK)
	if st := r.lstat("d/unchecked"); st.Mode&0o777 != 0o600 || st.Uid != 1001 {
		t.Errorf("without attributes: %+v", st)
	}
	r.must(os.Mkdir(r.path("d/sub"), 0o755))
	r.must(os.Symlink("/etc/passwd", r.path("d/link")))
	for _, how := range []nfs3.CreateMode{nfs3.Unchecked, nfs3.Guarded, nfs3.Exclusive} {
		for _, name := range []string{"sub", "link", ".", ".."} {
			wantStatus(t, fmt.Sprint("mode ", how, " over ", name), r.create(d, name, how, nfs3.SetAttrs{SetSize: true}).Status, nfs3.ErrExist)
		}
		wantStatus(t, "empty name", r.create(d, "", how, nfs3.SetAttrs{}).Status, nfs3.ErrInval)
		wantStatus(t, "long name", r.create(d, strings.Repeat("x", 256), how, nfs3.SetAttrs{}).Status, nfs3.ErrNameTooLong)
		wantStatus(t, "in a file", r.create(r.handleIn(d, "guarded"), "x", how, nfs3.SetAttrs{}).Status, nfs3.ErrNotDir)
	}

	r.must(unix.Chmod(r.path("d"), 0o755))
	wantStatus(t, "without the right to write", u.create(d, "no", nfs3.Guarded, nfs3.SetAttrs{}).Status, nfs3.ErrAcces)
	// Only root gives files away.
	r.must(unix.Chmod(r.path("d"), 0o777))
	give := nfs3.SetAttrs{SetUID: true, UID: 4000, SetGID: true, GID: 4001}
	if res := r.create(d, "given", nfs3.Guarded, give); res.Attr.Attr.UID != 4000 || res.Attr.Attr.GID != 4001 {
		t.Errorf("root gives: %+v", res.Attr.Attr)
	}
	if res := u.create(d, "kept", nfs3.Guarded, give); res.Status != nfs3.OK || res.Attr.Attr.UID != 1001 || res.Attr.Attr.GID != 1002 {
		t.Errorf("a user gives: %v %+v", res.Status, res.Attr.Attr)
	}
	// A setgid directory hands its group down.
	r.must(os.Chown(r.path("d"), 0, 2000))
	r.must(unix.Chmod(r.path("d"), 0o2777))
	if res := u.create(d, "inherits", nfs3.Guarded, nfs3.SetAttrs{}); res.Attr.Attr.GID != 2000 {
		t.Errorf("in a setgid directory: %+v", res.Attr.Attr)
	}
	if res := u.mkdir(d, "inheritsdir", 0o755); res.Attr.Attr.GID != 2000 || res.Attr.Attr.Mode != 0o2755 {
		t.Errorf("in a setgid directory: %+v", res.Attr.Attr)
	}
}

func (r *env) handleIn(dir nfs3.Handle, name string) nfs3.Handle {
	r.t.Helper()
	res := r.lookup(dir, name)
	wantStatus(r.t.(*testing.T), name, res.Status, nfs3.OK)
	return res.Object
}

func TestExclusiveCreate(t *testing.T) {
	r := newEnv(t, nil)
	v := nfs3.Verifier{0xff, 2, 3, 4, 0x85, 6, 7, 8}
	first := r.createVerified(r.root, "file", nfs3.Exclusive, nfs3.SetAttrs{}, v)
	wantStatus(t, "first", first.Status, nfs3.OK)
	// The retransmission has another XID, as after an eviction from the duplicate request cache or
	// a restart.
	for _, restart := range []bool{false, true} {
		if restart {
			r.stop()
			r.start(nil)
		}
		again := r.createVerified(r.root, "file", nfs3.Exclusive, nfs3.SetAttrs{}, v)
		if again.Status != nfs3.OK || !bytes.Equal(again.Object.Handle, first.Object.Handle) {
			t.Errorf("again, restart %v: %v", restart, again.Status)
		}
		for i := range v {
			other := v
			other[i] ^= 1
			wantStatus(t, fmt.Sprint("byte ", i, " of the verifier differs"), r.createVerified(r.root, "file", nfs3.Exclusive, nfs3.SetAttrs{}, other).Status, nfs3.ErrExist)
		}
	}
	wantStatus(t, "setattr", r.setattr(first.Object.Handle, nfs3.SetAttrs{SetMode: true, Mode: 0o644, AtimeHow: nfs3.SetToServerTime, MtimeHow: nfs3.SetToServerTime}).Status, nfs3.OK)
	wantStatus(t, "after the attributes were set", r.createVerified(r.root, "file", nfs3.Exclusive, nfs3.SetAttrs{}, v).Status, nfs3.ErrExist)
}

func TestMkdirSymlinkMknod(t *testing.T) {
	needRoot(t)
	r := newEnv(t, nil)
	r.must(unix.Chmod(r.dir, 0o777))
	u := r.as(1001, 1001)
	r.age(".")
	res := u.mkdir(r.root, "dir", 0o1750)
	wantStatus(t, "MKDIR", res.Status, nfs3.OK)
	wantWcc(t, "MKDIR", &res.Wcc, true)
	if a := res.Attr.Attr; a.Type != nfs3.Dir || a.Mode != 0o1750 || a.UID != 1001 {
		t.Errorf("MKDIR: %+v", a)
	}
	for name, want := range map[string]nfs3.Status{"dir": nfs3.ErrExist, ".": nfs3.ErrExist, "..": nfs3.ErrExist, "": nfs3.ErrInval, "a/b": nfs3.ErrInval} {
		wantStatus(t, "MKDIR "+name, u.mkdir(r.root, name, 0o755).Status, want)
		wantStatus(t, "SYMLINK "+name, u.symlink(r.root, name, "x").Status, want)
	}
	target := "../" + strings.Repeat("long/", 300)
	res = u.symlink(r.root, "link", target)
	if res.Status != nfs3.OK || res.Attr.Attr.Type != nfs3.Lnk || res.Attr.Attr.UID != 1001 {
		t.Errorf("SYMLINK: %+v", res)
	}
	var path nfs3.ReadlinkRes
	r.do(nfs3.ProcReadlink, &nfs3.ReadlinkArgs{Object: res.Object.Handle}, &path)
	if got := string(bytes.Join(path.Path, nil)); got != target || path.Status != nfs3.OK {
		t.Errorf("READLINK: %v, %.30q", path.Status, got)
	}
	r.do(nfs3.ProcReadlink, &nfs3.ReadlinkArgs{Object: r.root}, &path)
	wantStatus(t, "READLINK of a directory", path.Status, nfs3.ErrInval)
	wantStatus(t, "SYMLINK to nothing", u.symlink(r.root, "empty", "").Status, nfs3.ErrNoEnt)
	wantStatus(t, "SYMLINK with NUL", u.symlink(r.root, "nul", "a\x00b").Status, nfs3.ErrInval)
	wantStatus(t, "SYMLINK too long", u.symlink(r.root, "toolong", strings.Repeat("x", 4096)).Status, nfs3.ErrNameTooLong)

	mknod := func(u *env, name string, typ nfs3.Type, major, minor uint32) nfs3.CreateRes {
		return u.creating(nfs3.ProcMknod, &nfs3.MknodArgs{Where: nfs3.DirOpArgs{Dir: r.root, Name: []byte(name)}, Type: typ,
			Attrs: nfs3.SetAttrs{SetMode: true, Mode: 0o640}, Spec: nfs3.SpecData{Major: major, Minor: minor}})
	}
	for name, typ := range map[string]nfs3.Type{"fifo": nfs3.FIFO, "sock": nfs3.Sock} {
		if res := mknod(u, name, typ, 0, 0); res.Status != nfs3.OK || res.Attr.Attr.Type != typ || res.Attr.Attr.Mode != 0o640 || res.Attr.Attr.UID != 1001 {
			t.Errorf("MKNOD %s: %v %+v", name, res.Status, res.Attr.Attr)
		}
	}
	for name, typ := range map[string]nfs3.Type{"chr": nfs3.Chr, "blk": nfs3.Blk} {
		wantStatus(t, "MKNOD "+name+" by a user", mknod(u, name, typ, 1, 3).Status, nfs3.ErrPerm)
		res := mknod(r, name, typ, 260, 70000)
		if res.Status != nfs3.OK || res.Attr.Attr.Type != typ || res.Attr.Attr.Rdev != (nfs3.SpecData{Major: 260, Minor: 70000}) {
			t.Errorf("MKNOD %s: %v %+v", name, res.Status, res.Attr.Attr)
		}
		for _, n := range []nfs3.SpecData{{Major: 1 << 12, Minor: 3}, {Major: 1, Minor: 1 << 20}, {Major: 1, Minor: 1<<32 - 1}} {
			wantStatus(t, fmt.Sprint("MKNOD of a number that Linux has not: ", n), mknod(r, "no-"+name, typ, n.Major, n.Minor).Status, nfs3.ErrInval)
		}
	}
	for _, typ := range []nfs3.Type{nfs3.Reg, nfs3.Dir, nfs3.Lnk} {
		wantStatus(t, "MKNOD "+typ.String(), mknod(r, "bad", typ, 0, 0).Status, nfs3.ErrBadType)
	}
}

func TestRemove(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "")
	r.must(os.MkdirAll(r.path("full/sub"), 0o755))
	r.must(os.Mkdir(r.path("empty"), 0o755))
	h := r.handle("file")
	r.age(".")
	for _, c := range []struct {
		proc uint32
		name string
		want nfs3.Status
	}{
		{nfs3.ProcRemove, "empty", nfs3.ErrIsDir}, {nfs3.ProcRmdir, "file", nfs3.ErrNotDir}, {nfs3.ProcRmdir, "full", nfs3.ErrNotEmpty},
		{nfs3.ProcRemove, "nothing", nfs3.ErrNoEnt}, {nfs3.ProcRmdir, "nothing", nfs3.ErrNoEnt}, {nfs3.ProcRmdir, ".", nfs3.ErrInval},
		{nfs3.ProcRmdir, "..", nfs3.ErrNotEmpty}, {nfs3.ProcRemove, ".", nfs3.ErrIsDir}, {nfs3.ProcRemove, "..", nfs3.ErrIsDir},
		{nfs3.ProcRemove, strings.Repeat("n", 256), nfs3.ErrNameTooLong}, {nfs3.ProcRemove, "full/sub", nfs3.ErrInval},
	} {
		res := r.removing(c.proc, r.root, c.name)
		wantStatus(t, nfs3.ProcedureName(c.proc)+" "+c.name, res.Status, c.want)
		wantWcc(t, nfs3.ProcedureName(c.proc)+" "+c.name, &res.Wcc, false)
	}
	wantStatus(t, "CREATE", r.create(r.root, "opens the root for syncs", nfs3.Guarded, nfs3.SetAttrs{}).Status, nfs3.OK)
	files := r.s.fs.Files()
	r.age(".")
	res := r.removing(nfs3.ProcRemove, r.root, "file")
	wantStatus(t, "REMOVE", res.Status, nfs3.OK)
	wantWcc(t, "REMOVE", &res.Wcc, true)
	if now := r.s.fs.Files(); now >= files {
		t.Errorf("%d files are open, %d before: the space of a removed file is not freed", now, files)
	}
	wantStatus(t, "a removed file", r.getattr(h).Status, nfs3.ErrStale)
	dir := r.handle("empty")
	wantStatus(t, "RMDIR", r.removing(nfs3.ProcRmdir, r.root, "empty").Status, nfs3.OK)
	wantStatus(t, "in a removed directory", r.create(dir, "x", nfs3.Guarded, nfs3.SetAttrs{}).Status, nfs3.ErrStale)
}

func TestRename(t *testing.T) {
	r := newEnv(t, nil)
	r.must(os.MkdirAll(r.path("a/sub"), 0o755))
	r.must(os.MkdirAll(r.path("b/full/x"), 0o755))
	r.must(os.Mkdir(r.path("b/empty"), 0o755))
	for _, f := range []string{"a/one", "a/two", "b/one"} {
		r.put(f, f)
	}
	r.must(os.Link(r.path("a/two"), r.path("a/same")))
	a, b := r.handle("a"), r.handle("b")
	one, victim := r.handleIn(a, "one"), r.handleIn(b, "one")
	for _, c := range []struct {
		from nfs3.Handle
		name string
		to   nfs3.Handle
		as   string
		want nfs3.Status
	}{
		{a, "nothing", b, "x", nfs3.ErrNoEnt}, {a, ".", b, "x", nfs3.ErrInval}, {a, "one", b, "..", nfs3.ErrInval}, {a, "", b, "x", nfs3.ErrInval},
		{a, "one", b, "empty", nfs3.ErrIsDir}, {a, "sub", b, "one", nfs3.ErrNotDir}, {a, "sub", b, "full", nfs3.ErrNotEmpty},
		{r.root, "a", r.handleIn(a, "sub"), "loop", nfs3.ErrInval}, {a, "one", one, "x", nfs3.ErrNotDir}, {a, "one", b, strings.Repeat("n", 256), nfs3.ErrNameTooLong},
	} {
		r.age("a")
		r.age("b")
		res := r.rename(c.from, c.name, c.to, c.as)
		wantStatus(t, fmt.Sprintf("%s to %.10s", c.name, c.as), res.Status, c.want)
		wantWcc(t, fmt.Sprintf("%s to %.10s", c.name, c.as), &res.FromWcc, false)
	}
	r.age("a")
	r.age("b")
	res := r.rename(a, "one", b, "one")
	wantStatus(t, "over a file", res.Status, nfs3.OK)
	wantWcc(t, "from", &res.FromWcc, true)
	wantWcc(t, "to", &res.ToWcc, true)
	if r.content("b/one") != "a/one" {
		t.Error("the file was not replaced")
	}
	wantStatus(t, "the replaced file", r.getattr(victim).Status, nfs3.ErrStale)
	wantStatus(t, "the renamed file", r.getattr(one).Status, nfs3.OK)
	wantStatus(t, "over an empty directory", r.rename(a, "sub", b, "empty").Status, nfs3.OK)
	wantStatus(t, "onto itself", r.rename(a, "two", a, "two").Status, nfs3.OK)
	wantStatus(t, "onto a link of itself", r.rename(a, "two", a, "same").Status, nfs3.OK)
	if r.content("a/two") != r.content("a/same") || r.lstat("a/two").Nlink != 2 {
		t.Error("renaming one name of a file onto another changed something")
	}
}

func TestLink(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "x")
	r.must(os.Mkdir(r.path("dir"), 0o755))
	r.must(os.Symlink("file", r.path("symlink")))
	h, dir := r.handle("file"), r.handle("dir")
	r.age("dir")
	res := r.link(h, dir, "hard")
	if res.Status != nfs3.OK || res.Attr.Attr.Nlink != 2 || r.lstat("dir/hard").Ino != r.lstat("file").Ino {
		t.Errorf("LINK: %+v", res)
	}
	wantWcc(t, "LINK", &res.Wcc, true)
	if !bytes.Equal(r.handleIn(dir, "hard"), h) {
		t.Error("two names of a file have two handles")
	}
	wantStatus(t, "LINK of a symbolic link", r.link(r.handle("symlink"), dir, "symlink").Status, nfs3.OK)
	if r.lstat("dir/symlink").Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Error("the symbolic link was followed")
	}
	for what, c := range map[string]struct {
		file, dir nfs3.Handle
		name      string
		want      nfs3.Status
	}{
		"exists": {h, dir, "hard", nfs3.ErrExist}, "dot": {h, dir, ".", nfs3.ErrExist}, "of a directory": {dir, r.root, "x", nfs3.ErrPerm}, "in a file": {h, h, "x", nfs3.ErrNotDir},
		"stale": {[]byte("x"), dir, "x", nfs3.ErrBadHandle}, "empty": {h, dir, "", nfs3.ErrInval},
	} {
		wantStatus(t, what, r.link(c.file, c.dir, c.name).Status, c.want)
	}
	// The file stays when it loses one of its names.
	wantStatus(t, "REMOVE", r.removing(nfs3.ProcRemove, r.root, "file").Status, nfs3.OK)
	if res, got := r.read(h, 0, 10); got != "x" {
		t.Errorf("by the other name: %v, %q", res.Status, got)
	}
}

func TestStickyAndForeign(t *testing.T) {
	needRoot(t)
	r := newEnv(t, nil)
	r.must(os.Mkdir(r.path("tmp"), 0o755))
	r.must(unix.Chmod(r.path("tmp"), 0o1777))
	tmp := r.handle("tmp")
	alice, bob := r.as(1001, 1001), r.as(1002, 1002)
	file := alice.create(tmp, "alices", nfs3.Guarded, nfs3.SetAttrs{SetMode: true, Mode: 0o644}).Object.Handle
	wantStatus(t, "remove from a sticky directory", bob.removing(nfs3.ProcRemove, tmp, "alices").Status, nfs3.ErrPerm)
	wantStatus(t, "rename in a sticky directory", bob.rename(tmp, "alices", tmp, "bobs").Status, nfs3.ErrPerm)
	for what, a := range map[string]nfs3.SetAttrs{
		"mode": {SetMode: true, Mode: 0o666}, "owner": {SetUID: true, UID: 1002}, "group": {SetGID: true, GID: 1002}, "times": {MtimeHow: nfs3.SetToClientTime},
	} {
		wantStatus(t, what+" of another's file", bob.setattr(file, a).Status, nfs3.ErrPerm)
	}
	wantStatus(t, "touch of another's file", bob.setattr(file, nfs3.SetAttrs{AtimeHow: nfs3.SetToServerTime, MtimeHow: nfs3.SetToServerTime}).Status, nfs3.ErrAcces)
	wantStatus(t, "group to which the owner does not belong", alice.setattr(file, nfs3.SetAttrs{SetGID: true, GID: 1002}).Status, nfs3.ErrPerm)
	wantStatus(t, "group to which the owner belongs", r.as(1001, 1001, 1002).setattr(file, nfs3.SetAttrs{SetGID: true, GID: 1002}).Status, nfs3.OK)
	wantStatus(t, "own mode", alice.setattr(file, nfs3.SetAttrs{SetMode: true, Mode: 0o600}).Status, nfs3.OK)
	wantStatus(t, "own times", alice.setattr(file, nfs3.SetAttrs{MtimeHow: nfs3.SetToClientTime, Mtime: nfs3.Time{Sec: 9}}).Status, nfs3.OK)
	if st := r.lstat("tmp/alices"); st.Mode&0o7777 != 0o600 || st.Mtim.Sec != 9 {
		t.Errorf("alice set %o, %d", st.Mode, st.Mtim.Sec)
	}
	wantStatus(t, "link of her own", alice.link(file, tmp, "linked").Status, nfs3.OK)
	wantStatus(t, "own uid", alice.setattr(file, nfs3.SetAttrs{SetUID: true, UID: 1001}).Status, nfs3.OK)
	wantStatus(t, "the owner gives it away", alice.setattr(file, nfs3.SetAttrs{SetUID: true, UID: 1002}).Status, nfs3.ErrPerm)
	wantStatus(t, "the owner removes", alice.removing(nfs3.ProcRemove, tmp, "alices").Status, nfs3.OK)
}

// TestCreateWithBadIDs: 2^32-1 means no id to the kernel. A CREATE with it is refused and makes
// nothing.
func TestCreateWithBadIDs(t *testing.T) {
	r := newEnv(t, nil)
	const none = 1<<32 - 1
	for what, a := range map[string]nfs3.SetAttrs{
		"uid": {SetUID: true, UID: none}, "gid": {SetGID: true, GID: none}, "size": {SetSize: true, Size: 1 << 63},
	} {
		for _, mode := range []nfs3.CreateMode{nfs3.Unchecked, nfs3.Guarded} {
			if res := r.create(r.root, "new", mode, a); res.Status == nfs3.OK {
				t.Errorf("CREATE with a bad %s, mode %v: OK", what, mode)
			}
		}
		if what != "size" {
			res := r.creating(nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: nfs3.DirOpArgs{Dir: r.root, Name: []byte("new")}, Attrs: a})
			wantStatus(t, "MKDIR with a bad "+what, res.Status, nfs3.ErrInval)
		}
		if _, err := os.Lstat(r.path("new")); err == nil {
			t.Errorf("a refused call with a bad %s left something", what)
			r.must(os.Remove(r.path("new")))
		}
	}
}
