package rpcrdma

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// TestQueueFull posts more work requests than the provider takes: they wait, and all calls are
// answered.
func TestQueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, rdmatest.Options{SentDelay: 2 * time.Millisecond, ScribbleReceives: true}, nil)
		w.handler.async = true
		c := w.dial(nil)
		if err := null(c, w.cpool, procNull); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 64 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 4 {
					m := move{results: []int{9000, 9001}, memory: 30} // 60 RDMA Writes and a Send
					if err := m.do(c, w.cpool); err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
		synctest.Wait() // nothing is complete before its delay
		waiting := int64(0)
		w.server.mu.Lock()
		for s := range w.server.conns {
			waiting += s.work.waiting.Load()
		}
		w.server.mu.Unlock()
		if waiting == 0 {
			t.Error("no sendBatch had to wait: the test does not test what it should")
		}
		wg.Wait()
		w.waitIdle()
		w.close(c)
	})
}

// TestStuck has a client that sends messages and whose adapter acknowledges nothing. The server
// gives it up, and its memory of the client is bounded: by the credits granted, not by those that
// the policy could grant, and by less where messages cost no credit.
func TestStuck(t *testing.T) {
	adaptive := func(cfg *Config) {
		var err error
		if cfg.Credits, err = credit.NewAdaptive(credit.Limits{Min: 16, Max: 16, Memory: 1 << 20, ReceiveSize: 4096}, nil); err != nil {
			t.Fatal(err)
		}
	}
	call := func(xid int) []byte { return plainMsg(xid, rpcCall(xid, procNull)) }
	own := 4 * (16 + defaultReverseCredits + spareReceives)
	for _, c := range []struct {
		name   string
		change func(*Config)
		send   func(xid int) []byte
		most   int
	}{
		{"calls, static", func(cfg *Config) { cfg.Credits = credit.Static(16) }, call, leastSends + own},
		{"calls, adaptive", adaptive, call, leastSends + own},
		{"properties", version2, func(xid int) []byte { return words(xid, 2, 4, 7, 1, 1, 4, 4096) }, mostFree},
		{"bad properties", version2, func(xid int) []byte { return words(xid, 2, 4, 7, 1, 1, 8, 4096) }, mostFree},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEnv(t, rdmatest.Options{SentDelay: time.Hour}, c.change)
				p := w.rawDial(rawPrivate(4096))
				n := 0
				for ; n < 10000; n++ {
					select {
					case err := <-p.ended:
						p.ended <- err
					default:
						p.send(c.send(n))
						synctest.Wait()
						for len(p.in) > 0 {
							<-p.in
						}
						continue
					}
					break
				}
				if n <= c.most || n > c.most+10 {
					t.Errorf("%d messages were taken, want %d", n, c.most)
				}
				p.close()
				w.close()
			})
		})
	}
}

// TestWorkQueueClosed posts to a connection that has ended.
func TestWorkQueueClosed(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, nil)
	c := w.dial(nil)
	q := &c.conn.work
	if q.room.Load() != int64(q.depth) {
		t.Fatal(q.room.Load())
	}
	c.Close()
	<-c.Done()
	q.post(&sendBatch{}) // a connection that has ended takes nothing, and does not complain
	if q.waiting.Load() != 0 {
		t.Error("something waits")
	}
	var lost *LostError
	if err := null(c, w.cpool, procNull); err == nil || errors.As(err, &lost) {
		t.Errorf("a request after Close: %v", err)
	}
	w.close()
}

// slowEndpoint takes its first batch only when it may.
type slowEndpoint struct {
	rdma.Endpoint
	begun, may chan struct{}
	taken      atomic.Bool
	mu         sync.Mutex
	posted     []uint64
}

func (e *slowEndpoint) Post(wrs []rdma.WorkRequest) error {
	if !e.taken.Swap(true) {
		close(e.begun)
		<-e.may
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.posted = append(e.posted, wrs[0].ID)
	return nil
}

// TestWorkQueueOrder has room come for one batch while another goroutine is about to post the one
// before it.
func TestWorkQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ep := &slowEndpoint{begun: make(chan struct{}), may: make(chan struct{})}
		var q workQueue
		q.init(new(recvCredits), nil, 8, mostSends)
		q.ep = ep
		q.room.Store(0)
		for id := range uint64(4) {
			q.post(&sendBatch{wrs: []rdma.WorkRequest{{ID: id}}})
		}
		go q.completed(1)
		<-ep.begun
		go q.completed(2)
		synctest.Wait() // that goroutine can do no more
		go q.post(&sendBatch{wrs: []rdma.WorkRequest{{ID: 4}}})
		synctest.Wait()
		close(ep.may)
		synctest.Wait()
		q.completed(2)
		if !slices.Equal(ep.posted, []uint64{0, 1, 2, 3, 4}) || q.waiting.Load() != 0 || q.room.Load() != 0 {
			t.Errorf("posted %d, %d wait, room for %d", ep.posted, q.waiting.Load(), q.room.Load())
		}
	})
}
