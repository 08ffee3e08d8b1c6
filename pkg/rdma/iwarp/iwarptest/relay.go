// Package iwarptest has a relay that stands between the ends of iWARP connections, like a long or
// faulty wire. It parses FPDUs (RFC 5044) and the segments of DDP and RDMAP in them (RFC 5040,
// 5041), delays and counts them, and injects faults into messages. It does not support markers.
//
//	dialer <---- relay: Delay each way, Inspect each Send ----> target
package iwarptest

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Action is the relay's treatment of a message.
type Action uint8

// Actions.
const (
	Pass   Action = iota
	Cut           // deliver it, and end the connection after it
	Drop          // do not deliver it
	Repeat        // deliver it twice
	Hold          // deliver neither it nor later ones, until CutAll
)

// Message is an RDMA Send in transit.
type Message struct {
	// Conn counts connections from 1. FromDialer is the direction.
	Conn       int
	FromDialer bool
	// Head is the beginning of the message, up to the end of its first segment. Changes to it are
	// delivered.
	Head []byte
}

// Config configures a Relay.
type Config struct {
	// Target is the address that connections are forwarded to, "IP:port".
	Target string
	// Delay is the delay of everything, each way.
	Delay time.Duration
	// Inspect, if not nil, decides on each Send. Calls for one direction of a connection are
	// sequential.
	Inspect func(*Message) Action
}

// Counts are the totals of delivered messages.
type Counts struct {
	// RoundTrips counts the changes of direction to the one from a dialer, the first message
	// included.
	RoundTrips int
	// Sends, Reads and Writes are RDMA operations, of both sides together.
	Sends, Reads, Writes int
}

// Relay forwards connections.
type Relay struct {
	cfg      Config
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  map[int]*connection
	made   int
	counts Counts
	closed bool
}

// connection is a pair of streams.
type connection struct {
	r           *Relay
	id          int
	front, back net.Conn
	done        chan struct{} // closed by cut
	once        sync.Once
	turned      bool // the last message went to the dialer
}

// Listen returns a relay on loopback. Close ends it.
func Listen(cfg Config) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, listener: l, conns: map[int]*connection{}}
	r.running.Go(r.accept)
	return r, nil
}

// Address is the relay's own address.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Counts returns the totals so far.
func (r *Relay) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Connections returns the number of connections so far.
func (r *Relay) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

// CutAll ends the open connections.
func (r *Relay) CutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.cut()
	}
}

// Close ends the relay and its connections.
func (r *Relay) Close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.CutAll()
	r.running.Wait()
}

func (r *Relay) accept() {
	for {
		front, err := r.listener.Accept()
		if err != nil {
			return
		}
		back, err := net.Dial("tcp", r.cfg.Target)
		if err != nil {
			_ = front.Close()
			continue
		}
		c := &connection{r: r, front: front, back: back, done: make(chan struct{}), turned: true}
		r.mu.Lock()
		r.made++
		c.id = r.made
		r.conns[c.id] = c
		if r.closed {
			c.cut()
		}
		r.mu.Unlock()
		r.running.Go(c.run)
	}
}

func (c *connection) run() {
	var both sync.WaitGroup
	both.Go(func() { c.pass(c.back, c.front, true) })
	both.Go(func() { c.pass(c.front, c.back, false) })
	both.Wait()
	c.cut()
	c.r.mu.Lock()
	delete(c.r.conns, c.id)
	c.r.mu.Unlock()
}

// cut ends the connection at once, for both sides.
func (c *connection) cut() {
	c.once.Do(func() {
		close(c.done)
		_ = c.front.Close()
		_ = c.back.Close()
	})
}

// bundle arrives as a whole.
type bundle struct {
	at  time.Time
	b   []byte
	cut bool // the connection ends after it
}

// inFlight bounds the bundles in transit in a direction.
const inFlight = 1 << 12

// pass brings one direction to its end.
func (c *connection) pass(to, from net.Conn, fromDialer bool) {
	wire := make(chan bundle, inFlight)
	var late sync.WaitGroup
	late.Go(func() { c.deliver(to, wire) })
	d := direction{c: c, fromDialer: fromDialer, from: from, wire: wire}
	if err := d.run(); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		d.out(nil, true) // an end travels as data do
	}
	close(wire)
	late.Wait()
}

// deliver writes the bundles of the wire.
func (c *connection) deliver(to net.Conn, wire <-chan bundle) {
	for p := range wire {
		for wait := time.Until(p.at); wait > 0; wait = time.Until(p.at) {
			ts := unix.NsecToTimespec(int64(wait)) // timers of package time are a millisecond late
			_ = unix.Nanosleep(&ts, nil)
		}
		if _, err := to.Write(p.b); err != nil || p.cut {
			c.cut()
		}
	}
}

// count counts a delivered segment.
func (c *connection) count(fromDialer bool, s *segment) {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if fromDialer && c.turned {
		r.counts.RoundTrips++
	}
	c.turned = !fromDialer
	switch {
	case !s.last():
	case s.op() == opWrite:
		r.counts.Writes++
	case s.op() == opReadRequest:
		r.counts.Reads++
	case s.send():
		r.counts.Sends++
	}
}
