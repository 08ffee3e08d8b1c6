package oncrpc

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/xdr"
)

// recorder is a transport that keeps the sent messages, joined.
type recorder struct {
	sent    []byte
	items   int
	status  Status
	dropped bool
	keep    bool // do not look, for counting allocations
}

func (r *recorder) Respond(c *Call) {
	if !r.keep {
		r.sent, r.items, r.status = join(&c.Reply), len(c.Reply.Items), c.Status
	}
	c.Recycle()
}

func (r *recorder) Drop(c *Call) {
	r.dropped = true
	c.Recycle()
}

func (r *recorder) Supersede(c *Call) { r.Drop(c) }

// join returns the unreduced stream of m.
func join(m *Message) (b []byte) {
	stream := bytes.Join(m.Stream, nil)
	for _, it := range m.Items {
		n := it.Position - len(b)
		b = append(b, stream[:n]...)
		stream = stream[n:]
		b = append(b, bytes.Join(it.Data, nil)...)
		b = append(b, make([]byte, xdr.Pad(it.Length))...)
	}
	return append(b, stream...)
}

func newTestCall(t testing.TB) (*Call, *recorder) {
	t.Helper()
	pool := bufpool.New(0)
	t.Cleanup(func() {
		if s := pool.Stats(); s.Bufs != 0 {
			t.Errorf("%d buffers were not released", s.Bufs)
		}
	})
	c, r := &Call{}, &recorder{}
	c.Init(pool, r)
	c.XID = 0x11
	return c, r
}

func TestReply(t *testing.T) {
	const ok = "00000011 00000001 00000000 00000000 00000000 00000000"
	item := func(c *Call) [][]byte {
		b, err := c.Pool().Get(5)
		if err != nil {
			t.Fatal(err)
		}
		copy(b.B, "bytes")
		c.Reply.Own(b)
		return [][]byte{b.B[:2], b.B[2:]}
	}
	begin := func(c *Call, size int) *xdr.Encoder {
		e, err := c.BeginReply(size)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, tt := range []struct {
		name   string
		do     func(*Call)
		want   string
		items  int
		status Status
	}{
		{"results", func(c *Call) { begin(c, 28).Uint32(5); c.Respond() }, ok + "00000005", 0, Status{}},
		{"header only", func(c *Call) { begin(c, 0); c.Respond() }, ok, 0, Status{}},
		{"item", func(c *Call) {
			e := begin(c, 100)
			e.Bulk(item(c), 5)
			e.Uint32(9)
			c.EndReply()
			c.Respond()
		}, ok + "00000005 6279746573000000 00000009", 1, Status{}},
		{"overflow", func(c *Call) {
			e := begin(c, 30)
			e.Bulk(item(c), 5)
			e.Uint32(9)
			c.Respond()
		}, "00000011 00000001 00000000 00000000 00000000 00000005", 0, Status{Accept: SystemErr}},
		{"another reply instead", func(c *Call) {
			e := begin(c, 100)
			e.Bulk(item(c), 5)
			c.ReplyAccept(GarbageArgs)
		}, "00000011 00000001 00000000 00000000 00000000 00000004", 0, Status{Accept: GarbageArgs}},
		{"begun anew", func(c *Call) {
			begin(c, 100).Bulk(item(c), 5)
			begin(c, 100).Uint32(1)
			c.Respond()
		}, ok + "00000001", 0, Status{}},
		{"versions", func(c *Call) { c.ReplyMismatch(3, 4) }, "00000011 00000001 00000000 00000000 00000000 00000002 00000003 00000004", 0, Status{Accept: ProgMismatch, Low: 3, High: 4}},
		{"denied", func(c *Call) { c.ReplyDenied(AuthTooWeak) }, "00000011 00000001 00000001 00000001 00000005", 0, Status{Denied: true, Reject: AuthError, Auth: AuthTooWeak}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, r := newTestCall(t)
			c.Scratch = "kept"
			tt.do(c)
			if d := cmp.Diff(unhex(t, tt.want), r.sent); d != "" {
				t.Error(d)
			}
			if r.items != tt.items || r.status != tt.status || r.dropped {
				t.Errorf("%d items, status %+v, dropped %v", r.items, r.status, r.dropped)
			}
			if c.Scratch != "kept" || c.XID != 0 || len(c.Reply.Stream) != 0 {
				t.Error("Recycle left the wrong things")
			}
		})
	}
}

// TestReplyNoMemory: a call whose reply finds no memory at all is dropped, and the caller sends it
// again.
// TestGrowReply moves a reply with an item to larger memory.
func TestGrowReply(t *testing.T) {
	c, r := newTestCall(t)
	e, err := c.BeginReply(MinReplyLen + 8)
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.Pool().Get(4)
	if err != nil {
		t.Fatal(err)
	}
	c.Reply.Own(data)
	copy(data.B, "data")
	e.Bulk([][]byte{data.B[:4]}, 4)
	e.Uint32(7)
	if err := c.GrowReply(1 << 12); err != nil {
		t.Fatal(err)
	}
	e.Fixed(bytes.Repeat([]byte{9}, 1<<10))
	if e.Pos() != MinReplyLen+12+1<<10 {
		t.Errorf("at %d", e.Pos())
	}
	c.Respond()
	want := append([]byte("\x00\x00\x00\x04data\x00\x00\x00\x07"), bytes.Repeat([]byte{9}, 1<<10)...)
	if got := r.sent[MinReplyLen:]; !bytes.Equal(got, want) || r.items != 1 {
		t.Errorf("%d items, %x", r.items, got)
	}
}

func TestReplyNoMemory(t *testing.T) {
	c, r := &Call{}, &recorder{}
	c.Init(bufpool.New(1), r)
	if _, err := c.BeginReply(100); !errors.Is(err, bufpool.ErrExhausted) {
		t.Fatal(err)
	}
	c.ReplyAccept(SystemErr)
	if !r.dropped {
		t.Error("not dropped")
	}
}

func TestMux(t *testing.T) {
	var m Mux
	var served []string
	h := func(name string) Handler {
		return handlerFunc(func(c *Call) { served = append(served, name); c.ReplyAccept(Success) })
	}
	m.Handle(100003, 3, 3, h("three"))
	m.Handle(100003, 4, 4, h("four"))
	m.Handle(100227, 2, 3, h("acl"))
	for _, tt := range []struct {
		program, version uint32
		status           Status
	}{
		{100003, 3, Status{}}, {100003, 4, Status{}}, {100227, 2, Status{}}, {100227, 3, Status{}},
		{100003, 2, Status{Accept: ProgMismatch, Low: 3, High: 4}},
		{100227, 4, Status{Accept: ProgMismatch, Low: 2, High: 3}},
		{100005, 3, Status{Accept: ProgUnavail}},
	} {
		c, r := newTestCall(t)
		c.Program, c.Version = tt.program, tt.version
		m.ServeRPC(c)
		if r.status != tt.status {
			t.Errorf("program %d version %d: %+v, want %+v", tt.program, tt.version, r.status, tt.status)
		}
	}
	if d := cmp.Diff([]string{"three", "four", "acl", "acl"}, served); d != "" {
		t.Error(d)
	}
	for _, versions := range [][2]uint32{{3, 5}, {2, 3}, {5, 4}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("versions %v were accepted", versions)
				}
			}()
			m.Handle(100003, versions[0], versions[1], h(""))
		}()
	}
}

type handlerFunc func(*Call)

func (f handlerFunc) ServeRPC(c *Call) { f(c) }

// loop is a Requester whose server is a function from call to reply, called at once or never.
type loop struct {
	pool    *bufpool.Pool
	xid     uint32
	answer  func(r *Request, e *xdr.Encoder)
	pending *Request
}

func (l *loop) NextXID() uint32 { l.xid++; return l.xid }
func (l *loop) Close() error    { return nil }
func (l *loop) Submit(r *Request) {
	if l.answer == nil {
		l.pending = r
		return
	}
	b, err := l.pool.Get(200)
	if err != nil {
		panic(err)
	}
	var e xdr.Encoder
	e.Reset(b.B[:0], nil)
	l.answer(r, &e)
	r.Reply.Own(b)
	r.Reply.Stream = append(r.Reply.Stream, e.Bytes())
	r.Done(r)
}

func (l *loop) Cancel(r *Request, cause error) { r.Err = cause; r.Done(r) }

func TestRequest(t *testing.T) {
	pool := bufpool.New(0)
	status := func(s Status) func(r *Request, e *xdr.Encoder) {
		return func(r *Request, e *xdr.Encoder) {
			h := ReplyHeader{XID: r.XID, Status: s}
			h.Encode(e)
			e.Uint32(77)
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(r *Request, e *xdr.Encoder)
		err    string
	}{
		{"success", status(Status{}), ""},
		{"unknown program", status(Status{Accept: ProgUnavail}), "oncrpc: program 100003 version 3 procedure 6: the server answered PROG_UNAVAIL"},
		{"unknown version", status(Status{Accept: ProgMismatch, Low: 4, High: 4}), "PROG_MISMATCH, it has versions 4 to 4"},
		{"denied", status(Status{Denied: true, Reject: AuthError, Auth: AuthTooWeak}), "denied the call: AUTH_TOOWEAK"},
		{"RPC version", status(Status{Denied: true, Low: 3, High: 5}), "it speaks RPC versions 3 to 5"},
		{"other XID", func(r *Request, e *xdr.Encoder) { (&ReplyHeader{XID: 1000}).Encode(e) }, "reply has XID 0x3e8, the call's is 0x"},
		{"no reply", func(r *Request, e *xdr.Encoder) { e.Uint32(r.XID) }, "reply header: xdr: at byte 4: message ends"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &loop{pool: pool, answer: tt.answer}
			cred := Auth{AuthSys, make([]byte, 20)}
			r, e, err := NewRequest(pool, 100003, 3, 6, cred, 200)
			if err != nil {
				t.Fatal(err)
			}
			e.Uint32(0x55)
			e.Bulk([][]byte{[]byte("abc")}, 3)
			if err := Do(context.Background(), l, r); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(unhex(t, "00000001 00000000 00000002 000186a3 00000003 00000006 00000001 00000014"+strings.Repeat("00000000", 7)+"00000055 00000003 61626300"), join(&r.Call)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff([]Argument{{68, 3}}, r.Eligible); d != "" || r.ArgsAt != 60 {
				t.Errorf("arguments at %d, eligible: %s", r.ArgsAt, d)
			}
			d, err := r.Results()
			switch {
			case tt.err == "" && (err != nil || d.Uint32() != 77):
				t.Errorf("results: %v", err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("error is %q, want %q", err, tt.err)
			}
			r.Free()
		})
	}
	if s := pool.Stats(); s.Bufs != 0 {
		t.Errorf("%d buffers were not released", s.Bufs)
	}
}

func TestRequestFails(t *testing.T) {
	pool := bufpool.New(0)
	if _, _, err := NewRequest(pool, 1, 1, 1, Auth{1, make([]byte, 401)}, 1000); err == nil {
		t.Error("a credential of 401 bytes was accepted")
	}
	r, e, err := NewRequest(pool, 1, 1, 1, Auth{}, 42)
	if err != nil {
		t.Fatal(err)
	}
	e.Uint32(1)
	if err := Do(context.Background(), &loop{}, r); err == nil {
		t.Error("an overflowed call was sent")
	}
	r.Free()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, _, err = NewRequest(pool, 1, 1, 1, Auth{}, 42)
	if err != nil {
		t.Fatal(err)
	}
	if err := Do(ctx, &loop{}, r); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if _, err := r.Results(); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	r.Free()
	if s := pool.Stats(); s.Bufs != 0 {
		t.Errorf("%d buffers were not released", s.Bufs)
	}
}
