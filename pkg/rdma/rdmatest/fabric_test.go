package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
				Provider: NewFabric(o), AcceptorFirst: true, TellsHandle: true, Shares: true, Cut: Cut, bubble: o.Delay > 0 || o.Bandwidth > 0,
			})
		})
	}
}

// TestVirtualTime: round trips are counted exactly.
func TestVirtualTime(t *testing.T) {
	inBubble(t, Options{Delay: 500 * time.Microsecond}, func(x *exam, f *Fabric) {
		start := time.Now()
		a, b := x.connect(setup{idle: true}, setup{idle: true})
		if got := f.RoundTrips(start); got != 1 {
			x.Errorf("%v round trips to connect, want 1", got)
		}
		for _, e := range []*end{a, b} {
			e.served = make(chan struct{})
			go e.serve()
		}
		b.on(func(m message) { b.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true}) }, nil)
		const n = 1000
		start = time.Now()
		for range n {
			a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true})
			a.receive()
		}
		if got := time.Since(start); got != n*time.Millisecond {
			x.Errorf("%d exchanges took %v, want %d ms", n, got, n)
		}
		if got := f.RoundTrips(start); got != n {
			x.Errorf("%v round trips, want %d", got, n)
		}
		// A closing end waits for nothing; the other end learns of it half a round trip later.
		start = time.Now()
		a.close()
		a.join()
		if got := time.Since(start); got != 0 {
			x.Errorf("Close took %v", got)
		}
		if err := b.why(); !errors.Is(err, io.EOF) || time.Since(start) != 500*time.Microsecond {
			x.Errorf("Serve returned %v after %v, want io.EOF after 500µs", err, time.Since(start))
		}
	})
}

// TestReadDepth: with one Read at a time, five take five round trips, and work behind them does not
// wait.
func TestReadDepth(t *testing.T) {
	inBubble(t, Options{Delay: time.Millisecond}, func(x *exam, f *Fabric) {
		a, b := x.connect(setup{ord: 1}, setup{})
		mem := x.memory(100, 0)
		remote := b.expose(mem, rdma.RemoteRead)
		var batch []rdma.WorkRequest
		for i := range 5 {
			batch = append(batch, rdma.WorkRequest{Op: rdma.Read, Local: list(x.memory(10, 0)), Remote: at(remote, i)})
		}
		start := time.Now()
		a.post(append(batch, rdma.WorkRequest{Op: rdma.Send, Signaled: true})...)
		b.receive()
		if d := time.Since(start); d != time.Millisecond {
			x.Errorf("the message behind the Reads took %v, want 1ms", d)
		}
		for i := range 5 {
			a.await()
			if d, want := time.Since(start), time.Duration(i+1)*2*time.Millisecond; d != want {
				x.Errorf("Read %d was complete after %v, want %v", i, d, want)
			}
		}
	})
	inBubble(t, Options{MaxReads: 3}, func(x *exam, f *Fabric) {
		a, b := x.connect(setup{ord: 5, ird: 6}, setup{ord: 2, ird: 8})
		if at := a.ep.Attributes(); at.ORD != 3 || at.IRD != 2 {
			x.Errorf("ORD %d, IRD %d; want 3, 2", at.ORD, at.IRD)
		}
		exchange(a, b)
	})
}

// TestBandwidth: payload takes its time, one message after the other in each direction; memory is
// read at the end of it.
func TestBandwidth(t *testing.T) {
	inBubble(t, Options{Bandwidth: 1e6, Delay: 10 * time.Millisecond, SentDelay: 20 * time.Millisecond}, func(x *exam, f *Fabric) {
		a, b := x.connect(setup{}, setup{})
		m := x.memory(2000, 0)
		copy(m, noise(1, 2000))
		remote := b.expose(x.memory(3000, 0), rdma.RemoteRead|rdma.RemoteWrite)
		time.Sleep(time.Second)
		start := time.Now()
		since := func(what string, want time.Duration) {
			x.Helper()
			if d := time.Since(start); d != want*time.Millisecond {
				x.Errorf("%s after %v, want %d ms", what, d, want)
			}
		}
		a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)}, rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: list(m[:1000]), Remote: remote},
			rdma.WorkRequest{Op: rdma.Read, Local: list(x.memory(3000, 0)), Remote: remote})
		time.Sleep(time.Millisecond)
		m[1999] ^= 0xff // a caller's fault, which shows
		if got := b.receive(); bytes.Equal(got.data, noise(1, 2000)) || !bytes.Equal(got.data, m) {
			x.Error("memory was read before it was sent")
		}
		since("received", 12)
		a.awaitSent(1)
		since("Sent", 22)
		a.awaitSent(1)
		since("Sent", 23)
		a.await()
		since("Read", 3+10+3+10)
	})
}

// TestReadThenInvalidate: data of a Read that wait for transmission when the region is invalidated
// were read before.
func TestReadThenInvalidate(t *testing.T) {
	for _, o := range []Options{{Bandwidth: 1e6}, {Delay: time.Millisecond}} {
		inBubble(t, o, func(x *exam, f *Fabric) {
			a, b := x.connect(setup{}, setup{})
			mem, sink := x.memory(1000, 0), x.memory(1000, 0)
			copy(mem, noise(1, 1000))
			remote := b.expose(mem, rdma.RemoteRead)
			a.post(rdma.WorkRequest{Op: rdma.Read, Local: list(sink), Remote: remote}, rdma.WorkRequest{Op: rdma.Send, Signaled: true})
			b.receive() // so the Read has arrived too
			b.post(rdma.WorkRequest{Op: rdma.LocalInvalidate, Invalidate: remote.Handle})
			b.await()
			clear(mem)
			if a.await(); !bytes.Equal(sink, noise(1, 1000)) {
				x.Error("memory was read after its handle was invalidated")
			}
		})
	}
}

func TestArenaBounds(t *testing.T) {
	d := newDomain(nil)
	buf, err := bufpool.New(0).Get(100) // memory that does not move, as a stack does
	if err != nil {
		t.Fatal(err)
	}
	b := buf.B
	from := uintptr(unsafe.Pointer(&b[0]))
	d.arenas.Store(&[]span{{from + 20, from + 50}, {from + 50, from + 60}, {from + 70, from + 90}})
	for _, c := range []struct {
		from, to int
		ok       bool
	}{
		{20, 50, true}, {20, 21, true}, {49, 50, true}, {50, 60, true}, {70, 90, true}, {5, 5, true},
		{0, 10, false}, {19, 30, false}, {20, 51, false}, {49, 51, false}, {59, 61, false}, {60, 61, false}, {69, 71, false}, {89, 91, false}, {90, 91, false}, {0, 100, false},
	} {
		if err := d.check(b[c.from:c.to]); (err == nil) != c.ok {
			t.Errorf("slice from %d to %d: %v", c.from, c.to, err)
		}
	}
}

func TestScribble(t *testing.T) {
	inBubble(t, Options{ScribbleReceives: true, ScribbleSends: true, Delay: time.Millisecond}, func(x *exam, f *Fabric) {
		a, b := x.connect(setup{}, setup{receives: -1, hold: true})
		scribbled := func(b []byte) bool { return bytes.Count(b, []byte{0xa5}) == len(b) }
		into := x.memory(100, 0)
		copy(into, noise(1, 100))
		if err := b.ep.PostReceives([]rdma.Receive{b.newReceive(list(into[:30], into[30:]))}); err != nil {
			x.Fatal(err)
		}
		if !scribbled(into) {
			x.Error("a posted receive keeps its contents")
		}
		m, n := x.memory(60, 0), x.memory(10, 0)
		copy(m, noise(2, 60))
		copy(n, noise(3, 10))
		sink := x.memory(10, 0)
		clear(sink)
		remote := b.expose(x.memory(10, 0), rdma.RemoteWrite|rdma.RemoteRead)
		a.post(rdma.WorkRequest{Op: rdma.Write, Local: list(n), Remote: remote}, rdma.WorkRequest{Op: rdma.Read, Local: list(sink), Remote: remote})
		if scribbled(n) || !scribbled(sink) {
			x.Error("an unsignaled Write is not complete, and the sink of a Read means nothing yet")
		}
		a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m[:20], m[20:])})
		a.awaitSent(1)
		if !scribbled(n) || !scribbled(m) {
			x.Error("memory of complete requests keeps its contents")
		}
		if got := b.receive(); !bytes.Equal(got.data, noise(2, 60)) {
			x.Error("the message came wrong")
		}
		if !scribbled(into[60:]) {
			x.Error("the rest of a receive was changed")
		}
		if a.await(); !bytes.Equal(sink, noise(3, 10)) {
			x.Error("the Read came wrong")
		}
	})
}

// TestTranscript: with a Seed, transcripts are reproducible.
func TestTranscript(t *testing.T) {
	inBubble(t, Options{Record: true, Seed: 7, Delay: time.Millisecond}, func(x *exam, f *Fabric) {
		a, b := x.connect(setup{}, setup{})
		before, beforeA := f.Counters(), CountersOf(a.ep)
		read, written := a.expose(x.memory(100, 0), rdma.RemoteRead), a.expose(x.memory(50, 0), rdma.RemoteWrite)
		a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(x.memory(80, 0))})
		b.receive()
		b.post(rdma.WorkRequest{Op: rdma.Read, Local: list(x.memory(100, 0)), Remote: read})
		b.await()
		b.post(rdma.WorkRequest{Op: rdma.Write, Local: list(x.memory(30, 0)), Remote: written},
			rdma.WorkRequest{Op: rdma.SendWithInvalidate, Signaled: true, Local: list(x.memory(40, 0)), Invalidate: written.Handle})
		a.receive()
		a.post(rdma.WorkRequest{Op: rdma.LocalInvalidate, Invalidate: read.Handle})
		a.await()
		got, gotA := f.Counters().Sub(before), CountersOf(a.ep).Sub(beforeA)
		want := Counters{Messages: 2, Invalidates: 1, Writes: 1, Reads: 1, MessageBytes: 120, WriteBytes: 30, ReadBytes: 100, Exposed: 2, LocalInvalidates: 1}
		if d := cmp.Diff(want, got); d != "" {
			x.Errorf("counters of the fabric: %s", d)
		}
		want = Counters{Messages: 1, MessageBytes: 80, Exposed: 2, LocalInvalidates: 1}
		if d := cmp.Diff(want, gotA); d != "" {
			x.Errorf("counters of the dialer: %s", d)
		}
		a.close()
		b.join()
		var transcript strings.Builder
		if err := f.WriteTranscript(&transcript); err != nil {
			x.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(wantTranscript, "\n"), strings.Split(transcript.String(), "\n")); d != "" {
			x.Errorf("transcript: %s", d)
		}
	})
}

const wantTranscript = `       1ms  #1 dialer   connected
       3ms  #1 dialer   Send, 5 bytes
       3ms  #1 dialer   exposed, 100 bytes, handle 0e0a9918
       3ms  #1 dialer   exposed, 50 bytes, handle f4183d0c
       4ms  #1 dialer   Send, 80 bytes
       5ms  #1 acceptor RDMA Read, 100 bytes, handle 0e0a9918
       7ms  #1 acceptor RDMA Write, 30 bytes, handle f4183d0c
       7ms  #1 acceptor Send with Invalidate, 40 bytes, handle f4183d0c
       7ms  #1 dialer   invalidated, handle 0e0a9918
       7ms  #1 dialer   ended: use of closed network connection
       8ms  #1 acceptor ended: EOF
`

func TestHosts(t *testing.T) {
	f := NewFabric(Options{})
	l, err := f.Listen(context.Background(), ":2049")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, address := range []string{"10.0.0.1:2049", "0.0.0.0:2049", "[::1]:2049"} {
		if _, err := f.Listen(context.Background(), address); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("Listen on %s: %v, want EADDRINUSE", address, err)
		}
	}
	d, err := f.NewDomain()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Dial(context.Background(), "10.0.0.1:2050", rdma.Options{Domain: d}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial to a port where nobody listens: %v, want ECONNREFUSED", err)
	}
	accepted := make(chan rdma.Endpoint)
	go func() {
		in, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		b, err := in.Accept(rdma.Options{Domain: d})
		if err != nil {
			t.Error(err)
		}
		if err := in.Reject(nil); err == nil {
			t.Error("Reject after Accept succeeded")
		}
		accepted <- b
	}()
	a, err := f.Host(netip.MustParseAddr("10.1.2.3")).Dial(context.Background(), "10.0.0.1:2049", rdma.Options{Domain: d})
	if err != nil {
		t.Fatal(err)
	}
	b := <-accepted
	if from, err := netip.ParseAddrPort(b.RemoteAddr().String()); err != nil || from.Addr().String() != "10.1.2.3" {
		t.Errorf("the connection comes from %s, want 10.1.2.3", b.RemoteAddr())
	}
	if got := b.LocalAddr().String(); got != "10.0.0.1:2049" {
		t.Errorf("the connection is to %s, want 10.0.0.1:2049", got)
	}
	if err := d.Close(); err == nil {
		t.Error("a domain in use was closed")
	}
	a.Close()
	b.Close()
	if err := d.Close(); err != nil {
		t.Errorf("closing the domain: %v", err)
	}
	if _, err := f.Dial(context.Background(), "10.0.0.1:2049", rdma.Options{Domain: d}); err == nil {
		t.Error("Dial with a closed domain succeeded")
	}
	other, err := NewFabric(Options{}).NewDomain()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Dial(context.Background(), "10.0.0.1:2049", rdma.Options{Domain: other}); err == nil {
		t.Error("Dial with another fabric's domain succeeded")
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}

// BenchmarkCall is a call of Expose, Send, Read, Write, Send and Local Invalidate.
func BenchmarkCall(b *testing.B) {
	f, pool := NewFabric(Options{}), bufpool.New(0)
	memory := func(n int) []byte {
		buf, err := pool.Get(n)
		if err != nil {
			b.Fatal(err)
		}
		return buf.B
	}
	d, err := f.NewDomain()
	if err != nil {
		b.Fatal(err)
	}
	if err := d.Register(pool); err != nil {
		b.Fatal(err)
	}
	c := &caller{mem: memory(8192), request: list(memory(64)), done: make(chan struct{}, 1), receives: [1]rdma.Receive{{Segments: list(memory(64))}}}
	s := &server{sink: list(memory(8192)), reply: list(memory(64)), receives: [1]rdma.Receive{{Segments: list(memory(64))}}}
	l, err := f.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	served := make(chan error)
	go func() {
		in, err := l.Accept()
		if err == nil {
			s.ep, err = in.Accept(rdma.Options{Domain: d, Receives: s.receives[:], ORD: 1})
		}
		if err == nil {
			err = s.ep.Serve(s)
		}
		served <- err
	}()
	if c.ep, err = f.Dial(context.Background(), l.Addr().String(), rdma.Options{Domain: d, Receives: c.receives[:], IRD: 1}); err != nil {
		b.Fatal(err)
	}
	go func() { served <- c.ep.Serve(c) }()
	b.ReportAllocs()
	b.SetBytes(2 * 8192)
	for b.Loop() {
		if err := c.call(); err != nil {
			b.Fatal(err)
		}
		<-c.done
	}
	c.ep.Close()
	for range 2 {
		if err := <-served; err == nil {
			b.Error("Serve returned nil")
		}
	}
}
