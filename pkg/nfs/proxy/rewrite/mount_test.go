package rewrite

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	mountxdr "github.com/buildbarn/go-xdr/pkg/protocols/mount"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// mounted returns the reply to a MNT, checked by another implementation.
func (r *env) mounted() *nfs3.MountRes {
	r.t.Helper()
	b := r.results()
	if _, _, err := mountxdr.ReadMountres3(bytes.NewReader(b)); err != nil {
		r.t.Errorf("%v: %x", err, b)
	}
	return decode(r.t, b, &nfs3.MountRes{})
}

func TestMount(t *testing.T) {
	tests := []struct {
		path    string
		resolve []string // names to be looked up
		status  nfs3.Status
	}{
		{"", nil, nfs3.OK},
		{"/", nil, nfs3.OK},
		{"///", nil, nfs3.OK},
		{"/./", nil, nfs3.OK},
		{"/a", []string{"a"}, nfs3.OK},
		{"a/b//c/", []string{"a", "b", "c"}, nfs3.OK},
		{"/a/./b", []string{"a", "b"}, nfs3.OK},
		{"/..", nil, nfs3.ErrNoEnt},
		{"/a/../b", nil, nfs3.ErrNoEnt},
		{"/a\x00b", nil, nfs3.ErrInval},
		{"/" + strings.Repeat("n", 255), []string{strings.Repeat("n", 255)}, nfs3.OK},
		{"/" + strings.Repeat("n", 256), nil, nfs3.ErrNameTooLong},
		{strings.Repeat("/n", maxMountNames), slices.Repeat([]string{"n"}, maxMountNames), nfs3.OK},
		{strings.Repeat("/n", maxMountNames+1), nil, nfs3.ErrNameTooLong},
	}
	for _, mode := range modes {
		r := newEnv(t, mode)
		for _, tt := range tests {
			v := r.send(nfs3.MountProgram, nfs3.MountProcMnt, &nfs3.MountArgs{Path: []byte(tt.path)})
			if len(tt.resolve) > 0 {
				var got []string
				for _, name := range r.c.Path {
					got = append(got, string(name))
				}
				if v != Resolve || !slices.Equal(got, tt.resolve) {
					t.Errorf("%q: verdict %d, path %q", tt.path, v, got)
				}
				continue
			}
			if v != Answered || len(r.c.Path) > 0 {
				t.Errorf("%q: verdict %d, path %q", tt.path, v, r.c.Path)
				continue
			}
			res := r.mounted()
			if res.Status != tt.status {
				t.Errorf("%q: status %v, want %v", tt.path, res.Status, tt.status)
			}
			if res.Status == nfs3.OK && (!bytes.Equal(res.Handle, r.sign(root3)) || !slices.Equal(res.Flavors, []uint32{1, 0})) {
				t.Errorf("%q: mounted %+v", tt.path, res)
			}
		}
		r.end()
	}
}

func TestMounted(t *testing.T) {
	r := newEnv(t, sign.Required)
	defer r.end()
	r.x.GSS = true
	tests := []struct {
		handle []byte
		status nfs3.Status
		want   nfs3.Status
	}{
		{handle3, nfs3.OK, nfs3.OK},
		{[]byte("odd"), nfs3.OK, nfs3.OK},
		{make([]byte, 57), nfs3.OK, nfs3.ErrServerFault},
		{nil, nfs3.ErrNoEnt, nfs3.ErrNoEnt},
		{nil, nfs3.ErrNotDir, nfs3.ErrNotDir},
		{nil, nfs3.ErrStale, nfs3.ErrServerFault},
	}
	for _, tt := range tests {
		r.send(nfs3.MountProgram, nfs3.MountProcMnt, &nfs3.MountArgs{Path: []byte("/a")})
		if err := r.c.AnswerMount(&r.in, tt.handle, tt.status); err != nil {
			t.Fatal(err)
		}
		res := r.mounted()
		if res.Status != tt.want {
			t.Errorf("%x, %v: status %v, want %v", tt.handle, tt.status, res.Status, tt.want)
		}
		if res.Status == nfs3.OK && (!bytes.Equal(res.Handle, r.sign(tt.handle)) || !slices.Equal(res.Flavors, []uint32{1, 390003, 390004, 390005, 0})) {
			t.Errorf("%x: mounted %+v", tt.handle, res)
		}
	}
	r.in.Init(emptyPool, nil)
	if err := r.c.AnswerMount(&r.in, handle3, nfs3.OK); err == nil {
		t.Error("answered without memory")
	}
	r.in.Init(r.pool, nil)
}

// TestMountLists checks the list of exports and the empty list of mounts.
func TestMountLists(t *testing.T) {
	r := newEnv(t, sign.Required)
	defer r.end()
	void := &nfs3test.Void{}
	if v := r.send(nfs3.MountProgram, nfs3.MountProcExport, void); v != Answered {
		t.Fatalf("EXPORT: verdict %d", v)
	}
	x := decode(t, r.results(), &nfs3.ExportRes{})
	if len(x.Exports) != 1 || string(x.Exports[0].Dir) != "/" || len(x.Exports[0].Groups) != 0 {
		t.Errorf("EXPORT: %+v", x)
	}
	if v := r.send(nfs3.MountProgram, nfs3.MountProcDump, void); v != Answered {
		t.Fatalf("DUMP: verdict %d", v)
	}
	if l := decode(t, r.results(), &nfs3.DumpRes{}); len(l.Mounts) != 0 {
		t.Errorf("DUMP: %+v", l)
	}
	for proc, args := range map[uint32]nfs3test.Message{nfs3.MountProcUmnt: &nfs3.MountArgs{Path: []byte("/")}, nfs3.MountProcUmntAll: void} {
		if v := r.send(nfs3.MountProgram, proc, args); v != Answered || len(r.results()) > 0 {
			t.Errorf("%s: verdict %d", nfs3.MountProcedureName(proc), v)
		}
	}
}
