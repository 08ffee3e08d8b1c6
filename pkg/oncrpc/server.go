package oncrpc

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ErrTooManyConns is the cause of a refused connection above Config.MaxConns.
var ErrTooManyConns = errors.New("oncrpc: too many connections")

// Server serves RPC over TCP with record marking (RFC 5531 section 11).
type Server struct {
	cfg Config

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	links     map[*link]struct{}
	closing   bool
	gone      Stats // of ended connections
	running   sync.WaitGroup
}

// NewServer makes a server. Config.Handler is required.
func NewServer(cfg Config) (*Server, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	if cfg.Handler == nil {
		return nil, errors.New("oncrpc: Config.Handler is nil, must be a handler")
	}
	return &Server{cfg: cfg, listeners: map[net.Listener]struct{}{}, links: map[*link]struct{}{}}, nil
}

// Serve accepts connections of l, which must be TCP, until Shutdown or Close; then it returns
// net.ErrClosed. It closes l. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	defer func() { _ = l.Close() }()
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	var pause time.Duration
	for {
		conn, err := l.Accept()
		if err == nil {
			pause = 0
			s.start(conn)
			continue
		}
		s.mu.Lock()
		closing := s.closing
		s.mu.Unlock()
		if closing || errors.Is(err, net.ErrClosed) {
			return net.ErrClosed
		}
		// out of descriptors or memory; the peer gave up
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			return err
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		time.Sleep(pause)
	}
}

// start serves one connection, or refuses it.
func (s *Server) start(conn net.Conn) {
	sock, err := newTCPSocket(conn, &s.cfg)
	if err != nil {
		_ = conn.Close()
		s.refused(conn, err)
		return
	}
	l := newLink(&s.cfg, sock, conn.LocalAddr(), conn.RemoteAddr())
	s.mu.Lock()
	switch {
	case s.closing:
		err = ErrShutdown
	case len(s.links) >= s.cfg.MaxConns:
		err = ErrTooManyConns
	default:
		s.links[l] = struct{}{}
		s.running.Go(func() { s.serve(l) })
	}
	s.mu.Unlock()
	if err != nil {
		_ = sock.close() // conn may have lost its descriptor
		s.refused(conn, err)
	}
}

func (s *Server) refused(conn net.Conn, err error) {
	if s.cfg.Observer != nil {
		s.cfg.Observer.ConnRefused(addrPort(conn.RemoteAddr()), err)
	}
}

func (s *Server) serve(l *link) {
	l.serve()
	l.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
	s.gone.Add(l.stats.snapshot())
}

// Shutdown stops listening, lets the calls in flight finish, and ends each connection when its last
// reply has left. Calls that arrive meanwhile are not executed. When ctx ends first, the rest is
// closed as by Close, and ctx's error is returned. A handler must not call it.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, l := range s.stop() {
		l.drain()
	}
	finished := make(chan struct{})
	go func() {
		s.running.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		err := context.Cause(ctx)
		_ = s.Close()
		<-finished
		return err
	}
}

// Close closes all listeners and connections at once, and returns when their goroutines have ended.
// Handlers may still hold calls; their replies are dropped. A handler must not call it.
func (s *Server) Close() error {
	for _, l := range s.stop() {
		l.fail(net.ErrClosed)
	}
	s.running.Wait()
	return nil
}

// stop ends accepting and returns the connections.
func (s *Server) stop() (links []*link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for l := range s.listeners {
		_ = l.Close()
	}
	for l := range s.links {
		links = append(links, l)
	}
	return links
}

// Stats returns the sums over all connections since the server was made.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.gone
	for l := range s.links {
		sum.Add(l.stats.snapshot())
	}
	return sum
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}
