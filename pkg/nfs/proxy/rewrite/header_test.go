package rewrite

import (
	"errors"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

func denied(s oncrpc.AuthStat) oncrpc.Status {
	return oncrpc.Status{Denied: true, Reject: oncrpc.AuthError, Auth: s}
}

func accepted(s oncrpc.AcceptStat) oncrpc.Status { return oncrpc.Status{Accept: s} }

// TestPrograms: what is answered by a header alone.
func TestPrograms(t *testing.T) {
	mismatch := func(low, high uint32) oncrpc.Status {
		return oncrpc.Status{Accept: oncrpc.ProgMismatch, Low: low, High: high}
	}
	tests := []struct {
		name                        string
		v3                          bool
		minor                       [3]bool
		program, version, procedure uint32
		args                        []byte
		want                        oncrpc.Status
	}{
		{"no such program", true, [3]bool{}, 100000, 2, 0, nil, accepted(oncrpc.ProgUnavail)},
		{"nothing offered", false, [3]bool{}, nfs3.Program, 3, 0, nil, accepted(oncrpc.ProgUnavail)},
		{"version 2", true, [3]bool{}, nfs3.Program, 2, 0, nil, mismatch(3, 3)},
		{"version 4 where 3 is", true, [3]bool{}, nfs3.Program, 4, 0, nil, mismatch(3, 3)},
		{"version 3 where 4 is", false, [3]bool{2: true}, nfs3.Program, 3, 1, nil, mismatch(4, 4)},
		{"version 5 where both are", true, [3]bool{1: true}, nfs3.Program, 5, 0, nil, mismatch(3, 4)},
		{"MOUNT without version 3", false, [3]bool{2: true}, nfs3.MountProgram, 3, 0, nil, accepted(oncrpc.ProgUnavail)},
		{"MOUNT version 1", true, [3]bool{}, nfs3.MountProgram, 1, 0, nil, mismatch(3, 3)},
		{"NFSACL without version 3", false, [3]bool{2: true}, nfs3.ACLProgram, 3, 0, nil, accepted(oncrpc.ProgUnavail)},
		{"NFSACL version 2", true, [3]bool{}, nfs3.ACLProgram, 2, 0, nil, mismatch(3, 3)},
		{"NULL of version 3", true, [3]bool{}, nfs3.Program, 3, 0, nil, accepted(oncrpc.Success)},
		{"NULL of version 4", false, [3]bool{true}, nfs3.Program, 4, 0, nil, accepted(oncrpc.Success)},
		{"NULL of MOUNT", true, [3]bool{}, nfs3.MountProgram, 3, 0, nil, accepted(oncrpc.Success)},
		{"NULL of NFSACL", true, [3]bool{}, nfs3.ACLProgram, 3, 0, nil, accepted(oncrpc.Success)},
		{"procedure 22", true, [3]bool{}, nfs3.Program, 3, 22, nil, accepted(oncrpc.ProcUnavail)},
		{"procedure 2 of version 4", true, [3]bool{true}, nfs3.Program, 4, 2, nil, accepted(oncrpc.ProcUnavail)},
		{"procedure 6 of MOUNT", true, [3]bool{}, nfs3.MountProgram, 3, 6, nil, accepted(oncrpc.ProcUnavail)},
		{"procedure 3 of NFSACL", true, [3]bool{}, nfs3.ACLProgram, 3, 3, nil, accepted(oncrpc.ProcUnavail)},
		{"no arguments", true, [3]bool{}, nfs3.Program, 3, nfs3.ProcGetAttr, nil, accepted(oncrpc.GarbageArgs)},
		{"handle of 65 bytes", true, [3]bool{}, nfs3.Program, 3, nfs3.ProcGetAttr, append([]byte{0, 0, 0, 65}, make([]byte, 68)...), accepted(oncrpc.GarbageArgs)},
		{"no path", true, [3]bool{}, nfs3.MountProgram, 3, nfs3.MountProcMnt, []byte{0, 0, 0, 4}, accepted(oncrpc.GarbageArgs)},
		{"path of 1025 bytes", true, [3]bool{}, nfs3.MountProgram, 3, nfs3.MountProcUmnt, append([]byte{0, 0, 4, 1}, make([]byte, 1028)...), accepted(oncrpc.GarbageArgs)},
		{"no handle of NFSACL", true, [3]bool{}, nfs3.ACLProgram, 3, nfs3.ACLProcGetACL, nil, accepted(oncrpc.GarbageArgs)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, sign.Required)
			defer r.end()
			r.x.V3, r.x.Minor = tt.v3, tt.minor
			r.receive(tt.program, tt.version, tt.procedure, tt.args, nil)
			if v := r.args(); v != Answered {
				t.Fatalf("verdict is %d", v)
			}
			if s := r.status(); s != tt.want {
				t.Errorf("answered %+v, want %+v", s, tt.want)
			}
		})
	}
}

// TestItemMisplaced: an item where no eligible argument is.
func TestItemMisplaced(t *testing.T) {
	r := newRig(t, sign.Off)
	defer r.end()
	r.receive(nfs3.Program, 3, nfs3.ProcGetAttr, bytesOf(&nfs3.GetAttrArgs{Object: handle3}),
		[]xdr.Item{{Position: 4 + len(handle3), Length: 8, Data: [][]byte{make([]byte, 8)}}})
	if v := r.args(); v != Answered || r.status() != accepted(oncrpc.GarbageArgs) {
		t.Errorf("verdict %d, %v", v, r.in.Status)
	}
}

func TestSquash(t *testing.T) {
	type ids struct {
		uid, gid uint32
		gids     []uint32
	}
	tests := []struct {
		name      string
		squash    access.Squash
		was, want ids
	}{
		{"none", access.SquashNone, ids{0, 0, []uint32{0, 5}}, ids{0, 0, []uint32{0, 5}}},
		{"root", access.SquashRoot, ids{0, 0, []uint32{0, 5, 0}}, ids{65534, 65533, []uint32{65533, 5, 65533}}},
		{"root's uid alone", access.SquashRoot, ids{0, 7, nil}, ids{65534, 7, nil}},
		{"group 0", access.SquashRoot, ids{1000, 0, []uint32{4}}, ids{1000, 65533, []uint32{4}}},
		{"groups of others", access.SquashRoot, ids{1000, 100, []uint32{0}}, ids{1000, 100, []uint32{65533}}},
		{"not root", access.SquashRoot, ids{1000, 100, []uint32{4, 27}}, ids{1000, 100, []uint32{4, 27}}},
		{"all", access.SquashAll, ids{1000, 100, []uint32{4, 27}}, ids{65534, 65533, nil}},
		{"all, nobody already", access.SquashAll, ids{65534, 65533, nil}, ids{65534, 65533, nil}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, sign.Off)
			defer r.end()
			r.who.Squash = tt.squash
			r.cred = sysCred(t, tt.was.uid, tt.was.gid, tt.was.gids...)
			args := &nfs3.WriteArgs{File: handle3, Count: 5, Data: [][]byte{[]byte("bytes")}}
			if v := r.send(nfs3.Program, nfs3.ProcWrite, args); v != Forward {
				t.Fatalf("verdict is %d", v)
			}
			var out oncrpc.Call
			out.Stream, out.Items = r.out.Stream, r.out.Items
			if err := oncrpc.DecodeCall(&out); err != nil {
				t.Fatal(err)
			}
			var p oncrpc.AuthSysParms
			if err := p.Decode(out.Cred); err != nil {
				t.Fatal(err)
			}
			if p.Stamp != 7 || string(p.Machine) != "client" || p.UID != tt.want.uid || p.GID != tt.want.gid || !slices.Equal(p.GIDs, tt.want.gids) {
				t.Errorf("forwarded as %+v, want %+v", p, tt.want)
			}
			if out.XID != xid3 || out.ArgsAt != r.c.ArgsAt {
				t.Errorf("XID is %#x, parameters begin at %d, said to be %d", out.XID, out.ArgsAt, r.c.ArgsAt)
			}
			decode(t, r.forwarded(), &nfs3.WriteArgs{})
			if len(r.c.Eligible) != 1 || len(r.out.Items) != 1 || r.c.Eligible[0] != (oncrpc.Argument{Position: r.out.Items[0].Position, Length: 5}) {
				t.Errorf("items %+v, eligible %+v", r.out.Items, r.c.Eligible)
			}
		})
	}
}

func gssCred(version, procedure, service uint32) oncrpc.Auth {
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 64), nil)
	for _, v := range []uint32{version, procedure, 1, service} {
		e.Uint32(v)
	}
	e.Opaque([]byte("context"))
	return oncrpc.Auth{Flavor: oncrpc.RPCSecGSS, Body: e.Bytes()}
}

func TestFlavors(t *testing.T) {
	lookup := bytesOf(&nfs3.LookupArgs{Dir: handle3, Name: []byte("..")})
	tests := []struct {
		name      string
		cred      oncrpc.Auth
		gss       bool
		program   uint32
		procedure uint32
		verdict   Verdict
		want      oncrpc.Status
	}{
		{"none", oncrpc.Auth{}, false, nfs3.Program, 0, Answered, accepted(oncrpc.Success)},
		{"sys", sysCred(t, 1, 2), false, nfs3.Program, 0, Answered, accepted(oncrpc.Success)},
		{"sys, too short", oncrpc.Auth{Flavor: oncrpc.AuthSys, Body: make([]byte, 8)}, false, nfs3.Program, 0, Answered, denied(oncrpc.AuthBadCred)},
		{"sys, too long", oncrpc.Auth{Flavor: oncrpc.AuthSys, Body: make([]byte, 24)}, false, nfs3.Program, 0, Answered, denied(oncrpc.AuthBadCred)},
		{"short", oncrpc.Auth{Flavor: 2}, true, nfs3.Program, 0, Answered, denied(oncrpc.AuthRejectedCred)},
		{"tls", oncrpc.Auth{Flavor: 7}, true, nfs3.Program, 0, Answered, denied(oncrpc.AuthRejectedCred)},
		{"gss, not admitted", gssCred(1, 0, 1), false, nfs3.Program, 0, Answered, denied(oncrpc.AuthTooWeak)},
		{"gss, cut off", oncrpc.Auth{Flavor: oncrpc.RPCSecGSS, Body: make([]byte, 12)}, true, nfs3.Program, 3, Answered, denied(oncrpc.AuthBadCred)},
		{"gss, version 2", gssCred(2, 0, 1), true, nfs3.Program, 3, Answered, denied(oncrpc.AuthBadCred)},
		{"gss, procedure 4", gssCred(1, 4, 1), true, nfs3.Program, 3, Answered, denied(oncrpc.AuthBadCred)},
		{"gss, service 4", gssCred(1, 0, 4), true, nfs3.Program, 3, Answered, denied(oncrpc.AuthBadCred)},
		{"gss context", gssCred(1, 1, 1), true, nfs3.Program, 0, Forward, oncrpc.Status{}},
		{"krb5i", gssCred(1, 0, 2), true, nfs3.Program, 3, Forward, oncrpc.Status{}},
		{"krb5p", gssCred(1, 0, 3), true, nfs3.ACLProgram, 1, Forward, oncrpc.Status{}},
		{"krb5, refused here", gssCred(1, 0, 1), true, nfs3.Program, 3, Answered, denied(oncrpc.AuthTooWeak)},
		{"gss MOUNT", gssCred(1, 0, 1), true, nfs3.MountProgram, 0, Answered, denied(oncrpc.AuthRejectedCred)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, sign.Off)
			defer r.end()
			r.x.GSS, r.cred = tt.gss, tt.cred
			r.receive(tt.program, 3, tt.procedure, lookup, nil)
			if v := r.args(); v != tt.verdict {
				t.Fatalf("verdict is %d, want %d", v, tt.verdict)
			}
			if tt.verdict == Answered {
				if s := r.status(); s != tt.want {
					t.Errorf("answered %+v, want %+v", s, tt.want)
				}
				return
			}
			if got, want := whole(&r.out), whole(&r.in.Message); string(got) != string(want) {
				t.Errorf("forwarded\n%x\nwas\n%x", got, want)
			}
			results := []byte("not to be understood")
			if err := r.backend(results, nil); err != nil || string(r.results()) != string(results) {
				t.Errorf("results are %x, error %v", r.results(), err)
			}
		})
	}
}

// TestClearGSS: without integrity and privacy, messages are reduced as any other.
func TestClearGSS(t *testing.T) {
	r := newRig(t, sign.Off)
	defer r.end()
	r.x.GSS, r.cred = true, gssCred(1, 0, 1)
	if v := r.send(nfs3.Program, nfs3.ProcRead, &nfs3.ReadArgs{File: handle3, Count: 100}); v != Forward {
		t.Fatalf("verdict is %d", v)
	}
	res := &nfs3.ReadRes{Count: 3, Data: [][]byte{[]byte("abc")}}
	if err := r.backend(bytesOf(res), nil); err != nil || len(r.in.Reply.Items) != 1 {
		t.Errorf("%d items, error %v", len(r.in.Reply.Items), err)
	}
}

// TestNoResults: a backend's reply that says why there are none passes.
func TestNoResults(t *testing.T) {
	for _, s := range []oncrpc.Status{accepted(oncrpc.ProgUnavail), denied(oncrpc.AuthTooWeak), {Accept: oncrpc.ProgMismatch, Low: 2, High: 4}} {
		r := newRig(t, sign.Required)
		r.send(nfs3.Program, nfs3.ProcRead, &nfs3.ReadArgs{File: r.sign(handle3), Count: 10})
		var e xdr.Encoder
		e.Reset(make([]byte, 0, 64), nil)
		h := oncrpc.ReplyHeader{XID: xid3, Status: s}
		h.Encode(&e)
		r.back.Stream = append(r.back.Stream, e.Bytes())
		if err := r.c.Results(&r.x, &r.in, &r.back); err != nil || r.status() != s {
			t.Errorf("%v became %v, error %v", s, r.in.Status, err)
		}
		r.end()
	}
}

// TestUnreadableReply: of a reply that is none, the client learns that the server has a fault.
func TestUnreadableReply(t *testing.T) {
	args := &nfs3.LookupArgs{Name: []byte("name")}
	for name, reply := range map[string][]byte{
		"empty":          nil,
		"a call":         {0x5a, 0x5a, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0},
		"another's":      {0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"header cut off": {0x5a, 0x5a, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0},
	} {
		r := newRig(t, sign.Required)
		args.Dir = r.sign(handle3)
		r.send(nfs3.Program, nfs3.ProcLookup, args)
		r.back.Stream = append(r.back.Stream, reply)
		if err := r.c.Results(&r.x, &r.in, &r.back); err == nil || r.status() != accepted(oncrpc.SystemErr) {
			t.Errorf("%s: status %v, error %v", name, r.in.Status, err)
		}
		r.end()
	}
	r := newRig(t, sign.Required)
	defer r.end()
	args.Dir = r.sign(handle3)
	r.send(nfs3.Program, nfs3.ProcLookup, args)
	if err := r.backend(make([]byte, 4), nil); err == nil {
		t.Error("results that end too early are no error")
	}
	if res := decode(t, r.results(), &nfs3.LookupRes{}); res.Status != nfs3.ErrServerFault {
		t.Errorf("status is %v", res.Status)
	}
}

// TestNoRoot: what needs the root waits for it.
func TestNoRoot(t *testing.T) {
	r := newRig(t, sign.Required)
	defer r.end()
	try := func(program, procedure uint32, args nfs3test.Message) error {
		stream, _ := nfs3test.Encode(args)
		r.receive(program, 3, procedure, stream, nil)
		r.out.Release()
		_, err := r.c.Args(&r.x, &r.who, &r.in, &r.out, &r.plan)
		return err
	}
	for _, roots := range []*Roots{nil, {V4: []byte("root of version 4")}} {
		r.x.Roots.Store(roots)
		dir := r.sign(handle3)
		for _, err := range []error{
			try(nfs3.MountProgram, nfs3.MountProcMnt, &nfs3.MountArgs{Path: []byte("/")}),
			try(nfs3.MountProgram, nfs3.MountProcMnt, &nfs3.MountArgs{Path: []byte("/a")}),
			try(nfs3.Program, nfs3.ProcReaddir, &nfs3.ReaddirArgs{Dir: dir}),
			try(nfs3.Program, nfs3.ProcReaddirPlus, &nfs3.ReaddirPlusArgs{Dir: dir}),
		} {
			if !errors.Is(err, ErrNoRoot) || len(r.in.Reply.Stream) > 0 {
				t.Errorf("error is %v", err)
			}
		}
		if err := try(nfs3.Program, nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: dir}); err != nil {
			t.Errorf("GETATTR: %v", err)
		}
	}
	r.x.Roots.Store(&Roots{V4: []byte("root of version 4"), NoMount: true})
	for _, path := range []string{"/", "/a"} {
		if err := try(nfs3.MountProgram, nfs3.MountProcMnt, &nfs3.MountArgs{Path: []byte(path)}); err != nil {
			t.Fatal(err)
		}
		if res := r.mounted(); res.Status != nfs3.ErrServerFault || len(r.c.Path) > 0 {
			t.Errorf("MNT %s without MOUNT: %v, path %q", path, res.Status, r.c.Path)
		}
	}
}
