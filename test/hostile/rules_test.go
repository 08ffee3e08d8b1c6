//go:build kernel

package hostile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
)

// inside describes the exported tree.
func (h *env) inside() string {
	var b strings.Builder
	check(h, filepath.WalkDir(h.exported, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := []byte(nil)
		if info.Mode().IsRegular() {
			if text, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s %v %d:%d %d links, %v, %v: %q\n", path, info.Mode(), st.Uid, st.Gid, st.Nlink, info.ModTime(), st.Ctim, text)
		return nil
	}))
	return b.String()
}

// TestReadOnly tries every change on a read-only export, in each position. The session survives.
func TestReadOnly(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone, readOnly: true})
	was := h.inside()
	mode := nfs4test.Attrs([]uint32{33}, 0o777)
	at := fields(uint64(0), uint64(4))
	writes := []attempt{
		{"SETATTR", []raw{op(schema.OpSetAttr, anonymous, mode)}, errROFS, schema.OpSetAttr},
		{"WRITE", []raw{op(schema.OpWrite, anonymous, uint64(0), 2, "data")}, errROFS, schema.OpWrite},
		{"CREATE", []raw{op(schema.OpCreate, 2, "new", noAttrs)}, errROFS, schema.OpCreate},
		{"REMOVE", []raw{op(schema.OpRemove, "file")}, errROFS, schema.OpRemove},
		{"RENAME", []raw{op(schema.OpRename, "file", "new")}, errROFS, schema.OpRename},
		{"LINK", []raw{op(schema.OpLink, "new")}, errROFS, schema.OpLink},
		{"OPEN for writing", []raw{open("file", 2, noCreate)}, errROFS, schema.OpOpen},
		{"OPEN for both", []raw{open("file", 3, noCreate)}, errROFS, schema.OpOpen},
		{"OPEN that creates", []raw{open("new", 1, create)}, errROFS, schema.OpOpen},
		{"OPEN that truncates", []raw{open("file", 1, fields(1, 0, nfs4test.Attrs([]uint32{4}, uint64(0))))}, errROFS, schema.OpOpen},
		{"OPEN exclusively", []raw{open("new", 1, fields(1, 2, uint64(7)))}, errROFS, schema.OpOpen},
		{"OPEN for writing, by handle", []raw{op(schema.OpOpen, 0, 2, 0, uint64(0), "owner", noCreate, 4)}, errROFS, schema.OpOpen},
		{"OPENATTR that creates", []raw{op(schema.OpOpenAttr, true)}, errROFS, schema.OpOpenAttr},
		{"ALLOCATE", []raw{op(schema.OpAllocate, anonymous, at)}, errROFS, schema.OpAllocate},
		{"DEALLOCATE", []raw{op(schema.OpDeallocate, anonymous, at)}, errROFS, schema.OpDeallocate},
		{"COPY", []raw{op(schema.OpCopy, anonymous, anonymous, at, uint64(4), true, true, 0)}, errROFS, schema.OpCopy},
		{"CLONE", []raw{op(schema.OpClone, anonymous, anonymous, at, uint64(4))}, errROFS, schema.OpClone},
		{"WRITE_SAME", []raw{op(schema.OpWriteSame, anonymous, 2, uint64(0), uint64(1), uint64(1), uint64(0), 0, uint64(0), "x")}, errROFS, schema.OpWriteSame},
		{"SETXATTR", []raw{op(schema.OpSetXattr, 0, "user.x", "value")}, errROFS, schema.OpSetXattr},
		{"REMOVEXATTR", []raw{op(schema.OpRemoveXattr, "user.x")}, errROFS, schema.OpRemoveXattr},
	}
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c := g.intrude(t, network, 0)
			c.begin(2)
			before := []raw{putRoot, saveFH, lookup("file"), getFH}
			for _, a := range writes {
				t.Run(a.name, func(t *testing.T) {
					on := *c
					on.T = t
					for n := 1; n <= len(before); n++ {
						res := on.next(slices.Concat(before[:n], a.ops, []raw{getFH})...)
						on.want(res, a.status, a.code)
						if len(res.Ops) != 1+n+1 {
							t.Errorf("behind %d operations: %d results", n, len(res.Ops))
						}
					}
					on.fine()
				})
			}
			res := c.next(putRoot, lookup("file"), op(schema.OpAccess, 0x3f))
			if a := res.Find(3, schema.Access); a == nil || a.Value&(4|8|16) != 0 {
				t.Errorf("ACCESS tells %+v", a)
			}
			c.want(c.next(putRoot, open("file", 1, noCreate), op(schema.OpRead, anonymous, uint64(0), 100)), 0, schema.OpRead)

			root := c.mount(t)
			for _, procedure := range []uint32{
				nfs3.ProcSetAttr, nfs3.ProcWrite, nfs3.ProcCreate, nfs3.ProcMkdir, nfs3.ProcSymlink, nfs3.ProcMknod,
				nfs3.ProcRemove, nfs3.ProcRmdir, nfs3.ProcRename, nfs3.ProcLink,
			} {
				if status, _, _ := c.call3(nfs4test.NFS, procedure, procedures3(root, root, "file")[procedure]); status != uint32(nfs3.ErrROFS) {
					t.Errorf("%s: status %d", nfs3.ProcedureName(procedure), status)
				}
			}
			if status, _, _ := c.call3(nfs4test.NFSACL, 2, fields(root, 0, 0, 0, 0, 0)); status != uint32(nfs3.ErrROFS) {
				t.Errorf("SETACL: status %d", status)
			}
			// NFS4ERR_MINOR_VERS_MISMATCH
			if res := c.compound(0, putRoot, getFH); res.Status != 10021 {
				t.Errorf("version 4.0: status %d", res.Status)
			}
		})
	}
	if is := h.inside(); is != was {
		t.Errorf("the export was:\n%sand is:\n%s", was, is)
	}
}

// TestSquash checks that root, or everybody, becomes nobody.
func TestSquash(t *testing.T) {
	h := newEnv(t)
	for squash, want := range map[access.Squash]map[uint32]uint32{
		access.SquashRoot: {0: access.Anonymous, 1234: 1234}, access.SquashAll: {0: access.Anonymous, 1234: access.Anonymous}, access.SquashNone: {0: 0, 1234: 1234},
	} {
		g := h.open(guard{uid: fmt.Sprint("export ", squash, " squashed"), path: "/exported", squash: squash})
		for uid, owner := range want {
			c := g.intrude(t, "tcp", uid)
			c.begin(1)
			name := fmt.Sprint("of ", uid, " by rule ", squash)
			c.want(c.next(putRoot, lookup("open"), op(schema.OpCreate, 2, name+", 4", noAttrs)), 0, schema.OpCreate)
			root := c.mount(t)
			_, spans, _ := c.call3(nfs4test.NFS, nfs3.ProcLookup, fields(root, "open"))
			if status, _, _ := c.call3(nfs4test.NFS, nfs3.ProcMkdir, fields(handleIn(t, spans), name+", 3", 0, 0, 0, 0, 0, 0)); status != 0 {
				t.Errorf("MKDIR: status %d", status)
			}
			for _, version := range []string{", 3", ", 4"} {
				var st syscall.Stat_t
				check(t, syscall.Stat(filepath.Join(h.exported, "open", name+version), &st))
				if st.Uid != owner || st.Gid != owner {
					t.Errorf("squash %d: what %d made is %d's, group %d", squash, uid, st.Uid, st.Gid)
				}
			}
			res := c.next(putRoot, lookup("shut"), op(schema.OpRead, anonymous, uint64(0), 100))
			if opened := res.Status == 0; opened != (owner == 0) {
				t.Errorf("squash %d: READ by %d of a file for root alone: status %d", squash, uid, res.Status)
			}
		}
	}
}

// TestCredentials checks that any credential but AUTH_SYS and AUTH_NONE is refused before the
// backend gets the call, RPCSEC_GSS in all its services included.
func TestCredentials(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashRoot})
	sys := cred(t, machine, 0)
	for _, network := range networks {
		c := g.intrude(t, network, 0)
		before := h.relay.count()
		for what, try := range map[string]struct {
			cred oncrpc.Auth
			want oncrpc.AuthStat
		}{
			"krb5 without integrity":     {gss(0, 1), oncrpc.AuthTooWeak},
			"krb5i":                      {gss(0, 2), oncrpc.AuthTooWeak},
			"krb5p":                      {gss(0, 3), oncrpc.AuthTooWeak},
			"a context of RPCSEC_GSS":    {gss(1, 1), oncrpc.AuthTooWeak},
			"AUTH_SYS cut short":         {oncrpc.Auth{Flavor: oncrpc.AuthSys, Body: sys.Body[:len(sys.Body)-4]}, oncrpc.AuthBadCred},
			"AUTH_SYS and more":          {oncrpc.Auth{Flavor: oncrpc.AuthSys, Body: append(slices.Clone(sys.Body), 0, 0, 0, 0)}, oncrpc.AuthBadCred},
			"AUTH_SYS without body":      {oncrpc.Auth{Flavor: oncrpc.AuthSys}, oncrpc.AuthBadCred},
			"AUTH_DH":                    {oncrpc.Auth{Flavor: 3, Body: make([]byte, 8)}, oncrpc.AuthRejectedCred},
			"AUTH_SHORT, of no verifier": {oncrpc.Auth{Flavor: 2, Body: make([]byte, 8)}, oncrpc.AuthRejectedCred},
		} {
			c.Cred = try.cred
			for _, p := range []struct {
				program, version, procedure uint32
				args                        raw
			}{
				{nfs4test.NFS, 4, 1, fields("", 2, 1, putRoot)}, {nfs4test.NFS, 4, 0, nil}, {nfs4test.NFS, 3, 1, fields("handle")}, {nfs4test.Mount, 3, 1, fields("/")},
			} {
				var refused *oncrpc.StatusError
				_, err := c.Call(c.ctx, p.program, p.version, p.procedure, p.args)
				if !errors.As(err, &refused) || !refused.Status.Denied || refused.Status.Auth != try.want {
					t.Errorf("%s, program %d version %d procedure %d: %v", what, p.program, p.version, p.procedure, err)
				}
			}
		}
		if calls := h.relay.since(before); len(calls) > 0 {
			t.Errorf("the backend got %v", calls)
		}
	}
}

// gss is a credential of RPCSEC_GSS (RFC 2203 section 5).
func gss(procedure, service int) oncrpc.Auth {
	return oncrpc.Auth{Flavor: oncrpc.RPCSecGSS, Body: fields(1, procedure, 1, service, "context")}
}
