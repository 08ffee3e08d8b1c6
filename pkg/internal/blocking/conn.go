// Package blocking has connections that wait in system calls of their own instead of Go's poller.
//
// For a lone message the poller costs a read that finds nothing, another thread's epoll_wait, and a
// switch of goroutines: 4 to 6 µs, at each end. So a few connections of a process block a thread
// each, on a descriptor unknown to the poller (or it would wake its thread as well). While one
// waits, the runtime gives its processor (one of GOMAXPROCS) to other goroutines, but only after a
// while; hence one processor is left to them.
package blocking

import (
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// threads counts the connections of this process that block a thread.
var threads atomic.Int32

// Conn is a connected stream socket whose reader blocks a thread while the peer is silent. It is a
// [syscall.RawConn] with deadlines: one goroutine at a time reads and one writes; all other methods
// may be called from any goroutine at any time.
type Conn struct {
	fd, event int // event is an eventfd that interrupts a read
	// busy: the peer sent something within recvTime. The blocking read then needs no other call,
	// but cannot be interrupted.
	busy                  bool
	spin                  spinner
	readUntil, writeUntil atomic.Int64 // deadlines, as time since epoch; 0: none
	kicked                atomic.Bool  // event is written to, or will be at once

	mu     sync.Mutex
	users  int // current users of fd and event
	closed bool
}

// recvTime is about the time for which a busy connection's read blocks.
const recvTime = 2 * time.Millisecond

// epoch is the origin of deadlines.
var epoch = time.Now()

// Take makes a Conn of the connection of raw, which its owner then closes: it is the Conn's. limit
// bounds them in this process; 0 stands for one less than GOMAXPROCS. spin is the longest time that
// a read of a busy connection polls before it blocks, where polling lately succeeded; 0 stands for
// not at all. At the limit, or after a failure, Take returns nil and raw remains usable.
func Take(raw syscall.RawConn, limit int, spin time.Duration) *Conn {
	if limit == 0 {
		limit = runtime.GOMAXPROCS(0) - 1
	}
	if int(threads.Add(1)) > limit {
		threads.Add(-1)
		return nil
	}
	c := &Conn{fd: -1, event: -1, spin: spinner{most: spin}}
	_ = raw.Control(func(fd uintptr) {
		var err error
		if c.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
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
		// The flag belongs to the connection, not to the descriptor. Each write asks not to wait.
		if unix.SetNonblock(dup, false) != nil {
			_ = unix.Close(dup)
			return
		}
		c.fd = dup
	})
	if c.fd < 0 {
		if c.event >= 0 {
			_ = unix.Close(c.event)
		}
		threads.Add(-1)
		return nil
	}
	return c
}

// enter begins a use of the descriptors, unless the connection is closed.
func (c *Conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.users++
	}
	return !c.closed
}

// leave ends a use. The last one after Close frees the descriptors.
func (c *Conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.closed && c.users == 0 {
		c.free()
	}
}

func (c *Conn) free() {
	_ = unix.Close(c.fd)
	_ = unix.Close(c.event)
	threads.Add(-1)
}

// Read calls try until it returns true, whenever there may be bytes to read. try makes a call that
// may block, such as [Recvmsg], and returns false if that ended with EAGAIN.
func (c *Conn) Read(try func(fd uintptr) bool) error {
	if !c.enter() {
		return net.ErrClosed
	}
	defer c.leave()
	for {
		if until := c.readUntil.Load(); until != 0 || !c.busy {
			if ready, err := c.readable(until); err != nil {
				return err
			} else if !ready {
				continue
			}
		}
		if c.busy && c.spin.most > 0 {
			c.spin.await(c.fd, c.event)
		}
		if c.busy = try(uintptr(c.fd)); c.busy {
			return nil
		}
	}
}

// readable waits for bytes, for a new deadline or until the deadline.
func (c *Conn) readable(until int64) (bool, error) {
	timeout, over := left(until)
	if over {
		if c.kicked.Load() {
			c.calm()
		}
		return false, os.ErrDeadlineExceeded
	}
	fds := [2]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}, {Fd: int32(c.event), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds[:], timeout); err != nil {
		return false, ignoreEINTR(err)
	}
	if fds[1].Revents != 0 {
		c.calm()
		return false, nil
	}
	return fds[0].Revents != 0, nil
}

// calm drains event. A later kick writes again; an earlier one has set its deadline, which the
// reader checks next.
func (c *Conn) calm() {
	var b [8]byte
	_, _ = unix.Read(c.event, b[:])
	c.kicked.Store(false)
}

// left returns the time until a deadline in poll's form.
func left(until int64) (ms int, over bool) {
	if until == 0 {
		return -1, false
	}
	d := time.Duration(until) - time.Since(epoch)
	return int(d.Milliseconds()) + 1, d <= 0
}

func ignoreEINTR(err error) error {
	if err == unix.EINTR { //nolint:errorlint // as the system call returned it
		return nil
	}
	return err
}

// Write calls try until it returns true, waiting for room in between. try makes a call that does
// not block.
func (c *Conn) Write(try func(fd uintptr) bool) error {
	if !c.enter() {
		return net.ErrClosed
	}
	defer c.leave()
	for !try(uintptr(c.fd)) {
		timeout, over := left(c.writeUntil.Load())
		if over {
			return os.ErrDeadlineExceeded
		}
		fds := [1]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
		if _, err := unix.Poll(fds[:], timeout); ignoreEINTR(err) != nil {
			return err
		}
	}
	return nil
}

// Control calls f with the descriptor.
func (c *Conn) Control(f func(fd uintptr)) error {
	if !c.enter() {
		return net.ErrClosed
	}
	defer c.leave()
	f(uintptr(c.fd))
	return nil
}

// SetReadDeadline bounds the wait of Read, even of a waiting one, but for up to a few milliseconds
// if the peer just sent something. The zero Time means no bound.
func (c *Conn) SetReadDeadline(t time.Time) error {
	until := deadline(t)
	was := c.readUntil.Swap(until)
	if !c.enter() {
		return net.ErrClosed
	}
	defer c.leave()
	// A Read with too short a wait looks again by itself.
	if until != 0 && (was == 0 || until < was) && !c.kicked.Swap(true) {
		one := [8]byte{1}
		_, _ = unix.Write(c.event, one[:])
	}
	return nil
}

// SetWriteDeadline bounds the wait of Write, from its next wait on.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeUntil.Store(deadline(t))
	return nil
}

func deadline(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, int64(t.Sub(epoch)))
}

// SetLinger is [net.TCPConn.SetLinger].
func (c *Conn) SetLinger(sec int) error {
	l := unix.Linger{Onoff: 1, Linger: int32(sec)}
	if sec < 0 {
		l = unix.Linger{}
	}
	return c.call(func(fd int) error { return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &l) })
}

// CloseWrite ends the stream to the peer.
func (c *Conn) CloseWrite() error {
	return c.call(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

func (c *Conn) call(f func(fd int) error) (err error) {
	if e := c.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

// Close ends the connection, and reads and writes that wait. The descriptor is free when they have
// returned.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	if c.users == 0 {
		c.free()
	}
	return nil
}
