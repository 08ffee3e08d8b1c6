package oncrpc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

// Causes of a connection's end.
var (
	ErrShutdown = errors.New("oncrpc: the server shuts down")
)

// lingerTime is the wait for the peer's end of a drained connection. Closing at once, while the
// peer still sends, would destroy replies that it has not read.
const lingerTime = time.Second

// link is one TCP connection with both roles: it serves the peer's calls, and it is a [Requester].
//
// One goroutine runs the receive loop (receive.go). All messages leave through the sender
// (send.go), which gathers them while the loop works through one read. No lock is held across calls
// of the handler, of a request's Done, or of the system.
type link struct {
	cfg      *Config
	sock     socket
	conn     Conn
	peer     string
	observer Observer // nil: none
	share    *bufpool.Share
	stats    counters
	running  sync.WaitGroup
	done     chan struct{}
	out      sender
	requester

	// Owned by the receive loop.
	in       *reader
	rec      Message       // the current record
	large    *tcpCall      // the call being read into memory of its own
	batch    time.Time     // time at which the current batch was read, for the observer
	passedOn Corker        // Conn.Batch, while it is corked
	room     chan struct{} // signals the end of a call
	grant    chan struct{} // signals the grant of bulk memory
	look     *time.Timer   // of wait; nil before its first use
	plan     Plan          // of the current call; see reserve
	args     []Argument

	waiting atomic.Bool // for bulk memory
	reading atomic.Bool // large
	// inFlight counts the calls from their admission until their reply has left. It changes under
	// mu.
	inFlight atomic.Int32

	mu       sync.Mutex // guards the fields below
	cause    error      // not nil: the connection is gone
	full     bool       // the receive loop waits for room, or for the other calls to end
	draining bool
	hungUp   bool
	free     *tcpCall // unused calls
	linger   *time.Timer
}

func newLink(cfg *Config, sock socket, local, remote net.Addr) *link {
	l := &link{
		cfg: cfg, sock: sock, observer: cfg.Observer, peer: remote.String(),
		in:   newReader(cfg.Pool, cfg.ReadBuffer, cfg.MaxRecord),
		done: make(chan struct{}), room: make(chan struct{}, 1), grant: make(chan struct{}, 1),
	}
	l.conn = Conn{Network: "tcp", Remote: addrPort(remote), Local: addrPort(local), Back: l, Out: &l.out, Batch: cfg.Batch, Done: l.done, Values: map[any]any{}}
	l.conn.Control = l
	l.out = sender{
		sock: sock, timeout: cfg.WriteTimeout, stats: &l.stats, done: l.done, fail: l.fail,
		running: &l.running, wake: make(chan struct{}, 1),
	}
	l.init(l)
	return l
}

// serve drives the connection until it ends.
func (l *link) serve() {
	if l.cfg.Budget != nil {
		l.share = l.cfg.Budget.Share(l.conn.Remote.Addr(), l)
		defer l.share.Close()
	}
	if l.observer != nil {
		l.observer.ConnOpened(&l.conn)
	}
	l.fail(l.receive())
	if c := l.large; c != nil {
		l.large = nil
		c.finish()
	}
	l.rec.Release()
	l.in.release()
	if l.observer != nil {
		l.observer.ConnClosed(&l.conn, l.err())
	}
}

// fail ends the connection, unless it has ended already.
func (l *link) fail(cause error) {
	l.mu.Lock()
	if l.cause != nil {
		l.mu.Unlock()
		return
	}
	if l.hungUp {
		cause = ErrShutdown
	}
	l.cause = cause
	if l.linger != nil {
		l.linger.Stop()
	}
	l.mu.Unlock()
	l.end(l.peerError(cause))
	l.out.close(cause)
	_ = l.sock.close()
	close(l.done)
}

// Progress implements [bufpool.Peer].
func (l *link) Progress() (in, out int64) {
	return int64(l.stats.bytesIn.Load()), int64(l.stats.bytesOut.Load())
}

// Stalled implements [bufpool.Peer].
func (l *link) Stalled(err error) { l.fail(err) }

// err returns the cause of the connection's end, nil before it.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// peerError is the cause as requests report it.
func (l *link) peerError(cause error) error {
	if errors.Is(cause, io.EOF) {
		return fmt.Errorf("oncrpc: %s closed the connection: %w", l.peer, cause)
	}
	return fmt.Errorf("oncrpc: connection to %s: %w", l.peer, cause)
}

// Busy implements [Controller]. A peer that never ends its record is idle.
func (l *link) Busy() bool {
	calls := int(l.inFlight.Load())
	if l.reading.Load() {
		calls--
	}
	return l.waiting.Load() || calls > 0 || l.outstanding() > 0
}

// End implements [Controller].
func (l *link) End(cause error) { l.fail(cause) }

// drain ends the connection when the calls in flight are answered. Later calls are not executed:
// the peer will send them again on its next connection.
func (l *link) drain() {
	l.mu.Lock()
	l.draining = true
	over := l.drainedLocked()
	l.mu.Unlock()
	if over {
		l.hangUp()
	}
}

// drainedLocked reports, once, that the connection drains and has no calls in flight. hangUp
// follows, without the lock.
func (l *link) drainedLocked() bool {
	if !l.draining || l.inFlight.Load() != 0 || l.hungUp || l.cause != nil {
		return false
	}
	l.hungUp = true
	l.linger = time.AfterFunc(lingerTime, func() { l.fail(ErrShutdown) })
	return true
}

// hangUp ends the stream to the peer.
func (l *link) hangUp() {
	if l.sock.closeWrite() != nil {
		l.fail(ErrShutdown)
	}
}

// Close implements [Requester].
func (l *link) Close() error {
	l.fail(net.ErrClosed)
	return nil
}
