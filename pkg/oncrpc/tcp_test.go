package oncrpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
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
	procBack    = 4 // opaque<> -> what the client's own ECHO makes of it, by a call in the other direction
	procHold    = 5 // answered when told so
	procDrop    = 6 // never answered
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
		s.held <- c
	case procDrop:
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

// testServer is a server on loopback, whose pool and connections are checked at the end of the test.
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

func TestTCP(t *testing.T) {
	s := startServer(t, Config{MaxRecord: 8 << 20})
	c, pool := dial(t, s.addr, Config{MaxRecord: 8 << 20})
	for _, n := range []int{0, 1, 2, 3, 4, 100, 16<<10 - 100, 16 << 10, 17 << 10, 64 << 10, 1 << 20} {
		echo(t, c, pool, fill(n, 1))
	}
	for _, n := range []int{0, 1, 4093, 100_001, 1 << 20, 5 << 20} {
		r, e := newCall(t, pool, procGet, 100)
		e.Uint32(uint32(n))
		if err := Do(context.Background(), c, r); err != nil {
			t.Fatal(err)
		}
		d, err := r.Results()
		if err != nil {
			t.Fatal(err)
		}
		data, length, taken := d.Bulk(8<<20, nil)
		if length != n || taken || !bytes.Equal(bytes.Join(data, nil), fill(n, n)) || d.Uint32() != 0xe0d || d.Left() != 0 || d.Err() != nil {
			t.Errorf("GET of %d bytes: %d, an item: %v, %v", n, length, taken, d.Err())
		}
		r.Free()

		r, e = newCall(t, pool, procSum, 100)
		b := fill(n, 9)
		e.Bulk([][]byte{b[:n/3], b[n/3:]}, n)
		if err := Do(context.Background(), c, r); err != nil {
			t.Fatal(err)
		}
		if d, err = r.Results(); err != nil {
			t.Fatal(err)
		}
		if sum := d.Uint32(); sum != crc32.ChecksumIEEE(b) {
			t.Errorf("SUM of %d bytes: %#x", n, sum)
		}
		r.Free()
	}
	for _, tt := range []struct {
		program, version, procedure uint32
		want                        Status
	}{
		{testProgram, 1, 99, Status{Accept: ProcUnavail}},
		{testProgram, 2, 0, Status{Accept: ProgMismatch, Low: 1, High: 1}},
		{testProgram + 1, 1, 0, Status{Accept: ProgUnavail}},
		{testProgram, 1, procEcho, Status{Accept: GarbageArgs}},
		{testProgram, 1, procLong, Status{Accept: SystemErr}},
	} {
		r, _, err := NewRequest(pool, tt.program, tt.version, tt.procedure, Auth{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		if err := Do(context.Background(), c, r); err != nil {
			t.Fatal(err)
		}
		_, err = r.Results()
		var status *StatusError
		if !errors.As(err, &status) || status.Status != tt.want {
			t.Errorf("program %d version %d procedure %d: %v, want %v", tt.program, tt.version, tt.procedure, err, tt.want)
		}
		r.Free()
	}
}

// TestTCPConcurrent: many calls of all kinds at once on several connections, in both directions.
func TestTCPConcurrent(t *testing.T) {
	budget := bufpool.NewBudget(6<<20, 3<<20)
	s := startServer(t, Config{MaxCalls: 20, Budget: budget, MaxRecord: 3 << 20})
	var wg sync.WaitGroup
	for k := range 3 {
		var mux Mux
		mux.Handle(testProgram, 1, 1, &testService{})
		c, pool := dial(t, s.addr, Config{Handler: &mux})
		for g := range 12 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(g), uint64(k)))
				for range 30 {
					switch n := rnd.IntN(1 << rnd.IntN(20)); rnd.IntN(4) {
					case 0:
						echo(t, c, pool, fill(n, g))
					case 1:
						r, e := newCall(t, pool, procGet, 100)
						e.Uint32(uint32(n))
						if err := Do(context.Background(), c, r); err != nil {
							t.Error(err)
						} else if d, err := r.Results(); err != nil {
							t.Error(err)
						} else if data, _, _ := d.Bulk(1<<20, nil); !bytes.Equal(bytes.Join(data, nil), fill(n, n)) {
							t.Errorf("GET of %d bytes is wrong", n)
						}
						r.Free()
					case 2:
						r, e := newCall(t, pool, procSum, 100)
						b := fill(n, g)
						e.Bulk([][]byte{b}, n)
						if err := Do(context.Background(), c, r); err != nil {
							t.Error(err)
						} else if d, err := r.Results(); err != nil {
							t.Error(err)
						} else if d.Uint32() != crc32.ChecksumIEEE(b) {
							t.Errorf("SUM of %d bytes is wrong", n)
						}
						r.Free()
					case 3:
						b := fill(n%1000, g)
						r, e := newCall(t, pool, procBack, 2000)
						e.Opaque(b)
						if err := Do(context.Background(), c, r); err != nil {
							t.Error(err)
						} else if d, err := r.Results(); err != nil {
							t.Error(err)
						} else if !bytes.Equal(d.Opaque(1000), b) {
							t.Error("BACK is wrong")
						}
						r.Free()
					}
				}
			})
		}
	}
	wg.Wait()
	if budget.Used() != 0 || budget.Waiting() != 0 {
		t.Errorf("bulk budget: %d used, %d waiting", budget.Used(), budget.Waiting())
	}
}

// TestTCPBatch: a burst of calls costs one read and one write at the server.
func TestTCPBatch(t *testing.T) {
	s := startServer(t, Config{})
	conn := dialRaw(t, s.addr)
	var burst []byte
	for i := range 32 {
		burst = append(burst, marked(callBytes(uint32(i), procNull))...)
	}
	if _, err := conn.Write(burst); err != nil {
		t.Fatal(err)
	}
	for i := range 32 {
		if got := readRecord(t, conn); binary.BigEndian.Uint32(got) != uint32(i) {
			t.Fatalf("reply %d is %x", i, got)
		}
	}
	waitFor(t, func() bool { return s.Stats().RecordsOut == 32 })
	if st := s.Stats(); st.RecordsIn != 32 || st.ReadCalls > 2 || st.WriteCalls > 2 {
		t.Errorf("%+v", st)
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

// waitFor waits until cond holds, which some other goroutine is about to bring about.
func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for i := 0; !cond(); i++ {
		if i == 10_000 {
			t.Fatal("waited in vain")
		}
		time.Sleep(time.Millisecond)
	}
}

// events records what an observer is told.
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

// TestTCPBadInput: each bad peer gets what the protocol says, and nobody else notices.
func TestTCPBadInput(t *testing.T) {
	var seen events
	s := startServer(t, Config{MaxRecord: 100_000, Observer: &seen})
	other, pool := dial(t, s.addr, Config{})
	echo(t, other, pool, fill(10, 1))
	for _, tt := range []struct {
		name  string
		send  []byte
		reply string // "" closes the connection
	}{
		{"record too long", []byte{0x80, 1, 0x86, 0xa1}, ""},
		{"no RPC at all", []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"), ""},
		{"empty record", marked(nil), ""},
		{"seven bytes", marked(make([]byte, 7)), ""},
		{"header cut", marked(callBytes(1, 0)[:36]), ""},
		{"message type 2", marked([]byte{0, 0, 0, 1, 0, 0, 0, 2}), ""},
		{"large of message type 9", marked(append([]byte{0, 0, 0, 1, 0, 0, 0, 9}, make([]byte, 60_000)...)), ""},
		{"RPC version 4", marked([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4}), "00000001 00000001 00000001 00000000 00000002 00000002"},
		{"credential too long", marked(append(callBytes(1, 0)[:28], 0, 0, 2, 0)), "00000001 00000001 00000001 00000001 00000001"},
		{"no arguments", marked(callBytes(1, procEcho)), "00000001 00000001 00000000 00000000 00000000 00000004"},
		{"length beyond the message", marked(callBytes(1, procSum, 1<<31)), "00000001 00000001 00000000 00000000 00000000 00000004"},
		{"reply to nothing", append(marked(unhex(t, "00000001 00000001 00000000 00000000 00000000 00000000")), marked(callBytes(1, 0))...), "00000001 00000001 00000000 00000000 00000000 00000000"},
		{"large reply to nothing", append(marked(append(unhex(t, "00000001 00000001"), make([]byte, 90_000)...)), marked(callBytes(1, 0))...), "00000001 00000001 00000000 00000000 00000000 00000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := dialRaw(t, s.addr)
			if _, err := conn.Write(tt.send); err != nil {
				t.Fatal(err)
			}
			if tt.reply != "" {
				if got := readRecord(t, conn); !bytes.Equal(got, unhex(t, tt.reply)) {
					t.Errorf("reply is %x", got)
				}
				return
			}
			if n, err := conn.Read(make([]byte, 100)); n != 0 || err == nil {
				t.Errorf("answered with %d bytes", n)
			}
		})
	}
	for cut := range len(marked(callBytes(1, 0))) {
		conn := dialRaw(t, s.addr)
		if _, err := conn.Write(marked(callBytes(1, 0))[:cut]); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	echo(t, other, pool, fill(10, 1))
	waitFor(t, func() bool { return s.connections() == 1 })
	if n := seen.count(&seen.bad)(); n != 9 {
		t.Errorf("%d bad messages were reported, want 9", n)
	}
}

func (s *Server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links)
}

func TestTCPObserver(t *testing.T) {
	var seen events
	s := startServer(t, Config{Observer: &seen, MaxConns: 1})
	c, pool := dial(t, s.addr, Config{})
	echo(t, c, pool, fill(10, 1))
	refused := dialRaw(t, s.addr)
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a connection too many was served")
	}
	waitFor(t, func() bool { return seen.count(&seen.refused)() == 1 })
	_ = c.Close()
	waitFor(t, func() bool { return seen.count(&seen.closed)() == 1 })
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.opened != 1 || seen.received != 1 || seen.replied != 1 || seen.in != 56 || seen.out != 40 {
		t.Errorf("%+v", &seen)
	}
	if !errors.Is(seen.causes[0], ErrTooManyConns) || !errors.Is(seen.causes[1], io.EOF) {
		t.Errorf("causes are %v", seen.causes)
	}
}

// TestTCPMaxCalls: with all places taken nothing more is read, and everything goes on when one is free.
func TestTCPMaxCalls(t *testing.T) {
	var seen events
	s := startServer(t, Config{MaxCalls: 2, Observer: &seen})
	conn := dialRaw(t, s.addr)
	var burst []byte
	for i := range uint32(5) {
		burst = append(burst, marked(callBytes(i, procHold))...)
	}
	if _, err := conn.Write(burst); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(5) {
		c := <-s.service.held
		if n := seen.count(&seen.received)(); n > int(i)+2 {
			t.Errorf("%d calls in flight", n-int(i))
		}
		c.ReplyAccept(Success)
		if got := readRecord(t, conn); binary.BigEndian.Uint32(got) != i {
			t.Errorf("reply is %x", got)
		}
	}
}

// TestTCPBulkBudget: a large call holds nothing while it waits for its memory, and a connection that goes away gives back what it has.
func TestTCPBulkBudget(t *testing.T) {
	budget := bufpool.NewBudget(2<<20, 2<<20)
	s := startServer(t, Config{Budget: budget, MaxRecord: 2 << 20})
	var g bufpool.Grant
	if ok, err := budget.Share().Acquire(&g, 2<<20, func() {}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	large := func(conn net.Conn) {
		if _, err := conn.Write(marked(append(callBytes(7, procSum, 100_000), make([]byte, 100_000)...))); err != nil {
			t.Fatal(err)
		}
	}
	gone, stays := dialRaw(t, s.addr), dialRaw(t, s.addr)
	large(gone)
	waitFor(t, func() bool { return budget.Waiting() == 1 })
	large(stays)
	waitFor(t, func() bool { return budget.Waiting() == 2 })
	other, pool := dial(t, s.addr, Config{})
	echo(t, other, pool, fill(100, 1)) // small calls do not wait
	s.mu.Lock()
	for l := range s.links {
		if l.conn.Remote == addrPort(gone.LocalAddr()) {
			go l.fail(net.ErrClosed)
		}
	}
	s.mu.Unlock()
	waitFor(t, func() bool { return budget.Waiting() == 1 })
	g.Release()
	if got := readRecord(t, stays); len(got) != MinReplyLen+4 {
		t.Errorf("reply is %x", got)
	}
	waitFor(t, func() bool { return budget.Used() == 0 && budget.Waiting() == 0 })

	// A record that is never completed gives its memory back with its connection.
	if _, err := stays.Write(marked(append(callBytes(8, procSum, 100_000), make([]byte, 100_000)...))[:50_000]); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return budget.Used() > 100_000 })
	_ = stays.Close()
	waitFor(t, func() bool { return budget.Used() == 0 })
}

// TestTCPFragments: a call may come in fragments of any kind.
func TestTCPFragments(t *testing.T) {
	budget := bufpool.NewBudget(2<<20, 2<<20)
	s := startServer(t, Config{Budget: budget})
	conn := dialRaw(t, s.addr)
	data := fill(200_000, 3)
	call := append(callBytes(7, procSum, uint32(len(data))), data...)
	for _, fragments := range [][]int{nil, {1, 2, 3}, {44, 100_000}, {4, 4, 32, 4}, {199_000}, {0, 0, 0}, {30_000, 30_000, 30_000}} {
		if _, err := conn.Write(marked(call, fragments...)); err != nil {
			t.Fatal(err)
		}
		if got := readRecord(t, conn); binary.BigEndian.Uint32(got[MinReplyLen:]) != crc32.ChecksumIEEE(data) {
			t.Errorf("fragments %v: reply is %x", fragments, got)
		}
	}
}

// TestTCPSlowReader: a peer that does not take its replies holds up nobody but itself, and is cut off in the end.
func TestTCPSlowReader(t *testing.T) {
	var seen events
	s := startServer(t, Config{WriteTimeout: 50 * time.Millisecond, Observer: &seen})
	slow := dialRaw(t, s.addr)
	var burst []byte
	for i := range uint32(40) {
		burst = append(burst, marked(callBytes(i, procGet, 1<<20))...)
	}
	if _, err := slow.Write(burst); err != nil {
		t.Fatal(err)
	}
	c, pool := dial(t, s.addr, Config{})
	echo(t, c, pool, fill(10, 1))
	waitFor(t, func() bool { return seen.count(&seen.closed)() == 1 })
	echo(t, c, pool, fill(10, 1))
}

// TestTCPBackpressure: replies that do not fit into the socket go out as the peer takes them, in one piece each.
func TestTCPBackpressure(t *testing.T) {
	s := startServer(t, Config{})
	conn := dialRaw(t, s.addr)
	const calls, size = 60, 1 << 19
	var burst []byte
	for i := range uint32(calls) {
		burst = append(burst, marked(callBytes(i, procGet, size))...)
	}
	if _, err := conn.Write(burst); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return s.Stats().BytesOut > 0 })
	want := crc32.ChecksumIEEE(fill(size, size))
	seen := map[uint32]bool{}
	for range calls {
		got := readRecord(t, conn)
		seen[binary.BigEndian.Uint32(got)] = true
		if crc32.ChecksumIEEE(got[MinReplyLen+4:MinReplyLen+4+size]) != want {
			t.Fatal("a reply is garbled")
		}
	}
	if len(seen) != calls {
		t.Errorf("%d different replies", len(seen))
	}
}

func TestTCPShutdown(t *testing.T) {
	s := startServer(t, Config{})
	busy, pool := dial(t, s.addr, Config{})
	lazy := dialRaw(t, s.addr) // hangs up for nobody: until the linger time is over
	if _, err := lazy.Write(marked(callBytes(1, procNull))); err != nil {
		t.Fatal(err)
	}
	readRecord(t, lazy)
	r, _ := newCall(t, pool, procHold, 100)
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 2)
	done := func(r *Request) { answered <- r.Err }
	r.Done = done
	Submit(busy, r)
	c := <-s.service.held

	over := make(chan error, 1)
	go func() { over <- s.Shutdown(context.Background()) }()
	waitFor(t, func() bool { return errors.Is(<-s.served, net.ErrClosed) })
	s.served <- net.ErrClosed
	if conn, err := net.Dial("tcp", s.addr); err == nil {
		_ = conn.Close()
		t.Error("a server that shuts down accepts")
	}
	waitFor(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := 0
		for l := range s.links {
			l.mu.Lock()
			if l.draining {
				n++
			}
			l.mu.Unlock()
		}
		return n == len(s.links)
	})
	late, _ := newCall(t, pool, procHold, 100) // not executed any more
	if err := late.Seal(); err != nil {
		t.Fatal(err)
	}
	late.Done = done
	Submit(busy, late)
	waitFor(t, func() bool { return s.Stats().RecordsIn >= 3 })
	select {
	case err := <-over:
		t.Fatalf("Shutdown returned %v with a call in flight", err)
	case err := <-answered:
		t.Fatalf("a call came back with %v", err)
	default:
	}
	c.ReplyAccept(Success)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight failed: %v", err)
	}
	if _, err := r.Results(); err != nil {
		t.Error(err)
	}
	if err := <-answered; !errors.Is(err, io.EOF) {
		t.Errorf("the late call: %v, want EOF", err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if len(s.service.held) != 0 {
		t.Error("the late call was executed")
	}
	r.Free()
	late.Free()
}

func TestTCPShutdownTimeout(t *testing.T) {
	s := startServer(t, Config{})
	conn := dialRaw(t, s.addr)
	if _, err := conn.Write(marked(callBytes(1, procHold))); err != nil {
		t.Fatal(err)
	}
	c := <-s.service.held
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v", err)
	}
	select {
	case <-c.Conn.Done:
	default:
		t.Error("the connection is not done")
	}
	c.ReplyAccept(Success) // goes nowhere, and loses nothing
}

// TestTCPIdle: only a connection on which nothing goes on is closed.
func TestTCPIdle(t *testing.T) {
	var seen events
	s := startServer(t, Config{IdleTimeout: 60 * time.Millisecond, Observer: &seen})
	waits := dialRaw(t, s.addr) // for a call that takes long
	if _, err := waits.Write(marked(callBytes(1, procHold))); err != nil {
		t.Fatal(err)
	}
	call := <-s.service.held
	_ = dialRaw(t, s.addr)
	half := dialRaw(t, s.addr) // never ends its message, but sends all the time
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		b := marked(append(callBytes(1, procSum, 1_000_000), make([]byte, 1_000_000)...))
		for i := 0; i < len(b); i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				_, _ = half.Write(b[i : i+1])
			}
		}
	})
	waitFor(t, func() bool { return seen.count(&seen.closed)() == 2 })
	close(stop)
	wg.Wait()
	call.ReplyAccept(Success)
	readRecord(t, waits)
	waitFor(t, func() bool { return seen.count(&seen.closed)() == 3 })
	for _, cause := range seen.causes {
		if !errors.Is(cause, ErrIdle) {
			t.Errorf("closed because of %v", cause)
		}
	}
}

// TestTCPConnectionLost: every request fails with the cause, those before and those after.
func TestTCPConnectionLost(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	var failed atomic.Int32
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			r, _ := newCall(t, pool, procDrop, 100)
			defer r.Free()
			if err := Do(context.Background(), c, r); errors.Is(err, io.EOF) {
				failed.Add(1)
			} else {
				t.Errorf("failed with %v, want EOF", err)
			}
		})
	}
	waitFor(t, func() bool { return s.Stats().RecordsIn == 10 })
	_ = s.Close()
	wg.Wait()
	<-c.Done()
	if c.Err() == nil || failed.Load() != 10 {
		t.Errorf("%v, %d failed", c.Err(), failed.Load())
	}
	r, _ := newCall(t, pool, procNull, 100)
	defer r.Free()
	if err := Do(context.Background(), c, r); !errors.Is(err, io.EOF) {
		t.Errorf("a later request: %v", err)
	}
}

// TestTCPCancel: a cancelled request fails at once, and its late reply disturbs nobody.
func TestTCPCancel(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("changed my mind")
	r, _ := newCall(t, pool, procHold, 100)
	go func() {
		waitFor(t, func() bool { return len(s.service.held) == 1 })
		cancel(why)
	}()
	if err := Do(ctx, c, r); !errors.Is(err, why) {
		t.Errorf("failed with %v", err)
	}
	c.Cancel(r, io.EOF) // it is done: nothing happens
	r.Free()
	call := <-s.service.held
	e, err := call.BeginReply(100_000)
	if err != nil {
		t.Fatal(err)
	}
	e.Opaque(make([]byte, 90_000)) // large: skipped without memory
	call.Respond()
	echo(t, c, pool, fill(100, 1))
	if n := c.Stats().Orphans; n != 1 {
		t.Errorf("%d orphans", n)
	}
}

func TestTCPSameXID(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	r, _ := newCall(t, pool, procDrop, 100)
	failed := make(chan error, 1)
	r.Done = func(r *Request) { failed <- r.Err }
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	Submit(c, r)
	twin, _ := newCall(t, pool, procNull, 100)
	if err := twin.Seal(); err != nil {
		t.Fatal(err)
	}
	twin.SetXID(r.XID)
	refused := make(chan error, 1)
	twin.Done = func(r *Request) { refused <- r.Err }
	c.Submit(twin)
	if err := <-refused; err == nil {
		t.Error("two requests with one XID")
	}
	twin.Free()
	_ = c.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("failed with %v", err)
	}
	r.Free()
	_ = s
}

func TestTCPConfig(t *testing.T) {
	pool := bufpool.New(0)
	for _, cfg := range []Config{
		{}, {Pool: pool}, {Pool: pool, Handler: &Mux{}, MaxRecord: 10}, {Pool: pool, Handler: &Mux{}, MaxRecord: 1 << 31}, {Pool: pool, Handler: &Mux{}, MaxCalls: -1},
		{Pool: pool, Handler: &Mux{}, ReadBuffer: bufpool.MaxSize + 1}, {Pool: pool, Handler: &Mux{}, WriteTimeout: -1}, {Pool: pool, Handler: &Mux{}, MaxConns: -5},
	} {
		if _, err := NewServer(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := NewClient(a, Config{Pool: pool}); err == nil {
		t.Error("a pipe was accepted")
	}
	if _, err := Dial(context.Background(), "127.0.0.1:1", Config{Pool: pool}); err == nil {
		t.Error("connected to nothing")
	}
}

// TestTCPIdleMemory: a connection on which nothing happens holds no memory of the pool. (What it read last stays
// while somebody has a view of it.)
func TestTCPIdleMemory(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	for range 3 {
		echo(t, c, pool, fill(1000, 1))
		waitFor(t, func() bool { return s.pool.Stats().Bufs == 0 })
	}
}
