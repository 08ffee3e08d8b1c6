package rdmatest

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// echo answers every message with itself; the dialer's end counts.
type echo struct {
	ep      rdma.Endpoint
	bufs    [][]byte
	starts  bool
	left    int
	wrs     [1]rdma.WorkRequest
	local   [1][]byte
	receive [1]rdma.Receive
	segs    [1][]byte
	bad     error
}

func (h *echo) Sent([]uint64) {}

func (h *echo) Completed(batch []rdma.Completion) {
	for _, c := range batch {
		if c.Op != rdma.Recv {
			continue
		}
		h.segs[0] = h.bufs[0]
		h.receive[0] = rdma.Receive{ID: c.ID, Segments: h.segs[:]}
		if err := h.ep.PostReceives(h.receive[:]); err != nil {
			h.bad = err
		}
		if h.starts {
			if h.left--; h.left == 0 {
				h.ep.Close()
				return
			}
		}
		h.send()
	}
}

func (h *echo) send() {
	h.local[0] = h.bufs[1]
	h.wrs[0] = rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: h.local[:]}
	if err := h.ep.Post(h.wrs[:]); err != nil {
		h.bad = err
	}
}

func dialPair(t testing.TB, f *Fabric, p *bufpool.Pool, bufs func(i int) []byte) (a, b rdma.Endpoint) {
	t.Helper()
	l, err := f.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	opts := func(i int) rdma.Options {
		d, err := f.NewDomain()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Attach(p); err != nil {
			t.Fatal(err)
		}
		return rdma.Options{Domain: d, ReadsOut: 4, ReadsIn: 4, Receives: []rdma.Receive{{Segments: [][]byte{bufs(i)}}}}
	}
	got := make(chan rdma.Endpoint)
	go func() {
		in, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		e, err := in.Accept(opts(1))
		if err != nil {
			t.Error(err)
		}
		got <- e
	}()
	a, err = f.Dial(context.Background(), l.Addr().String(), opts(0))
	if err != nil {
		t.Fatal(err)
	}
	return a, <-got
}

func pingPong(t testing.TB, f *Fabric, n int) {
	p := bufpool.New(0)
	bufs := make([][]byte, 4)
	for i := range bufs {
		b, err := p.Get(128)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		bufs[i] = b.B
	}
	a, b := dialPair(t, f, p, func(i int) []byte { return bufs[2*i] })
	ha := &echo{ep: a, bufs: bufs[:2], starts: true, left: n}
	hb := &echo{ep: b, bufs: bufs[2:]}
	done := make(chan error)
	go func() { done <- b.Serve(hb) }()
	ha.send()
	a.Serve(ha)
	if err := <-done; err != io.EOF {
		t.Errorf("the peer's Serve returned %v, want io.EOF", err)
	}
	b.Close()
	if ha.bad != nil || hb.bad != nil {
		t.Error(ha.bad, hb.bad)
	}
}

func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFabric(Options{Delay: 500 * time.Microsecond})
		start := time.Now()
		pingPong(t, f, 1000)
		// One round trip to connect, a thousand for the messages, half a one to disconnect.
		if got := f.RoundTrips(start); got != 1001.5 {
			t.Errorf("%v round trips, want 1001.5", got)
		}
	})
}

func BenchmarkPingPong(b *testing.B) {
	b.ReportAllocs()
	pingPong(b, NewFabric(Options{}), b.N+1)
}

// TestFabric runs the suite: with a delay or a bandwidth, in virtual time.
func TestFabric(t *testing.T) {
	for name, o := range map[string]Options{
		"plain":       {},
		"scribbling":  {ScribbleReceives: true, Seed: 1},
		"slow":        {Delay: 20 * time.Microsecond},
		"narrow":      {Bandwidth: 4 << 30, MaxSegments: 3, MaxReadSegments: 1},
		"acknowledge": {Delay: 10 * time.Millisecond, Bandwidth: 1 << 20, SentDelay: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			TestProvider(t, Factory{
				Provider: NewFabric(o), AcceptorFirst: true, Cut: Cut, bubble: o.Delay > 0 || o.Bandwidth > 0,
			})
		})
	}
}
