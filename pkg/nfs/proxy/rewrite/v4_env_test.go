package rewrite

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

// pool4 is for the tests of version 4.
var pool4 = bufpool.New(0)

// The backend's handles.
var (
	rootV4 = []byte("root handle of version 4")
	rootV3 = []byte("that of 3")
	someFH = []byte("a file or a directory")
)

// exportV4 returns an export that offers everything.
func exportV4(tb testing.TB, mode sign.Mode) *Export {
	tb.Helper()
	uid := []byte("export-uid-1")
	s, err := sign.New([][]byte{bytes.Repeat([]byte{7}, sign.MinKey)}, uid, mode)
	if err != nil {
		tb.Fatal(err)
	}
	x := &Export{UID: uid, Signer: s, V3: true, Minor: [3]bool{true, true, true}}
	x.Roots.Store(&Roots{V4: rootV4, FileID4: 128, No3: true})
	return x
}

// signed returns a handle as clients see it.
func (x *Export) signed(handle []byte) []byte { return x.Signer.Append(nil, handle, sign.Max4) }

// raw is XDR: operations, results and such.
type raw = nfs4test.Raw

var (
	fields = nfs4test.Fields
	op     = nfs4test.Op
	bitmap = nfs4test.Bitmap
	fattr  = nfs4test.Attrs
)

// credV4 is an AUTH_SYS credential and an empty verifier.
var credV4 = fields(oncrpc.AuthSys, []byte(fields(1, "client", 1000, 1000, 0)), 0, 0)

const xidV4 = 0x1234

// compoundV4 is a COMPOUND call.
func compoundV4(minor int, ops ...raw) []byte {
	b := fields(xidV4, oncrpc.MsgCall, oncrpc.RPCVersion, 100003, 4, 1, credV4, "tag", minor, len(ops))
	return append(b, slices.Concat(ops...)...)
}

// resultsOf is a COMPOUND reply.
func resultsOf(status int, results ...raw) []byte {
	b := fields(xidV4, oncrpc.MsgReply, 0, 0, 0, 0, status, "tag", len(results))
	return append(b, slices.Concat(results...)...)
}

// arrived returns a call as a transport delivers it.
func arrived(tb testing.TB, b []byte) *oncrpc.Call {
	tb.Helper()
	in := &oncrpc.Call{}
	in.Init(pool4, nil)
	in.Stream = append(in.Stream, b)
	if err := oncrpc.DecodeCall(in); err != nil {
		tb.Fatal(err)
	}
	return in
}

// flat returns the bytes of a message.
func flat(m *oncrpc.Message) []byte { return slices.Concat(m.Gather(nil)...) }

// sendV4 rewrites a call. It returns the backend's call, or the answer to the client.
func sendV4(tb testing.TB, c *Call, x *Export, who *Caller, in *oncrpc.Call) (forwarded, answer []byte) {
	tb.Helper()
	var out oncrpc.Message
	var plan oncrpc.Plan
	v, err := c.Args(x, who, in, &out, &plan)
	if err != nil {
		tb.Fatal(err)
	}
	defer out.Release()
	if v == Answered {
		return nil, flat(&in.Reply)
	}
	return flat(&out), nil
}

// answerV4 rewrites the backend's reply.
func answerV4(tb testing.TB, c *Call, x *Export, in *oncrpc.Call, reply []byte) []byte {
	tb.Helper()
	var m oncrpc.Message
	m.Stream = append(m.Stream, reply)
	if err := c.Results(x, in, &m); err != nil {
		tb.Fatal(err)
	}
	return flat(&in.Reply)
}

// sameBytes compares messages.
func sameBytes(tb testing.TB, subject string, got, want []byte) {
	tb.Helper()
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	tb.Errorf("%s differs from byte %d on:\ngot  %x\nwant %x", subject, at, got[at&^3:], want[at&^3:])
}

// exchange is a COMPOUND of version 4.1 after a SEQUENCE, with its rewritten forms.
type exchange struct {
	name string
	// call is the client's call, sent the backend's; nil means the same.
	call, sent []raw
	// reply is the backend's reply, got the client's; nil means the same.
	status, gotStatus int
	reply, got        []raw
	who               Caller
}

var (
	sequence   = op(schema.OpSequence, raw("0123456789abcdef"), 1, 0, 0, 1)
	sequenceOK = op(schema.OpSequence, 0, raw("0123456789abcdef"), 1, 0, 0, 0, 0)
	getFH      = op(schema.OpGetFH)
)

// run checks both directions of the exchange.
func (ex *exchange) run(t *testing.T, x *Export) {
	t.Helper()
	var c Call
	in := arrived(t, compoundV4(2, slices.Concat([]raw{sequence}, ex.call)...))
	sent, answer := sendV4(t, &c, x, &ex.who, in)
	if answer != nil {
		t.Fatalf("answered with %x", answer)
	}
	if ex.sent == nil {
		ex.sent = ex.call
	}
	sameBytes(t, "the call", sent, compoundV4(2, slices.Concat([]raw{sequence}, ex.sent)...))
	if ex.got == nil {
		ex.got, ex.gotStatus = ex.reply, ex.status
	}
	got := answerV4(t, &c, x, in, resultsOf(ex.status, slices.Concat([]raw{sequenceOK}, ex.reply)...))
	sameBytes(t, "the reply", got, resultsOf(ex.gotStatus, slices.Concat([]raw{sequenceOK}, ex.got)...))
	xattr := func(o operation) bool { return o.code >= schema.OpGetXattr && o.code <= schema.OpRemoveXattr }
	// the oracle lacks these operations
	if !slices.ContainsFunc(append(c.ops, operation{code: c.code}), xattr) {
		readable(t, &nfsv4.Compound4args{}, sent[in.ArgsAt:])
		readable(t, &nfsv4.Compound4res{}, got[oncrpc.MinReplyLen:])
	}
	in.Recycle()
}

// refusesReply checks that a reply is rejected.
func refusesReply(t *testing.T, x *Export, call []raw, reply []byte) {
	t.Helper()
	var c Call
	in := arrived(t, compoundV4(2, call...))
	sendV4(t, &c, x, &Caller{}, in)
	var m oncrpc.Message
	m.Stream = append(m.Stream, reply)
	if err := c.Results(x, in, &m); err == nil {
		t.Errorf("the reply %x became %x", reply, flat(&in.Reply))
	}
	sameBytes(t, "the reply", flat(&in.Reply), fields(xidV4, oncrpc.MsgReply, 0, 0, 0, uint32(oncrpc.SystemErr)))
}

// readable checks that code generated from the protocol's XDR reads all bytes.
func readable(t *testing.T, m io.ReaderFrom, b []byte) {
	t.Helper()
	n, err := m.ReadFrom(bytes.NewReader(b))
	if err != nil || n != int64(len(b)) {
		t.Errorf("%T reads %d of %d bytes of %x: %v", m, n, len(b), b, err)
	}
}
