package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// Conn is a connection of a Reconnector: an [oncrpc.Client] or an [rpcrdma.Client].
type Conn interface {
	oncrpc.Requester
	oncrpc.Canceler
	// Done is closed when the connection has ended and no longer uses memory of its requests.
	Done() <-chan struct{}
}

// ReconnectConfig configures a Reconnector.
type ReconnectConfig struct {
	// Dial makes one attempt to connect. Required.
	Dial func(ctx context.Context) (Conn, error)
	// Patience bounds an outage: the time from the end of a connection to the first answer on
	// another. After it all calls fail. 0 means 2 minutes.
	Patience time.Duration
	// BackoffMin and BackoffMax bound the delay between attempts, which doubles each time. 0 means
	// 100 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// OnLost and OnResumed, if set, are called at the beginning of an outage and at its end, each
	// from one goroutine at a time. They must not block.
	OnLost    func(cause error)
	OnResumed func(outage time.Duration)
}

// maxDeaths is the number of connections that may end with a call in flight, after the server has
// answered on them: the call may be the cause.
const maxDeaths = 8

var errClosed = errors.New("client: closed")

// Reconnector is a Requester that survives its connections. When one ends, it dials again and sends
// the unanswered calls again, in the order of their submission and with their XIDs.
//
// The server may have executed a call that is sent again. That is harmless for calls that may be
// repeated, such as READ, WRITE and COMMIT. A repeated CREATE, MKDIR, LINK, REMOVE, RMDIR, RENAME
// or guarded SETATTR may fail, although the first one succeeded, unless the server finds the first
// reply by its XID (RFC 1813 section 4.5).
//
// A request makes one allocation, for its state.
type Reconnector struct {
	cfg  ReconnectConfig
	xid  atomic.Uint32
	done func(*oncrpc.Request) // made once
	stop context.CancelFunc    // ends the dialling
	ctx  context.Context
	wg   sync.WaitGroup

	mu       sync.Mutex
	conn     Conn                      // takes new calls; nil during a reconnection
	trying   Conn                      // gets the waiting calls; nil when it has ended
	calls    map[*oncrpc.Request]*call // not done
	seq      uint64
	answered bool          // on conn or trying
	outage   time.Time     // its beginning, if there is one
	delay    time.Duration // before the next attempt of this outage
	gone     error         // reason for refusing calls
}

// call is a request that is not done.
type call struct {
	r      *oncrpc.Request
	seq    uint64
	done   func(*oncrpc.Request) // the user's
	conn   Conn                  // has the request; nil while it waits
	cause  error                 // of Cancel
	deaths int
}

// NewReconnector connects. Close ends the connection.
func NewReconnector(ctx context.Context, cfg ReconnectConfig) (*Reconnector, error) {
	if cfg.Patience == 0 {
		cfg.Patience = 2 * time.Minute
	}
	cfg.BackoffMin = cmp.Or(cfg.BackoffMin, 100*time.Millisecond)
	cfg.BackoffMax = max(cmp.Or(cfg.BackoffMax, 5*time.Second), cfg.BackoffMin)
	conn, err := cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	rc := &Reconnector{cfg: cfg, conn: conn, calls: map[*oncrpc.Request]*call{}}
	rc.xid.Store(rand.Uint32()) // the server may remember XIDs of an earlier process
	rc.done = rc.finished
	rc.ctx, rc.stop = context.WithCancel(context.Background())
	return rc, nil
}

// Conn returns the current connection, nil while there is none.
func (rc *Reconnector) Conn() Conn {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.conn
}

// NextXID implements [oncrpc.Requester].
func (rc *Reconnector) NextXID() uint32 { return rc.xid.Add(1) }

// Submit implements [oncrpc.Requester].
func (rc *Reconnector) Submit(r *oncrpc.Request) {
	rc.mu.Lock()
	if err := rc.gone; err != nil {
		rc.mu.Unlock()
		r.Err = err
		r.Done(r)
		return
	}
	rc.seq++
	conn := rc.conn
	rc.calls[r] = &call{r: r, seq: rc.seq, done: r.Done, conn: conn}
	r.Done = rc.done
	rc.mu.Unlock()
	if conn != nil {
		conn.Submit(r)
	}
}

// Cancel implements [oncrpc.Canceler].
func (rc *Reconnector) Cancel(r *oncrpc.Request, cause error) {
	rc.mu.Lock()
	c := rc.calls[r]
	if c == nil || c.cause != nil {
		rc.mu.Unlock()
		return
	}
	c.cause = cause
	conn := c.conn
	if conn == nil {
		delete(rc.calls, r)
	}
	rc.mu.Unlock()
	if conn != nil {
		conn.Cancel(r, cause)
		return
	}
	c.end(cause)
}

// end gives the request back to its user. It is no longer in the table.
func (c *call) end(err error) {
	c.r.Err, c.r.Done = err, c.done
	c.done(c.r)
}

// finished takes a request back from its connection.
func (rc *Reconnector) finished(r *oncrpc.Request) {
	rc.mu.Lock()
	c := rc.calls[r]
	conn, err := c.conn, r.Err
	ended := err != nil && c.cause == nil && isLost(conn, err)
	var resumed time.Duration
	switch {
	case err == nil && !rc.outage.IsZero():
		resumed, rc.outage = time.Since(rc.outage), time.Time{}
		fallthrough
	case err == nil:
		rc.answered = rc.answered || conn == rc.conn || conn == rc.trying
	case ended:
		if rc.answered {
			c.deaths++
		}
		rc.lostLocked(conn, err)
	}
	switch {
	case err != nil && c.cause != nil:
		err = c.cause
	case ended && rc.gone != nil:
		err = rc.gone
	case ended && c.deaths < maxDeaths:
		next := rc.conn
		c.conn = next // nil: waits for resend
		rc.mu.Unlock()
		if next != nil {
			reset(r)
			next.Submit(r)
		}
		return
	}
	delete(rc.calls, r)
	rc.mu.Unlock()
	if resumed > 0 && rc.cfg.OnResumed != nil {
		rc.cfg.OnResumed(resumed)
	}
	c.end(err)
}

// isLost reports whether an error of a request that was not cancelled means that its connection has
// ended. On TCP each one does.
func isLost(conn Conn, err error) bool {
	if _, ok := conn.(*rpcrdma.Client); !ok {
		return true
	}
	var lost *rpcrdma.LostError
	return errors.As(err, &lost) || errors.Is(err, rpcrdma.ErrClosed)
}

// lostLocked begins to reconnect, unless that was done before.
func (rc *Reconnector) lostLocked(conn Conn, cause error) {
	if conn == rc.trying {
		rc.trying = nil
	}
	if conn != rc.conn {
		return
	}
	rc.conn = nil
	if rc.gone != nil {
		return
	}
	first := rc.outage.IsZero()
	if first {
		rc.outage, rc.delay = time.Now(), 0
	}
	deadline := rc.outage.Add(rc.cfg.Patience)
	rc.wg.Go(func() {
		if first && rc.cfg.OnLost != nil {
			rc.cfg.OnLost(cause)
		}
		drop(conn)
		rc.reconnect(deadline, cause)
	})
}

// reconnect dials until a connection has taken all waiting calls. The delay grows until the server
// answers: it may accept connections and end each.
func (rc *Reconnector) reconnect(deadline time.Time, cause error) {
	for {
		rc.mu.Lock()
		delay := rc.delay
		rc.delay = min(max(2*delay, rc.cfg.BackoffMin), rc.cfg.BackoffMax)
		rc.mu.Unlock()
		if time.Until(deadline) <= delay {
			rc.fail(fmt.Errorf("no answer for %v: %w", rc.cfg.Patience, cause))
			return
		}
		select {
		case <-time.After(delay):
		case <-rc.ctx.Done():
			return
		}
		ctx, cancel := context.WithDeadline(rc.ctx, deadline)
		conn, err := rc.cfg.Dial(ctx)
		cancel()
		if err != nil {
			cause = err
			continue
		}
		if rc.resend(conn) {
			return
		}
		drop(conn)
	}
}

// drop ends a connection and waits until its memory is free.
func drop(conn Conn) {
	_ = conn.Close()
	<-conn.Done()
}

// resend submits the waiting calls to a new connection, and then lets it take new ones. It reports
// false if the connection has ended meanwhile.
func (rc *Reconnector) resend(conn Conn) bool {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if rc.gone != nil {
		return false
	}
	rc.trying, rc.answered = conn, false
	for {
		var waiting []*call
		for _, c := range rc.calls {
			if c.conn == nil {
				waiting = append(waiting, c)
			}
		}
		if len(waiting) == 0 {
			rc.conn, rc.trying = conn, nil
			return true
		}
		slices.SortFunc(waiting, func(a, b *call) int { return cmp.Compare(a.seq, b.seq) })
		for _, c := range waiting {
			if rc.calls[c.r] != c {
				continue // cancelled
			}
			c.conn = conn
			rc.mu.Unlock()
			reset(c.r)
			conn.Submit(c.r)
			rc.mu.Lock()
			if c.cause != nil && rc.calls[c.r] == c && c.conn == conn {
				cause := c.cause
				rc.mu.Unlock()
				conn.Cancel(c.r, cause) // an earlier one found nothing
				rc.mu.Lock()
			}
			if rc.trying == nil || rc.gone != nil {
				return false
			}
		}
	}
}

// reset makes a request as new.
func reset(r *oncrpc.Request) {
	r.Reply.Release()
	r.Err = nil
	for i := range r.Plan.Results {
		r.Plan.Results[i].State = oncrpc.Absent
	}
}

// fail ends all calls, later ones too.
func (rc *Reconnector) fail(err error) {
	rc.mu.Lock()
	if rc.gone == nil {
		rc.gone = err
	}
	err = rc.gone
	var waiting []*call
	for r, c := range rc.calls {
		if c.conn == nil {
			waiting = append(waiting, c)
			delete(rc.calls, r)
		}
	}
	conn := rc.conn
	rc.mu.Unlock()
	for _, c := range waiting {
		c.end(cmp.Or(c.cause, err))
	}
	if conn != nil {
		_ = conn.Close()
	}
}

// Close ends the connection. Unanswered calls fail.
func (rc *Reconnector) Close() error {
	rc.stop()
	rc.fail(errClosed)
	return nil
}

// Wait waits after Close until the connection has ended.
func (rc *Reconnector) Wait() {
	rc.wg.Wait()
	if conn := rc.Conn(); conn != nil {
		<-conn.Done()
	}
}
