package rewrite

import (
	"bytes"
	"reflect"
	"sluice.dev/sluice/pkg/nfs/access"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// env is an export with one call.
type env struct {
	t    fatal
	pool *bufpool.Pool
	x    Export
	who  Caller
	cred oncrpc.Auth

	c    Call
	in   oncrpc.Call
	out  oncrpc.Message
	plan oncrpc.Plan
	back oncrpc.Message
}

// fatal is common to tests and properties.
type fatal interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

var (
	root3   = bytes.Repeat([]byte("root"), 6)
	handle3 = bytes.Repeat([]byte("file"), 7)
)

const (
	rootID3 = 64
	xid3    = 0x5a5a0001
)

func newEnv(t fatal, mode sign.Mode) *env {
	t.Helper()
	r := &env{t: t, pool: pool3, who: Caller{Squash: access.SquashNone, AnonUID: 65534, AnonGID: 65533}}
	s, err := sign.New([][]byte{bytes.Repeat([]byte{1}, sign.MinKey)}, []byte("export-1"), mode)
	if err != nil {
		t.Fatal(err)
	}
	r.x.UID, r.x.Signer, r.x.V3 = []byte("export-1"), s, true
	r.x.Roots.Store(&Roots{V3: root3, FileID3: rootID3})
	r.in.Init(r.pool, nil)
	return r
}

// end checks that all memory was returned.
func (r *env) end() {
	r.t.Helper()
	r.in.Recycle()
	r.out.Release()
	r.back.Release()
	if n := r.pool.Stats().Bufs; n != 0 {
		r.t.Errorf("%d buffers are not released", n)
	}
}

// sign returns a handle as clients see it.
func (r *env) sign(h []byte) nfs3.Handle { return r.x.Signer.Append(nil, h, sign.Max3) }

// header returns the header of a call.
func (r *env) header(program, version, procedure uint32) []byte {
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 1024), nil)
	oncrpc.EncodeCallHeader(&e, xid3, program, version, procedure, r.cred, oncrpc.Auth{})
	return e.Bytes()
}

// receive makes r.in a received call and plans its reply.
func (r *env) receive(program, version, procedure uint32, args []byte, items []xdr.Item) {
	r.t.Helper()
	r.in.Recycle()
	head := r.header(program, version, procedure)
	r.in.Stream = append(r.in.Stream, head, args)
	for _, it := range items {
		it.Position += len(head)
		r.in.Items = append(r.in.Items, it)
	}
	if err := oncrpc.DecodeCall(&r.in); err != nil {
		r.t.Fatal(err)
	}
	if b := binding.For(program, version); b != nil {
		_, _ = b.Plan(&r.in.Plan, nil, procedure, r.in.Args())
	}
	r.in.Plan.MaxReply = 1 << 20
}

// send rewrites a call. The forwarded message is then in r.out, or a reply in r.in.
func (r *env) send(program, procedure uint32, args nfs3test.Message) Verdict {
	r.t.Helper()
	stream, items := nfs3test.Encode(args)
	r.receive(program, 3, procedure, stream, items)
	return r.args()
}

func (r *env) args() Verdict {
	r.t.Helper()
	r.out.Release()
	v, err := r.c.Args(&r.x, &r.who, &r.in, &r.out, &r.plan)
	if err != nil {
		r.t.Fatal(err)
	}
	if v != Forward && len(r.out.Stream) > 0 {
		r.t.Fatalf("verdict %d, and there is a message for the backend", v)
	}
	return v
}

// forwarded returns the arguments in r.out.
func (r *env) forwarded() []byte {
	r.t.Helper()
	b := whole(&r.out)
	if len(b) < r.c.ArgsAt {
		r.t.Fatalf("parameters begin at %d in a call of %d bytes", r.c.ArgsAt, len(b))
	}
	return b[r.c.ArgsAt:]
}

// backend answers the forwarded call with a message of several slices that owns memory.
func (r *env) backend(results []byte, items []xdr.Item) error {
	var e xdr.Encoder
	buf, err := r.pool.Get(oncrpc.MinReplyLen + len(results))
	if err != nil {
		r.t.Fatal(err)
	}
	e.Reset(buf.B[:0], nil)
	h := oncrpc.ReplyHeader{XID: xid3}
	h.Encode(&e)
	copy(e.Grow(len(results)), results)
	b := e.Bytes()
	r.back.Own(buf)
	for at, n := 0, 0; at < len(b); at += n {
		n = min(len(b)-at, 12+at)
		r.back.Stream = append(r.back.Stream, b[at:at+n])
	}
	for _, it := range items {
		it.Position += oncrpc.MinReplyLen
		it.Data = r.back.Keep(it.Data)
		r.back.Items = append(r.back.Items, it)
	}
	err = r.c.Results(&r.x, &r.in, &r.back)
	if len(r.back.Stream) > 0 || len(r.back.Items) > 0 {
		r.t.Fatal("the backend's reply is not empty afterwards")
	}
	return err
}

// results returns the results in r.in.Reply, which must be SUCCESS.
func (r *env) results() []byte {
	r.t.Helper()
	var d xdr.Decoder
	var h oncrpc.ReplyHeader
	d.Reset(r.in.Reply.Stream, r.in.Reply.Items)
	if err := h.Decode(&d); err != nil || h.XID != xid3 || !h.Status.OK() || h.Status != r.in.Status {
		r.t.Fatalf("reply has XID %#x, status %v, the call %v, error %v", h.XID, h.Status, r.in.Status, err)
	}
	return whole(&r.in.Reply)[d.Pos():]
}

// status returns the status of a reply without results.
func (r *env) status() oncrpc.Status {
	r.t.Helper()
	var d xdr.Decoder
	var h oncrpc.ReplyHeader
	d.ResetBytes(whole(&r.in.Reply))
	if err := h.Decode(&d); err != nil || h.XID != xid3 || h.Status != r.in.Status || d.Left() > 0 {
		r.t.Fatalf("reply has XID %#x, status %v, the call %v, error %v", h.XID, h.Status, r.in.Status, err)
	}
	return h.Status
}

// decode decodes a whole message.
func decode[M nfs3test.Message](t fatal, b []byte, m M) M {
	t.Helper()
	var d xdr.Decoder
	d.ResetBytes(b)
	if m.Decode(&d); d.Err() != nil || d.Left() > 0 {
		t.Fatalf("%T: %v, %d bytes left of %x", m, d.Err(), d.Left(), b)
	}
	return m
}

// bytesOf returns the unreduced stream of arguments or results.
func bytesOf(m nfs3test.Message) []byte { return nfs3test.Flatten(nfs3test.Encode(m)) }

// each calls f with every field of m of f's argument type.
func each[F any](m any, f func(*F)) {
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		if v.CanAddr() && v.CanInterface() {
			if p, ok := v.Addr().Interface().(*F); ok {
				f(p)
				return
			}
		}
		switch v.Kind() {
		case reflect.Pointer:
			visit(v.Elem())
		case reflect.Struct:
			for i := range v.NumField() {
				visit(v.Field(i))
			}
		case reflect.Slice:
			for i := range v.Len() {
				visit(v.Index(i))
			}
		}
	}
	visit(reflect.ValueOf(m))
}

func sysCred(t fatal, uid, gid uint32, gids ...uint32) oncrpc.Auth {
	t.Helper()
	p := oncrpc.AuthSysParms{Stamp: 7, Machine: []byte("client"), UID: uid, GID: gid, GIDs: gids}
	a, err := p.Auth()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var _ fatal = (*testing.T)(nil)

// pool3 is for the tests of version 3; emptyPool has no memory.
var pool3, emptyPool = bufpool.New(0), bufpool.New(1)
