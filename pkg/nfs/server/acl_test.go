package server

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/test/prereq"
)

// A list survives the way to NFSACL and back.
func TestNFSACLMapping(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		list := drawACL(r)
		flag := rapid.SampledFrom([]uint32{0, nfs3.ACLTypeDefault}).Draw(r, "flag")
		entries := aclEntries(list, flag, &vfs.Stat{})
		if len(entries) < 4 {
			r.Fatalf("%v has no mask", entries)
		}
		got, st := posixACL(entries)
		if st != nfs3.OK || !slices.Equal(sorted(got), sorted(list)) {
			r.Fatalf("%v\n%v became\n%v", st, list, got)
		}
	})
}

// doACL makes a call of NFSACL.
func (r *env) doACL(proc uint32, args encoder, res decoder) {
	r.t.Helper()
	r.prepare(r.xid.Add(1), nfs3.ACLProgram, nfs3.ACLVersion, proc, args, 0).send().wait().results(res)
}

func (r *env) getACL(h nfs3.Handle, mask uint32) (res nfs3.GetACLRes) {
	r.t.Helper()
	r.doACL(nfs3.ACLProcGetACL, &nfs3.GetACLArgs{Object: h, Mask: mask}, &res)
	return res
}

func (r *env) setACL(h nfs3.Handle, acl nfs3.ACL) nfs3.Status {
	r.t.Helper()
	var res nfs3.SetACLRes
	r.doACL(nfs3.ACLProcSetACL, &nfs3.SetACLArgs{Object: h, ACL: acl}, &res)
	return res.Status
}

func TestNFSACL(t *testing.T) {
	r := newEnv(t, nil)
	if !r.s.fs.Capabilities().ACLs {
		prereq.Missing(t, "the file system has no access control lists")
	}
	r.put("file", "text")
	r.must(chmodAll(r))
	file := r.handle("file")
	mode := []nfs3.ACLEntry{{Type: nfs3.ACLUserObj, Perm: 6}, {Type: nfs3.ACLGroupObj, Perm: 6}, {Type: nfs3.ACLClass, Perm: 6}, {Type: nfs3.ACLOther, Perm: 6}}
	got := r.getACL(file, nfs3.ACLMask)
	if got.Status != nfs3.OK || !got.Attr.Present || got.ACL.Mask != nfs3.ACLMask || got.ACL.AccessCount != 4 || got.ACL.DefaultCount != 0 || len(got.ACL.Default) != 0 {
		t.Errorf("%+v", got)
	}
	for i := range mode {
		mode[i].Perm = got.ACL.Access[i].Perm // of the mode
	}
	if !slices.Equal(got.ACL.Access, mode) {
		t.Errorf("list of a mode: %v", got.ACL.Access)
	}
	if got := r.getACL(file, nfs3.ACLAccessCount); got.ACL.AccessCount != 4 || len(got.ACL.Access) != 0 {
		t.Errorf("%+v", got)
	}

	list := []nfs3.ACLEntry{
		{Type: nfs3.ACLUserObj, Perm: 7}, {Type: nfs3.ACLUser, ID: 1234, Perm: 5}, {Type: nfs3.ACLGroupObj, Perm: 4},
		{Type: nfs3.ACLGroup, ID: 77, Perm: 1}, {Type: nfs3.ACLClass, Perm: 7}, {Type: nfs3.ACLOther},
	}
	if st := r.setACL(file, nfs3.ACL{Mask: nfs3.ACLAccess, AccessCount: 6, Access: list}); st != nfs3.OK {
		t.Fatal(st)
	}
	if got := r.getACL(file, nfs3.ACLAccess); !slices.Equal(got.ACL.Access, list) || got.Attr.Attr.Mode&0o777 != 0o770 {
		t.Errorf("%+v", got)
	}
	n, st := r.s.fs.Resolve(file)
	r.must(st)
	kernel, err := n.ACL(false)
	n.Release()
	if err != nil || !slices.Contains(kernel, vfs.ACLEntry{Tag: vfs.ACLUser, ID: 1234, Perm: 5}) {
		t.Errorf("the kernel has %v, %v", kernel, err)
	}
	// An empty list removes the file's.
	if st := r.setACL(file, nfs3.ACL{Mask: nfs3.ACLAccess}); st != nfs3.OK {
		t.Error(st)
	}
	if got := r.getACL(file, nfs3.ACLAccess); len(got.ACL.Access) != 4 {
		t.Errorf("%+v", got)
	}
	// Directories have a default list too.
	next := []nfs3.ACLEntry{{Type: nfs3.ACLUserObj | nfs3.ACLTypeDefault, Perm: 7}, {Type: nfs3.ACLGroupObj | nfs3.ACLTypeDefault, Perm: 5}, {Type: nfs3.ACLClass | nfs3.ACLTypeDefault, Perm: 5}, {Type: nfs3.ACLOther | nfs3.ACLTypeDefault}}
	if st := r.setACL(r.root, nfs3.ACL{Mask: nfs3.ACLDefault, DefaultCount: 4, Default: next}); st != nfs3.OK {
		t.Fatal(st)
	}
	if got := r.getACL(r.root, nfs3.ACLDefault|nfs3.ACLDefaultCount); got.ACL.DefaultCount != 4 || len(got.ACL.Default) != 4 || got.ACL.Default[1].Perm != 5 || len(got.ACL.Access) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestNFSACLErrors(t *testing.T) {
	r := newEnv(t, nil)
	if !r.s.fs.Capabilities().ACLs {
		prereq.Missing(t, "the file system has no access control lists")
	}
	r.put("file", "text")
	file := r.handle("file")
	if st := r.getACL(file, 0x10).Status; st != nfs3.ErrInval {
		t.Errorf("an unknown bit of the mask: %v", st)
	}
	if st := r.getACL(nfs3.Handle("nothing"), 1).Status; st != nfs3.ErrBadHandle {
		t.Errorf("a foreign handle: %v", st)
	}
	plain := []nfs3.ACLEntry{{Type: nfs3.ACLUserObj, Perm: 7}, {Type: nfs3.ACLGroupObj, Perm: 5}, {Type: nfs3.ACLOther}}
	for name, x := range map[string]struct {
		acl  nfs3.ACL
		want nfs3.Status
	}{
		"mask":                   {nfs3.ACL{Mask: 0x20}, nfs3.ErrInval},
		"type":                   {nfs3.ACL{Mask: nfs3.ACLAccess, Access: []nfs3.ACLEntry{{Type: 3}}}, nfs3.ErrInval},
		"long type":              {nfs3.ACL{Mask: nfs3.ACLAccess, Access: []nfs3.ACLEntry{{Type: 1 << 16}}}, nfs3.ErrInval},
		"permission":             {nfs3.ACL{Mask: nfs3.ACLAccess, Access: []nfs3.ACLEntry{{Type: nfs3.ACLUserObj, Perm: 8}}}, nfs3.ErrInval},
		"no owner":               {nfs3.ACL{Mask: nfs3.ACLAccess, Access: plain[1:]}, nfs3.ErrInval},
		"default list of a file": {nfs3.ACL{Mask: nfs3.ACLDefault, Default: plain}, nfs3.ErrInval},
		"good":                   {nfs3.ACL{Mask: nfs3.ACLAccess, Access: plain}, nfs3.OK},
	} {
		if st := r.setACL(file, x.acl); st != x.want {
			t.Errorf("%s: %v, must be %v", name, st, x.want)
		}
	}
	if st := r.as(4000, 4000).setACL(file, nfs3.ACL{Mask: nfs3.ACLAccess, Access: plain}); st != nfs3.ErrPerm {
		t.Errorf("SETACL by a stranger: %v", st)
	}
	r.must(r.s.SetAccess([]Rule{{Networks: everyone[0].Networks, Squash: SquashNone, ReadOnly: true}}))
	if st := r.setACL(file, nfs3.ACL{Mask: nfs3.ACLAccess, Access: plain}); st != nfs3.ErrROFS {
		t.Errorf("SETACL on a read-only export: %v", st)
	}
	w := r.prepare(r.xid.Add(1), nfs3.ACLProgram, nfs3.ACLVersion, nfs3.ACLProcSetACL, &nfs3.GetACLArgs{Object: file}, 0).send().wait()
	if w.status.Accept != oncrpc.GarbageArgs {
		t.Errorf("short arguments: %v", w.status)
	}
}
