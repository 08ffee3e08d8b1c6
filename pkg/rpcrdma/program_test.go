package rpcrdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/xdr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The test program. A call of procMove is
//
//	count, opaque arg<>...; tail; count, { length, inline? }...
//
// and its reply
//
//	crc of the arguments and their lengths; count, { status, opaque result<> if status is 0 }...; tail
//
// Arguments and results are eligible. procPlain has one opaque argument and one opaque result of
// which nothing is.
const (
	testProgram = 0x20000815
	testVersion = 1

	procNull  = 0
	procMove  = 1
	procPlain = 2
	procHang  = 3 // is not answered until released

	maxItems = 8
	maxItem  = 8 << 20
	tail     = 0x7a7a7a7a
)

type testBinding struct{}

func testBindings(program, version uint32) oncrpc.Binding {
	if program == testProgram && version == testVersion {
		return testBinding{}
	}
	return nil
}

func (testBinding) Plan(p *oncrpc.Plan, args []oncrpc.Argument, procedure uint32, d *xdr.Decoder) ([]oncrpc.Argument, error) {
	p.Results, p.MaxReply = p.Results[:0], 0
	switch procedure {
	case procMove:
		n := d.Uint32()
		if n > maxItems {
			d.Fail("%d arguments, at most %d", n, maxItems)
			n = 0
		}
		for range n {
			at := d.Pos() + 4
			var scratch [64][]byte
			_, length, _ := d.Bulk(maxItem, scratch[:0])
			args = append(args, oncrpc.Argument{Position: at, Length: length})
		}
		d.Uint32()
		p.MaxReply = 16
		n = d.Uint32()
		if n > maxItems {
			d.Fail("%d results, at most %d", n, maxItems)
			n = 0
		}
		for range n {
			begin := d.Pos()
			length := int(d.Uint32())
			d.Uint32()
			p.Results = append(p.Results, oncrpc.Result{Max: length, Begin: begin, End: d.Pos()})
			p.MaxReply += 8 + xdr.Round(length)
		}
	case procPlain:
		d.Opaque(maxItem)
		p.MaxReply = 8 + xdr.Round(int(d.Uint32()))
	}
	return args, d.Err()
}

func (testBinding) Results(found []oncrpc.Found, p *oncrpc.Plan, placed []int, procedure uint32, d *xdr.Decoder) ([]oncrpc.Found, error) {
	if procedure != procMove {
		return found, nil
	}
	d.Uint32()
	d.Uint32()
	n := int(d.Uint32())
	if n != len(p.Results) {
		d.Fail("%d results, %d planned", n, len(p.Results))
		n = 0
	}
	gone := 0 // bytes that were placed, which d does not know of
	for k := range n {
		if d.Uint32() != 0 {
			if k < len(placed) && placed[k] > 0 {
				d.Fail("%d bytes placed for result %d, which failed", placed[k], k)
			}
			found = append(found, oncrpc.Found{})
			continue
		}
		if k < len(placed) && placed[k] > 0 {
			length := int(d.Uint32())
			if length != placed[k] && xdr.Round(length) != placed[k] {
				d.Fail("%d bytes placed for result %d of %d", placed[k], k, length)
			}
			found = append(found, oncrpc.Found{State: oncrpc.Placed, Position: d.Pos() + gone, Length: length})
			gone += xdr.Round(length)
			continue
		}
		at := d.Pos() + 4 + gone
		var scratch [64][]byte
		_, length, taken := d.Bulk(maxItem, scratch[:0])
		f := oncrpc.Found{State: oncrpc.Inline, Position: at, Length: length}
		if taken {
			f.State = oncrpc.Placed
		}
		if length == 0 {
			f = oncrpc.Found{}
		}
		found = append(found, f)
	}
	return found, d.Err()
}

// noise is the source of patterns; its length is prime, so that a shift by any buffer's length
// shows.
var noise = func() []byte {
	b, x := make([]byte, 65537), uint32(12345)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}()

// fill writes the data of result k.
func fill(list [][]byte, k int) {
	at := 7919 * (k + 1) % len(noise)
	for _, b := range list {
		for len(b) > 0 {
			n := copy(b, noise[at:])
			b, at = b[n:], (at+n)%len(noise)
		}
	}
}

func pattern(n, k int) []byte {
	b := make([]byte, n)
	fill([][]byte{b}, k)
	return b
}

// testHandler answers the test program. With async it does so from other goroutines.
type testHandler struct {
	async  bool
	inline bool // results stay in the stream
	cheap  bool // neither checksums nor patterns
	mu     sync.Mutex
	hung   []*oncrpc.Call
	calls  int
	conn   *oncrpc.Conn
	wg     sync.WaitGroup
}

func (h *testHandler) ServeRPC(c *oncrpc.Call) {
	h.mu.Lock()
	h.calls++
	h.conn = c.Conn
	h.mu.Unlock()
	if c.Program != testProgram {
		c.ReplyAccept(oncrpc.ProgUnavail)
		return
	}
	if h.async {
		h.wg.Add(1)
		go func() {
			defer h.wg.Done()
			h.answer(c)
		}()
		return
	}
	h.answer(c)
}

func (h *testHandler) release() {
	h.mu.Lock()
	hung := h.hung
	h.hung = nil
	h.mu.Unlock()
	for _, c := range hung {
		c.ReplyAccept(oncrpc.Success)
	}
}

func (h *testHandler) answer(c *oncrpc.Call) {
	switch c.Procedure {
	case procNull:
		c.ReplyAccept(oncrpc.Success)
	case procHang:
		h.mu.Lock()
		h.hung = append(h.hung, c)
		h.mu.Unlock()
	case procMove:
		h.move(c)
	case procPlain:
		d := c.Args()
		in := d.Opaque(maxItem)
		n := int(d.Uint32())
		if d.Err() != nil || n > maxItem {
			c.ReplyAccept(oncrpc.GarbageArgs)
			return
		}
		e, err := c.BeginReply(oncrpc.MinReplyLen + 8 + xdr.Round(n))
		if err != nil {
			c.ReplyAccept(oncrpc.SystemErr)
			return
		}
		e.Uint32(crc32.ChecksumIEEE(in))
		e.Uint32(uint32(n))
		if b := e.Grow(xdr.Round(n)); b != nil {
			clear(b)
			fill([][]byte{b[:n]}, 0)
		}
		c.Respond()
	default:
		c.ReplyAccept(oncrpc.ProcUnavail)
	}
}

func (h *testHandler) move(c *oncrpc.Call) {
	d := c.Args()
	n := int(d.Uint32())
	sum, total := uint32(0), 0
	var scratch [64][]byte
	for range min(n, maxItems) {
		data, length, _ := d.Bulk(maxItem, scratch[:0])
		for _, s := range data {
			if h.cheap {
				break
			}
			sum = crc32.Update(sum, crc32.IEEETable, s)
		}
		total += length
	}
	if t := d.Uint32(); t != tail || n > maxItems {
		d.Fail("tail is %#x", t)
	}
	results := int(d.Uint32())
	if results > maxItems || d.Err() != nil {
		c.ReplyAccept(oncrpc.GarbageArgs)
		return
	}
	type spec struct{ length, how int }
	var specs [maxItems]spec
	size := oncrpc.MinReplyLen + 16
	for i := range results {
		specs[i] = spec{int(d.Uint32()), int(d.Uint32())}
		if specs[i].length > maxItem {
			c.ReplyAccept(oncrpc.GarbageArgs)
			return
		}
		size += 8
		if h.inline || specs[i].how == 2 {
			size += xdr.Round(specs[i].length)
		}
	}
	if d.Err() != nil {
		c.ReplyAccept(oncrpc.GarbageArgs)
		return
	}
	e, err := c.BeginReply(size)
	if err != nil {
		c.ReplyAccept(oncrpc.SystemErr)
		return
	}
	e.Uint32(sum)
	e.Uint32(uint32(total))
	e.Uint32(uint32(results))
	for k := range results {
		s := specs[k]
		switch {
		case s.how == 1: // fails
			e.Uint32(1)
		case h.inline || s.how == 2:
			e.Uint32(0)
			e.Uint32(uint32(s.length))
			b := e.Grow(xdr.Round(s.length))
			clear(b)
			fill([][]byte{b[:s.length]}, k)
		default:
			e.Uint32(0)
			var list [8][]byte
			data := list[:0]
			for left := s.length; left > 0; {
				buf, err := c.Pool().Get(min(left, bufpool.MaxSize))
				if err != nil {
					c.ReplyAccept(oncrpc.SystemErr)
					return
				}
				c.Reply.Own(buf)
				data = append(data, buf.B)
				left -= len(buf.B)
			}
			kept := c.Reply.Keep(data)
			if !h.cheap {
				fill(kept, k)
			}
			e.Bulk(kept, s.length)
		}
	}
	e.Uint32(tail)
	c.Respond()
}

// pools are those of worlds that are closed: mapping memory anew for each would take most of the
// time.
var pools struct {
	mu   sync.Mutex
	free []*bufpool.Pool
}

func getPool() *bufpool.Pool {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if n := len(pools.free); n > 0 {
		p := pools.free[n-1]
		pools.free = pools.free[:n-1]
		return p
	}
	return bufpool.New(0)
}

func putPool(p *bufpool.Pool) {
	if p.Stats().Bufs == 0 {
		pools.mu.Lock()
		defer pools.mu.Unlock()
		pools.free = append(pools.free, p)
	}
}

// patience is how long a test waits for an event that has to come.
const patience = time.Minute

// eventually waits for something to become true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Since(start) > patience {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// hanging is the number of calls that hang in the handler.
func (h *testHandler) hanging() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.hung)
}

// env is a fabric with a server, and the means to connect to it.
type env struct {
	t       *testing.T
	p       rdma.Provider
	fabric  *rdmatest.Fabric // p, if it is one
	pool    *bufpool.Pool    // the server's
	cpool   *bufpool.Pool    // the clients'
	budget  *bufpool.Budget
	server  *Server
	handler *testHandler
	counts  *counts
	address string
	domain  rdma.Domain
	served  chan error
}

// counts is an Observer.
type counts struct {
	NoObserver
	mu      sync.Mutex
	moved   [Paths]int
	erred   [ErrorKinds]int
	granted int
}

func (c *counts) Transferred(p Path, n int) { c.mu.Lock(); c.moved[p] += n; c.mu.Unlock() }
func (c *counts) ProtocolError(f ErrorKind) { c.mu.Lock(); c.erred[f]++; c.mu.Unlock() }
func (c *counts) Credits(g, _ int)          { c.mu.Lock(); c.granted = g; c.mu.Unlock() }

// all is how many faults were counted.
func (c *counts) all() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.erred {
		n += m
	}
	return n
}

func (c *counts) faults(f ErrorKind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.erred[f]
}

func newEnv(t *testing.T, o rdmatest.Options, change func(*Config)) *env {
	t.Helper()
	f := rdmatest.NewFabric(o)
	w := newEnvOn(t, f, change)
	w.fabric = f
	return w
}

func newEnvOn(t *testing.T, p rdma.Provider, change func(*Config)) *env {
	t.Helper()
	w := &env{
		t: t, p: p, pool: getPool(), cpool: getPool(), handler: &testHandler{},
		counts: &counts{}, budget: bufpool.NewBudget(64<<20, 32<<20), served: make(chan error, 1),
	}
	var err error
	if w.domain, err = p.NewDomain(); err != nil {
		t.Fatal(err)
	}
	if err := w.domain.Register(w.pool); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Pool: w.pool, Domain: w.domain, Handler: w.handler, Bindings: testBindings, Budget: w.budget, Observer: w.counts,
		RemoteInvalidation: true, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = l.Addr().String()
	if w.server, err = NewServer(cfg, l); err != nil {
		t.Fatal(err)
	}
	go func() { w.served <- w.server.Serve() }()
	return w
}

// clientConfig is that of clients, if nothing else is said.
func (w *env) clientConfig() Config {
	return Config{Pool: w.cpool, Bindings: testBindings, RemoteInvalidation: true}
}

func (w *env) dial(change func(*Config)) *Client {
	w.t.Helper()
	cfg := w.clientConfig()
	if change != nil {
		change(&cfg)
	}
	c, err := Dial(context.Background(), w.p, w.address, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// close ends everything and looks whether all memory came back.
func (w *env) close(clients ...*Client) {
	w.t.Helper()
	for _, c := range clients {
		c.Close()
		<-c.Done()
	}
	if err := w.server.Close(); err != nil {
		w.t.Error(err)
	}
	w.handler.release()
	w.handler.wg.Wait()
	if err := <-w.served; err != nil {
		w.t.Errorf("Serve: %v", err)
	}
	if s := w.pool.Stats(); s.Bufs != 0 {
		w.t.Errorf("the server still has %d buffers of %d bytes", s.Bufs, s.InUse)
	}
	if s := w.cpool.Stats(); s.Bufs != 0 {
		w.t.Errorf("the clients still have %d buffers of %d bytes", s.Bufs, s.InUse)
	}
	if n := w.budget.Used(); n != 0 {
		w.t.Errorf("%d bytes of the budget are in use", n)
	}
	if n := w.budget.Waiting(); n != 0 {
		w.t.Errorf("%d calls wait for memory", n)
	}
	if err := w.domain.Close(); err != nil {
		w.t.Error(err)
	}
	putPool(w.pool)
	putPool(w.cpool)
}

// move is a call of procMove.
type move struct {
	args    []int // their lengths
	split   int   // slices of each argument
	results []int // their lengths
	how     []int // 0 placed, 1 fails, 2 inline
	inline  bool  // arguments are in the stream
	memory  int   // slices of the memory for results that the caller brings; 0: none
}

// build makes the request.
func (m *move) build(pool *bufpool.Pool) (*oncrpc.Request, error) {
	size := oncrpc.MinCallLen + 64 + 8*maxItems
	for _, n := range m.args {
		size += 8
		if m.inline {
			size += xdr.Round(n)
		}
	}
	r, e, err := oncrpc.NewRequest(pool, testProgram, testVersion, procMove, oncrpc.Auth{}, size)
	if err != nil {
		return nil, err
	}
	e.Uint32(uint32(len(m.args)))
	var eligible []oncrpc.Argument
	for k, n := range m.args {
		if m.inline {
			eligible = append(eligible, oncrpc.Argument{Position: e.Pos() + 4, Length: n})
			e.Opaque(pattern(n, k))
			continue
		}
		var data [][]byte
		parts := max(1, m.split)
		for i := range parts {
			l := n / parts
			if i == parts-1 {
				l = n - l*(parts-1)
			}
			for l > 0 {
				buf, err := pool.Get(min(l, bufpool.MaxSize))
				if err != nil {
					r.Free()
					return nil, err
				}
				r.Call.Own(buf)
				data = append(data, buf.B)
				l -= len(buf.B)
			}
		}
		fill(data, k)
		e.Bulk(data, n)
	}
	e.Uint32(tail)
	e.Uint32(uint32(len(m.results)))
	max := oncrpc.MinReplyLen + 16
	for i, n := range m.results {
		begin := e.Pos()
		e.Uint32(uint32(n))
		how := 0
		if i < len(m.how) {
			how = m.how[i]
		}
		e.Uint32(uint32(how))
		res := oncrpc.Result{Max: n, Begin: begin, End: e.Pos()}
		for range m.memory {
			buf, err := pool.Get((n + m.memory - 1) / m.memory)
			if err != nil {
				r.Free()
				return nil, err
			}
			r.Call.Own(buf)
			res.Memory = append(res.Memory, buf.B)
		}
		r.Plan.Results = append(r.Plan.Results, res)
		max += 8 + xdr.Round(n)
	}
	r.Plan.MaxReply = max
	if m.inline {
		r.Eligible = append(r.Eligible[:0], eligible...)
	}
	return r, nil
}

// check looks whether the reply is right.
func (m *move) check(r *oncrpc.Request) error {
	d, err := r.Results()
	if err != nil {
		return err
	}
	sum, total := uint32(0), 0
	for k, n := range m.args {
		sum = crc32.Update(sum, crc32.IEEETable, pattern(n, k))
		total += n
	}
	if got := d.Uint32(); got != sum {
		return fmt.Errorf("checksum of the arguments is %#x, want %#x", got, sum)
	}
	if got := int(d.Uint32()); got != total {
		return fmt.Errorf("arguments had %d bytes, want %d", got, total)
	}
	if got := int(d.Uint32()); got != len(m.results) {
		return fmt.Errorf("%d results, want %d", got, len(m.results))
	}
	for k, n := range m.results {
		how := 0
		if k < len(m.how) {
			how = m.how[k]
		}
		if s := int(d.Uint32()); s != 0 {
			if how != 1 {
				return fmt.Errorf("result %d failed", k)
			}
			continue
		}
		data, length, _ := d.Bulk(maxItem, nil)
		if length != n {
			return fmt.Errorf("result %d has %d bytes, want %d (%w)", k, length, n, d.Err())
		}
		if got := bytes.Join(data, nil); !bytes.Equal(got, pattern(n, k)) {
			return fmt.Errorf("result %d has wrong bytes", k)
		}
	}
	if t := d.Uint32(); t != tail {
		return fmt.Errorf("tail is %#x: %w", t, d.Err())
	}
	if d.Left() > 0 {
		return fmt.Errorf("%d bytes follow", d.Left())
	}
	return d.Err()
}

func (m *move) do(c oncrpc.Requester, pool *bufpool.Pool) error {
	r, err := m.build(pool)
	if err != nil {
		return err
	}
	defer r.Free()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := oncrpc.Do(ctx, c, r); err != nil {
		return err
	}
	return m.check(r)
}

// null makes a call of procNull, or another without arguments.
func null(c oncrpc.Requester, pool *bufpool.Pool, procedure uint32) error {
	r, _, err := oncrpc.NewRequest(pool, testProgram, testVersion, procedure, oncrpc.Auth{}, 64)
	if err != nil {
		return err
	}
	defer r.Free()
	r.Plan.MaxReply = 32
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := oncrpc.Do(ctx, c, r); err != nil {
		return err
	}
	_, err = r.Results()
	return err
}

// plain makes a call of procPlain.
func plain(c oncrpc.Requester, pool *bufpool.Pool, arg, result int) error {
	r, e, err := oncrpc.NewRequest(pool, testProgram, testVersion, procPlain, oncrpc.Auth{}, 64+xdr.Round(arg))
	if err != nil {
		return err
	}
	defer r.Free()
	e.Opaque(pattern(arg, 7))
	e.Uint32(uint32(result))
	r.Plan.MaxReply = oncrpc.MinReplyLen + 8 + xdr.Round(result)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := oncrpc.Do(ctx, c, r); err != nil {
		return err
	}
	d, err := r.Results()
	if err != nil {
		return err
	}
	if sum := d.Uint32(); sum != crc32.ChecksumIEEE(pattern(arg, 7)) {
		return errors.New("wrong checksum of the argument")
	}
	if b := d.Opaque(maxItem); !bytes.Equal(b, pattern(result, 0)) {
		return errors.New("wrong result")
	}
	return d.Err()
}
