package oncrpc

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/internal/blocking"
)

// socket is a stream connection under a link. One goroutine reads and one writes at a time.
type socket interface {
	// read waits for bytes and puts them into r's space. At the end of the stream it returns
	// io.EOF. While it waits, r rests.
	read(r *reader) (int, error)
	// write writes as much of bufs as the socket takes. If it takes none, write returns 0 or, with
	// wait, waits until deadline.
	write(bufs [][]byte, wait bool, deadline time.Time) (int, error)
	// closeWrite ends the stream to the peer.
	closeWrite() error
	close() error
}

const maxVector = 256

// tcpSocket does vectored reads and writes without allocating, and writes without waiting, which
// net.Conn lacks.
type tcpSocket struct {
	conn writeConn
	raw  syscall.RawConn
	in   vector
	from *reader // of the current read
	bad  error   // of from
	out  vector
	// Method values, made once.
	tryRead, tryWrite, tryOnce func(fd uintptr) bool
}

// streamConn is common to TCP and Unix stream connections.
type streamConn interface {
	syscall.Conn
	writeConn
	SetReadDeadline(time.Time) error
}

// writeConn is common to these and a connection that blocks a thread.
type writeConn interface {
	SetWriteDeadline(time.Time) error
	CloseWrite() error
	Close() error
}

// vector has the arguments and the outcome of one system call.
type vector struct {
	iov   []unix.Iovec
	hdr   unix.Msghdr
	n     int
	errno unix.Errno
}

// newTCPSocket takes conn over. With cfg.Thread it blocks a thread while it has one.
func newTCPSocket(conn net.Conn, cfg *Config) (*tcpSocket, error) {
	stream, ok := conn.(streamConn)
	if !ok {
		return nil, fmt.Errorf("oncrpc: connection is a %T, must be a *net.TCPConn or *net.UnixConn", conn)
	}
	raw, err := stream.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &tcpSocket{conn: stream, raw: raw}
	if cfg.Thread {
		c, err := blocking.New(stream, 0, cfg.Spin)
		if err != nil {
			return nil, err
		}
		s.conn, s.raw = c, c
	}
	s.in.iov, s.out.iov = make([]unix.Iovec, 0, 2), make([]unix.Iovec, 0, maxVector)
	s.tryRead = s.readSome
	s.tryWrite = func(fd uintptr) bool {
		n, errno := blocking.Sendmsg(fd, &s.out.hdr, s.out.iov)
		return s.out.outcome(n, errno)
	}
	s.tryOnce = func(fd uintptr) bool {
		s.tryWrite(fd)
		return true
	}
	return s, nil
}

// add appends b to the vector.
func (v *vector) add(b []byte) {
	if len(b) > 0 {
		v.iov = append(v.iov, blocking.Iovec(b))
	}
}

// outcome records a call's result. It returns false if the call would have to wait.
func (v *vector) outcome(n int, errno unix.Errno) bool {
	if errno == unix.EAGAIN {
		v.n, v.errno = 0, 0
		return false
	}
	v.n, v.errno = n, errno
	return true
}

// done ends a use of the vector: it drops the memory and returns the outcome.
func (v *vector) done(err error, what string) (int, error) {
	clear(v.iov)
	v.iov = v.iov[:0]
	switch {
	case err != nil:
		return 0, err
	case v.errno != 0:
		return 0, fmt.Errorf("%s: %w", what, v.errno)
	}
	return v.n, nil
}

func (s *tcpSocket) read(r *reader) (int, error) {
	s.from, s.bad = r, nil
	n, err := s.in.done(s.raw.Read(s.tryRead), "read")
	switch {
	case s.bad != nil:
		return 0, s.bad
	case n == 0 && err == nil:
		return 0, io.EOF
	case n > 0:
		r.filled(n)
	}
	return n, err
}

func (s *tcpSocket) readSome(fd uintptr) bool {
	a, b, err := s.from.space()
	if err != nil {
		s.bad = err
		return true
	}
	s.in.iov = s.in.iov[:0]
	s.in.add(a)
	s.in.add(b)
	n, errno := blocking.Recvmsg(fd, &s.in.hdr, s.in.iov, 0)
	if !s.in.outcome(n, errno) {
		s.from.rest()
		return false
	}
	return true
}

func (s *tcpSocket) write(bufs [][]byte, wait bool, deadline time.Time) (int, error) {
	for _, b := range bufs {
		if s.out.add(b); len(s.out.iov) == maxVector {
			break
		}
	}
	if len(s.out.iov) == 0 {
		return 0, nil
	}
	if !wait {
		return s.out.done(s.raw.Write(s.tryOnce), "write")
	}
	if err := s.conn.SetWriteDeadline(deadline); err != nil {
		return s.out.done(err, "write")
	}
	n, err := s.out.done(s.raw.Write(s.tryWrite), "write")
	if err == nil {
		err = s.conn.SetWriteDeadline(time.Time{})
	}
	return n, err
}

func (s *tcpSocket) closeWrite() error { return s.conn.CloseWrite() }
func (s *tcpSocket) close() error      { return s.conn.Close() }
