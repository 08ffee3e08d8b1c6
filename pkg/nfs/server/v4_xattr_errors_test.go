package server

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/test/prereq"
)

func TestXattrErrors(t *testing.T) { testFailures(t, xattrFailures) }

// xattrFailures are those of the operations on extended attributes.
func xattrFailures(e *errorEnv) (list []failure) {
	if !e.env.s.fs.Capabilities().Xattrs {
		prereq.Missing(e.t, "the file system has no extended attributes of users")
	}
	add := func(op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops})
	}
	by := func(s *session4, op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops, by: s})
	}
	for _, object := range []string{"file", "secret"} {
		e.must(unix.Setxattr(e.path(object), "user.there", []byte("value"), 0))
	}
	set := func(option int, name, value string) Raw { return op4(nfs4.OpSetXattr, option, name, value) }
	get := func(name string) Raw { return op4(nfs4.OpGetXattr, name) }
	remove := func(name string) Raw { return op4(nfs4.OpRemoveXattr, name) }
	names := func(cookie uint64, n int) Raw { return op4(nfs4.OpListXattrs, cookie, n) }
	named := map[nfs4.Op]func(string) Raw{
		nfs4.OpGetXattr: get, nfs4.OpRemoveXattr: remove,
		nfs4.OpSetXattr: func(n string) Raw { return set(nfs4.XattrEither, n, "x") },
	}
	for op, make := range named {
		add(op, nfs4.ErrInval, "no name", in("file", make(""))...)
		want := nfs4.ErrBadChar
		if op == nfs4.OpGetXattr { // which has no NFS4ERR_BADCHAR
			want = nfs4.ErrInval
		}
		add(op, want, "a name with NUL", in("file", make("a\x00b"))...)
		add(op, nfs4.ErrNameTooLong, "a long name", in("file", make(strings.Repeat("n", 251)))...)
		by(e.user, op, nfs4.ErrAccess, "of a file of root", in("secret", make("there"))...)
	}
	for _, object := range append([]string{"link"}, specials...) {
		for op, make := range named {
			add(op, nfs4.ErrWrongType, "of "+object, in(object, make("name"))...)
		}
		add(nfs4.OpListXattrs, nfs4.ErrWrongType, "of "+object, in(object, names(0, 4096))...)
	}
	add(nfs4.OpGetXattr, nfs4.ErrNoXattr, "of nothing", in("file", get("nothing"))...)
	add(nfs4.OpRemoveXattr, nfs4.ErrNoXattr, "of nothing", in("file", remove("nothing"))...)
	add(nfs4.OpSetXattr, nfs4.ErrNoXattr, "replace nothing", in("file", set(nfs4.XattrReplace, "nothing", "x"))...)
	add(nfs4.OpSetXattr, nfs4.ErrExist, "create again", in("file", set(nfs4.XattrCreate, "there", "x"))...)
	add(nfs4.OpSetXattr, nfs4.ErrBadXDR, "option 3", in("file", set(3, "there", "x"))...)
	by(e.guest, nfs4.OpSetXattr, nfs4.ErrROFS, "with read-only access", in("file", set(nfs4.XattrEither, "new", "x"))...)
	by(e.guest, nfs4.OpRemoveXattr, nfs4.ErrROFS, "with read-only access", in("file", remove("there"))...)
	add(nfs4.OpListXattrs, nfs4.ErrBadCookie, "a cookie behind the end", in("file", names(2, 4096))...)
	add(nfs4.OpListXattrs, nfs4.ErrBadCookie, "the largest cookie", in("file", names(1<<64-1, 4096))...)
	for _, size := range []int{0, 15, 16, 27} {
		add(nfs4.OpListXattrs, nfs4.ErrTooSmall, "too small", in("file", names(0, size))...)
	}
	return list
}

// TestXattrTooBig sets a value that is longer than Linux allows.
func TestXattrTooBig(t *testing.T) {
	r := newEnv4(t, nil)
	r.put("file", "")
	s := r.client4("client", "verifier")
	channel := Channel(128<<10, 16, testSlots)
	res := r.compound(1, createSession(s.client, s.sequence, 0, channel, channel, 1, 0))
	expect(t, "session", res, nfs4.OK)
	s.id, s.slots = append(Raw{}, res.Op(0)[:16]...), make([]uint32, testSlots)
	s.fails(nfs4.ErrXattr2Big, in("file", op4(nfs4.OpSetXattr, nfs4.XattrEither, "name", strings.Repeat("v", 64<<10+1)))...)
}
