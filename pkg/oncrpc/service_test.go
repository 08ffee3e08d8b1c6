package oncrpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/xdr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The test program.
const (
	testProgram = 0x20000099
	procNull    = 0
	procEcho    = 1 // opaque<> -> the same, inline, on the receive loop
	procGet     = 2 // length -> opaque<>, as an item in pieces, from another goroutine
	procSum     = 3 // opaque<> -> its CRC
	procBack    = 4 // opaque<> -> the client's own ECHO of it, by a call in the other direction
	procHold    = 5 // answered on the test's request, if there are not too many
	procDrop    = 6 // never answered
	procGiveUp  = 9 // dropped, with the connection
	procLong    = 7 // more results than announced
	procPool    = 8 // length -> opaque<>, as an item of unwritten memory, on the receive loop
)

type testService struct {
	held chan *Call
}

func (s *testService) ServeRPC(c *Call) {
	switch c.Procedure {
	case procNull:
		c.ReplyAccept(Success)
	case procEcho:
		d := c.Args()
		b := d.Opaque(1 << 20)
		if d.Err() != nil {
			c.ReplyAccept(GarbageArgs)
			return
		}
		e, err := c.BeginReply(MinReplyLen + 4 + xdr.Round(len(b)))
		if err != nil {
			c.ReplyAccept(SystemErr)
			return
		}
		e.Opaque(b)
		c.Respond()
	case procGet:
		go s.get(c)
	case procSum:
		d := c.Args()
		list, ok := c.Scratch.(*[][]byte)
		if !ok {
			list = new([][]byte)
			c.Scratch = list
		}
		data, _, _ := d.Bulk(16<<20, (*list)[:0])
		*list = data
		if d.Err() != nil {
			c.ReplyAccept(GarbageArgs)
			return
		}
		sum := uint32(0)
		for _, b := range data {
			sum = crc32.Update(sum, crc32.IEEETable, b)
		}
		e, err := c.BeginReply(MinReplyLen + 4)
		if err != nil {
			c.ReplyAccept(SystemErr)
			return
		}
		e.Uint32(sum)
		c.Respond()
	case procBack:
		s.back(c)
	case procHold:
		select {
		case s.held <- c:
		default:
			c.Supersede()
		}
	case procDrop:
		c.Supersede()
	case procGiveUp:
		c.Drop()
	case procPool:
		d := c.Args()
		n := int(d.Uint32())
		b, err := c.Pool().Get(n)
		if err != nil || d.Err() != nil {
			c.ReplyAccept(SystemErr)
			return
		}
		e, err := c.BeginReply(MinReplyLen + 4)
		if err != nil {
			b.Release()
			c.ReplyAccept(SystemErr)
			return
		}
		c.Reply.Own(b)
		e.Bulk(c.Reply.Keep([][]byte{b.B}), n)
		c.Respond()
	case procLong:
		e, err := c.BeginReply(64)
		if err != nil {
			c.ReplyAccept(SystemErr)
			return
		}
		e.Opaque(make([]byte, 100))
		c.Respond()
	default:
		c.ReplyAccept(ProcUnavail)
	}
}

func (s *testService) get(c *Call) {
	d := c.Args()
	n := int(d.Uint32())
	if d.Err() != nil || n > 16<<20 {
		c.ReplyAccept(GarbageArgs)
		return
	}
	e, err := c.BeginReply(MinReplyLen + 8)
	if err != nil {
		c.ReplyAccept(SystemErr)
		return
	}
	var data [][]byte
	content := fill(n, n)
	for left := n; left > 0; {
		b, err := c.Pool().Get(min(left, 100_000))
		if err != nil {
			c.ReplyAccept(SystemErr)
			return
		}
		c.Reply.Own(b)
		copy(b.B, content[n-left:])
		data = append(data, b.B)
		left -= len(b.B)
	}
	e.Bulk(data, n)
	e.Uint32(0xe0d)
	c.Respond()
}

func (s *testService) back(c *Call) {
	d := c.Args()
	b := d.Opaque(1000)
	r, e, err := NewRequest(c.Pool(), testProgram, 1, procEcho, Auth{}, 2000)
	if err != nil || d.Err() != nil {
		c.ReplyAccept(SystemErr)
		return
	}
	e.Opaque(b)
	if err := r.Seal(); err != nil {
		c.ReplyAccept(SystemErr)
		return
	}
	r.Done = func(r *Request) {
		defer r.Free()
		d, err := r.Results()
		if err != nil {
			c.ReplyAccept(SystemErr)
			return
		}
		e, err := c.BeginReply(2000)
		if err != nil {
			c.ReplyAccept(SystemErr)
			return
		}
		e.Opaque(d.Opaque(1000))
		c.Respond()
	}
	Submit(c.Conn.Back, r)
}

// testServer is a server on loopback, whose pool and connections are checked at the end of the
// test.
type testServer struct {
	*Server
	pool    *bufpool.Pool
	service *testService
	addr    string
	served  chan error
}

func startServer(t testing.TB, cfg Config) *testServer {
	t.Helper()
	s := &testServer{pool: bufpool.New(0), service: &testService{held: make(chan *Call, 100)}, served: make(chan error, 1)}
	var mux Mux
	mux.Handle(testProgram, 1, 1, s.service)
	cfg.Pool, cfg.Handler = s.pool, &mux
	var err error
	if s.Server, err = NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	go func() { s.served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-s.served; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve returned %v", err)
		}
		waitFor(t, func() bool { return s.pool.Stats().Bufs == 0 }) // handlers may still be at work
		if err := s.pool.Close(); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return s
}

func dial(t testing.TB, addr string, cfg Config) (*Client, *bufpool.Pool) {
	t.Helper()
	pool := bufpool.New(0)
	cfg.Pool = pool
	c, err := Dial(context.Background(), addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		c.Wait()
		if err := pool.Close(); err != nil {
			t.Errorf("client: %v", err)
		}
	})
	return c, pool
}

// newCall begins a call of the test program.
func newCall(t testing.TB, pool *bufpool.Pool, procedure uint32, size int) (*Request, *xdr.Encoder) {
	t.Helper()
	r, e, err := NewRequest(pool, testProgram, 1, procedure, Auth{}, size)
	if err != nil {
		t.Fatal(err)
	}
	return r, e
}

func echo(t testing.TB, rq Requester, pool *bufpool.Pool, b []byte) {
	t.Helper()
	r, e := newCall(t, pool, procEcho, 100+len(b))
	defer r.Free()
	e.Opaque(b)
	if err := Do(context.Background(), rq, r); err != nil {
		t.Error(err)
		return
	}
	d, err := r.Results()
	if err != nil {
		t.Error(err)
		return
	}
	if got := d.Opaque(1 << 20); !bytes.Equal(got, b) || d.Err() != nil {
		t.Errorf("ECHO of %d bytes: %d bytes, %v", len(b), len(got), d.Err())
	}
}

// callBytes is a call of the test program with empty credential and verifier.
func callBytes(xid, procedure uint32, args ...uint32) []byte {
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 200), nil)
	EncodeCallHeader(&e, xid, testProgram, 1, procedure, Auth{}, Auth{})
	for _, a := range args {
		e.Uint32(a)
	}
	return e.Bytes()
}

func dialRaw(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func readRecord(t testing.TB, conn net.Conn) []byte {
	t.Helper()
	b := make([]byte, 4)
	if _, err := io.ReadFull(conn, b); err != nil {
		t.Fatal(err)
	}
	b = make([]byte, binary.BigEndian.Uint32(b)&^lastFragment)
	if _, err := io.ReadFull(conn, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// waitFor polls until cond holds.
func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for i := 0; !cond(); i++ {
		if i == 10_000 {
			t.Fatal("waited in vain")
		}
		time.Sleep(time.Millisecond)
	}
}

// events records an observer's events.
type events struct {
	NoObserver
	mu                                sync.Mutex
	opened, closed, refused, received int
	replied, bad                      int
	in, out                           int
	causes                            []error
}

func (e *events) do(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

func (e *events) ConnOpened(*Conn) { e.do(func() { e.opened++ }) }

func (e *events) ConnClosed(_ *Conn, cause error) {
	e.do(func() { e.closed++; e.causes = append(e.causes, cause) })
}

func (e *events) ConnRefused(_ netip.AddrPort, cause error) {
	e.do(func() { e.refused++; e.causes = append(e.causes, cause) })
}

func (e *events) CallReceived(_ *Call, b Bytes) { e.do(func() { e.received++; e.in += b.Inline }) }

func (e *events) ReplySent(c *Call, b Bytes, took time.Duration) {
	e.do(func() { e.replied++; e.out += b.Inline })
}

func (e *events) BadMessage(*Conn, error) { e.do(func() { e.bad++ }) }

func (e *events) count(n *int) func() int {
	return func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return *n
	}
}

func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links)
}
