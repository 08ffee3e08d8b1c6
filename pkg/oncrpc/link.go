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

// Causes of the end of a connection.
var (
	ErrIdle     = errors.New("oncrpc: the connection was idle")
	ErrShutdown = errors.New("oncrpc: the server shuts down")
)

// lingerTime is how long a connection whose calls are finished waits for its peer to hang up. To close it at once would, if the peer is
// still sending, destroy replies that it has not read yet.
const lingerTime = time.Second

// link is one TCP connection with both its roles: it serves the peer's calls, and it is a [Requester].
//
// One goroutine runs the receive loop (receive.go). What it and others have to send goes through the sender (send.go);
// while the loop works through what one read brought, the sender gathers. No lock is held across
// calls of the handler, of a request's Done, or of the system.
type link struct {
	cfg      *Config
	sock     socket
	conn     Conn
	peer     string
	observer Observer // nil: nobody looks
	share    *bufpool.Share
	stats    counters
	running  sync.WaitGroup
	done     chan struct{}
	out      sender
	requester

	// The receive loop's own.
	in       *reader
	rec      Message       // the record at hand
	large    *tcpCall      // the call that is being read into memory of its own
	batch    time.Time     // when the batch at hand was read, for the observer
	passedOn Corker        // Conn.Batch, while it is held
	room     chan struct{} // a call has ended, which was waited for
	grant    chan struct{} // the bulk memory that was waited for is there
	look     *time.Timer   // of wait; nil before it was needed
	plan     Plan          // of the call at hand; see reserve
	args     []Argument

	progress atomic.Uint64 // counts messages completed and calls finished
	waiting  atomic.Bool   // for bulk memory
	reading  atomic.Bool   // large
	// inFlight are the calls from when they get their place until their reply has left. It changes under mu.
	inFlight atomic.Int32

	mu       sync.Mutex // guards what follows
	cause    error      // not nil: the connection is gone
	full     bool       // the receive loop waits for room, or for the other calls to end
	draining bool
	hungUp   bool
	free     *tcpCall // the calls that are not in use
	idle     *time.Timer
	linger   *time.Timer
	seen     uint64 // progress when idleness was last checked
	quiet    int    // checks in a row that saw nothing
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
	if l.cfg.IdleTimeout > 0 {
		l.mu.Lock()
		if l.cause == nil {
			l.idle = time.AfterFunc(l.cfg.IdleTimeout/2, l.checkIdle)
		}
		l.mu.Unlock()
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
	for _, t := range []*time.Timer{l.idle, l.linger} {
		if t != nil {
			t.Stop()
		}
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

// err returns why the connection ended, nil if it has not.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// peerError is what requests see of the connection's end.
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

// checkIdle runs twice in each idle timeout.
func (l *link) checkIdle() {
	n := l.progress.Load()
	busy := l.Busy()
	l.mu.Lock()
	if busy || n != l.seen {
		l.seen, l.quiet = n, 0
	} else {
		l.quiet++
	}
	over := l.quiet == 2
	if l.cause == nil && !over {
		l.idle.Reset(l.cfg.IdleTimeout / 2)
	}
	l.mu.Unlock()
	if over {
		l.fail(ErrIdle)
	}
}

// drain ends the connection when the calls in flight are answered. Calls that come later are not executed: the peer
// will send them again on its next connection.
func (l *link) drain() {
	l.mu.Lock()
	l.draining = true
	l.hangUp()
}

// hangUp is called with l.mu locked, and unlocks it.
func (l *link) hangUp() {
	now := l.draining && l.inFlight.Load() == 0 && !l.hungUp && l.cause == nil
	if now {
		l.hungUp = true
		l.linger = time.AfterFunc(lingerTime, func() { l.fail(ErrShutdown) })
	}
	l.mu.Unlock()
	if now && l.sock.closeWrite() != nil {
		l.fail(ErrShutdown)
	}
}

// Close implements [Requester].
func (l *link) Close() error {
	l.fail(net.ErrClosed)
	return nil
}
