package server

import (
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
)

func TestNameErrors(t *testing.T) { testFailures(t, nameFailures) }

// badNames are names that no operation accepts.
var badNames = []struct {
	name string
	want nfs4.Status
}{
	{"", nfs4.ErrInval},
	{".", nfs4.ErrBadName},
	{"..", nfs4.ErrBadName},
	{"a/b", nfs4.ErrBadChar},
	{"a\x00b", nfs4.ErrBadChar},
	{strings.Repeat("n", 256), nfs4.ErrNameTooLong},
	{strings.Repeat("n", 1536), nfs4.ErrNameTooLong},
}

// nameFailures are those of the operations on names.
func nameFailures(e *errorEnv) (list []failure) {
	add := func(op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops})
	}
	by := func(s *session4, op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops, by: s})
	}
	create := func(name string) Raw { return op4(nfs4.OpCreate, int(nfs4.Dir), name, noAttrs) }
	named := []struct {
		op   nfs4.Op
		make func(name string) Raw
		link nfs4.Status // in a symbolic link
	}{
		{nfs4.OpLookup, lookup4, nfs4.ErrSymlink},
		{nfs4.OpRemove, func(n string) Raw { return op4(nfs4.OpRemove, n) }, nfs4.ErrNotDir},
		{nfs4.OpCreate, create, nfs4.ErrNotDir},
		{nfs4.OpRename, func(n string) Raw { return op4(nfs4.OpRename, n, "new") }, nfs4.ErrNotDir},
		{nfs4.OpRename, func(n string) Raw { return op4(nfs4.OpRename, "file", n) }, nfs4.ErrNotDir},
		{nfs4.OpSecInfo, func(n string) Raw { return op4(nfs4.OpSecInfo, n) }, nfs4.ErrNotDir},
		{nfs4.OpOpen, func(n string) Raw { return openOp("o", accR, 0, unchecked, n) }, nfs4.ErrSymlink},
	}
	for _, n := range named {
		for _, bad := range badNames {
			add(n.op, bad.want, "name "+bad.name, putRoot, saveFH, n.make(bad.name))
		}
		for _, object := range append([]string{"file"}, specials...) {
			add(n.op, nfs4.ErrNotDir, "in "+object, in(object, saveFH, n.make("name"))...)
		}
		add(n.op, n.link, "in a link", in("link", saveFH, n.make("name"))...)
		by(e.user, n.op, nfs4.ErrAccess, "in a closed directory", in("closed", saveFH, n.make("inner"))...)
	}
	for _, bad := range badNames {
		add(nfs4.OpLink, bad.want, "name "+bad.name, in("file", saveFH, putRoot, op4(nfs4.OpLink, bad.name))...)
	}
	for _, object := range append([]string{"file"}, specials...) {
		add(nfs4.OpLink, nfs4.ErrNotDir, "into "+object, in("file", append([]Raw{saveFH}, in(object, op4(nfs4.OpLink, "name"))...)...)...)
		add(nfs4.OpLookupP, nfs4.ErrNotDir, "of "+object, in(object, op4(nfs4.OpLookupP))...)
		add(nfs4.OpSecInfoNoName, nfs4.ErrNotDir, "of the parent of "+object, in(object, op4(nfs4.OpSecInfoNoName, nfs4.StyleParent))...)
		add(nfs4.OpReadlink, nfs4.ErrWrongType, "of "+object, in(object, op4(nfs4.OpReadlink))...)
		add(nfs4.OpReaddir, nfs4.ErrNotDir, "of "+object, in(object, readdir4(0, 4096))...)
		add(nfs4.OpRename, nfs4.ErrNotDir, "into "+object, append([]Raw{putRoot, saveFH}, in(object, op4(nfs4.OpRename, "file", "x"))...)...)
	}
	add(nfs4.OpReadlink, nfs4.ErrWrongType, "of a directory", in("dir", op4(nfs4.OpReadlink))...)
	add(nfs4.OpLink, nfs4.ErrSymlink, "into a link", in("file", append([]Raw{saveFH}, in("link", op4(nfs4.OpLink, "name"))...)...)...)
	add(nfs4.OpLink, nfs4.ErrIsDir, "of a directory", in("dir", saveFH, putRoot, op4(nfs4.OpLink, "x"))...)
	for _, object := range []string{"file", "dir", "link", "pipe"} {
		add(nfs4.OpLink, nfs4.ErrExist, "as "+object, in("file", saveFH, putRoot, op4(nfs4.OpLink, object))...)
		add(nfs4.OpCreate, nfs4.ErrExist, "as "+object, putRoot, create(object))
	}
	by(e.user, nfs4.OpLink, nfs4.ErrAccess, "into a directory of root", in("file", saveFH, putRoot, op4(nfs4.OpLink, "x"))...)
	by(e.user, nfs4.OpLookupP, nfs4.ErrAccess, "from a closed directory", putFH(e.handle("closed")), op4(nfs4.OpLookupP))
	by(e.user, nfs4.OpSecInfoNoName, nfs4.ErrAccess, "from a closed directory", putFH(e.handle("closed")), op4(nfs4.OpSecInfoNoName, nfs4.StyleParent))
	add(nfs4.OpLookupP, nfs4.ErrSymlink, "of a link", in("link", op4(nfs4.OpLookupP))...)
	add(nfs4.OpLookupP, nfs4.ErrNoEnt, "of the root", putRoot, op4(nfs4.OpLookupP))
	add(nfs4.OpSecInfoNoName, nfs4.ErrNotDir, "of the parent of a link", in("link", op4(nfs4.OpSecInfoNoName, nfs4.StyleParent))...)
	add(nfs4.OpSecInfoNoName, nfs4.ErrNoEnt, "of the parent of the root", putRoot, op4(nfs4.OpSecInfoNoName, nfs4.StyleParent))
	add(nfs4.OpSecInfoNoName, nfs4.ErrBadXDR, "style 2", putRoot, op4(nfs4.OpSecInfoNoName, 2))
	for op, make := range map[nfs4.Op]func(string) Raw{
		nfs4.OpLookup:  lookup4,
		nfs4.OpRemove:  func(n string) Raw { return op4(nfs4.OpRemove, n) },
		nfs4.OpRename:  func(n string) Raw { return op4(nfs4.OpRename, n, "x") },
		nfs4.OpSecInfo: func(n string) Raw { return op4(nfs4.OpSecInfo, n) },
		nfs4.OpOpen:    func(n string) Raw { return openOp("o", accR, 0, noCreate, n) },
	} {
		add(op, nfs4.ErrNoEnt, "of nothing", putRoot, saveFH, make("nothing"))
		add(op, nfs4.ErrNoEnt, "of bytes that are no UTF-8", putRoot, saveFH, make("\xc0\xc1"))
	}
	// SECINFO consumes the filehandle.
	add(nfs4.OpGetFH, nfs4.ErrNoFileHandle, "behind SECINFO", putRoot, op4(nfs4.OpSecInfo, "file"), getFH)
	add(nfs4.OpGetFH, nfs4.ErrNoFileHandle, "behind SECINFO_NO_NAME", putRoot, op4(nfs4.OpSecInfoNoName, 0), getFH)

	for _, kind := range []nfs4.Type{0, nfs4.Reg, nfs4.AttrDir, nfs4.NamedAttr, 10} {
		add(nfs4.OpCreate, nfs4.ErrBadType, "type "+kind.String(), putRoot, op4(nfs4.OpCreate, int(kind), "x", noAttrs))
	}
	add(nfs4.OpCreate, nfs4.ErrInval, "an empty link", putRoot, op4(nfs4.OpCreate, int(nfs4.Lnk), "", "x", noAttrs))
	for want, attrs := range map[nfs4.Status]Raw{
		nfs4.ErrInval:       Attrs([]uint32{nfs4.AttrType}, 1),
		nfs4.ErrAttrNotSupp: Attrs([]uint32{nfs4.AttrSystem}, true),
		nfs4.ErrBadOwner:    Attrs([]uint32{nfs4.AttrOwner}, "nobody-knows"),
		nfs4.ErrBadXDR:      Attrs([]uint32{nfs4.AttrMode}),
	} {
		add(nfs4.OpCreate, want, "attributes", putRoot, op4(nfs4.OpCreate, int(nfs4.Dir), "x", attrs))
	}
	by(e.user, nfs4.OpCreate, nfs4.ErrAccess, "in a directory of root", putRoot, create("x"))
	for op, last := range map[nfs4.Op][]Raw{
		nfs4.OpCreate: {putRoot, create("x")},
		nfs4.OpRemove: {putRoot, op4(nfs4.OpRemove, "file")},
		nfs4.OpRename: {putRoot, saveFH, op4(nfs4.OpRename, "file", "x")},
		nfs4.OpLink:   in("file", saveFH, putRoot, op4(nfs4.OpLink, "x")),
		nfs4.OpOpen:   {putRoot, openOp("o", accR, 0, unchecked, "x")},
	} {
		by(e.guest, op, nfs4.ErrROFS, "with read-only access", last...)
	}
	add(nfs4.OpRemove, nfs4.ErrNotEmpty, "of a full directory", putRoot, op4(nfs4.OpRemove, "dir"))
	rename := func(from, to string) []Raw { return []Raw{putRoot, saveFH, op4(nfs4.OpRename, from, to)} }
	add(nfs4.OpRename, nfs4.ErrNotEmpty, "to a full directory", rename("empty", "dir")...)
	add(nfs4.OpRename, nfs4.ErrExist, "of a directory to a file", rename("empty", "file")...)
	add(nfs4.OpRename, nfs4.ErrExist, "of a file to an empty directory", rename("file", "empty")...)
	add(nfs4.OpRename, nfs4.ErrExist, "of a file to a full directory", rename("file", "dir")...)
	add(nfs4.OpRename, nfs4.ErrInval, "of a directory into itself", append([]Raw{putRoot, saveFH}, in("dir", op4(nfs4.OpRename, "dir", "x"))...)...)

	all := Raw(make([]byte, 8))
	readdir := func(cookie uint64, verf Raw, dirCount, maxCount int, attrs ...uint32) []Raw {
		return in("dir", op4(nfs4.OpReaddir, cookie, verf, dirCount, maxCount, Bitmap(attrs...)))
	}
	add(nfs4.OpReaddir, nfs4.ErrNotDir, "of a link", in("link", readdir4(0, 4096))...)
	add(nfs4.OpReaddir, nfs4.ErrBadCookie, "cookie 1", readdir(1, all, 4096, 4096)...)
	add(nfs4.OpReaddir, nfs4.ErrBadCookie, "cookie 2", readdir(2, all, 4096, 4096)...)
	add(nfs4.OpReaddir, nfs4.ErrBadCookie, "a negative cookie", readdir(1<<63, all, 4096, 4096)...)
	add(nfs4.OpReaddir, nfs4.ErrNotSame, "another verifier", readdir(3, Raw("verifier"), 4096, 4096)...)
	add(nfs4.OpReaddir, nfs4.ErrInval, "a set-only attribute", readdir(0, all, 4096, 4096, nfs4.AttrTimeAccessSet)...)
	for _, size := range []int{0, 1, 15, 16, 35} {
		add(nfs4.OpReaddir, nfs4.ErrTooSmall, "too small", readdir(0, all, 0, size)...)
	}
	by(e.user, nfs4.OpReaddir, nfs4.ErrAccess, "of a closed directory", in("closed", readdir4(0, 4096))...)
	return list
}

// TestIdleRenames has renames that do nothing (RFC 8881 section 18.26.3).
func TestIdleRenames(t *testing.T) {
	s := newTreeSession4(t, nil)
	s.ok(in("file", saveFH, putRoot, op4(nfs4.OpLink, "second"))...)
	for _, names := range [][2]string{{"file", "file"}, {"dir", "dir"}, {"file", "second"}} {
		res := s.ok(putRoot, saveFH, op4(nfs4.OpRename, names[0], names[1]))
		var r nfs4.RenameRes
		if r.Decode(opResult(res, 3)); r.Source.Before != r.Source.After || r.Target.Before != r.Target.After {
			t.Errorf("RENAME of %s to %s changed %+v", names[0], names[1], r)
		}
		for _, name := range names {
			s.lstat(name)
		}
	}
}
