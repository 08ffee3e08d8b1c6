package upstream

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoServer answers every call with its XID and the port that it came from, now and then late, and can be killed and started again.
type echoServer struct {
	t    testing.TB
	addr string
	pool *bufpool.Pool

	mu     sync.Mutex
	server *oncrpc.Server
	served chan error
	ports  map[uint16]bool
	hold   bool // calls are not answered
	held   []*oncrpc.Call
	calls  int
}

func startEcho(t testing.TB) *echoServer {
	t.Helper()
	s := &echoServer{t: t, addr: "127.0.0.1:0", pool: bufpool.New(0), ports: map[uint16]bool{}}
	s.start()
	t.Cleanup(func() {
		s.stop()
		s.release()
		if err := s.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *echoServer) start() {
	s.t.Helper()
	var l net.Listener
	var err error
	for range 1000 { // a connection that was accepted meanwhile may have its address
		if l, err = net.Listen("tcp", s.addr); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	server, err := oncrpc.NewServer(oncrpc.Config{Pool: s.pool, Handler: s})
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.server, s.served = server, make(chan error, 1)
	served := s.served
	s.mu.Unlock()
	go func() { served <- server.Serve(l) }()
}

func (s *echoServer) stop() {
	s.mu.Lock()
	server, served := s.server, s.served
	s.mu.Unlock()
	if err := server.Close(); err != nil {
		s.t.Error(err)
	}
	<-served
}

// release answers what was held back.
func (s *echoServer) release() {
	s.mu.Lock()
	held := s.held
	s.hold, s.held = false, nil
	s.mu.Unlock()
	for _, c := range held {
		s.answer(c)
	}
}

func (s *echoServer) ServeRPC(c *oncrpc.Call) {
	s.mu.Lock()
	if c.Procedure != 0 {
		s.ports[c.Conn.Remote.Port()] = true
		s.calls++
		if s.hold || rand.IntN(8) == 0 && len(s.held) < 100 {
			s.held = append(s.held, c)
			s.mu.Unlock()
			return
		}
	}
	var late *oncrpc.Call
	if n := len(s.held); n > 0 && !s.hold {
		late, s.held = s.held[n-1], s.held[:n-1]
	}
	s.mu.Unlock()
	s.answer(c)
	if late != nil {
		s.answer(late)
	}
}

func (s *echoServer) answer(c *oncrpc.Call) {
	e, err := c.BeginReply(oncrpc.MinReplyLen + 4)
	if err != nil {
		c.ReplyAccept(oncrpc.SystemErr)
		return
	}
	e.Uint32(c.XID)
	c.Respond()
}

func (s *echoServer) sourcePorts() (list []uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.ports {
		list = append(list, p)
	}
	return list
}

// newRequest is a call of the procedure with one argument.
func newRequest(t testing.TB, pool *bufpool.Pool, xid, procedure, arg uint32) *Request {
	r := &Request{}
	refill(t, pool, r, xid, procedure, arg)
	return r
}

func refill(t testing.TB, pool *bufpool.Pool, r *Request, xid, procedure, arg uint32) {
	b, err := pool.Get(oncrpc.MinCallLen + 4)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range [...]uint32{xid, oncrpc.MsgCall, oncrpc.RPCVersion, nfsProgram, 3, procedure, 0, 0, 0, 0, arg} {
		binary.BigEndian.PutUint32(b.B[4*i:], v)
	}
	r.Call.Own(b)
	r.Call.Stream = append(r.Call.Stream, b.B)
	r.XID, r.Program, r.Version, r.Procedure, r.ArgsAt = xid, nfsProgram, 3, procedure, oncrpc.MinCallLen
	r.Replay = ReplayByXID
}

// startServer serves h on loopback.
func startServer(t testing.TB, h oncrpc.Handler) (addr string) {
	t.Helper()
	pool := bufpool.New(0)
	server, err := oncrpc.NewServer(oncrpc.Config{Pool: pool, Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func newTCPBackend(t testing.TB, addr string, cfg Config) (*Backend, *bufpool.Pool) {
	t.Helper()
	pool := bufpool.New(0)
	cfg.Pool = pool
	cfg.Dialer = &TCP{Address: addr, Config: oncrpc.Config{Pool: pool}}
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, pool
}

func client(port uint16) *oncrpc.Conn {
	return &oncrpc.Conn{Network: "tcp", Remote: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), port)}
}

// TestRestart: the server is killed and started again under load. Every call is answered, with its own XID, and all come from one port.
func TestRestart(t *testing.T) {
	s := startEcho(t)
	b, pool := newTCPBackend(t, s.addr, Config{BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond})
	lk := b.Open(client(1), nil)
	const depth, total = 64, 20_000
	var mu sync.Mutex
	next, answered := uint32(depth), 0
	over := make(chan struct{})
	reached := make(chan int, total)
	var finished func(*Request)
	finished = func(r *Request) {
		d, err := r.Results()
		if err != nil {
			t.Errorf("call %d: %v", r.XID, err)
		} else if x := d.Uint32(); x != r.XID {
			t.Errorf("call %d got the reply to %d", r.XID, x)
		}
		r.Reset()
		mu.Lock()
		next++
		xid := next
		answered++
		reached <- answered
		if answered == total {
			close(over)
		}
		mu.Unlock()
		if xid <= total {
			refill(t, pool, r, xid, 1, xid)
			r.Finished = finished
			lk.Submit(r)
		}
	}
	for xid := uint32(1); xid <= depth; xid++ {
		r := newRequest(t, pool, xid, 1, xid)
		r.Finished = finished
		lk.Submit(r)
	}
	go func() {
		for n := range reached {
			if n%(total/5) == total/10 {
				s.stop()
				s.start()
			}
			if n == total {
				return
			}
		}
	}()
	for done := false; !done; {
		select {
		case <-over:
			done = true
		case <-time.After(10 * time.Millisecond): // what the server held back
			s.release()
		}
	}
	if ports := s.sourcePorts(); len(ports) != 1 {
		t.Errorf("the calls came from ports %v, want one", ports)
	}
	if st := b.Status(); st.Resends == 0 || st.Connections != 1 || st.Calls != 0 || st.WaitBytes != 0 {
		t.Errorf("status %+v", st)
	}
	lk.Close()
	if st := b.Status(); st.Parked != 1 {
		t.Errorf("status %+v", st)
	}
}

// TestClosed: what is submitted after the end fails, what was outstanding too.
func TestClosed(t *testing.T) {
	s := startEcho(t)
	b, pool := newTCPBackend(t, s.addr, Config{})
	s.mu.Lock()
	s.hold = true
	s.mu.Unlock()
	lk := b.Open(client(1), nil)
	done := make(chan error, 2)
	submit := func(xid uint32) {
		r := newRequest(t, pool, xid, 1, 0)
		r.Finished = func(r *Request) {
			err := r.Err
			r.Reset()
			done <- err
		}
		lk.Submit(r)
	}
	submit(1)
	b.Close()
	submit(2)
	for range 2 {
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("error %v, want %v", err, ErrClosed)
		}
	}
}
