package iwarp

import (
	"errors"
	"math"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/internal/blocking"
)

// socket is an endpoint's TCP connection. Only the receive loop reads, and only the holder of the
// writer lock writes.
type socket interface {
	// block lets reads block a thread while the connection has one of Config.Threads, and sets the
	// time to spin before. The socket must be unused meanwhile.
	block(threads int, spin time.Duration)
	// read waits for bytes and fills rx.into. It sets rx.n, 0 at the end of the stream, and adds to
	// rx.calls. It returns errInterrupted after interrupt and at the deadline.
	read(rx *receiver) error
	// deadline bounds the wait of read from now on.
	deadline(time.Time)
	// interrupt ends a waiting read, or else the next one. Any goroutine may call it.
	interrupt()
	// write sends from t.iov[t.next:] by t.write. If wait is set, it returns when some of it is
	// sent, otherwise at once.
	write(e *endpoint, wait bool) error
	// closeWrite ends the stream to the peer. From then on closing loses none of the written bytes.
	closeWrite()
	// close ends the connection, and its waiting reads and writes.
	close()
	// control calls f with the descriptor, if it is open.
	control(f func(fd uintptr))
}

var errInterrupted = errors.New("iwarp: interrupted")

// tcpSocket is a socket that waits in Go's poller, as net.Conn does, or blocks a thread.
type tcpSocket struct {
	conn   conn
	raw    syscall.RawConn
	thread *blocking.Conn // conn, if it may block a thread

	// Arguments of the functions for raw, and whether they wait.
	e        *endpoint
	rx       *receiver
	tryRead  func(fd uintptr) bool
	tryWrite [2]func(fd uintptr) bool
}

// conn is common to a connection that waits in Go's poller and one that blocks a thread.
type conn interface {
	SetReadDeadline(time.Time) error
	SetLinger(sec int) error
	CloseWrite() error
	Close() error
}

func newSocket(e *endpoint, conn *net.TCPConn) (*tcpSocket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	// A killed process then resets its connections. The siw of Linux 6.1 follows a null pointer
	// when its peer's end arrives in order while its own socket is full (siw_qp_llp_write_space),
	// and takes its machine down.
	if err := conn.SetLinger(0); err != nil {
		return nil, err
	}
	s := &tcpSocket{conn: conn, raw: raw, e: e}
	s.tryRead = func(fd uintptr) bool {
		s.rx.recv(fd)
		return s.rx.errno != syscall.EAGAIN
	}
	s.tryWrite[0] = func(fd uintptr) bool {
		s.e.tx.write(s.e, fd)
		return true
	}
	s.tryWrite[1] = func(fd uintptr) bool {
		s.e.tx.write(s.e, fd)
		return s.e.tx.errno != syscall.EAGAIN
	}
	return s, nil
}

// roundTrip is TCP's shortest round trip so far, 0 if it is unknown.
func roundTrip(s socket) (d time.Duration) {
	s.control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.Min_rtt != math.MaxUint32 {
			d = time.Duration(info.Min_rtt) * time.Microsecond
		}
	})
	return d
}

func (s *tcpSocket) block(threads int, spin time.Duration) {
	tcp, ok := s.conn.(*net.TCPConn)
	if threads < 0 || !ok {
		return
	}
	if c, err := blocking.New(tcp, threads, spin); err == nil {
		s.conn, s.raw, s.thread = c, c, c
	}
}

func (s *tcpSocket) read(rx *receiver) error {
	if rx.deferredWork && s.thread != nil && s.thread.Blocks() {
		// A goroutine woken by the handler is next on this processor. If we blocked now, it would
		// wait until the runtime noticed.
		rx.deferredWork = false
		runtime.Gosched()
	}
	s.rx = rx
	err := s.raw.Read(s.tryRead)
	if err == nil && rx.errno != 0 {
		return rx.errno
	}
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		s.deadline(time.Time{})
		return errInterrupted
	}
	return err
}

func (s *tcpSocket) deadline(t time.Time) { _ = s.conn.SetReadDeadline(t) }

// longAgo as a deadline ends a wait at once.
var longAgo = time.Unix(1, 0)

func (s *tcpSocket) interrupt() { _ = s.conn.SetReadDeadline(longAgo) }

func (s *tcpSocket) write(e *endpoint, wait bool) error {
	try := s.tryWrite[0]
	if wait {
		try = s.tryWrite[1]
	}
	err := s.raw.Write(try)
	if errno := e.tx.errno; err == nil && errno != 0 && errno != syscall.EAGAIN {
		return errno
	}
	return err
}

func (s *tcpSocket) closeWrite() {
	_ = s.conn.SetLinger(-1)
	_ = s.conn.CloseWrite()
}

func (s *tcpSocket) close() { _ = s.conn.Close() }

func (s *tcpSocket) control(f func(fd uintptr)) { _ = s.raw.Control(f) }
