package iwarp

import (
	"context"
	"runtime"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// TestIdleMemory: a connection whose ends wait for messages takes a few KiB, even after large
// messages in both directions.
func TestIdleMemory(t *testing.T) {
	const connections, size, most = 100, 100_000, 20 << 10
	p := newProvider(t, Config{Threads: -1})
	d := newDomain(t, p)
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	message := noise(1, size)
	var sinks [2][]byte
	for i := range sinks {
		sinks[i] = memory(size)
	}
	options := func(i int) rdma.Options {
		return rdma.Options{Domain: d, SendQueue: 8, ReceiveQueue: 8, Receives: []rdma.Receive{{Segments: [][]byte{sinks[i]}}}}
	}
	var ends []*end
	before := heapInUse()
	for range connections {
		accepted := make(chan rdma.Endpoint, 1)
		go func() {
			var ep rdma.Endpoint
			if in, err := l.Accept(); err == nil {
				ep, _ = in.Accept(options(0))
			}
			accepted <- ep
		}()
		a, err := p.Dial(context.Background(), l.Addr().String(), options(1))
		if err != nil {
			t.Fatal(err)
		}
		b := <-accepted
		if b == nil {
			t.Fatal("not accepted")
		}
		var pair []*end
		for _, ep := range []rdma.Endpoint{a, b} {
			e := &end{ep, make(chan rdma.Completion, 8), make(chan uint64, 8), make(chan error, 1)}
			go func() { e.err <- e.Serve(e) }()
			pair = append(pair, e)
		}
		for i, e := range pair {
			e.post(t, rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: [][]byte{message}})
			await(t, "message", pair[1-i].done)
			await(t, "completion", e.sent)
		}
		ends = append(ends, pair...)
	}
	// a buffer goes back when the next read finds nothing
	deadline := time.Now().Add(patience)
	each := int64(most + 1)
	for each > most && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
		each = (heapInUse() - before) / int64(len(ends))
	}
	t.Logf("%d bytes an endpoint", each)
	if each > most {
		t.Errorf("an idle endpoint takes %d bytes, want at most %d", each, most)
	}
	for _, e := range ends {
		_ = e.Close()
	}
	for _, e := range ends {
		_ = await(t, "end of Serve", e.err)
	}
}

// heapInUse is the number of bytes of objects and stacks. Two collections empty a sync.Pool.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
