package rdmatest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// patience is the limit of a case's waits.
const patience = 30 * time.Second

// exam is one run of a case.
type exam struct {
	*testing.T
	*suite
	swap     bool
	listener rdma.Listener
	ends     []*end
	domains  []rdma.Domain
	queues   []*shared

	mu     sync.Mutex
	blocks []block
}

// block is a case's memory, with guards before and after it.
type block struct {
	buf  *bufpool.Buf
	n    int
	skew int
}

const (
	guard     = 64
	guardByte = 0xc3
)

// memory returns n <= 4 MiB - 256 bytes of the pool with arbitrary contents, at an address that is
// skew bytes (0 to 63) past a multiple of 64.
func (x *exam) memory(n, skew int) []byte {
	x.Helper()
	buf, err := x.pool.Get(n + 3*guard)
	if err != nil {
		x.Fatal(err)
	}
	b := block{buf, n, skew}
	for _, g := range b.guards() {
		fill(g, guardByte)
	}
	x.mu.Lock()
	x.blocks = append(x.blocks, b)
	x.mu.Unlock()
	return b.inner()
}

func (b block) inner() []byte { return b.buf.B[guard+b.skew:][:b.n:b.n] }

func (b block) guards() [2][]byte {
	return [2][]byte{b.buf.B[:guard+b.skew], b.buf.B[guard+b.skew+b.n:]}
}

func (b block) intact() bool {
	for _, g := range b.guards() {
		if bytes.Count(g, []byte{guardByte}) != len(g) {
			return false
		}
	}
	return true
}

// fill sets all bytes of b to v, quickly even under the race detector.
func fill(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// finish closes the case's endpoints, and checks the properties of every case.
func (x *exam) finish() {
	for _, e := range x.ends {
		e.close()
	}
	for _, e := range x.ends {
		e.join()
	}
	if x.listener != nil {
		x.listener.Close()
	}
	for _, s := range x.queues {
		s.close()
	}
	for _, d := range x.domains {
		if err := d.Close(); err != nil {
			x.Errorf("closing a domain whose endpoints are closed: %v", err)
		}
	}
	for _, b := range x.blocks {
		if !b.intact() {
			x.Errorf("memory outside of a slice of %d bytes was overwritten", b.n)
		}
		b.buf.Release()
	}
}

func (x *exam) listen() rdma.Listener {
	x.Helper()
	if x.listener == nil {
		l, err := x.Provider.Listen(context.Background(), x.Address)
		if err != nil {
			x.Fatalf("Listen(%q): %v", x.Address, err)
		}
		x.listener = l
	}
	return x.listener
}

func (x *exam) domain() rdma.Domain {
	x.Helper()
	d, err := x.Provider.NewDomain()
	if err != nil {
		x.Fatalf("NewDomain: %v", err)
	}
	if err := d.Register(x.pool); err != nil {
		x.Fatalf("Attach: %v", err)
	}
	x.domains = append(x.domains, d)
	return d
}

// setup configures an end. Zero fields mean the defaults.
type setup struct {
	receives     int  // 16; -1 for none
	size         int  // of each, 4096
	segments     int  // of each, 1
	hold         bool // received messages' memory is not posted again
	ord          int  // 8; -1 for none
	ird          int  // 8; -1 for none
	sendQueue    int
	receiveQueue int
	domain       rdma.Domain
	private      []byte
	idle         bool // Serve is not called, and no greeting is exchanged
	shared       *shared
	own          bool // there are own receives even beside an SRQ
}

func (x *exam) newEnd(name string, s setup, greeted bool) (*end, rdma.Options) {
	e := &end{exam: x, name: name, hold: s.hold, receives: map[uint64][][]byte{}, posted: map[uint64]rdma.WorkRequest{}, fences: map[uint64]bool{}, served: make(chan struct{})}
	e.changed.L = &e.mu
	e.domain, e.shared = s.domain, s.shared
	if e.domain == nil && s.shared != nil {
		e.domain = s.shared.domain
	}
	if e.domain == nil {
		e.domain = x.domain()
	}
	if s.receives == 0 {
		s.receives = 16
	}
	var rs []rdma.Receive
	if s.shared != nil && !s.own {
		greeted, s.receives = false, -1
	}
	if greeted {
		rs = append(rs, e.newReceive([][]byte{x.memory(len(greeting), 0)}))
		e.greeting = rs[0].ID
	}
	for range max(0, s.receives) {
		rs = append(rs, e.newReceive(cut(x.memory(orDefault(s.size, 4096), 4), orDefault(s.segments, 1))))
	}
	return e, rdma.Options{
		Domain: e.domain, PrivateData: s.private, Receives: rs, SendQueue: s.sendQueue, ReceiveQueue: s.receiveQueue,
		ORD: max(0, orDefault(s.ord, 8)), IRD: max(0, orDefault(s.ird, 8)),
	}
}

const greeting = "hello"

// connect returns two connected ends that are being served: the leading one and the other. The
// dialer has sent a greeting, since the acceptor may have to wait for it.
func (x *exam) connect(sa, sb setup) (a, b *end) {
	x.Helper()
	a, b = x.tryConnect(sa, sb)
	if a == nil {
		x.FailNow()
	}
	return a, b
}

func (x *exam) tryConnect(sa, sb setup) (a, b *end) {
	x.Helper()
	l := x.listen()
	sd, sc := sa, sb
	if x.swap {
		sd, sc = sb, sa
	}
	d, do := x.newEnd("dialer", sd, false)
	c, co := x.newEnd("acceptor", sc, !sd.idle && !sc.idle)
	accepted := make(chan error, 1)
	go func() {
		in, err := l.Accept()
		if err == nil && sc.shared != nil {
			err = sc.shared.open(in, sc.receives, sc.size)
			co.SRQ = sc.shared.queue
		}
		if err == nil {
			c.ep, err = in.Accept(co)
		}
		accepted <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	d.ep, err = x.Provider.Dial(ctx, l.Addr().String(), do)
	if err != nil {
		l.Close()
		x.listener = nil
		x.Errorf("Dial: %v; Accept: %v", err, <-accepted)
		return nil, nil
	}
	if err := <-accepted; err != nil {
		x.Errorf("Accept: %v", err)
		d.ep.Close()
		return nil, nil
	}
	x.ends = append(x.ends, d, c)
	if !sd.idle {
		go d.serve()
	} else {
		close(d.served)
	}
	if !sc.idle {
		go c.serve()
	} else {
		close(c.served)
	}
	if !sd.idle && !sc.idle {
		m := x.memory(len(greeting), 0)
		copy(m, greeting)
		d.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)})
		if got := c.receive(); string(got.data) != greeting {
			x.Errorf("the greeting came as %q", got.data)
		}
		d.awaitSent(1)
	}
	if x.swap {
		return c, d
	}
	return d, c
}

// exchange sends a message each way, to check that the connection works and that all earlier
// messages have arrived.
func exchange(a, b *end) {
	a.Helper()
	for range 2 {
		m := a.memory(20, 0)
		copy(m, noise(len(m), 20))
		a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)})
		if got := b.receive(); !bytes.Equal(got.data, m) {
			a.Fatalf("%s received %q, want %q", b.name, got.data, m)
		}
		a.awaitSent(1)
		a, b = b, a
	}
}

// echo sends data to b, which returns them. Unlike exchange it may be called on any goroutine.
func (e *end) echo(b *end, data []byte) error {
	send := func(from, to *end, data []byte) ([]byte, error) {
		m := e.memory(len(data), 0)
		copy(m, data)
		if _, err := from.tryPost(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)}); err != nil {
			return nil, err
		}
		if err := to.tryWait("a message", func() bool { return len(to.messages) > 0 }); err != nil {
			return nil, err
		}
		to.mu.Lock()
		defer to.mu.Unlock()
		got := to.messages[0]
		to.messages = to.messages[1:]
		return got.data, nil
	}
	got, err := send(e, b, data)
	if err == nil {
		got, err = send(b, e, got)
	}
	if err == nil && !bytes.Equal(got, data) {
		err = fmt.Errorf("%q came back as %q", data, got)
	}
	return err
}

func list(b ...[]byte) [][]byte { return b }

// cut divides b into n slices of uneven lengths.
func cut(b []byte, n int) (l [][]byte) {
	for i := range n - 1 {
		// one half, the whole, or one and a half of an even share
		k := (len(b) / (n - i)) * (1 + i%3) / 2
		k = min(k, len(b))
		l = append(l, b[:k:k])
		b = b[k:]
	}
	return append(l, b)
}

// cutRandomly divides b into at most n slices of random lengths; some may be empty.
func cutRandomly(r *rand.Rand, b []byte, n int) (l [][]byte) {
	for range r.IntN(n) {
		k := r.IntN(len(b) + 1)
		l = append(l, b[:k:k])
		b = b[k:]
	}
	return append(l, b)
}

var noiseBlock = sync.OnceValue(func() []byte {
	b := make([]byte, 8<<20+1<<16)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
})

// noise returns n bytes that depend on seed. Do not change them.
func noise(seed, n int) []byte { return noiseBlock()[seed*4099&(1<<16-1):][:n] }
