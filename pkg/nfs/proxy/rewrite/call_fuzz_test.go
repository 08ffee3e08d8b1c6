package rewrite

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// exchanged is a captured call of Linux, and its reply.
type exchanged struct {
	proc        schema.Proc
	args, reply []byte
	item        xdr.Item // of the call
}

// readExchanged reads the captures of pkg/nfs/schema, except callbacks and long messages.
func readExchanged(t testing.TB) (out []exchanged) {
	t.Helper()
	text, err := os.ReadFile("../../schema/testdata/linux-6.1.txt")
	if err != nil {
		t.Fatal(err)
	}
	last := map[schema.Proc]*exchanged{}
	for line := range strings.Lines(string(text)) {
		var p schema.Proc
		var dir, items, data string
		if n, _ := fmt.Sscan(line, &p.Program, &p.Version, &p.Procedure, &dir, &items, &data); n != 6 || p.Program == 0x40000000 {
			continue
		}
		b, err := hex.DecodeString(data)
		if err != nil {
			t.Fatal(err)
		}
		x := &exchanged{proc: p, args: b}
		_, _ = fmt.Sscanf(items, "%d+%d", &x.item.Position, &x.item.Length)
		if dir == "call" {
			last[p] = x
			continue
		}
		if x := last[p]; x != nil && len(b) < 4<<10 && len(x.args) < 4<<10 {
			x.reply = b
			out = append(out, *x)
		}
	}
	if len(out) < 30 {
		t.Fatalf("only %d calls with replies", len(out))
	}
	return out
}

// signArgs signs the handles in arguments, as if the client had got them here.
func signArgs(t testing.TB, s *sign.Signer, x exchanged) []byte {
	t.Helper()
	limit := sign.Max3
	if x.proc.Version == 4 {
		limit = sign.Max4
	}
	var w schema.Walker
	var d xdr.Decoder
	items := x.items()
	d.Reset([][]byte{x.args}, items)
	if err := w.Args(x.proc, &d); err != nil {
		t.Fatal(err)
	}
	out, at := []byte(nil), 0 // in the reduced stream; handles precede all items
	for _, sp := range w.Spans {
		if sp.Mark != schema.Handle {
			continue
		}
		h := s.Append(nil, sp.B, limit)
		out = append(out, x.args[at:sp.Pos]...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(h)))
		out = append(append(out, h...), make([]byte, xdr.Pad(len(h)))...)
		at = sp.Pos + sp.Len
	}
	return append(out, x.args[at:]...)
}

func (x *exchanged) items() []xdr.Item {
	if x.item.Length == 0 {
		return nil
	}
	it := x.item
	it.Data = [][]byte{make([]byte, it.Length)}
	return []xdr.Item{it}
}

// Flags of the fuzz target's export. The lowest two bits are its mode of signing.
const (
	fuzzReadOnly = 1 << (iota + 2)
	fuzzSquash
	fuzzGSS
)

func fuzzEnv(t fatal, flags uint8) *env {
	r := newEnv(t, sign.Mode(flags&3)%(sign.Off+1))
	r.x.Minor = [3]bool{true, true, true}
	r.x.Roots.Store(&Roots{V3: root3, V4: root3, FileID3: rootID3, FileID4: rootID3})
	r.x.GSS = flags&fuzzGSS != 0
	r.who.ReadOnly = flags&fuzzReadOnly != 0
	if flags&fuzzSquash != 0 {
		r.who.Squash = access.SquashAll
	}
	return r
}

// FuzzRewrite checks that nothing panics, that all memory is returned, that a repeated call is
// rewritten alike, and that in version 3 every handle loses its tag on the way in and gets one on
// the way out.
func FuzzRewrite(f *testing.F) {
	for i, x := range readExchanged(f) {
		for flags := range uint8(3) {
			r := fuzzEnv(f, flags)
			r.cred = sysCred(f, 0, 0, 0, 4)
			head := r.header(x.proc.Program, x.proc.Version, x.proc.Procedure)
			args := signArgs(f, r.x.Signer, x)
			at := 0
			if x.item.Length > 0 {
				at = x.item.Position + len(head) + len(args) - len(x.args)
			}
			f.Add(flags|uint8(i%8)<<2, append(head, args...), at, x.item.Length, x.reply)
		}
	}
	f.Fuzz(func(t *testing.T, flags uint8, call []byte, at, length int, results []byte) {
		r := fuzzEnv(t, flags)
		r.in.Stream = append(r.in.Stream, call[:len(call)/2], call[len(call)/2:])
		if length > 0 && length <= 1<<12 && at >= 0 && at <= len(call) {
			r.in.Items = append(r.in.Items, xdr.Item{Position: at &^ 3, Length: length, Data: [][]byte{make([]byte, length)}})
		}
		if err := oncrpc.DecodeCall(&r.in); err != nil {
			return
		}
		r.in.Plan.MaxReply = 1 << 20
		r.in.Plan.Results = append(r.in.Plan.Results, oncrpc.Result{Max: 1 << 20})
		defer r.end()
		v := r.args()
		if v != Forward {
			if (v == Answered) != (len(r.in.Reply.Stream) > 0) {
				t.Fatalf("verdict %d, and a reply of %d slices", v, len(r.in.Reply.Stream))
			}
			return
		}
		first := whole(&r.out)
		if r.args() != Forward || !bytes.Equal(whole(&r.out), first) {
			t.Fatalf("rewritten the second time, the call is\n%x, was\n%x", whole(&r.out), first)
		}
		v3 := r.in.Version == 3 && !r.c.protected
		if v3 {
			r.sameHandles(&r.in.Message, r.in.ArgsAt, &r.out, r.c.ArgsAt, (*schema.Walker).Args)
		}
		var e xdr.Encoder
		e.Reset(make([]byte, 0, oncrpc.MinReplyLen), nil)
		h := oncrpc.ReplyHeader{XID: r.in.XID}
		h.Encode(&e)
		r.back.Stream = append(r.back.Stream, e.Bytes(), results)
		backend := oncrpc.Message{Stream: [][]byte{e.Bytes(), results}}
		if err := r.c.Results(&r.x, &r.in, &r.back); err == nil && v3 && r.in.Program == nfs3.Program && r.in.Status.OK() {
			r.sameResults(&backend)
		}
	})
}

// handles returns the handles of a version 3 message whose parameters or results begin at a
// position.
func (r *env) handles(m *oncrpc.Message, at int, walk func(*schema.Walker, schema.Proc, *xdr.Decoder) error) (out [][]byte, err error) {
	var w schema.Walker
	var d xdr.Decoder
	d.Reset(m.Stream, m.Items)
	d.Skip(at)
	err = walk(&w, schema.Proc{Program: r.in.Program, Version: r.in.Version, Procedure: r.in.Procedure}, &d)
	for _, sp := range w.Spans {
		if sp.Mark == schema.Handle {
			out = append(out, bytes.Clone(sp.B))
		}
	}
	return out, err
}

// sameHandles checks that client has the handles of backend, signed.
func (r *env) sameHandles(client *oncrpc.Message, clientAt int, backend *oncrpc.Message, backendAt int, walk func(*schema.Walker, schema.Proc, *xdr.Decoder) error) {
	r.t.Helper()
	signed, err := r.handles(client, clientAt, walk)
	plain, err2 := r.handles(backend, backendAt, walk)
	if err != nil || err2 != nil || len(signed) != len(plain) {
		r.t.Fatalf("%d handles, %d handles: %v, %v", len(signed), len(plain), err, err2)
	}
	for i := range signed {
		if want := r.sign(plain[i]); !bytes.Equal(signed[i], want) {
			r.t.Fatalf("the client has handle %x, the backend %x", signed[i], plain[i])
		}
	}
}

// sameResults checks that every handle in the reply is one of the backend's, signed.
func (r *env) sameResults(backend *oncrpc.Message) {
	r.t.Helper()
	signed, err := r.handles(&r.in.Reply, oncrpc.MinReplyLen, (*schema.Walker).Results)
	plain, _ := r.handles(backend, oncrpc.MinReplyLen, (*schema.Walker).Results)
	if err != nil {
		r.t.Fatalf("the client cannot read the results: %v", err)
	}
	for _, h := range signed {
		for len(plain) > 0 && !bytes.Equal(r.sign(plain[0]), h) {
			plain = plain[1:] // omitted
		}
		if len(plain) == 0 {
			r.t.Fatalf("the client has handle %x, which the backend has not returned", h)
		}
	}
}
