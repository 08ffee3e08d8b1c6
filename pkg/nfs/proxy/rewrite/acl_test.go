package rewrite

import (
	"bytes"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/xdr"
)

func TestACL(t *testing.T) {
	r := newEnv(t, sign.Required)
	defer r.end()
	args := func(h []byte, rest ...byte) []byte { return append(bytesOf(&nfs3.HandleArgs{Object: h}), rest...) }
	mask := []byte{0, 0, 0, 1}
	empty := make([]byte, 20)
	send := func(proc uint32, args []byte) Verdict {
		r.receive(nfs3.ACLProgram, nfs3.ACLVersion, proc, args, nil)
		return r.args()
	}
	if v := send(nfs3.ACLProcGetACL, args(r.sign(handle3), mask...)); v != Forward || !bytes.Equal(r.forwarded(), args(handle3, mask...)) {
		t.Errorf("GETACL: verdict %d", v)
	}
	if r.plan.MaxReply != r.in.Plan.MaxReply || len(r.plan.Results) != 0 {
		t.Errorf("GETACL is planned as %+v", r.plan)
	}
	results := append(bytesOf(&nfs3.WccRes{}), 1, 2, 3, 4)
	if err := r.backend(results, nil); err != nil || !bytes.Equal(r.results(), results) {
		t.Errorf("results are %x, error %v", r.results(), err)
	}
	if v := send(nfs3.ACLProcSetACL, args(r.sign(handle3), empty...)); v != Forward || !bytes.Equal(r.forwarded(), args(handle3, empty...)) {
		t.Errorf("SETACL: verdict %d", v)
	}
	refused := func(proc uint32, args []byte, want nfs3.Status) {
		t.Helper()
		if v := send(proc, args); v != Answered {
			t.Fatalf("verdict %d", v)
		}
		var d xdr.Decoder
		d.ResetBytes(r.results())
		if s := nfs3.Status(d.Uint32()); s != want || d.Bool() || d.Left() > 0 || d.Err() != nil {
			t.Errorf("status %v, want %v, results %x", s, want, r.results())
		}
	}
	refused(nfs3.ACLProcGetACL, args(handle3, mask...), nfs3.ErrBadHandle)
	r.who.ReadOnly = true
	refused(nfs3.ACLProcSetACL, args(r.sign(handle3), empty...), nfs3.ErrROFS)
	if v := send(nfs3.ACLProcGetACL, args(r.sign(handle3), mask...)); v != Forward {
		t.Errorf("GETACL: verdict %d", v)
	}
}
