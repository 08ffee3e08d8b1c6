package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/rdma"
)

// listener accepts TCP connections and reads their MPA requests, each in a goroutine of its own, so
// that a slow peer delays no other one.
type listener struct {
	p   *provider
	tcp net.Listener
	wg  sync.WaitGroup

	mu     sync.Mutex
	cond   sync.Cond
	closed bool
	// reading has the connections with an incomplete request, the oldest first; ready the others.
	reading []*net.TCPConn
	ready   []*incoming
}

// Listen implements [rdma.Provider].
func (p *provider) Listen(ctx context.Context, address string) (rdma.Listener, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("iwarp: listening on %q: %w", address, err)
	}
	lc := net.ListenConfig{KeepAlive: -1} // see tune
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("iwarp: %w", err)
	}
	return p.listen(l), nil
}

// NewListener returns a listener that accepts its connections, of type *[net.TCPConn], from l, and
// takes l over. It ends when l's Accept fails with [net.ErrClosed].
func NewListener(cfg Config, l net.Listener) (rdma.Listener, error) {
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return p.(*provider).listen(l), nil
}

func (p *provider) listen(l net.Listener) *listener {
	ln := &listener{p: p, tcp: l}
	ln.cond.L = &ln.mu
	ln.wg.Add(1)
	go ln.run()
	return ln
}

func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

// run accepts TCP connections.
func (l *listener) run() {
	defer l.wg.Done()
	for pause := time.Duration(0); ; {
		conn, err := l.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			l.end()
			return
		}
		if err != nil {
			// Probably out of file descriptors. Existing connections continue.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			l.p.cfg.Logger.Warn("iwarp: accepting a connection failed", "address", l.Addr(), "error", err, "pause", pause)
			time.Sleep(pause)
			continue
		}
		pause = 0
		l.admit(conn.(*net.TCPConn))
	}
}

// admit starts to read the request of a connection. If too many are pending already, it drops the
// one whose request has been incomplete for the longest time; if all others are complete, the new
// one.
func (l *listener) admit(conn *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return
	}
	if len(l.reading)+len(l.ready) >= l.p.cfg.MaxPending {
		victim := conn
		if len(l.reading) > 0 {
			victim = l.reading[0]
		}
		l.p.cfg.Logger.Warn("iwarp: too many connections wait, one is dropped", "address", l.Addr(), "peer", victim.RemoteAddr(), "limit", l.p.cfg.MaxPending)
		l.failed(victim, errPending)
		_ = victim.Close()
		if victim == conn {
			return
		}
		l.reading = l.reading[1:]
	}
	l.reading = append(l.reading, conn)
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		l.read(conn)
	}()
}

// errPending is the cause of a dropped pending connection.
var errPending = errors.New("iwarp: too many connections wait")

func (l *listener) failed(conn *net.TCPConn, cause error) {
	if f := l.p.cfg.Failed; f != nil {
		f(conn.RemoteAddr(), cause)
	}
}

// read reads the request of conn.
func (l *listener) read(conn *net.TCPConn) {
	l.p.tune(conn)
	_ = conn.SetReadDeadline(time.Now().Add(l.p.cfg.RequestTimeout))
	req, err := readMPA(conn, false)
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	found := false
	for i, c := range l.reading {
		if c == conn {
			l.reading = append(l.reading[:i], l.reading[i+1:]...)
			found = true
			break
		}
	}
	if err != nil || !found || l.closed {
		if err != nil && found && !l.closed {
			l.p.cfg.Logger.Info("iwarp: no connection", "address", l.Addr(), "peer", conn.RemoteAddr(), "error", err)
			l.failed(conn, err)
		}
		_ = conn.Close()
		return
	}
	l.ready = append(l.ready, &incoming{p: l.p, conn: conn, req: req})
	l.cond.Signal()
}

// Accept implements [rdma.Listener].
func (l *listener) Accept() (rdma.ConnRequest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.ready) == 0 && !l.closed {
		l.cond.Wait()
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	in := l.ready[0]
	l.ready = append(l.ready[:0], l.ready[1:]...)
	return in, nil
}

// Close implements [rdma.Listener]. It closes connections that were not accepted.
func (l *listener) Close() error {
	var err error
	if l.end() {
		err = l.tcp.Close()
	}
	l.wg.Wait()
	return err
}

// end makes Accept fail, and closes the pending connections. It returns false if it has been called
// before.
func (l *listener) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	for _, c := range l.reading {
		_ = c.Close()
	}
	for _, in := range l.ready {
		_ = in.conn.Close()
	}
	l.reading, l.ready = nil, nil
	l.cond.Broadcast()
	return true
}

// incoming is a request for a connection.
type incoming struct {
	p        *provider
	conn     *net.TCPConn
	req      mpaFrame
	answered bool
}

var errAnswered = errors.New("iwarp: the request has been answered already")

func (in *incoming) PrivateData() []byte  { return in.req.private }
func (in *incoming) SRQKey() any          { return nil }
func (in *incoming) LocalAddr() net.Addr  { return in.conn.LocalAddr() }
func (in *incoming) RemoteAddr() net.Addr { return in.conn.RemoteAddr() }

// Accept implements [rdma.ConnRequest].
func (in *incoming) Accept(o rdma.Options) (rdma.Endpoint, error) {
	if in.answered {
		return nil, errAnswered
	}
	in.answered = true
	e, err := in.accept(&o)
	if err != nil {
		_ = in.conn.Close()
		return nil, err
	}
	return e, nil
}

func (in *incoming) accept(o *rdma.Options) (*endpoint, error) {
	if err := checkOptions(o); err != nil {
		return nil, err
	}
	if err := in.checkSilence(); err != nil {
		return nil, err
	}
	rep, s := in.settle(o)
	// The endpoint first: its receives must be posted before the peer may send.
	e, err := newEndpoint(in.conn, &in.p.cfg, o, s)
	if err != nil {
		return nil, err
	}
	if err := in.reply(&rep); err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

// settle makes the reply to the request, and the resulting parameters.
func (in *incoming) settle(o *rdma.Options) (mpaFrame, mpaParams) {
	req := &in.req
	rep := mpaFrame{reply: true, revision: req.revision, private: o.PrivateData, enhanced: req.enhanced}
	switch in.p.cfg.CRC {
	case CRCRequire:
		rep.crc = true
	case CRCMirror:
		rep.crc = req.crc
	}
	s := mpaParams{private: req.private, crc: req.crc || rep.crc, markers: req.markers, responder: true, ird: o.IRD, ord: o.ORD}
	if !req.enhanced {
		s.ord = min(s.ord, unknownDepth)
		return rep, s
	}
	rep.ord, rep.ird = mpaUnnegotiated, mpaUnnegotiated
	if req.ird != mpaUnnegotiated {
		s.ord = min(s.ord, int(req.ird))
		rep.ord = uint16(s.ord)
	}
	if req.ord != mpaUnnegotiated {
		s.ird = min(s.ird, int(req.ord))
	}
	if req.peerToPeer {
		// Any kind of ready-to-receive will do. Confirm those that the initiator can send, or all
		// if it named none.
		none := !req.rtrSend && !req.rtrWrite && !req.rtrRead
		rep.peerToPeer = true
		rep.rtrSend, rep.rtrWrite, rep.rtrRead = req.rtrSend || none, req.rtrWrite || none, req.rtrRead || none
		s.absorbRTR = rep.rtrSend
		if rep.rtrRead {
			s.ird = max(s.ird, 1)
		}
	}
	if req.ord != mpaUnnegotiated {
		rep.ird = uint16(s.ird)
	}
	return rep, s
}

// checkSilence checks that nothing follows the request: the peer must wait for the reply, and early
// bytes cannot be distinguished from private data of a wrong length (RFC 5044 section 7.1.1).
func (in *incoming) checkSilence() error {
	raw, err := in.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("iwarp: %w", err)
	}
	n := 0
	if err := raw.Control(func(fd uintptr) {
		var b [1]byte
		var rerr error
		n, _, rerr = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if rerr != nil && !errors.Is(rerr, syscall.EAGAIN) {
			err = rerr
		}
	}); err != nil {
		return fmt.Errorf("iwarp: %w", err)
	}
	if n > 0 {
		return fmt.Errorf("%w: the peer sent more before it had a reply", errMPA)
	}
	return nil
}

// reply sends the frame.
func (in *incoming) reply(rep *mpaFrame) error {
	_ = in.conn.SetWriteDeadline(time.Now().Add(in.p.cfg.ReplyTimeout))
	if _, err := in.conn.Write(rep.append(nil)); err != nil {
		return fmt.Errorf("iwarp: sending the MPA reply: %w", err)
	}
	return in.conn.SetWriteDeadline(time.Time{})
}

// Reject implements [rdma.ConnRequest].
func (in *incoming) Reject(privateData []byte) error {
	if in.answered {
		return errAnswered
	}
	in.answered = true
	defer in.conn.Close()
	if len(privateData) > maxPrivateData {
		return fmt.Errorf("iwarp: private data of %d bytes, at most %d are possible", len(privateData), maxPrivateData)
	}
	// An enhanced reply repeats the request's values, to show the peer that they are not the
	// reason.
	rep := mpaFrame{reply: true, rejected: true, crc: in.req.crc, revision: in.req.revision, enhanced: in.req.enhanced,
		ird: in.req.ord, ord: in.req.ird, private: privateData}
	return in.reply(&rep)
}

// NewSRQ implements [rdma.ConnRequest]: each connection has a queue of its own.
func (in *incoming) NewSRQ(rdma.Domain, int) (rdma.SRQ, error) {
	return nil, errors.New("iwarp: there are no shared receives")
}
