package upstream

import (
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/oncrpc"
)

// quick answers at once.
type quick struct{}

func (quick) ServeRPC(c *oncrpc.Call) { c.ReplyAccept(oncrpc.Success) }

// TestAllocs checks that a forwarded call allocates nothing, alone or among many, also with a soft
// timeout.
func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	s := startServer(t, quick{})
	b, pool := newTCPBackend(t, s, Config{SoftTimeout: 1 << 40})
	lk := b.Open(client(1), nil)
	for _, depth := range []int{1, 16} {
		var mu sync.Mutex
		left, out := 0, 0
		xid := uint32(0)
		over := make(chan struct{}, 1)
		var reqs []*Request
		next := func(r *Request) {
			if r.Err != nil {
				t.Error(r.Err)
			}
			r.Reset()
			mu.Lock()
			left--
			again := left > 0
			xid++
			x := xid
			if !again {
				out--
			}
			last := out == 0
			mu.Unlock()
			if again {
				submitAgain(t, lk, pool, r, x)
			} else if last {
				over <- struct{}{}
			}
		}
		for range depth {
			reqs = append(reqs, &Request{})
		}
		finished = next
		run := func(n int) {
			mu.Lock()
			left, out = n, depth
			mu.Unlock()
			for i, r := range reqs {
				submitAgain(t, lk, pool, r, 1<<31+uint32(i))
			}
			<-over
		}
		run(5000)
		if n := testing.AllocsPerRun(3, func() { run(5000) }); n > 5 {
			t.Errorf("%v allocations in 5000 calls at depth %d", n, depth)
		}
	}
}

var finished func(*Request) // one closure for all calls

func submitAgain(t testing.TB, lk *Link, pool *bufpool.Pool, r *Request, xid uint32) {
	refill(t, pool, r, xid, 1, 7)
	r.Timeout = TimeoutAlways
	r.Finished = finished
	lk.Submit(r)
}
