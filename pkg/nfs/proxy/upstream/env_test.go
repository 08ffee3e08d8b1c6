package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newRequest returns a call with one argument.
func newRequest(t testing.TB, pool *bufpool.Pool, xid, procedure, arg uint32) *Request {
	r := &Request{}
	refill(t, pool, r, xid, procedure, arg)
	return r
}

func refill(t testing.TB, pool *bufpool.Pool, r *Request, xid, procedure, arg uint32) {
	b, err := pool.Get(oncrpc.MinCallLen + 4)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range [...]uint32{xid, oncrpc.MsgCall, oncrpc.RPCVersion, nfsProgram, 3, procedure, 0, 0, 0, 0, arg} {
		binary.BigEndian.PutUint32(b.B[4*i:], v)
	}
	r.Call.Own(b)
	r.Call.Stream = append(r.Call.Stream, b.B)
	r.XID, r.Program, r.Version, r.Procedure, r.ArgsAt = xid, nfsProgram, 3, procedure, oncrpc.MinCallLen
	r.Plan.MaxReply = 100
	r.Replay = ReplayByXID
}

// startServer serves h on loopback.
func startServer(t testing.TB, h oncrpc.Handler) (addr string) {
	t.Helper()
	pool := bufpool.New(0)
	server, err := oncrpc.NewServer(oncrpc.Config{Pool: pool, Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func newTCPBackend(t testing.TB, addr string, cfg Config) (*Backend, *bufpool.Pool) {
	t.Helper()
	return newBackend(t, nil, addr, cfg)
}

func newBackend(t testing.TB, p rdma.Provider, addr string, cfg Config) (*Backend, *bufpool.Pool) {
	t.Helper()
	pool := bufpool.New(0)
	cfg.Pool = pool
	cfg.Dialer = &TCP{Address: addr, Config: oncrpc.Config{Pool: pool}}
	if p != nil {
		cfg.Dialer = &RDMA{Provider: p, Address: addr, Config: rpcrdma.Config{Pool: pool}}
	}
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, pool
}

func client(port uint16) *oncrpc.Conn {
	return &oncrpc.Conn{Network: "tcp", Remote: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), port)}
}

// do makes one call and waits for it.
func do(t testing.TB, lk *Link, pool *bufpool.Pool, xid, procedure uint32) {
	t.Helper()
	r := newRequest(t, pool, xid, procedure, 0)
	done := make(chan struct{})
	r.Finished = func(*Request) { close(done) }
	lk.Submit(r)
	<-done
	if d, err := r.Results(); err != nil {
		t.Errorf("call %d: %v", xid, err)
	} else if x := d.Uint32(); x != xid {
		t.Errorf("call %d got the reply to %d", xid, x)
	}
	r.Reset()
}

type handler func(*oncrpc.Call)

func (h handler) ServeRPC(c *oncrpc.Call) { h(c) }

// errBroken breaks a fakeConn; errFinal ends one request.
var errBroken, errFinal = errors.New("broken"), errors.New("final")

// fakeDialer makes connections in memory. It answers probes by itself.
type fakeDialer struct {
	fail func(port int) error // of dials for links; nil: none fail
	mute bool                 // probes get no answer
	gate chan struct{}        // of link connections

	mu     sync.Mutex
	conns  []*fakeConn // of links
	dials  []time.Time
	ports  []int
	probes int
}

func (d *fakeDialer) Dial(ctx context.Context, port int, p Peer) (Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, own := p.(noPeer)
	if own {
		d.probes++
	} else {
		d.dials, d.ports = append(d.dials, time.Now()), append(d.ports, port)
	}
	if d.fail != nil {
		if err := d.fail(port); err != nil {
			return nil, err
		}
	}
	if port == 0 {
		port = 40_000
	}
	c := &fakeConn{dialer: d, port: port, peer: p, done: make(chan struct{}), prompt: !d.mute}
	if !own {
		c.gate = d.gate
		d.conns = append(d.conns, c)
	}
	return c, nil
}

// conn returns the nth link connection.
func (d *fakeDialer) conn(t testing.TB, n int) *fakeConn {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) <= n {
		t.Fatalf("there were %d connections, connection %d is wanted", len(d.conns), n)
	}
	return d.conns[n]
}

func (d *fakeDialer) setMute(mute bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mute = mute
}

// made returns the times and ports of dials for links, and the number of probes.
func (d *fakeDialer) made() (at []time.Time, ports []int, probes int) {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.dials), slices.Clone(d.ports), d.probes
}

func (d *fakeDialer) setFail(f func(port int) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = f
}

// fakeConn is a connection; the test is its server.
type fakeConn struct {
	dialer *fakeDialer
	port   int
	peer   Peer
	prompt bool // NULL is answered at once
	done   chan struct{}

	mu    sync.Mutex
	err   error
	calls []*oncrpc.Request // unanswered
	owed  []uint32          // XIDs of calls that were cancelled and not answered
	log   []uint32          // XIDs of all calls
	twice bool              // two calls had one XID
	gate  chan struct{}     // if set, each Submit waits to receive from it
	holds gatherer

	onCancel func() // called once, before a request is cancelled
}

type gatherer struct{ held, most int }

func (g *gatherer) Cork()   { g.held++; g.most = max(g.most, g.held) }
func (g *gatherer) Uncork() { g.held-- }

func (c *fakeConn) Submit(r *oncrpc.Request) {
	c.mu.Lock()
	null := r.Procedure == 0
	if gate := c.gate; gate != nil && !null {
		c.mu.Unlock()
		<-gate
		c.mu.Lock()
	}
	if err := c.err; err != nil {
		if !null {
			c.log = append(c.log, r.XID)
		}
		c.mu.Unlock()
		r.Err = err
		r.Done(r)
		return
	}
	if slices.Contains(c.owed, r.XID) {
		c.mu.Unlock()
		r.Err = oncrpc.ErrXIDInUse
		r.Done(r)
		return
	}
	r.Err = nil
	for _, o := range c.calls {
		if o.XID == r.XID {
			c.twice = true
		}
	}
	c.calls = append(c.calls, r)
	if !null {
		c.log = append(c.log, r.XID)
	}
	c.mu.Unlock()
	if c.prompt && null {
		c.reply(r.XID)
	}
}

// take removes the call with the XID from the unanswered ones.
func (c *fakeConn) take(xid uint32) *oncrpc.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range c.calls {
		if r.XID == xid {
			c.calls = append(c.calls[:i], c.calls[i+1:]...)
			return r
		}
	}
	return nil
}

// reply answers the call with its own argument, if there is one.
func (c *fakeConn) reply(xid uint32) bool {
	r := c.take(xid)
	if r == nil {
		return false
	}
	b := make([]byte, oncrpc.MinReplyLen+4)
	binary.BigEndian.PutUint32(b, xid)
	binary.BigEndian.PutUint32(b[4:], oncrpc.MsgReply)
	call := r.Call.Stream[0]
	copy(b[oncrpc.MinReplyLen:], call[len(call)-4:])
	r.Reply.Release()
	r.Reply.Stream = append(r.Reply.Stream, b)
	r.Done(r)
	return true
}

// late answers a cancelled call, if there is one.
func (c *fakeConn) late(xid uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.owed, xid)
	if i >= 0 {
		c.owed = slices.Delete(c.owed, i, i+1)
	}
	return i >= 0
}

func (c *fakeConn) Cancel(r *oncrpc.Request, cause error) {
	c.mu.Lock()
	if f := c.onCancel; f != nil {
		c.onCancel = nil
		c.mu.Unlock()
		f()
		c.mu.Lock()
	}
	found := false
	for i, o := range c.calls {
		if found = o == r; found {
			c.calls, c.owed = append(c.calls[:i], c.calls[i+1:]...), append(c.owed, r.XID)
			break
		}
	}
	c.mu.Unlock()
	if found {
		r.Err = cause
		r.Done(r)
	}
}

func (c *fakeConn) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	for i := range calls { // in any order
		r := calls[len(calls)-1-i]
		r.Err = err
		r.Done(r)
	}
	close(c.done)
}

func (c *fakeConn) Close() error          { c.end(net.ErrClosed); return nil }
func (c *fakeConn) NextXID() uint32       { return 1 }
func (c *fakeConn) Out() oncrpc.Corker    { return &c.holds }
func (c *fakeConn) Wait()                 { <-c.done }
func (c *fakeConn) Port() int             { return c.port }
func (c *fakeConn) Local() netip.AddrPort { return netip.AddrPort{} }
func (c *fakeConn) Final(err error) bool  { return errors.Is(err, errFinal) }

func (c *fakeConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// sent returns the XIDs of all calls so far.
func (c *fakeConn) sent() []uint32 {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]uint32(nil), c.log...)
}

// outcome is the end of a call.
type outcome struct {
	xid, arg, got uint32
	err           error
}

// env is a backend with a fake dialer.
type env struct {
	*Backend
	t      *testing.T
	dialer *fakeDialer
	pool   *bufpool.Pool

	mu       sync.Mutex
	outcomes []outcome
	changes  []bool
}

// withEnv runs f in a synctest bubble, then checks that all memory was returned.
func withEnv(t *testing.T, cfg Config, f func(b *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &env{t: t, dialer: &fakeDialer{}, pool: bufpool.New(0)}
		cfg.Pool, cfg.Dialer = b.pool, b.dialer
		if cfg.Rand == nil {
			cfg.Rand = func() float64 { return 1 }
		}
		cfg.OnHealthChange = func(h bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changes = append(b.changes, h)
		}
		var err error
		if b.Backend, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		func() {
			defer b.Close()
			f(b)
		}()
		synctest.Wait()
		if st := b.Status(); st.Calls != 0 || st.WaitBytes != 0 || st.OrphanedBytes != 0 || st.Connections != 0 || st.Ports != 0 || st.Links != 0 {
			t.Errorf("after the end: %+v", st)
		}
		if err := b.pool.Close(); err != nil {
			t.Error(err)
		}
	})
}

// call submits a call and records its outcome.
func (b *env) call(lk *Link, xid, arg uint32, how func(*Request)) *Request {
	r := newRequest(b.t, b.pool, xid, 1, arg)
	if how != nil {
		how(r)
	}
	ends := 0
	r.Finished = func(r *Request) {
		o := outcome{xid: xid, arg: arg, err: r.Err}
		if ends++; ends > 1 {
			b.t.Errorf("call %d was finished %d times", xid, ends)
		}
		if r.Err == nil {
			d, err := r.Results()
			if err != nil {
				b.t.Errorf("call %d: %v", xid, err)
			} else {
				o.got = d.Uint32()
			}
		}
		r.Reset()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.outcomes = append(b.outcomes, o)
	}
	lk.Submit(r)
	return r
}

// results returns the outcomes since the previous call.
func (b *env) results() []outcome {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.outcomes
	b.outcomes = nil
	return list
}

// want compares the outcomes since the last check, in any order.
func (b *env) want(want ...outcome) {
	b.t.Helper()
	got := b.results()
	left := append([]outcome(nil), got...)
	for _, w := range want {
		found := false
		for i, o := range left {
			if found = o.xid == w.xid && o.arg == w.arg && o.got == w.got && errors.Is(o.err, w.err); found {
				left = append(left[:i], left[i+1:]...)
				break
			}
		}
		if !found {
			b.t.Errorf("outcomes %+v, %+v is missing", got, w)
		}
	}
	if len(left) > 0 {
		b.t.Errorf("outcomes %+v are not wanted", left)
	}
}

// ok is the outcome of an answered call, bad that of a failed one.
func ok(xid, arg uint32) outcome             { return outcome{xid: xid, arg: arg, got: arg} }
func bad(xid, arg uint32, err error) outcome { return outcome{xid: xid, arg: arg, err: err} }

func bySession(r *Request)     { r.Replay = ReplayBySession }
func timeoutAlways(r *Request) { r.Timeout = TimeoutAlways }
func timeoutUnsent(r *Request) { r.Timeout = TimeoutUnsent }

// pass advances the time and runs everything due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
