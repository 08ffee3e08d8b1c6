package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// echoServer answers every call with its XID and source port, sometimes late. It can be stopped and
// restarted.
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

// holdBack makes calls wait for release.
func (s *echoServer) holdBack() {
	s.mu.Lock()
	s.hold = true
	s.mu.Unlock()
}

// awaitHeld waits until a call is held.
func (s *echoServer) awaitHeld() {
	for held := 0; held == 0; time.Sleep(100 * time.Microsecond) {
		s.mu.Lock()
		held = len(s.held)
		s.mu.Unlock()
	}
}

// release answers the held calls.
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

// procBack makes the server call its client on the same connection; it answers with the XID only if
// that call succeeds.
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
