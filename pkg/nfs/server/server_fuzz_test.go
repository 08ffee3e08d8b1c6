package server

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// raw are encoded arguments.
type raw []byte

func (b raw) Encode(e *xdr.Encoder) { copy(e.Grow(len(b)), b) }

// FuzzServe sends arbitrary arguments to every procedure. Handles in seeds are placeholders, since
// a handle belongs to one directory.
func FuzzServe(f *testing.F) {
	r := newEnv(f, func(c *Config) { c.Files.Sync = new(syncs).sync })
	r.put("file", "content")
	if err := r.s.SetAccess([]Rule{{Networks: everyone[0].Networks, Squash: SquashAll}}); err != nil {
		f.Fatal(err)
	}
	r.must(chmodAll(r))
	r.must(unix.Chmod(r.dir, 0o777))
	root, file := r.root, r.handle("file")
	if len(root) != len(file) {
		f.Fatalf("handles of %d and %d bytes", len(root), len(file))
	}
	rootMark, fileMark := nfs3.Handle(bytes.Repeat([]byte{'R'}, len(root))), nfs3.Handle(bytes.Repeat([]byte{'F'}, len(root)))
	seed := func(proc uint32, args encoder) {
		var e xdr.Encoder
		e.Reset(make([]byte, 0, 4096), nil)
		args.Encode(&e)
		f.Add(proc, e.Bytes(), uint8(0))
		f.Add(proc, e.Bytes(), uint8(13))
		f.Add(proc, e.Bytes()[:len(e.Bytes())/2], uint8(1))
	}
	where := nfs3.DirOpArgs{Dir: rootMark, Name: []byte("new")}
	some := nfs3.SetAttrs{SetMode: true, Mode: 0o644, SetSize: true, Size: 5, MtimeHow: nfs3.SetToClientTime, AtimeHow: nfs3.SetToServerTime}
	for proc, args := range []encoder{
		nfs3.ProcNull: raw{}, nfs3.ProcGetAttr: &nfs3.HandleArgs{Object: fileMark}, nfs3.ProcSetAttr: &nfs3.SetAttrArgs{Object: fileMark, New: some, Guard: true},
		nfs3.ProcLookup: &nfs3.DirOpArgs{Dir: rootMark, Name: []byte("file")}, nfs3.ProcAccess: &nfs3.AccessArgs{Object: rootMark, Access: 63},
		nfs3.ProcReadlink: &nfs3.HandleArgs{Object: fileMark}, nfs3.ProcRead: &nfs3.ReadArgs{File: fileMark, Offset: 2, Count: 100},
		nfs3.ProcWrite: streamed{fileMark, "data"}, nfs3.ProcCreate: &nfs3.CreateArgs{Where: where, Mode: nfs3.Exclusive},
		nfs3.ProcMkdir: &nfs3.MkdirArgs{Where: where, Attrs: some}, nfs3.ProcSymlink: raw(symlinkBytes(where)), nfs3.ProcMknod: &nfs3.MknodArgs{Where: where, Type: nfs3.FIFO, Attrs: some},
		nfs3.ProcRemove: &where, nfs3.ProcRmdir: &where, nfs3.ProcRename: &nfs3.RenameArgs{From: where, To: nfs3.DirOpArgs{Dir: rootMark, Name: []byte("..")}},
		nfs3.ProcLink: &nfs3.LinkArgs{File: fileMark, Link: where}, nfs3.ProcReaddir: &nfs3.ReaddirArgs{Dir: rootMark, Count: 1000},
		nfs3.ProcReaddirPlus: &nfs3.ReaddirPlusArgs{Dir: rootMark, Cookie: 1, DirCount: 100, MaxCount: 1000}, nfs3.ProcFSStat: &nfs3.HandleArgs{Object: rootMark},
		nfs3.ProcFSInfo: &nfs3.HandleArgs{Object: rootMark}, nfs3.ProcPathConf: &nfs3.HandleArgs{Object: fileMark}, nfs3.ProcCommit: &nfs3.CommitArgs{File: fileMark, Count: 5},
	} {
		seed(uint32(proc), args)
	}
	for proc := range uint32(nfs3.MountProcedures) {
		seed(100+proc, &nfs3.MountArgs{Path: []byte("/file/../x")})
	}
	list := []nfs3.ACLEntry{{Type: nfs3.ACLUserObj, Perm: 7}, {Type: nfs3.ACLGroupObj, Perm: 5}, {Type: nfs3.ACLOther}}
	seed(200+nfs3.ACLProcGetACL, &nfs3.GetACLArgs{Object: fileMark, Mask: nfs3.ACLMask})
	seed(200+nfs3.ACLProcSetACL, &nfs3.SetACLArgs{Object: rootMark, ACL: nfs3.ACL{Mask: nfs3.ACLMask, Access: list, Default: list}})
	xid := uint32(0)
	f.Fuzz(func(t *testing.T, proc uint32, args []byte, cut uint8) {
		if len(args) > 32<<10 {
			return
		}
		args = bytes.ReplaceAll(bytes.ReplaceAll(bytes.Clone(args), rootMark, root), fileMark, file)
		program := uint32(nfs3.Program)
		switch {
		case proc >= 200:
			program, proc = nfs3.ACLProgram, proc-200
		case proc >= 100:
			program, proc = nfs3.MountProgram, proc-100
		}
		xid++
		w := r.prepare(xid, program, 3, proc, raw(args), int(cut)).send().wait()
		if w.dropped {
			t.Errorf("procedure %d was not answered", proc)
		}
		var d xdr.Decoder
		d.ResetBytes(w.reply)
		var h oncrpc.ReplyHeader
		if err := h.Decode(&d); err != nil || h.XID != xid {
			t.Errorf("reply: %v, %x", err, w.reply)
		}
		if w.status.Accept == oncrpc.SystemErr {
			t.Errorf("procedure %d did not fit its reply", proc)
		}
		if st := r.pool.Stats(); st.Bufs != 0 {
			t.Errorf("%d buffers were not released", st.Bufs)
		}
	})
}

func symlinkBytes(where nfs3.DirOpArgs) []byte {
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 4096), nil)
	where.Encode(&e)
	attrs := nfs3.SetAttrs{SetUID: true, UID: 5}
	attrs.Encode(&e)
	e.String("target")
	return e.Bytes()
}
