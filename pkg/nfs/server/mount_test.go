package server

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

type prefix = netip.Prefix

func (r *env) mount(proc uint32, args encoder, res decoder) {
	r.t.Helper()
	r.prepare(r.xid.Add(1), nfs3.MountProgram, nfs3.MountVersion, proc, args, 0).send().wait().results(res)
}

func (r *env) mnt(path string) nfs3.MountRes {
	r.t.Helper()
	var res nfs3.MountRes
	r.mount(nfs3.MountProcMnt, &nfs3.MountArgs{Path: []byte(path)}, &res)
	return res
}

// nothing is a void result.
type nothing struct{}

func (nothing) Decode(*xdr.Decoder) {}

func TestMount(t *testing.T) {
	r := newEnv(t, func(c *Config) { c.Name = "data" })
	r.must(os.MkdirAll(r.path("sub/deep"), 0o700))
	r.put("file", "")
	r.must(os.Symlink("/etc", r.path("link")))
	for path, want := range map[string]nfs3.Handle{
		"/": r.root, "": r.root, "/data": r.root, "data": r.root, "/data/": r.root, "//data//": r.root, "/..": r.root, "/data/../..": r.root,
		"/sub": r.handle("sub"), "/data/sub/deep/..": r.handle("sub"), "/sub/deep": r.handleIn(r.handle("sub"), "deep"),
	} {
		res := r.mnt(path)
		if res.Status != nfs3.OK || !bytes.Equal(res.Handle, want) || len(res.Flavors) != 1 || res.Flavors[0] != oncrpc.AuthSys {
			t.Errorf("MNT %s: %+v", path, res)
		}
	}
	for path, want := range map[string]nfs3.Status{
		"/nothing": nfs3.ErrNoEnt, "/file": nfs3.ErrNotDir, "/link": nfs3.ErrNotDir, "/link/passwd": nfs3.ErrNotDir, "/etc": nfs3.ErrNoEnt, "/a\x00b": nfs3.ErrInval,
		"/" + strings.Repeat("n", 256): nfs3.ErrNameTooLong, r.dir: nfs3.ErrNoEnt, "/data/data": nfs3.ErrNoEnt,
	} {
		wantStatus(t, "MNT "+path, r.mnt(path).Status, want)
	}

	var dump nfs3.DumpRes
	r.mount(nfs3.MountProcDump, nil, &dump)
	if n := len(dump.Mounts); n != 11 || string(dump.Mounts[0].Host) != "127.0.0.1" {
		t.Errorf("DUMP: %d entries, %q", n, dump.Mounts)
	}
	other := r.with(r.cred, "[::ffff:127.0.0.2]:5")
	other.mnt("/")
	r.mount(nfs3.MountProcUmnt, &nfs3.MountArgs{Path: []byte("/sub")}, nothing{})
	r.mount(nfs3.MountProcDump, nil, &dump)
	if n := len(dump.Mounts); n != 11 {
		t.Errorf("after one more and UMNT: %d entries", n)
	}
	r.mount(nfs3.MountProcUmntAll, nil, nothing{})
	r.mount(nfs3.MountProcDump, nil, &dump)
	if len(dump.Mounts) != 1 || string(dump.Mounts[0].Host) != "127.0.0.2" || string(dump.Mounts[0].Dir) != "/" {
		t.Errorf("after UMNTALL: %q", dump.Mounts)
	}
	for i := range maxMounts + 10 {
		r.mnt(strings.Repeat("/", i%900+1) + fmt.Sprint("..", strings.Repeat("/", i/900)))
	}
	if n := r.s.Stats().Mounts; n != maxMounts {
		t.Errorf("%d mounts are remembered", n)
	}
	r.mount(nfs3.MountProcDump, nil, &dump)

	var exports nfs3.ExportRes
	r.mount(nfs3.MountProcExport, nil, &exports)
	if len(exports.Exports) != 1 || string(exports.Exports[0].Dir) != "/" || len(exports.Exports[0].Groups) != 2 || string(exports.Exports[0].Groups[0]) != "0.0.0.0/0" {
		t.Errorf("EXPORT: %q", exports.Exports)
	}
	r.mount(nfs3.MountProcNull, nil, nothing{})
}

// TestExportLengths: the reply has room for every network, however long its name is.
func TestExportLengths(t *testing.T) {
	r := newEnv(t, nil)
	for _, tt := range []struct {
		client   string
		networks []string
	}{
		{"127.0.0.1:700", []string{"0.0.0.0/0"}},
		{"127.0.0.1:700", []string{"127.0.0.0/8"}},
		{"127.0.0.1:700", []string{"127.0.0.0/24"}},
		{"10.0.0.1:700", []string{"10.0.0.0/8"}},
		{"[::1]:700", []string{"::1/128", "fd00::/8", "127.0.0.1/32"}},
	} {
		var rule Rule
		for _, n := range tt.networks {
			rule.Networks = append(rule.Networks, netip.MustParsePrefix(n))
		}
		r.must(r.s.SetAccess([]Rule{rule}))
		var exports nfs3.ExportRes
		r.with(r.cred, tt.client).mount(nfs3.MountProcExport, nil, &exports)
		if len(exports.Exports) != 1 || len(exports.Exports[0].Groups) != len(tt.networks) {
			t.Errorf("EXPORT with %v: %q", tt.networks, exports.Exports)
		}
	}
}

func TestPrograms(t *testing.T) {
	r := newEnv(t, nil)
	for _, c := range []struct {
		program, version, proc uint32
		want                   oncrpc.Status
	}{
		{nfs3.Program, 3, nfs3.ProcNull, oncrpc.Status{}},
		{nfs3.Program, 3, 22, oncrpc.Status{Accept: oncrpc.ProcUnavail}},
		{nfs3.Program, 3, 1<<32 - 1, oncrpc.Status{Accept: oncrpc.ProcUnavail}},
		{nfs3.Program, 4, 0, oncrpc.Status{Accept: oncrpc.ProgMismatch, Low: 3, High: 3}},
		{nfs3.Program, 2, 0, oncrpc.Status{Accept: oncrpc.ProgMismatch, Low: 3, High: 3}},
		{nfs3.MountProgram, 3, 6, oncrpc.Status{Accept: oncrpc.ProcUnavail}},
		{nfs3.MountProgram, 1, 0, oncrpc.Status{Accept: oncrpc.ProgMismatch, Low: 3, High: 3}},
		{nfs3.ACLProgram, 3, 0, oncrpc.Status{}},
		{nfs3.ACLProgram, 3, 3, oncrpc.Status{Accept: oncrpc.ProcUnavail}},
		{nfs3.ACLProgram, 2, 0, oncrpc.Status{Accept: oncrpc.ProgMismatch, Low: 3, High: 3}},
		{nfs3.Program, 3, nfs3.ProcGetAttr, oncrpc.Status{Accept: oncrpc.GarbageArgs}},
		{nfs3.MountProgram, 3, nfs3.MountProcMnt, oncrpc.Status{Accept: oncrpc.GarbageArgs}},
	} {
		if w := r.prepare(1, c.program, c.version, c.proc, nil, 0).send().wait(); w.status != c.want || w.dropped {
			t.Errorf("%d version %d procedure %d: %v, want %v", c.program, c.version, c.proc, w.status, c.want)
		}
	}
	const authTLS = 7 // RFC 9289
	for flavor, want := range map[uint32]oncrpc.AuthStat{
		oncrpc.RPCSecGSS: oncrpc.AuthRejectedCred, oncrpc.AuthSys: oncrpc.AuthBadCred, authTLS: oncrpc.AuthRejectedCred, 390003: oncrpc.AuthRejectedCred,
	} {
		u := r.with(oncrpc.Auth{Flavor: flavor, Body: []byte{1, 2, 3, 4}}, "127.0.0.1:1")
		if w := u.prepare(1, nfs3.Program, 3, nfs3.ProcGetAttr, &nfs3.HandleArgs{Object: r.root}, 0).send().wait(); !w.status.Denied || w.status.Auth != want {
			t.Errorf("flavor %d: %v, want %v", flavor, w.status, want)
		}
		if w := u.prepare(1, nfs3.Program, 3, nfs3.ProcNull, nil, 0).send().wait(); !w.status.OK() {
			t.Errorf("flavor %d: NULL was answered %v", flavor, w.status)
		}
	}
}

func networks(s ...string) (out []netip.Prefix) {
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestAccessRules(t *testing.T) {
	needRoot(t)
	rules := []Rule{
		{Networks: networks("10.1.0.0/16", "fd00::/8"), Squash: SquashNone},
		{Networks: networks("10.0.0.0/8"), ReadOnly: true, Squash: SquashRoot},
		{Networks: networks("::ffff:192.0.2.0/120"), Squash: SquashAll},
	}
	r := newEnv(t, func(c *Config) { c.Access = rules; c.AnonUID, c.AnonGID = 3000, 3001 })
	r.must(unix.Chmod(r.dir, 0o777))
	r.put("file", "content")
	from := func(addr string, uid, gid uint32, groups ...uint32) *env {
		return r.with(sysCred(t, uid, gid, groups...), addr)
	}
	writer := from("10.1.2.3:1", 0, 0)
	h := writer.handle("file")

	for addr, want := range map[string]bool{
		"10.1.0.1:1": true, "10.2.0.1:1": true, "11.0.0.1:1": false, "192.0.2.7:5": true, "[::ffff:192.0.2.7]:5": true, "192.0.3.7:5": false,
		"[fd12::1]:1": true, "[fe80::1%eth0]:1": false, "127.0.0.1:1": false, "[fd12::1%eth0]:1": true,
	} {
		u := from(addr, 0, 0)
		wantStatus(t, "MNT from "+addr, u.mnt("/").Status, map[bool]nfs3.Status{true: nfs3.OK, false: nfs3.ErrAcces}[want])
		w := u.prepare(u.xid.Add(1), nfs3.Program, 3, nfs3.ProcGetAttr, &nfs3.HandleArgs{Object: h}, 0).send().wait()
		if w.status.OK() != want || !want && w.status.Auth != oncrpc.AuthTooWeak {
			t.Errorf("GETATTR from %s: %v", addr, w.status)
		}
	}

	// Read-only.
	ro := from("10.2.0.1:1", 1001, 1001)
	if _, got := ro.read(h, 0, 100); got != "content" {
		t.Errorf("read-only READ: %q", got)
	}
	if res := ro.access(r.root, allAccess); res.Access != nfs3.AccessRead|nfs3.AccessLookup {
		t.Errorf("read-only ACCESS: %#x", res.Access)
	}
	where := nfs3.DirOpArgs{Dir: r.root, Name: []byte("new")}
	for proc, args := range map[uint32]encoder{
		nfs3.ProcSetAttr: &nfs3.SetAttrArgs{Object: h}, nfs3.ProcWrite: writeArgs(h, 0, "x", nfs3.Unstable), nfs3.ProcCreate: &nfs3.CreateArgs{Where: where},
		nfs3.ProcMkdir: &nfs3.MkdirArgs{Where: where}, nfs3.ProcSymlink: &nfs3.SymlinkArgs{Where: where, Path: [][]byte{[]byte("x")}, Length: 1},
		nfs3.ProcMknod: &nfs3.MknodArgs{Where: where, Type: nfs3.FIFO}, nfs3.ProcRemove: &nfs3.DirOpArgs{Dir: r.root, Name: []byte("file")},
		nfs3.ProcRmdir: &where, nfs3.ProcRename: &nfs3.RenameArgs{From: nfs3.DirOpArgs{Dir: r.root, Name: []byte("file")}, To: where},
		nfs3.ProcLink: &nfs3.LinkArgs{File: h, Link: where}, nfs3.ProcCommit: &nfs3.CommitArgs{File: h},
	} {
		var status statusOnly
		ro.do(proc, args, &status)
		wantStatus(t, "read-only "+nfs3.ProcedureName(proc), nfs3.Status(status), nfs3.ErrROFS)
	}
	if r.content("file") != "content" {
		t.Error("a read-only client changed a file")
	}

	// Squash.
	owner := func(u *env, name string) [2]uint32 {
		res := u.create(r.root, name, nfs3.Guarded, nfs3.SetAttrs{})
		wantStatus(t, name, res.Status, nfs3.OK)
		return [2]uint32{res.Attr.Attr.UID, res.Attr.Attr.GID}
	}
	if got := owner(writer, "none-root"); got != [2]uint32{0, 0} {
		t.Errorf("None, root: %v", got)
	}
	if got := owner(from("10.1.2.3:1", 1001, 1002), "none"); got != [2]uint32{1001, 1002} {
		t.Errorf("None: %v", got)
	}
	if got := owner(from("192.0.2.1:1", 1001, 1002), "all"); got != [2]uint32{3000, 3001} {
		t.Errorf("All: %v", got)
	}
	if got := owner(r.with(oncrpc.Auth{}, "10.1.2.3:1"), "auth-none"); got != [2]uint32{3000, 3001} {
		t.Errorf("AUTH_NONE: %v", got)
	}
	rules[1].ReadOnly = false
	r.must(r.s.SetAccess(rules))
	if got := owner(from("10.2.0.1:1", 0, 0), "root-root"); got != [2]uint32{3000, 3001} {
		t.Errorf("Root, root: %v", got)
	}
	if got := owner(from("10.2.0.1:1", 1001, 0), "root-gid"); got != [2]uint32{1001, 3001} {
		t.Errorf("Root, gid 0: %v", got)
	}
	if got := owner(from("10.2.0.1:1", 1001, 1002), "root-user"); got != [2]uint32{1001, 1002} {
		t.Errorf("Root, a user: %v", got)
	}
	// Group 0 among the further ones is squashed as well.
	r.must(os.Mkdir(r.path("wheel"), 0o770))
	r.must(unix.Chmod(r.path("wheel"), 0o770))
	wheel := writer.handle("wheel")
	wantStatus(t, "Root, group 0", from("10.2.0.1:1", 1001, 1002, 0).lookup(wheel, "x").Status, nfs3.ErrAcces)
	wantStatus(t, "None, group 0", from("10.1.0.1:1", 1001, 1002, 0).lookup(wheel, "x").Status, nfs3.ErrNoEnt)
	// Rules change for calls that come from then on.
	r.must(r.s.SetAccess(nil))
	wantStatus(t, "MNT without rules", writer.mnt("/").Status, nfs3.ErrAcces)
}
