package server

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/test/prereq"
)

func TestXattrs4(t *testing.T) {
	s := newTreeSession4(t, nil)
	if !s.env.s.fs.Capabilities().Xattrs {
		prereq.Missing(t, "the file system has no extended attributes of users")
	}
	file := func(ops ...Raw) []Raw { return append([]Raw{putRoot, lookup4("file")}, ops...) }
	set := func(option int, name, value string) Raw { return op4(nfs4.OpSetXattr, option, name, value) }
	get := func(name string) Raw { return op4(nfs4.OpGetXattr, name) }
	list := func(cookie uint64, n int) Raw { return op4(nfs4.OpListXattrs, cookie, n) }
	var r nfs4.SetXattrRes
	r.Decode(opResult(s.ok(file(set(nfs4.XattrCreate, "one", "1"))...), 3))
	if !r.Change.Atomic || r.Change.After <= r.Change.Before {
		t.Errorf("SETXATTR changed %+v", r.Change)
	}
	s.ok(file(set(nfs4.XattrReplace, "one", "first"), set(nfs4.XattrEither, "two", ""))...)
	var v nfs4.GetXattrRes
	if v.Decode(opResult(s.ok(file(get("one"))...), 3)); string(v.Value) != "first" {
		t.Errorf("the value is %q", v.Value)
	}
	if err := unix.Setxattr(s.path("file"), "trusted.secret", []byte("x"), 0); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Error(err)
	}
	var names []string
	for cookie := uint64(0); ; {
		var l nfs4.ListXattrsRes
		l.Decode(opResult(s.ok(file(list(cookie, 24))...), 3)) // one name
		for _, n := range l.Names {
			names = append(names, string(n))
		}
		if cookie = l.Cookie; l.EOF {
			break
		}
	}
	if !slices.Equal(names, []string{"one", "two"}) {
		t.Errorf("names are %q", names)
	}
	s.ok(file(op4(nfs4.OpRemoveXattr, "one"))...)
	for name, x := range map[string]struct {
		want nfs4.Status
		op   Raw
	}{
		"removed":           {nfs4.ErrNoXattr, get("one")},
		"REMOVEXATTR again": {nfs4.ErrNoXattr, op4(nfs4.OpRemoveXattr, "one")},
		"create again":      {nfs4.ErrExist, set(nfs4.XattrCreate, "two", "x")},
		"replace nothing":   {nfs4.ErrNoXattr, set(nfs4.XattrReplace, "none", "x")},
		"option 3":          {nfs4.ErrBadXDR, set(3, "two", "x")},
		"no name":           {nfs4.ErrInval, set(0, "", "x")},
		"a long name":       {nfs4.ErrNameTooLong, set(0, strings.Repeat("n", 251), "x")},
		"LISTXATTRS small":  {nfs4.ErrTooSmall, list(0, 20)},
		"LISTXATTRS tiny":   {nfs4.ErrTooSmall, list(1, 4)},
		"LISTXATTRS cookie": {nfs4.ErrBadCookie, list(9, 4096)},
	} {
		expect(t, name, s.do(file(x.op)...), x.want)
	}
	expect(t, "of a link", s.do(putRoot, lookup4("link"), get("x")), nfs4.ErrWrongType)
	expect(t, "of nothing", s.do(get("x")), nfs4.ErrNoFileHandle)
}
