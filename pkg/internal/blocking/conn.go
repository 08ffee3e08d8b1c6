// Package blocking has connections that wait in system calls of their own instead of Go's poller.
//
// For a lone message the poller costs a read that finds nothing, another thread's epoll_wait, and a
// switch of goroutines: 4 to 6 µs, at each end. So a few connections of a process block a thread
// each, on a descriptor unknown to the poller (or it would wake its thread as well). While one
// waits, the runtime gives its processor (one of GOMAXPROCS) to other goroutines, but only after a
// while; hence one processor is left to them.
//
// The threads belong to busy connections: see slots. All others wait in the poller.
package blocking

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is a connected stream socket whose reader blocks a thread while the peer is silent, if the
// connection has one of the process's threads. It is a [syscall.RawConn] with deadlines: one
// goroutine at a time reads and one writes; all other methods may be called from any goroutine at
// any time.
type Conn struct {
	// One of these is in use. Only the reader changes it, and only while nobody else uses the
	// connection.
	poll      polled          // in Go's poller; nil while a thread blocks
	raw       syscall.RawConn // of poll
	fd, event int             // while a thread blocks; event is an eventfd that interrupts a read

	// busy: the peer sent something within recvTime. The blocking read then needs no other call,
	// but cannot be interrupted.
	busy                  bool
	spin                  spinner
	readUntil, writeUntil atomic.Int64 // deadlines, as time since epoch; 0: none
	kicked                atomic.Bool  // event is written to, or will be at once
	claim                 claim

	mu     sync.Mutex
	users  int // current users of the descriptors
	closed bool
}

// polled is a connection in Go's poller: a [net.TCPConn], a [net.UnixConn] or an [os.File].
type polled interface {
	syscall.Conn
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

// recvTime is about the time for which a busy connection's read blocks.
const recvTime = 2 * time.Millisecond

// epoch is the origin of deadlines.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// New makes a Conn of conn, which it owns from then on. limit bounds the connections of the process
// that block a thread; 0 stands for one less than GOMAXPROCS. spin is the longest time that a read
// of a busy connection polls before it blocks, where polling lately succeeded; 0 stands for not at
// all.
func New(conn polled, limit int, spin time.Duration) (*Conn, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = runtime.GOMAXPROCS(0) - 1
	}
	c := &Conn{poll: conn, raw: raw, fd: -1, event: -1, spin: spinner{most: spin}}
	c.claim.limit, c.claim.wake = limit, c.kick
	if threads.begin(&c.claim, now()) {
		c.block(0)
	}
	return c, nil
}

// Blocks reports whether reads block a thread. Only the reader may call it.
func (c *Conn) Blocks() bool { return c.poll == nil }

// block leaves the poller, if no more than users use the connection. If not, or if the thread is
// lost, the next read tries again.
func (c *Conn) block(users int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users > users || c.closed {
		return
	}
	fd, event := -1, -1
	_ = c.raw.Control(func(old uintptr) {
		tv := unix.NsecToTimeval(recvTime.Nanoseconds())
		if unix.SetsockoptTimeval(int(old), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv) != nil {
			return
		}
		if event, _ = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); event >= 0 {
			fd, _ = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
		}
	})
	// The flag belongs to the connection, not to the descriptor. Each write asks not to wait.
	ok := fd >= 0 && unix.SetNonblock(fd, false) == nil
	if !ok || !threads.accept(&c.claim, now()) {
		if ok {
			_ = unix.SetNonblock(fd, true)
		} else {
			threads.giveBack(&c.claim, now())
		}
		closeAll(fd, event)
		return
	}
	_ = c.poll.Close() // its descriptor only
	c.poll, c.raw, c.fd, c.event = nil, nil, fd, event
	c.busy = false
	c.kicked.Store(false)
}

// unblock returns to the poller and gives the thread back, unless others use the connection. Then
// the next read tries again.
func (c *Conn) unblock() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users > 1 || c.closed || unix.SetNonblock(c.fd, true) != nil {
		return
	}
	fd, err := unix.FcntlInt(uintptr(c.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = unix.SetNonblock(c.fd, false)
		return
	}
	f := os.NewFile(uintptr(fd), "socket")
	raw, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(timeOf(c.readUntil.Load())) // fails if the poller does not have it
	}
	if err == nil {
		err = f.SetWriteDeadline(timeOf(c.writeUntil.Load()))
	}
	if err != nil {
		_ = f.Close()
		_ = unix.SetNonblock(c.fd, false)
		return
	}
	closeAll(c.fd, c.event)
	c.poll, c.raw, c.fd, c.event = f, raw, -1, -1
	threads.giveBack(&c.claim, now())
}

// closeAll closes descriptors; -1 is none.
func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
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
		c.freeLocked()
	}
}

func (c *Conn) freeLocked() {
	closeAll(c.fd, c.event)
	threads.release(&c.claim, now())
}

// Read calls try until it returns true, whenever there may be bytes to read. try makes a call that
// may block, such as [Recvmsg], and returns false if that ended with EAGAIN.
func (c *Conn) Read(try func(fd uintptr) bool) error {
	if !c.enter() {
		return net.ErrClosed
	}
	defer c.leave()
	for {
		if c.claim.revoked.Load() {
			c.unblock()
		}
		if c.poll != nil {
			if threads.ask(&c.claim, now()) {
				c.block(1)
			}
		}
		if c.poll != nil {
			return outcome(c.raw.Read(try))
		}
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

// outcome is the error of a call of the poller.
func outcome(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return net.ErrClosed
	}
	return err
}

// readable waits for bytes, for a new deadline, until the thread is revoked or until the deadline.
func (c *Conn) readable(until int64) (bool, error) {
	timeout, over := left(until)
	if over {
		if c.kicked.Load() {
			c.calm()
		}
		return false, os.ErrDeadlineExceeded
	}
	c.claim.idle.Store(true)
	defer c.claim.idle.Store(false)
	if c.claim.revoked.Load() && (timeout < 0 || timeout > int(quantum.Milliseconds())) {
		timeout = int(quantum.Milliseconds()) // a writer keeps unblock from its work
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
	d := time.Duration(until - now())
	return int(d.Milliseconds()) + 1, d <= 0
}

func ignoreEINTR(err error) error {
	if err == unix.EINTR { //nolint:errorlint // as the system call returned it
		return nil
	}
	return err
}

// kick interrupts a read that waits.
func (c *Conn) kick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kickLocked()
}

func (c *Conn) kickLocked() {
	if c.event >= 0 && !c.closed && !c.kicked.Swap(true) {
		one := [8]byte{1}
		_, _ = unix.Write(c.event, one[:])
	}
}

// Write calls try until it returns true, waiting for room in between. try makes a call that does
// not block.
func (c *Conn) Write(try func(fd uintptr) bool) error {
	if !c.enter() {
		return net.ErrClosed
	}
	defer c.leave()
	if c.poll != nil {
		return outcome(c.raw.Write(try))
	}
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
	if c.poll != nil {
		return outcome(c.raw.Control(f))
	}
	f(uintptr(c.fd))
	return nil
}

// SetReadDeadline bounds the wait of Read, even of a waiting one, but for up to a few milliseconds
// if the peer just sent something. The zero Time means no bound.
func (c *Conn) SetReadDeadline(t time.Time) error {
	until := deadline(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	was := c.readUntil.Swap(until)
	if c.poll != nil {
		return c.poll.SetReadDeadline(t)
	}
	// A Read with too short a wait looks again by itself.
	if until != 0 && (was == 0 || until < was) {
		c.kickLocked()
	}
	return nil
}

// SetWriteDeadline bounds the wait of Write, from its next wait on.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.writeUntil.Store(deadline(t))
	if c.poll != nil {
		return c.poll.SetWriteDeadline(t)
	}
	return nil
}

// timeOf is the Time of a deadline.
func timeOf(until int64) time.Time {
	if until == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(until))
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
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.closed = true
	poll := c.poll
	if poll == nil {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
	if c.users == 0 {
		c.freeLocked()
	}
	c.mu.Unlock()
	if poll != nil { // waits for its users
		_ = poll.Close()
	}
	return nil
}
