package rewrite

import (
	"errors"
	"testing"

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

// TestPrograms covers calls that are answered by a header alone.
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
			r := newEnv(t, sign.Required)
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

// TestItemMisplaced covers an item at the place of no eligible argument.
func TestItemMisplaced(t *testing.T) {
	r := newEnv(t, sign.Off)
	defer r.end()
	r.receive(nfs3.Program, 3, nfs3.ProcGetAttr, bytesOf(&nfs3.GetAttrArgs{Object: handle3}),
		[]xdr.Item{{Position: 4 + len(handle3), Length: 8, Data: [][]byte{make([]byte, 8)}}})
	if v := r.args(); v != Answered || r.status() != accepted(oncrpc.GarbageArgs) {
		t.Errorf("verdict %d, %v", v, r.in.Status)
	}
}

// TestNoResults checks that the backend's error replies pass.
func TestNoResults(t *testing.T) {
	for _, s := range []oncrpc.Status{accepted(oncrpc.ProgUnavail), denied(oncrpc.AuthTooWeak), {Accept: oncrpc.ProgMismatch, Low: 2, High: 4}} {
		r := newEnv(t, sign.Required)
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

// TestUnreadableReply checks that an unreadable reply becomes a server fault.
func TestUnreadableReply(t *testing.T) {
	args := &nfs3.LookupArgs{Name: []byte("name")}
	for name, reply := range map[string][]byte{
		"empty":          nil,
		"a call":         {0x5a, 0x5a, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0},
		"another's":      {0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"header cut off": {0x5a, 0x5a, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0},
	} {
		r := newEnv(t, sign.Required)
		args.Dir = r.sign(handle3)
		r.send(nfs3.Program, nfs3.ProcLookup, args)
		r.back.Stream = append(r.back.Stream, reply)
		if err := r.c.Results(&r.x, &r.in, &r.back); err == nil || r.status() != accepted(oncrpc.SystemErr) {
			t.Errorf("%s: status %v, error %v", name, r.in.Status, err)
		}
		r.end()
	}
	r := newEnv(t, sign.Required)
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

// TestNoRoot checks that calls which need the root wait for it.
func TestNoRoot(t *testing.T) {
	r := newEnv(t, sign.Required)
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
