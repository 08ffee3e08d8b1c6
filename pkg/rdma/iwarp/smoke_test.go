package iwarp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

var testPool = bufpool.New(0)

func memory(n int) []byte {
	b, err := testPool.Get(n)
	if err != nil {
		panic(err)
	}
	clear(b.B)
	return b.B[:n:n]
}

type chanHandler struct {
	done chan rdma.Completion
	sent chan uint64
}

func (h *chanHandler) Completed(b []rdma.Completion) {
	for _, c := range b {
		h.done <- c
	}
}
func (h *chanHandler) Sent(ids []uint64) {
	for _, id := range ids {
		h.sent <- id
	}
}
func newHandler() *chanHandler {
	return &chanHandler{make(chan rdma.Completion, 4096), make(chan uint64, 4096)}
}

type end struct {
	rdma.Endpoint
	*chanHandler
	err chan error
}

func pair(t testing.TB, cfg Config, active, passive rdma.Options) (a, b *end) {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dom, _ := p.NewDomain()
	if err := dom.Attach(testPool); err != nil {
		t.Fatal(err)
	}
	active.Domain, passive.Domain = dom, dom
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ch := make(chan rdma.Endpoint, 1)
	go func() {
		in, err := l.Accept()
		if err != nil {
			t.Error(err)
			close(ch)
			return
		}
		ep, err := in.Accept(passive)
		if err != nil {
			t.Error(err)
		}
		ch <- ep
	}()
	ea, err := p.Dial(context.Background(), l.Addr().String(), active)
	if err != nil {
		t.Fatal(err)
	}
	eb := <-ch
	if eb == nil {
		t.FailNow()
	}
	l.Close()
	mk := func(e rdma.Endpoint) *end {
		x := &end{e, newHandler(), make(chan error, 1)}
		go func() { x.err <- e.Serve(x) }()
		return x
	}
	a, b = mk(ea), mk(eb)
	t.Cleanup(func() { a.Close(); b.Close(); <-a.err; <-b.err })
	return a, b
}

func recvBufs(n, size int) (bufs [][]byte, rs []rdma.Receive) {
	for i := range n {
		bufs = append(bufs, memory(size))
		rs = append(rs, rdma.Receive{ID: uint64(i), Segments: [][]byte{bufs[i]}})
	}
	return
}

func wait[T any](t testing.TB, c chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
		panic(0)
	}
}

func TestSmoke(t *testing.T) {
	for _, size := range []int{0, 1, 100, 5000, 100_000, 1 << 20, 1<<20 + 3} {
		for _, cfg := range []Config{{}, {CRC: CRCOff}, {MaxFPDU: 1024}, {MaxFPDU: FPDUSegment}} {
			t.Run(fmt.Sprint(size, cfg), func(t *testing.T) {
				_, ra := recvBufs(4, 100)
				bb, rb := recvBufs(4, 2<<20)
				a, b := pair(t, cfg, rdma.Options{Receives: ra, ReadsIn: 4, PrivateData: []byte("hi")}, rdma.Options{Receives: rb, ReadsOut: 4, PrivateData: []byte("ho")})
				if string(a.Attributes().PrivateData) != "ho" || string(b.Attributes().PrivateData) != "hi" {
					t.Error("private data", a.Attributes(), b.Attributes())
				}
				data := memory(size)
				rand.Read(data)
				sink := memory(size + 10)
				rw, err := a.Expose(sink, rdma.RemoteWrite)
				if err != nil {
					t.Fatal(err)
				}
				rr, err := a.Expose(data, rdma.RemoteRead)
				if err != nil {
					t.Fatal(err)
				}
				if err := a.Post([]rdma.WorkRequest{{ID: 7, Op: rdma.Send, Signaled: true, Local: [][]byte{data[:size/2], data[size/2:]}}}); err != nil {
					t.Fatal(err)
				}
				if id := wait(t, a.sent); id != 7 {
					t.Fatal(id)
				}
				c := wait(t, b.done)
				if c.Bytes != size || !bytes.Equal(bb[0][:size], data) {
					t.Fatal(c)
				}
				rsink := memory(size)
				if err := b.Post([]rdma.WorkRequest{
					{ID: 1, Op: rdma.Read, Local: [][]byte{rsink[:size/3], rsink[size/3:]}, Remote: rr},
					{ID: 2, Op: rdma.Write, Local: [][]byte{data}, Remote: rdma.Remote{Handle: rw.Handle, Offset: rw.Offset + 5}},
				}); err != nil {
					t.Fatal(err)
				}
				if c := wait(t, b.done); c.ID != 1 || c.Op != rdma.Read || !bytes.Equal(data, rsink) {
					t.Fatal(c)
				}
				b.Post([]rdma.WorkRequest{{ID: 3, Op: rdma.SendWithInvalidate, Invalidate: rw.Handle, Signaled: true}})
				if c := wait(t, a.done); c.Invalidated != rw.Handle || !c.HasInvalidated || c.Bytes != 0 {
					t.Fatal(c)
				}
				if !bytes.Equal(sink[5:5+size], data) {
					t.Fatal("write")
				}
				a.Post([]rdma.WorkRequest{{ID: 9, Op: rdma.LocalInvalidate, Invalidate: rr.Handle}})
				if c := wait(t, a.done); c.Op != rdma.LocalInvalidate || c.ID != 9 {
					t.Fatal(c)
				}
				a.Close()
				if err := <-b.err; err != io.EOF {
					t.Fatal(err)
				}
				b.err <- err
			})
		}
	}
}
