package iwarp

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Go's poller costs a message that comes alone a read that finds nothing, another thread's epoll_wait, and a switch of goroutines: 4 to 6 µs,
// at each end. So a few connections of a process, one less than it has processors, wait in system calls of their own, on a
// descriptor that the poller does not know (or it would wake its thread as well). While the loop waits, the runtime gives its processor to others that
// need it; but it takes a while to notice, hence no more connections than leave it one.

// threads counts the threaded sockets of this process.
var threads atomic.Int32

// threaded is a socket that blocks a thread while its peer is silent.
type threaded struct {
	fd, event int // event is an eventfd, to interrupt
	until     time.Time
	// busy: the peer sent something within recvTime. The read that blocks needs no other call then, but cannot be interrupted.
	busy        bool
	interrupted atomic.Bool

	mu     sync.Mutex
	closed bool
}

// recvTime is about how long a busy socket's read blocks.
const recvTime = 2 * time.Millisecond

// newThreaded takes over the connection of p, if one more is allowed. Otherwise, or if anything fails, it returns nil and p remains good.
func newThreaded(p *polled, limit int) *threaded {
	if limit == 0 {
		limit = runtime.GOMAXPROCS(0) - 1
	}
	if int(threads.Add(1)) > limit {
		threads.Add(-1)
		return nil
	}
	s := &threaded{fd: -1, event: -1}
	p.control(func(fd uintptr) {
		var err error
		if s.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return
		}
		tv := unix.NsecToTimeval(recvTime.Nanoseconds())
		if unix.SetsockoptTimeval(int(fd), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv) != nil {
			return
		}
		dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return
		}
		// The flag belongs to the connection, not to the descriptor. The other calls say that they do not wait.
		if unix.SetNonblock(dup, false) != nil {
			_ = unix.Close(dup)
			return
		}
		s.fd = dup
	})
	if s.fd < 0 {
		if s.event >= 0 {
			_ = unix.Close(s.event)
		}
		threads.Add(-1)
		return nil
	}
	p.shutdown() // closes its descriptor only
	return s
}

func (s *threaded) read(rx *receiver) error {
	if rx.handedOn {
		// A goroutine that the handler woke is next on this processor: if we blocked now, it would wait until the runtime noticed.
		rx.handedOn = false
		runtime.Gosched()
	}
	for {
		if s.interrupted.Swap(false) {
			var b [8]byte
			_, _ = unix.Read(s.event, b[:])
			return errInterrupted
		}
		if !s.busy {
			ready, err := s.poll()
			if err != nil {
				return err
			}
			if !ready {
				continue
			}
			s.busy = true
		}
		rx.recv(uintptr(s.fd), 0)
		switch rx.errno {
		case 0:
			return nil
		case syscall.EAGAIN:
			s.busy = false
		default:
			return rx.errno
		}
	}
}

// poll waits for something to read, an interrupt or the deadline.
func (s *threaded) poll() (ready bool, err error) {
	timeout := -1
	if !s.until.IsZero() {
		timeout = max(0, int(time.Until(s.until).Milliseconds())+1)
	}
	fds := [2]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(s.event), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], timeout)
	switch {
	case err == unix.EINTR:
		return false, nil
	case err == nil && n == 0:
		s.until = time.Time{}
		return false, errInterrupted
	}
	return fds[0].Revents != 0, err
}

// deadline bounds reads only; writes end by shutdown.
func (s *threaded) deadline(t time.Time) {
	s.until = t
	s.busy = s.busy && t.IsZero()
}

func (s *threaded) interrupt() {
	if s.interrupted.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		_, _ = unix.Write(s.event, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (s *threaded) write(e *endpoint, wait bool) error {
	for {
		e.tx.write(e, uintptr(s.fd))
		switch {
		case e.tx.errno == 0:
			return nil
		case e.tx.errno != syscall.EAGAIN:
			return e.tx.errno
		case !wait:
			return nil
		}
		fds := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
		if _, err := unix.Poll(fds[:], -1); err != nil && err != unix.EINTR {
			return err
		}
	}
}

func (s *threaded) closeWrite() {
	_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	_ = unix.Shutdown(s.fd, unix.SHUT_WR)
}

func (s *threaded) shutdown() { _ = unix.Shutdown(s.fd, unix.SHUT_RDWR) }

func (s *threaded) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	_ = unix.Close(s.fd)
	_ = unix.Close(s.event)
	threads.Add(-1)
}

func (s *threaded) control(f func(fd uintptr)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		f(uintptr(s.fd))
	}
}
