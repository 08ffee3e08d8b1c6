package iwarp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

var testPool = bufpool.New(0)

// memory returns n zero bytes that may be used as local memory. They are never given back.
func memory(n int) []byte {
	b, err := testPool.Get(n)
	if err != nil {
		panic(err)
	}
	clear(b.B)
	return b.B[:n:n]
}

// noise returns n bytes that depend on seed.
func noise(seed, n int) []byte {
	b := memory(n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// end is a served endpoint, with its completions in channels.
type end struct {
	rdma.Endpoint
	done chan rdma.Completion
	sent chan uint64
	err  chan error
}

func (e *end) Completed(batch []rdma.Completion) {
	for _, c := range batch {
		e.done <- c
	}
}

func (e *end) Sent(ids []uint64) {
	for _, id := range ids {
		e.sent <- id
	}
}

func serve(t testing.TB, ep rdma.Endpoint) *end {
	e := &end{ep, make(chan rdma.Completion, 4096), make(chan uint64, 4096), make(chan error, 1)}
	go func() { e.err <- ep.Serve(e) }()
	return e
}

const patience = 20 * time.Second

func await[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("no %s", what)
	}
	return v
}

// post posts, and fails the test on an error.
func (e *end) post(t testing.TB, wrs ...rdma.WorkRequest) {
	t.Helper()
	if err := e.Post(wrs); err != nil {
		t.Fatal(err)
	}
}

func (e *end) expose(t testing.TB, mem []byte, access rdma.Access) rdma.Remote {
	t.Helper()
	r, err := e.Expose(mem, access)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newDomain returns a domain with the test memory. It must have no endpoints when the test ends.
func newDomain(t testing.TB, p rdma.Provider) rdma.Domain {
	t.Helper()
	d, err := p.NewDomain()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Register(testPool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func newProvider(t testing.TB, cfg Config) rdma.Provider {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// receives returns n receives of size bytes, with IDs from 0.
func receives(n, size int) (rs []rdma.Receive) {
	for i := range n {
		rs = append(rs, rdma.Receive{ID: uint64(i), Segments: [][]byte{memory(size)}})
	}
	return rs
}

// rawPeer is an endpoint's peer on a bare socket, correct or not.
type rawPeer struct {
	testing.TB
	c       *net.TCPConn
	tx      sender // for framing
	reply   mpaFrame
	sendMSN uint32
}

// linuxRequest is the Linux NFS client's request.
func linuxRequest() mpaFrame {
	return mpaFrame{enhanced: true, revision: 2, ird: 128, private: []byte("\xf6\xab\x0e\x18\x01\x01\x03\x03")}
}

// dialRaw connects to an endpoint of ours as responder.
func dialRaw(t testing.TB, cfg Config, req mpaFrame, o rdma.Options) (*rawPeer, *end) {
	t.Helper()
	p, ep := dialUnserved(t, cfg, req, o)
	e := serve(t, ep)
	t.Cleanup(func() {
		p.c.Close()
		_ = e.Close()
		_ = await(t, "end of Serve", e.err)
	})
	return p, e
}

// dialGateway is dialRaw for an endpoint that g serves.
func dialGateway(t testing.TB, cfg Config, o rdma.Options, g *gateway) (*rawPeer, rdma.Endpoint, chan error) {
	t.Helper()
	p, ep := dialUnserved(t, cfg, linuxRequest(), o)
	g.ep = ep
	served := make(chan error, 1)
	go func() { served <- ep.Serve(g) }()
	t.Cleanup(func() {
		p.c.Close()
		_ = ep.Close()
		_ = await(t, "end of Serve", served)
	})
	return p, ep, served
}

func dialUnserved(t testing.TB, cfg Config, req mpaFrame, o rdma.Options) (*rawPeer, rdma.Endpoint) {
	t.Helper()
	p := newProvider(t, cfg)
	o.Domain = newDomain(t, p)
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write(req.append(nil)); err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ep, err := in.Accept(o)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	reply, err := readMPA(c, true)
	if err != nil {
		t.Fatal(err)
	}
	return &rawPeer{TB: t, c: c.(*net.TCPConn), tx: sender{crc: req.crc || reply.crc}, reply: reply, sendMSN: 1}, ep
}

// acceptRaw lets p dial a bare socket, which answers its request.
func acceptRaw(t testing.TB, p rdma.Provider, answer func(req mpaFrame, c *net.TCPConn), o rdma.Options) (*net.TCPConn, rdma.Endpoint, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn := make(chan *net.TCPConn, 1)
	go func() {
		defer close(conn)
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		req, err := readMPA(c, false)
		if err != nil {
			t.Error(err)
			c.Close()
			return
		}
		answer(req, c.(*net.TCPConn))
		conn <- c.(*net.TCPConn)
	}()
	ep, err := p.Dial(context.Background(), l.Addr().String(), o)
	c := <-conn
	if c != nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, ep, err
}

func (p *rawPeer) write(b []byte) {
	p.Helper()
	if _, err := p.c.Write(b); err != nil {
		p.Fatal(err)
	}
}

func (p *rawPeer) fpdus(ulpdus ...[]byte) (b []byte) {
	for _, u := range ulpdus {
		b = append(b, p.tx.asFPDU(u)...)
	}
	return b
}

// hello sends a Send of one byte, so that the other side may send too.
func (p *rawPeer) hello(e *end) {
	p.Helper()
	p.write(p.fpdus(p.send([]byte("!"))))
	await(p, "hello", e.done)
}

// send makes the ULPDU of the next Send.
func (p *rawPeer) send(data []byte) []byte {
	h := untaggedHeader{last: true, op: opSend, msn: p.sendMSN}
	p.sendMSN++
	return append(h.append(nil), data...)
}

// next reads a ULPDU, or fails.
func (p *rawPeer) next() []byte {
	p.Helper()
	b, err := p.tryNext()
	if err != nil {
		p.Fatal(err)
	}
	return b
}

func (p *rawPeer) tryNext() ([]byte, error) {
	b := make([]byte, fpduLen(maxULPDU))
	if _, err := io.ReadFull(p.c, b[:2]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(b))
	b = b[:fpduLen(n)]
	if _, err := io.ReadFull(p.c, b[2:]); err != nil {
		return nil, fmt.Errorf("FPDU of %d bytes: %w", len(b), errors.Join(err, io.ErrUnexpectedEOF))
	}
	if p.tx.crc {
		if err := checkCRC(b); err != nil {
			return nil, err
		}
	}
	if pad := b[2+n : len(b)-4]; !bytes.Equal(pad, zeros[:len(pad)]) {
		return nil, fmt.Errorf("padding %x", pad)
	}
	return b[2 : 2+n], nil
}

// expectTerminate reads up to the Terminate, which must be want, then the end of the stream.
func (p *rawPeer) expectTerminate(want terminate) {
	p.Helper()
	for {
		u := p.next()
		if opcode(u[1]&15) != opTerminate {
			continue
		}
		h, n, err := parseUntagged(u)
		if err != nil || h != (untaggedHeader{last: true, op: opTerminate, qn: 2, msn: 1}) {
			p.Errorf("Terminate with header %+v, %v", h, err)
		}
		if !bytes.Equal(u[n:], want.append(nil)) {
			got, _, err := parseTerminate(u[n:])
			p.Errorf("Terminate %v (%x, %v), want %v (%x)", got.termCode, u[n:], err, want.termCode, want.append(nil))
		}
		break
	}
	if b, err := p.tryNext(); !errors.Is(err, io.EOF) {
		p.Errorf("after the Terminate: %x, %v", b, err)
	}
}
