//go:build kernel

package hostile

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
)

// TestVersion3 tries the ways out of version 3.
func TestVersion3(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c := g.intrude(t, network, 0)
			root := c.mount(t)
			_, spans, _ := c.call3(nfs4test.NFS, nfs3.ProcLookup, fields(root, "dir"))
			dir := handleIn(t, spans)
			before := h.relay.count()
			withName := []uint32{
				nfs3.ProcLookup, nfs3.ProcCreate, nfs3.ProcMkdir, nfs3.ProcSymlink, nfs3.ProcMknod, nfs3.ProcRemove, nfs3.ProcRmdir, nfs3.ProcRename, nfs3.ProcLink,
			}
			for _, name := range []string{"..", "../" + secretName, "dir/..", "/", "..\x00", ""} {
				for _, handle := range [][]byte{root, dir} {
					for procedure, args := range procedures3(handle, root, name) {
						if !slices.Contains(withName, procedure) {
							continue
						}
						status, _, _ := c.call3(nfs4test.NFS, procedure, args)
						if status != uint32(nfs3.ErrInval) && (procedure != nfs3.ProcLookup || name != ".." || status != uint32(nfs3.ErrNoEnt)) {
							t.Errorf("%s of %q: status %d", nfs3.ProcedureName(procedure), name, status)
						}
					}
				}
				if status, _, _ := c.call3(nfs4test.NFS, nfs3.ProcRename, fields(root, "file", dir, name)); status != uint32(nfs3.ErrInval) {
					t.Errorf("RENAME to %q: status %d", name, status)
				}
			}
			if calls := h.relay.since(before); len(calls) > 0 {
				t.Errorf("the backend got %v", calls)
			}
			for _, handle := range [][]byte{root, dir} {
				for _, procedure := range []uint32{nfs3.ProcReaddir, nfs3.ProcReaddirPlus} {
					status, spans, _ := c.call3(nfs4test.NFS, procedure, procedures3(handle, nil, "")[procedure])
					if status != 0 || !slices.ContainsFunc(spans, func(s schema.Span) bool { return s.Mark == schema.EntryName && string(s.B) == ".." }) {
						t.Errorf("%s: status %d, and the list should have ..", nfs3.ProcedureName(procedure), status)
					}
				}
			}
			_, spans, _ = c.call3(nfs4test.NFS, nfs3.ProcLookup, fields(root, "up"))
			link := handleIn(t, spans)
			if status, _, _ := c.call3(nfs4test.NFS, nfs3.ProcLookup, fields(link, secretName)); status != uint32(nfs3.ErrNotDir) {
				t.Errorf("LOOKUP through a link: status %d", status)
			}
			for name, status := range map[string]nfs3.Status{".": nfs3.OK, secretName: nfs3.ErrNoEnt} {
				if got, _, _ := c.call3(nfs4test.NFS, nfs3.ProcLookup, fields(root, name)); got != uint32(status) {
					t.Errorf("LOOKUP of %q: status %d, want %d", name, got, status)
				}
			}
		})
	}
}

// TestMount tries paths that lead out.
func TestMount(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	c := g.intrude(t, "tcp", 0)
	root := c.mount(t)
	for path, want := range map[string]nfs3.Status{
		"..": nfs3.ErrNoEnt, "/..": nfs3.ErrNoEnt, "/dir/..": nfs3.ErrNoEnt, "/dir/../..": nfs3.ErrNoEnt, "/../" + secretDir: nfs3.ErrNoEnt,
		"/" + secretDir: nfs3.ErrNoEnt, "/exported": nfs3.ErrNoEnt, "/up": nfs3.ErrNotDir, "/up/" + secretDir: nfs3.ErrNotDir,
		"/top": nfs3.ErrNotDir, "/top/etc": nfs3.ErrNotDir, "/in": nfs3.ErrNotDir, "/in/deep": nfs3.ErrNotDir, "/file": nfs3.ErrNotDir,
		"/file/x": nfs3.ErrNotDir, "/dir\x00": nfs3.ErrInval, "/" + strings.Repeat("x", 300): nfs3.ErrNameTooLong,
		"/" + strings.Repeat("x/", 100): nfs3.ErrNameTooLong, "": nfs3.OK, "/": nfs3.OK, "//./": nfs3.OK, "/dir": nfs3.OK, "//dir/./deep//": nfs3.OK,
	} {
		if got, _, _ := c.call3(nfs4test.Mount, 1, fields(path)); got != uint32(want) {
			t.Errorf("MNT of %q: status %d, want %d", path, got, want)
		}
	}
	for _, procedure := range []uint32{2, 5} { // DUMP and EXPORT
		_, _, list := c.call3(nfs4test.Mount, procedure, nil)
		if want := map[uint32]string{2: "\x00\x00\x00\x00", 5: string(fields(1, "/", 0, 0))}[procedure]; string(list) != want {
			t.Errorf("procedure %d of MOUNT: %q, want %q", procedure, list, want)
		}
	}
	if status, _, _ := c.call3(nfs4test.NFS, nfs3.ProcGetAttr, fields(root)); status != 0 {
		t.Errorf("GETATTR of the root: status %d", status)
	}
}

// TestOtherPrograms checks that no other program of the backend can be called.
func TestOtherPrograms(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	c := g.intrude(t, "tcp", 0)
	c.mount(t)
	before := h.relay.count()
	for _, p := range []struct{ program, version, procedure uint32 }{
		{100000, 2, 3}, {100021, 4, 1}, {100024, 1, 1}, {100011, 1, 1}, // rpcbind, NLM, NSM, rquota
		{nfs4test.NFS, 2, 1}, {nfs4test.NFS, 5, 1}, {nfs4test.NFS, 3, 22}, {nfs4test.NFS, 4, 2}, {nfs4test.Mount, 1, 1}, {nfs4test.Mount, 3, 6},
		{nfs4test.NFSACL, 2, 1}, {nfs4test.NFSACL, 3, 3},
	} {
		var refused *oncrpc.StatusError
		if _, err := c.Call(c.ctx, p.program, p.version, p.procedure, nil); !errors.As(err, &refused) || refused.Status.Denied {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if calls := h.relay.since(before); len(calls) > 0 {
		t.Errorf("the backend got %v", calls)
	}
}
