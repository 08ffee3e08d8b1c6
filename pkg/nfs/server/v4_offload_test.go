package server

import (
	"bytes"
	"os"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/xdr"
)

// TestOffload copies more than a COPY does at once: it goes on after the reply.
func TestOffload(t *testing.T) {
	r := newEnv4(t, nil)
	s, back := r.sessionBack("client", 701)
	content := bytes.Repeat([]byte("0123456789abcdef"), (maxCopy+5<<20)/16)
	r.must(os.WriteFile(r.path("source"), content, 0o600))
	source := s.open("o", accR|nfs4.WantNoDeleg, 0, noCreate, "source")
	target := s.open("o", accRW|nfs4.WantNoDeleg, 0, unchecked, "target")
	copyOp := func(sync bool) []nfs4test.Raw {
		return []nfs4test.Raw{putFH(source.handle), op4(nfs4.OpSaveFH), putFH(target.handle),
			op4(nfs4.OpCopy, stateID(source.StateID), stateID(target.StateID), uint64(0), uint64(0), uint64(len(content)), true, sync, 0)}
	}
	var res nfs4.CopyRes
	res.Decode(opResult(s.ok(copyOp(true)...), 4))
	if res.Response.HasCallback || !res.Requirements.Synchronous || res.Response.Count != maxCopy {
		t.Errorf("a synchronous copy: %+v", res)
	}
	res.Decode(opResult(s.ok(copyOp(false)...), 4))
	if !res.Response.HasCallback || res.Requirements.Synchronous {
		t.Fatalf("an asynchronous copy: %+v", res)
	}
	var a nfs4.CBOffloadArgs
	var d xdr.Decoder
	d.ResetBytes(back.next(nfs4.OpCBOffload).args)
	if a.Decode(&d); d.Err() != nil || a.Status != nfs4.OK || a.Response.Count != uint64(len(content)) ||
		a.StateID != res.Response.Callback || !bytes.Equal(a.Object, target.handle) {
		t.Errorf("CB_OFFLOAD %+v", a)
	}
	if got := r.content("target"); got != string(content) {
		t.Error("the copy differs")
	}
	status := func(id nfs4.StateID) []nfs4test.Raw {
		return []nfs4test.Raw{putFH(target.handle), op4(nfs4.OpOffloadStatus, stateID(id))}
	}
	eventually(t, "the end of the stateid", func() bool {
		return nfs4.Status(s.do(status(a.StateID)...).Status) == nfs4.ErrBadStateID
	})
	s.fails(nfs4.ErrBadStateID, status(target.StateID)...)
	// A copy whose client cannot be called keeps its outcome.
	back.set(func(b *backClient) { b.lost = true })
	res.Decode(opResult(s.ok(copyOp(false)...), 4))
	id := res.Response.Callback
	if !res.Response.HasCallback {
		t.Fatalf("an asynchronous copy: %+v", res)
	}
	var st nfs4.OffloadStatusRes
	eventually(t, "the end of the copy", func() bool {
		st.Decode(opResult(s.ok(status(id)...), 2))
		return st.Complete
	})
	if st.Status != nfs4.OK || st.Count != uint64(len(content)) {
		t.Errorf("OFFLOAD_STATUS %+v", st)
	}
	s.ok(putFH(target.handle), op4(nfs4.OpOffloadCancel, stateID(id)))
	s.fails(nfs4.ErrBadStateID, status(id)...)
	s.fails(nfs4.ErrBadStateID, putFH(target.handle), op4(nfs4.OpOffloadCancel, stateID(id)))
	eventually(t, "the loss of the back channel", func() bool { return s.flags() != 0 })
	// Without a back channel a copy is synchronous.
	res.Decode(opResult(s.ok(copyOp(false)...), 4))
	if res.Response.HasCallback || res.Response.Count != maxCopy {
		t.Errorf("a copy without a back channel: %+v", res)
	}
}
