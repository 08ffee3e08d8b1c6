package iwarp

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// TestTrim trims both ends at any time while messages of all sizes are under way, and when they are
// idle.
func TestTrim(t *testing.T) {
	t.Run("poller", func(t *testing.T) { testTrim(t, Config{Threads: -1}) })
	t.Run("threads", func(t *testing.T) { testTrim(t, Config{Threads: 1 << 20}) })
}

func testTrim(t *testing.T, cfg Config) {
	const posted, size, rounds = 8, 100_000, 200
	p := newProvider(t, cfg)
	d := newDomain(t, p)
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan rdma.Endpoint, 1)
	rs := receives(posted, size)
	go func() {
		var ep rdma.Endpoint
		if in, err := l.Accept(); err == nil {
			ep, _ = in.Accept(rdma.Options{Domain: d, Receives: rs, ReuseReceives: true})
		}
		accepted <- ep
	}()
	ep, err := p.Dial(context.Background(), l.Addr().String(), rdma.Options{Domain: d})
	if err != nil {
		t.Fatal(err)
	}
	from, other := serve(t, ep), await(t, "connection", accepted)
	if other == nil {
		t.Fatal("not accepted")
	}
	to := serve(t, other)

	var stop atomic.Bool
	var trims sync.WaitGroup
	defer trims.Wait()
	defer stop.Store(true)
	for _, e := range []*end{from, to} {
		trims.Go(func() {
			for !stop.Load() {
				e.Endpoint.(rdma.Trimmer).Trim()
				time.Sleep(20 * time.Microsecond)
			}
		})
	}
	message := noise(5, size)
	lengths := []int{1, 30_000, 500, size, 17_000, 0, 2_000, 60_000}
	for round := range rounds {
		count := 1 + round%posted
		var wrs []rdma.WorkRequest
		for i := range count {
			wrs = append(wrs, rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: [][]byte{message[:lengths[(round+i)%len(lengths)]]}})
		}
		from.post(t, wrs...)
		var again []rdma.Receive
		for i := range count {
			c := await(t, "message", to.done)
			if want := message[:lengths[(round+i)%len(lengths)]]; !bytes.Equal(rs[c.ID].Segments[0][:c.Bytes], want) {
				t.Fatalf("round %d: message %d of %d bytes is wrong", round, i, len(want))
			}
			again = append(again, rs[c.ID])
			await(t, "completion", from.sent)
		}
		if err := to.PostReceives(again); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	trims.Wait()
	e := ep.(*endpoint)
	e.Trim()
	for limit := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		lists := cap(e.sq.buf) + cap(e.tx.iov) + cap(e.tx.ids)
		e.mu.Unlock()
		if lists == 0 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("an idle end keeps lists for %d entries", lists)
		}
	}
	for _, e := range []*end{from, to} {
		_ = e.Close()
	}
	for _, e := range []*end{from, to} {
		_ = await(t, "end of Serve", e.err)
	}
}
