package iwarp

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// nobody is a handler that ignores completions.
type nobody struct{}

func (nobody) Completed([]rdma.Completion) {}
func (nobody) Sent([]uint64)               {}

// TestNudge: a responder that has overlooked the first FPDU gets empty RDMA Writes to wake it,
// until it sends something.
func TestNudge(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := New(Config{CRC: CRCOff, Nudge: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	pool := bufpool.New(0)
	defer pool.Close()
	d, err := p.NewDomain()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Register(pool); err != nil {
		t.Fatal(err)
	}
	peer := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = readMPA(c, false)
		}
		if err == nil {
			_, err = c.Write((&mpaFrame{reply: true, enhanced: true, revision: 2}).append(nil))
		}
		if err != nil {
			t.Error(err)
		}
		peer <- c
	}()
	msg, err := pool.Get(8)
	if err != nil {
		t.Fatal(err)
	}
	defer msg.Release()
	answer, err := pool.Get(64)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Release()
	ep, err := p.Dial(context.Background(), l.Addr().String(), rdma.Options{Domain: d, Receives: []rdma.Receive{{Segments: [][]byte{answer.B}}}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- ep.Serve(nobody{}) }()
	c := <-peer
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))

	copy(msg.B, "question")
	if err := ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Local: [][]byte{msg.B}}}); err != nil {
		t.Fatal(err)
	}
	send := make([]byte, 2+18+8+4)
	if _, err := io.ReadFull(c, send); err != nil {
		t.Fatal(err)
	}
	// Length 14, tagged and last, RDMA Write; STag and offset 0; no data; no CRC.
	empty := append([]byte{0, 14, 0xc1, 0x40}, make([]byte, 16)...)
	for range nudges {
		got := make([]byte, len(empty))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, empty) {
			t.Fatalf("got % x, %v; want % x", got, err, empty)
		}
	}
	// The next FPDU after this Send is its answer, without a nudge in between.
	if _, err := c.Write(send); err != nil {
		t.Fatal(err)
	}
	if err := ep.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("more was sent: % x, %v", rest, err)
	}
	c.Close()
	if err := <-served; err == nil {
		t.Error("Serve returned nil")
	}
}
