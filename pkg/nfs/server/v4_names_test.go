package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
)

var (
	putRoot = op4(nfs4.OpPutRootFH)
	saveFH  = op4(nfs4.OpSaveFH)
	getFH   = op4(nfs4.OpGetFH)
)

// noAttrs is an empty fattr4.
var noAttrs = Attrs(nil)

func lookup4(name string) Raw { return op4(nfs4.OpLookup, name) }

// tree4 makes a directory with an object of each kind.
func tree4(t *testing.T, root string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(root, "file"), []byte("0123456789"), 0o644))
	must(os.Mkdir(filepath.Join(root, "dir"), 0o755))
	must(os.Mkdir(filepath.Join(root, "empty"), 0o755))
	must(os.WriteFile(filepath.Join(root, "dir", "inner"), nil, 0o644))
	must(os.Symlink("file", filepath.Join(root, "link")))
}

func newTreeSession4(t *testing.T, change func(*Config)) *session4 {
	r := newEnv4(t, change)
	tree4(t, r.dir)
	return r.session("client")
}

// The statuses of operations on names (RFC 8881 section 18).
func TestNames4(t *testing.T) {
	s := newTreeSession4(t, nil)
	long := strings.Repeat("n", 256)
	names := []struct {
		name string
		want nfs4.Status
	}{
		{"", nfs4.ErrInval},
		{".", nfs4.ErrBadName},
		{"..", nfs4.ErrBadName},
		{"a/b", nfs4.ErrBadChar},
		{"a\x00b", nfs4.ErrBadChar},
		{long, nfs4.ErrNameTooLong},
	}
	each := map[string]func(name string) Raw{
		"LOOKUP":  lookup4,
		"REMOVE":  func(n string) Raw { return op4(nfs4.OpRemove, n) },
		"CREATE":  func(n string) Raw { return op4(nfs4.OpCreate, 2, n, noAttrs) },
		"RENAME":  func(n string) Raw { return op4(nfs4.OpRename, n, "new") },
		"RENAME2": func(n string) Raw { return op4(nfs4.OpRename, "file", n) },
		"SECINFO": func(n string) Raw { return op4(nfs4.OpSecInfo, n) },
	}
	for op, make := range each {
		for _, n := range names {
			expect(t, op+" "+n.name, s.do(putRoot, saveFH, make(n.name)), n.want)
		}
		expect(t, op+" in a file", s.do(putRoot, lookup4("file"), saveFH, make("name")), nfs4.ErrNotDir)
		expect(t, op+" without a filehandle", s.do(make("name")), nfs4.ErrNoFileHandle)
	}
	for _, n := range names {
		expect(t, "LINK "+n.name, s.do(putRoot, lookup4("file"), saveFH, putRoot, op4(nfs4.OpLink, n.name)), n.want)
	}
	symlink := func(target string) Raw { return op4(nfs4.OpCreate, 5, target, "new-link", noAttrs) }
	for name, x := range map[string]struct {
		want nfs4.Status
		ops  []Raw
	}{
		"LOOKUP of nothing":                 {nfs4.ErrNoEnt, []Raw{putRoot, lookup4("nothing")}},
		"LOOKUPP of the root":               {nfs4.ErrNoEnt, []Raw{putRoot, op4(nfs4.OpLookupP)}},
		"LOOKUPP of a file":                 {nfs4.ErrNotDir, []Raw{putRoot, lookup4("file"), op4(nfs4.OpLookupP)}},
		"LOOKUPP of a link":                 {nfs4.ErrSymlink, []Raw{putRoot, lookup4("link"), op4(nfs4.OpLookupP)}},
		"LOOKUPP":                           {nfs4.OK, []Raw{putRoot, lookup4("dir"), op4(nfs4.OpLookupP), lookup4("file")}},
		"REMOVE of nothing":                 {nfs4.ErrNoEnt, []Raw{putRoot, op4(nfs4.OpRemove, "nothing")}},
		"REMOVE of a full directory":        {nfs4.ErrNotEmpty, []Raw{putRoot, op4(nfs4.OpRemove, "dir")}},
		"CREATE of a file":                  {nfs4.ErrBadType, []Raw{putRoot, op4(nfs4.OpCreate, 1, "x", noAttrs)}},
		"CREATE of type 9":                  {nfs4.ErrBadType, []Raw{putRoot, op4(nfs4.OpCreate, 9, "x", noAttrs)}},
		"CREATE of what is there":           {nfs4.ErrExist, []Raw{putRoot, op4(nfs4.OpCreate, 2, "file", noAttrs)}},
		"CREATE of an empty link":           {nfs4.ErrInval, []Raw{putRoot, symlink("")}},
		"CREATE with a size":                {nfs4.ErrInval, []Raw{putRoot, op4(nfs4.OpCreate, 2, "x", Attrs([]uint32{4}, uint64(1)))}},
		"CREATE with a bad owner":           {nfs4.ErrBadOwner, []Raw{putRoot, op4(nfs4.OpCreate, 2, "x", Attrs([]uint32{36}, "no such user"))}},
		"CREATE with a type":                {nfs4.ErrInval, []Raw{putRoot, op4(nfs4.OpCreate, 2, "x", Attrs([]uint32{1}, 1))}},
		"CREATE, attribute 95":              {nfs4.ErrAttrNotSupp, []Raw{putRoot, op4(nfs4.OpCreate, 2, "x", Attrs([]uint32{95}, 1))}},
		"RENAME of nothing":                 {nfs4.ErrNoEnt, []Raw{putRoot, saveFH, op4(nfs4.OpRename, "nothing", "x")}},
		"RENAME to a full directory":        {nfs4.ErrNotEmpty, []Raw{putRoot, saveFH, op4(nfs4.OpRename, "empty", "dir")}},
		"RENAME of a file to a directory":   {nfs4.ErrExist, []Raw{putRoot, saveFH, op4(nfs4.OpRename, "file", "dir")}},
		"RENAME of a directory to a file":   {nfs4.ErrExist, []Raw{putRoot, saveFH, op4(nfs4.OpRename, "dir", "file")}},
		"RENAME into itself":                {nfs4.ErrInval, []Raw{putRoot, saveFH, lookup4("dir"), op4(nfs4.OpRename, "dir", "x")}},
		"RENAME without a saved filehandle": {nfs4.ErrNoFileHandle, []Raw{putRoot, op4(nfs4.OpRename, "file", "x")}},
		"RENAME to itself":                  {nfs4.OK, []Raw{putRoot, saveFH, op4(nfs4.OpRename, "file", "file")}},
		"LINK of a directory":               {nfs4.ErrIsDir, []Raw{putRoot, lookup4("dir"), saveFH, putRoot, op4(nfs4.OpLink, "x")}},
		"LINK to what is there":             {nfs4.ErrExist, []Raw{putRoot, lookup4("file"), saveFH, putRoot, op4(nfs4.OpLink, "dir")}},
		"LINK into a file":                  {nfs4.ErrNotDir, []Raw{putRoot, lookup4("file"), saveFH, op4(nfs4.OpLink, "x")}},
		"READLINK of a file":                {nfs4.ErrWrongType, []Raw{putRoot, lookup4("file"), op4(nfs4.OpReadlink)}},
		"SECINFO of nothing":                {nfs4.ErrNoEnt, []Raw{putRoot, op4(nfs4.OpSecInfo, "nothing")}},
		"SECINFO consumes":                  {nfs4.ErrNoFileHandle, []Raw{putRoot, op4(nfs4.OpSecInfo, "file"), getFH}},
		"SECINFO_NO_NAME consumes":          {nfs4.ErrNoFileHandle, []Raw{putRoot, op4(nfs4.OpSecInfoNoName, 0), getFH}},
		"SECINFO_NO_NAME of the parent":     {nfs4.ErrNoEnt, []Raw{putRoot, op4(nfs4.OpSecInfoNoName, 1)}},
		"SECINFO_NO_NAME, style 2":          {nfs4.ErrBadXDR, []Raw{putRoot, op4(nfs4.OpSecInfoNoName, 2)}},
	} {
		expect(t, name, s.do(x.ops...), x.want)
	}
}

// Objects of every kind are made, linked, renamed and removed, with the change of the directory.
func TestCreate4(t *testing.T) {
	s := newTreeSession4(t, nil)
	mode := Attrs([]uint32{33}, 0o640)
	change := func(res interface{ Op(int) []byte }, i int, d nfs4.ChangeInfo) nfs4.ChangeInfo {
		t.Helper()
		if !d.Atomic || d.After <= d.Before {
			t.Errorf("change of operation %d is %+v", i, d)
		}
		return d
	}
	last := uint64(0)
	for name, kind := range map[string]Raw{
		"d": Fields(2), "l": Fields(5, "target"), "s": Fields(6), "p": Fields(7),
	} {
		res := s.ok(putRoot, op4(nfs4.OpCreate, kind, name, mode), getFH)
		var r nfs4.CreateRes
		r.Decode(opResult(res, 2))
		if c := change(res, 2, r.Change); last != 0 && c.Before != last {
			t.Errorf("%s: change begins at %d, the last one ended at %d", name, c.Before, last)
		}
		last = r.Change.After
		if !r.Set.Has(nfs4.AttrMode) || r.Set.Len() != 1 {
			t.Errorf("%s: attributes %v were set", name, r.Set)
		}
		st, err := os.Lstat(s.path(name))
		if err != nil || name != "l" && st.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	res := s.ok(putRoot, lookup4("l"), op4(nfs4.OpReadlink))
	var link nfs4.ReadlinkRes
	if link.Decode(opResult(res, 3)); link.Length != 6 || string(link.Link[0]) != "target" {
		t.Errorf("READLINK is %q", link.Link)
	}
	res = s.ok(putRoot, lookup4("file"), saveFH, putRoot, op4(nfs4.OpLink, "second"))
	var linked nfs4.LinkRes
	linked.Decode(opResult(res, 5))
	change(res, 5, linked.Change)
	res = s.ok(putRoot, lookup4("dir"), saveFH, putRoot, op4(nfs4.OpRestoreFH), saveFH, putRoot, op4(nfs4.OpRename, "inner", "outer"))
	var renamed nfs4.RenameRes
	renamed.Decode(opResult(res, 8))
	change(res, 8, renamed.Source)
	change(res, 8, renamed.Target)
	for _, name := range []string{"d", "l", "s", "p", "second", "outer", "empty"} {
		res := s.ok(putRoot, op4(nfs4.OpRemove, name))
		var r nfs4.RemoveRes
		r.Decode(opResult(res, 2))
		change(res, 2, r.Change)
		if _, err := os.Lstat(s.path(name)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	res = s.ok(putRoot, op4(nfs4.OpSecInfo, "file"))
	var sec nfs4.SecInfoRes
	if sec.Decode(opResult(res, 2)); len(sec.Flavors) != 2 || sec.Flavors[0] != nfs4.AuthSys {
		t.Errorf("SECINFO is %v", sec.Flavors)
	}
}

// A client with read-only access changes nothing.
func TestReadOnly4(t *testing.T) {
	s := newTreeSession4(t, func(c *Config) {
		c.Access = []Rule{{Networks: everyone[0].Networks, Squash: SquashNone, ReadOnly: true}}
	})
	for _, op := range []Raw{
		op4(nfs4.OpCreate, 2, "x", noAttrs), op4(nfs4.OpRemove, "file"), op4(nfs4.OpLink, "x"),
		op4(nfs4.OpRename, "file", "x"), op4(nfs4.OpSetAttr, Raw(make([]byte, 16)), noAttrs),
		op4(nfs4.OpWrite, Raw(make([]byte, 16)), uint64(0), 0, "data"),
	} {
		s.fails(nfs4.ErrROFS, putRoot, saveFH, lookup4("file"), op)
	}
}
