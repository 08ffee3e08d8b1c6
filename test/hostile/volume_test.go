//go:build kernel

package hostile

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// newVolume serves the directory "exported" of a tree itself.
func newVolume(t *testing.T) *gate {
	t.Helper()
	h := newTree(t)
	h.secrets()
	g := h.serveVolume("data", h.exported)
	pool := h.pool()
	tcp := h.dialTCP(g.tcp, pool)
	h.direct3 = client.New(client.Config{Requester: tcp, Mount: tcp, Pool: pool, Cred: cred(t, "direct", 0)})
	h.unchanged()
	return g
}

// serveVolume serves a directory, with keys of its own.
func (h *env) serveVolume(name, dir string) *gate {
	h.Helper()
	pool := h.pool()
	s, err := server.New(server.Config{
		Root: dir, Name: name, StateDir: h.TempDir(), NFS4: &server.NFS4Config{}, Logger: slog.New(slog.NewTextHandler(h.Output(), nil)),
		Access: []server.Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Squash: access.SquashNone}},
	})
	check(h, err)
	h.Cleanup(func() { check(h, s.Close()) })
	return h.listen(s, pool)
}

// TestVolumeWaysOut tries every way that leads up, and every bad name, on a volume.
func TestVolumeWaysOut(t *testing.T) {
	g := newVolume(t)
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c := g.intrude(t, network, 0)
			c.begin(2)
			tries := waysOut(c)
			tries = append(tries, attempt{"up thrice", []raw{putFH(c.walk("dir", "deep")), lookupP, lookupP, lookupP, getFH}, errNoEnt, schema.OpLookupP})
			for name, status := range map[string]uint32{
				"..": errBadName, ".": errBadName, "": errInval, "../" + secretName: errBadChar, "/": errBadChar, "dir/..": errBadChar, "..\x00": errBadChar,
			} {
				for _, a := range named(name) {
					if a.status = status; a.name == fmt.Sprintf("OPEN by a former delegation of %q", name) {
						a.status = errNotSupp
					}
					tries = append(tries, a)
				}
			}
			for _, a := range tries {
				t.Run(a.name, func(t *testing.T) { c.try(t, a) })
			}
		})
	}
}

// TestVolumeForgedHandles tries handles that the volume has not issued, in both versions.
func TestVolumeForgedHandles(t *testing.T) {
	g := newVolume(t)
	other := g.h.serveVolume("other", filepath.Join(g.h.dir, "other")).intrude(t, "tcp", 0)
	other.Seen = nil // it is outside
	foreign := bytes.Clone(other.mountAny())
	c := g.intrude(t, "tcp", 0)
	c.begin(1)
	good := c.walk("file")
	forged := map[string][]byte{
		"none": nil, "of another volume": foreign, "longer by a byte": append(bytes.Clone(good), 0), "of zeros": make([]byte, sign.Max3),
		"a mixture": append(bytes.Clone(good[:len(good)/2]), foreign[len(foreign)/2:]...),
	}
	for n := 1; n < len(good); n++ {
		forged[fmt.Sprintf("cut to %d bytes", n)] = good[:n]
	}
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		forged[fmt.Sprintf("bit %d flipped", bit)] = b
	}
	for _, path := range paths {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, filepath.Join(g.h.dir, path), 0)
		check(t, err)
		forged["the kernel's of /"+path] = h.Bytes()
	}
	root := c.mount(t)
	for what, handle := range forged {
		res := c.next(putRoot, saveFH, putFH(handle), op(schema.OpRead, anonymous, uint64(0), 100))
		if res.Status != errBadHandle || len(res.Ops) != 4 {
			t.Errorf("PUTFH of a handle %s: status %d, %d results", what, res.Status, len(res.Ops))
		}
		if len(handle) > sign.Max3 {
			continue
		}
		for procedure, args := range procedures3(handle, root, "name") {
			if status, _, _ := c.call3(nfs4test.NFS, procedure, args); status != uint32(nfs3.ErrBadHandle) {
				t.Errorf("%s with a handle %s: status %d", nfs3.ProcedureName(procedure), what, status)
			}
		}
	}
	c.fine()
}

// mountAny returns the root's handle of an export, wherever that is.
func (c *intruder) mountAny() []byte {
	c.Helper()
	b, err := c.Call(c.ctx, nfs4test.Mount, 3, 1, fields("/"))
	check(c, err)
	return b[8 : 8+b[7]]
}

// TestVolumeVersion3 tries names that lead out of a volume in each procedure of version 3.
func TestVolumeVersion3(t *testing.T) {
	g := newVolume(t)
	for _, network := range networks {
		c := g.intrude(t, network, 0)
		root := c.mount(t)
		_, spans, _ := c.call3(nfs4test.NFS, nfs3.ProcLookup, fields(root, "dir"))
		dir := handleIn(t, spans)
		before := g.h.inside()
		all := slices.Sorted(maps.Keys(procedures3(nil, nil, "")))
		for _, name := range []string{"..", "../" + secretName, "dir/..", "/", "..\x00", ""} {
			for _, handle := range [][]byte{root, dir} {
				for _, procedure := range all {
					switch procedure {
					case nfs3.ProcLookup, nfs3.ProcCreate, nfs3.ProcMkdir, nfs3.ProcSymlink, nfs3.ProcMknod, nfs3.ProcRemove,
						nfs3.ProcRmdir, nfs3.ProcRename, nfs3.ProcLink:
					default:
						continue
					}
					status, spans, _ := c.call3(nfs4test.NFS, procedure, procedures3(handle, root, name)[procedure])
					if status != 0 {
						continue
					}
					if procedure != nfs3.ProcLookup || name != ".." {
						t.Errorf("%s of %q succeeded", nfs3.ProcedureName(procedure), name)
					} else if at := handleIn(t, spans); !bytes.Equal(at, root) {
						t.Errorf("LOOKUP of .. leads to %x", at)
					}
				}
			}
		}
		for _, path := range []string{"..", "/..", "/dir/../..", "/" + secretDir, g.h.dir, "/up", "/top/etc"} {
			// ".." of the root is the root.
			if status, spans, _ := c.call3(nfs4test.Mount, 1, fields(path)); status == 0 && !bytes.Equal(handleIn(t, spans), root) {
				t.Errorf("MNT of %q succeeded", path)
			}
		}
		if after := g.h.inside(); after != before {
			t.Errorf("the export was:\n%sand is:\n%s", before, after)
		}
	}
}
