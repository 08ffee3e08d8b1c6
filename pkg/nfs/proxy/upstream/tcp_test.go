package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoServer answers every call with its XID and the port that it came from, now and then late, and can be killed and started again.
type echoServer struct {
	t    testing.TB
	rdma rdma.Provider // nil: over TCP
	addr string
	pool *bufpool.Pool

	mu     sync.Mutex
	server func() error // closes it
	served chan error
	ports  map[uint16]bool
	hold   bool // calls are not answered
	held   []*oncrpc.Call
	calls  int
}

func startEcho(t testing.TB, p rdma.Provider) *echoServer {
	t.Helper()
	s := &echoServer{t: t, rdma: p, addr: "127.0.0.1:0", pool: bufpool.New(0), ports: map[uint16]bool{}}
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
	server, serve := s.listen()
	s.mu.Lock()
	s.server, s.served = server, make(chan error, 1)
	served := s.served
	s.mu.Unlock()
	go func() { served <- serve() }()
}

func (s *echoServer) listen() (closeIt, serve func() error) {
	fail := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if s.rdma != nil {
		l, err := s.rdma.Listen(context.Background(), s.addr)
		fail(err)
		s.addr = l.Addr().String()
		domain, err := s.rdma.NewDomain()
		fail(err)
		fail(domain.Register(s.pool))
		server, err := rpcrdma.NewServer(rpcrdma.Config{Pool: s.pool, Domain: domain, Handler: s}, l)
		fail(err)
		return func() error { return errors.Join(server.Close(), domain.Close()) }, server.Serve
	}
	l, err := net.Listen("tcp", s.addr)
	fail(err)
	s.addr = l.Addr().String()
	server, err := oncrpc.NewServer(oncrpc.Config{Pool: s.pool, Handler: s})
	fail(err)
	return server.Close, func() error { return server.Serve(l) }
}

func (s *echoServer) stop() {
	s.mu.Lock()
	server, served := s.server, s.served
	s.mu.Unlock()
	if err := server(); err != nil {
		s.t.Error(err)
	}
	if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) {
		s.t.Error(err)
	}
}

// holdBack has calls wait for release.
func (s *echoServer) holdBack() {
	s.mu.Lock()
	s.hold = true
	s.mu.Unlock()
}

// awaitHeld waits until something is held back.
func (s *echoServer) awaitHeld() {
	for held := 0; held == 0; time.Sleep(100 * time.Microsecond) {
		s.mu.Lock()
		held = len(s.held)
		s.mu.Unlock()
	}
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
		if s.hold || c.Procedure == 1 && rand.IntN(8) == 0 && len(s.held) < 100 {
			s.held = append(s.held, c)
			s.mu.Unlock()
			return
		}
	}
	if c.Procedure == procBack {
		s.mu.Unlock()
		s.callBack(c)
		return
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

// procBack has the server call its client on the same connection, and answer with the XID only if that call is answered.
const procBack = 2

func (s *echoServer) callBack(c *oncrpc.Call) {
	r, _, err := oncrpc.NewRequest(s.pool, cbProgram, 1, 0, oncrpc.Auth{}, oncrpc.MinCallLen)
	if err == nil {
		err = r.Seal()
	}
	if err != nil {
		c.ReplyAccept(oncrpc.SystemErr)
		return
	}
	r.Plan.MaxReply = 100
	r.Done = func(r *oncrpc.Request) {
		defer r.Free()
		if _, err := r.Results(); err != nil {
			c.ReplyAccept(oncrpc.SystemErr)
			return
		}
		s.answer(c)
	}
	oncrpc.Submit(c.Conn.Back, r)
}

const cbProgram = 0x40000000

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
	r.Plan.MaxReply = 100
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
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func newTCPBackend(t testing.TB, addr string, cfg Config) (*Backend, *bufpool.Pool) {
	t.Helper()
	return newBackend(t, nil, addr, cfg)
}

func newBackend(t testing.TB, p rdma.Provider, addr string, cfg Config) (*Backend, *bufpool.Pool) {
	t.Helper()
	pool := bufpool.New(0)
	cfg.Pool = pool
	cfg.Dialer = &TCP{Address: addr, Config: oncrpc.Config{Pool: pool}}
	if p != nil {
		cfg.Dialer = &RDMA{Provider: p, Address: addr, Config: rpcrdma.Config{Pool: pool}}
	}
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
	t.Run("TCP", func(t *testing.T) { testRestart(t, nil, 20_000) })
	t.Run("RDMA", func(t *testing.T) { testRestart(t, rdmatest.NewFabric(rdmatest.Options{}), 5000) })
}

func testRestart(t *testing.T, p rdma.Provider, total int) {
	s := startEcho(t, p)
	b, pool := newBackend(t, p, s.addr, Config{BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond})
	lk := b.Open(client(1), nil)
	const depth = 64
	done := make(chan *Request, depth)
	finished := func(r *Request) {
		d, err := r.Results()
		if err != nil {
			t.Errorf("call %d: %v", r.XID, err)
		} else if x := d.Uint32(); x != r.XID {
			t.Errorf("call %d got the reply to %d", r.XID, x)
		}
		r.Reset()
		done <- r
	}
	for xid := uint32(1); xid <= depth; xid++ {
		r := newRequest(t, pool, xid, 1, xid)
		r.Finished = finished
		lk.Submit(r)
	}
	for answered := 0; answered < total; {
		select {
		case r := <-done:
			answered++
			kill := answered%(total/5) == total/10
			if kill {
				s.holdBack() // so that something is certainly unanswered
			}
			if xid := uint32(answered + depth); xid <= uint32(total) {
				refill(t, pool, r, xid, 1, xid)
				r.Finished = finished
				lk.Submit(r)
			}
			if kill {
				s.awaitHeld()
				s.stop()
				s.start()
			}
		case <-time.After(10 * time.Millisecond): // what the server held back
			s.release()
		}
	}
	last, answer := newRequest(t, pool, uint32(total)+1, 3, 0), make(chan struct{}) // which finds the connection, or has it made
	last.Finished = func(r *Request) {
		if _, err := r.Results(); err != nil {
			t.Errorf("last call: %v", err)
		}
		r.Reset()
		close(answer)
	}
	lk.Submit(last)
	<-answer
	if ports := s.sourcePorts(); p == nil && len(ports) != 1 {
		t.Errorf("the calls came from ports %v, want one", ports)
	}
	if st := b.Status(); st.Resends == 0 || st.Connections != 1 || st.Calls != 0 || st.WaitBytes != 0 {
		t.Errorf("status %+v", st)
	}
	lk.Close()
	if st := b.Status(); st.Detached != 1 {
		t.Errorf("status %+v", st)
	}
}

// TestClosed: what is submitted after the end fails, what was outstanding too.
func TestClosed(t *testing.T) {
	s := startEcho(t, nil)
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

// TestLateReply: the reply to a call that was given up is not taken for the reply to another one with its XID.
func TestLateReply(t *testing.T) {
	came := make(chan *oncrpc.Call, 2)
	addr := startServer(t, handler(func(c *oncrpc.Call) {
		if c.Procedure == 0 {
			c.ReplyAccept(oncrpc.Success)
			return
		}
		came <- c
	}))
	answer := func(c *oncrpc.Call) {
		arg := c.Args().Uint32()
		e, err := c.BeginReply(oncrpc.MinReplyLen + 4)
		if err != nil {
			t.Error(err)
			c.Drop()
			return
		}
		e.Uint32(arg)
		c.Respond()
	}
	b, pool := newTCPBackend(t, addr, Config{SoftTimeout: 50 * time.Millisecond, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond})
	lk := b.Open(client(1), nil)
	done := make(chan struct{})
	submit := func(arg uint32, soft TimeoutPolicy) *Request {
		r := newRequest(t, pool, 7, 1, arg)
		r.Timeout, r.Finished = soft, func(*Request) { done <- struct{}{} }
		lk.Submit(r)
		return r
	}
	r := submit(1, TimeoutAlways)
	first := <-came
	<-done
	if !errors.Is(r.Err, ErrSoftTimeout) {
		t.Errorf("the first call ends with %v, want %v", r.Err, ErrSoftTimeout)
	}
	r.Reset()
	r = submit(2, TimeoutNever)
	second := <-came
	answer(first)
	answer(second)
	<-done
	if d, err := r.Results(); err != nil {
		t.Error(err)
	} else if x := d.Uint32(); x != 2 {
		t.Errorf("the second call got the reply to the one with %d", x)
	}
	r.Reset()
}

// do makes one call by the link, and waits for it.
func do(t testing.TB, lk *Link, pool *bufpool.Pool, xid, procedure uint32) {
	t.Helper()
	r := newRequest(t, pool, xid, procedure, 0)
	done := make(chan struct{})
	r.Finished = func(*Request) { close(done) }
	lk.Submit(r)
	<-done
	if d, err := r.Results(); err != nil {
		t.Errorf("call %d: %v", xid, err)
	} else if x := d.Uint32(); x != xid {
		t.Errorf("call %d got the reply to %d", xid, x)
	}
	r.Reset()
}

// TestCallback: what the backend calls comes to the link's owner.
func TestCallback(t *testing.T) {
	for _, p := range []rdma.Provider{nil, rdmatest.NewFabric(rdmatest.Options{})} {
		s := startEcho(t, p)
		b, pool := newBackend(t, p, s.addr, Config{})
		var calls atomic.Int32
		lk := b.Open(client(1), handler(func(c *oncrpc.Call) {
			if c.Program == cbProgram {
				calls.Add(1)
			}
			c.ReplyAccept(oncrpc.Success)
		}))
		do(t, lk, pool, 1, 0)
		for xid := uint32(2); xid < 10; xid++ {
			do(t, lk, pool, xid, procBack)
		}
		if n := calls.Load(); n != 8 {
			t.Errorf("%d callbacks, want 8", n)
		}
		nobody := b.Open(client(2), nil)
		do(t, nobody, pool, 1, 0)
		r := newRequest(t, pool, 1, procBack, 0)
		done := make(chan struct{})
		r.Finished = func(*Request) { close(done) }
		nobody.Submit(r)
		<-done
		var refused *oncrpc.StatusError
		if _, err := r.Results(); !errors.As(err, &refused) || refused.Status.Accept != oncrpc.SystemErr {
			t.Errorf("a callback to nobody: %v", err)
		}
		r.Reset()
	}
}

type handler func(*oncrpc.Call)

func (h handler) ServeRPC(c *oncrpc.Call) { h(c) }

// TestOneWrite: what is submitted while the link is held leaves by one write.
func TestOneWrite(t *testing.T) {
	b, pool := newTCPBackend(t, startServer(t, quick{}), Config{})
	lk := b.Open(client(1), nil)
	var running sync.WaitGroup
	submit := func(xid uint32) {
		r := newRequest(t, pool, xid, 1, 0)
		running.Add(1)
		r.Finished = func(r *Request) {
			if r.Err != nil {
				t.Error(r.Err)
			}
			r.Reset()
			running.Done()
		}
		lk.Submit(r)
	}
	submit(1)
	running.Wait()
	conn := lk.bc.Load().live.Load().Conn.(tcpConn)
	before := conn.Stats().WriteCalls
	lk.Cork()
	for xid := uint32(2); xid < 20; xid++ {
		submit(xid)
	}
	lk.Uncork()
	running.Wait()
	if n := conn.Stats().WriteCalls - before; n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
}

// TestDial: connections of the gateway's own, which end with the backend at the latest.
func TestDial(t *testing.T) {
	s := startEcho(t, nil)
	b, pool := newTCPBackend(t, s.addr, Config{})
	ctx := context.Background()
	for _, dial := range []func() (Conn, error){
		func() (Conn, error) { return b.Dial(ctx) },
		func() (Conn, error) { return b.DialTCP(ctx, s.addr) },
	} {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := oncrpc.NewRequest(pool, nfsProgram, 3, 0, oncrpc.Auth{}, oncrpc.MinCallLen)
		if err != nil {
			t.Fatal(err)
		}
		if err := oncrpc.Do(ctx, conn, r); err != nil {
			t.Error(err)
		}
		r.Free()
	}
	conn, err := b.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	conn.Wait()
	if st := b.Status(); st.Ports != 0 {
		t.Errorf("status %+v", st)
	}
	if _, err := b.Dial(ctx); err == nil {
		t.Error("a closed backend was dialled")
	}
}
