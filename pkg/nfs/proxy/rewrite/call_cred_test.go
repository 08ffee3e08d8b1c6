package rewrite

import (
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

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
			r := newEnv(t, sign.Off)
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
			r := newEnv(t, sign.Off)
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

// TestClearGSS checks that calls without integrity and privacy are reduced like others.
func TestClearGSS(t *testing.T) {
	r := newEnv(t, sign.Off)
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
