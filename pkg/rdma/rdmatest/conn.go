package rdmatest

import (
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// conn is a connection: two ends and the two wires between them, all under one lock. No handler is
// called under it.
type conn struct {
	f      *Fabric
	number int

	mu      sync.Mutex
	ends    [2]*endpoint // the dialer's and the acceptor's
	stalled bool         // nothing arrives any more, and neither end is notified
	free    *packet
}

// wire is one direction of a connection. A packet is first transmitted, according to the bandwidth,
// and then in flight.
type wire struct {
	c              *conn
	from, to       *endpoint
	sending, fly   fifo[*packet]
	sendTimer      *time.Timer
	flyTimer       *time.Timer
	idle, lastLand time.Time // end of the last packet's transmission, and its arrival
}

type kind uint8

const (
	request      kind = iota // a Send, Write or Read of the packet's work request
	readResponse             // the data for the Read of the packet's work request
	disconnect               // the sender closed
	terminate                // the sender found an error
)

// packet is a message on a wire.
type packet struct {
	next     *packet
	kind     kind
	wr       rdma.WorkRequest
	parts    [][]byte // the payload: the sender's memory, or data
	data     []byte   // the packet's own memory
	captured bool     // parts are data
	one      [1][]byte
	bytes    int
	due      time.Time // end of the transmission, then time of arrival
	fault    Fault
	err      error // of terminate
}

func (f *Fabric) newConn(in *incoming, d *domain, o rdma.Options) (*conn, error) {
	c := &conn{f: f}
	f.mu.Lock()
	f.conns++
	c.number = f.conns
	f.mu.Unlock()
	c.ends[0] = newEndpoint(c, Dialer, in.domain, &in.options)
	c.ends[1] = newEndpoint(c, Acceptor, d, &o)
	for i, e := range c.ends {
		peer := c.ends[1-i]
		e.wire = &wire{c: c, from: e, to: peer}
		e.peer = peer
	}
	a, b := c.ends[0], c.ends[1]
	a.local, a.remote = addr(in.remote), addr(in.local)
	b.local, b.remote = a.remote, a.local
	a.attributes.PrivateData, b.attributes.PrivateData = slices.Clone(o.PrivateData), slices.Clone(in.private)
	a.attributes.ORD = min(in.options.ORD, o.IRD)
	b.attributes.ORD = min(o.ORD, in.options.IRD)
	a.attributes.IRD, b.attributes.IRD = b.attributes.ORD, a.attributes.ORD
	for i, e := range c.ends {
		if err := e.domain.acquire(); err != nil {
			if i == 1 {
				a.domain.release()
			}
			return nil, err
		}
	}
	for _, e := range c.ends {
		e.shared.join()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.addReceives(in.options.Receives)
	b.addReceives(o.Receives)
	f.counters.connections.Add(1)
	f.record(Event{Conn: c.number, From: Dialer, What: "connected"})
	return c, nil
}

// newRand makes the source of an endpoint's handles. It is the endpoint's own, so that a Seed gives
// the same handles in any order of goroutines.
func (c *conn) newRand(s Side) *rand.Rand {
	var seed [32]byte
	for i, v := range [4]uint64{c.f.seed, uint64(c.number), uint64(s), 0} {
		for j := range 8 {
			seed[8*i+j] = byte(v >> (8 * j))
		}
	}
	return rand.New(rand.NewChaCha8(seed))
}

func (c *conn) newPacket(k kind) *packet {
	p := c.free
	if p == nil {
		return &packet{kind: k}
	}
	c.free = p.next
	data := p.data
	*p = packet{kind: k, data: data}
	return p
}

func (c *conn) freePacket(p *packet) {
	if cap(p.data) > 1<<20 {
		p.data = nil
	}
	p.wr, p.parts, p.one[0], p.err = rdma.WorkRequest{}, nil, nil, nil
	p.next, c.free = c.free, p
}

// capture copies the payload into the packet, which then needs the sender's memory no more.
func (p *packet) capture() {
	if p.captured {
		return
	}
	p.data = p.data[:0]
	for _, b := range p.parts {
		p.data = append(p.data, b...)
	}
	p.one[0] = p.data
	p.parts, p.captured = p.one[:], true
}

// transmit puts p on the wire, after earlier packets.
func (w *wire) transmit(p *packet) {
	if w.c.f.o.Bandwidth == 0 {
		w.sent(p)
		return
	}
	now := time.Now()
	if w.idle.Before(now) {
		w.idle = now
	}
	w.idle = w.idle.Add(time.Duration(float64(p.bytes) / float64(w.c.f.o.Bandwidth) * float64(time.Second)))
	if w.sending.len() == 0 && !w.idle.After(now) {
		w.sent(p)
		return
	}
	if p.kind == readResponse {
		p.capture() // the region may be invalidated before the end of the transmission
	}
	p.due = w.idle
	w.sending.push(p)
	if w.sending.len() == 1 {
		arm(&w.sendTimer, w.idle.Sub(now), w.onSent)
	}
}

// sent completes the sender's part, and puts p in flight.
func (w *wire) sent(p *packet) {
	delay := w.c.f.o.Delay
	if p.fault.Do == Delay {
		delay += p.fault.Delay
	}
	flies := delay > 0 || w.fly.len() > 0
	if flies {
		p.capture()
	}
	if p.kind == request && p.wr.Op != rdma.Read {
		w.from.sentOne(p)
	}
	if !flies {
		w.land(p)
		return
	}
	t := time.Now()
	p.due = t.Add(delay)
	if p.due.Before(w.lastLand) {
		p.due = w.lastLand
	}
	w.lastLand = p.due
	w.fly.push(p)
	if w.fly.len() == 1 {
		arm(&w.flyTimer, p.due.Sub(t), w.onLand)
	}
}

func (w *wire) onSent() {
	w.c.mu.Lock()
	t := time.Now()
	for w.sending.len() > 0 && !w.sending.peek().due.After(t) {
		w.sent(w.sending.pop())
	}
	if w.sending.len() > 0 {
		arm(&w.sendTimer, w.sending.peek().due.Sub(t), w.onSent)
	}
	w.from.report()
	w.c.mu.Unlock()
}

func (w *wire) onLand() {
	w.c.mu.Lock()
	t := time.Now()
	for w.fly.len() > 0 && !w.fly.peek().due.After(t) {
		w.land(w.fly.pop())
	}
	if w.fly.len() > 0 {
		arm(&w.flyTimer, w.fly.peek().due.Sub(t), w.onLand)
	}
	w.c.mu.Unlock()
}

// arm starts a stopped timer, or resets a running one.
func arm(t **time.Timer, d time.Duration, f func()) {
	if *t == nil {
		*t = time.AfterFunc(d, f)
	} else {
		(*t).Reset(d)
	}
}

// land delivers p.
func (w *wire) land(p *packet) {
	c := w.c
	switch {
	case c.stalled || w.to.ended:
	case p.kind == disconnect:
		w.to.abort(io.EOF)
	case p.kind == terminate:
		w.to.abort(p.err)
	case p.kind == readResponse:
		w.to.readDone(p)
	default:
		w.arrive(p)
		return // it frees p, or sends it back
	}
	c.freePacket(p)
}

// cut drops the wire's references to the sender's memory.
func (w *wire) cut() {
	for w.sending.len() > 0 {
		w.c.freePacket(w.sending.pop())
	}
	w.idle = time.Time{}
}

// captureAll copies the payload of all packets that wait for transmission.
func (w *wire) captureAll() {
	for i := range w.sending.len() {
		w.sending.at(i).capture()
	}
}

// lose ends the connection at once, for both.
func (c *conn) lose(why error) {
	for _, e := range c.ends {
		e.abort(why)
		for e.wire.fly.len() > 0 {
			c.freePacket(e.wire.fly.pop())
		}
	}
}

// fifo is a queue in a ring, which grows.
type fifo[T any] struct {
	ring    []T
	head, n int
}

func (q *fifo[T]) len() int { return q.n }

func (q *fifo[T]) at(i int) T { return q.ring[(q.head+i)%len(q.ring)] }

func (q *fifo[T]) peek() T { return q.ring[q.head] }

func (q *fifo[T]) push(v T) {
	if q.n == len(q.ring) {
		ring := make([]T, max(8, 2*q.n))
		for i := range q.n {
			ring[i] = q.at(i)
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = v
	q.n++
}

func (q *fifo[T]) pop() T {
	var none T
	v := q.ring[q.head]
	q.ring[q.head] = none
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	return v
}
