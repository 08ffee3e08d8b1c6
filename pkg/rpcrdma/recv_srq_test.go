package rpcrdma

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// sharedFrom has servers give queues of their own to the first n connections, none if it is
// negative.
func sharedFrom(n int) func(*Config) { return func(cfg *Config) { cfg.OwnReceives = n } }

// promises checks that at least as many shared receives are posted as connections were promised,
// and returns both.
func (w *env) promises() (posted, promised int) {
	w.t.Helper()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.server.srqs.mu.Lock()
	defer w.server.srqs.mu.Unlock()
	sum := 0
	for c := range w.server.conns {
		if r := &c.receives; r.queue.shared {
			r.mu.Lock() // until the end: all at one moment
			defer r.mu.Unlock()
			sum += r.posted
		}
	}
	for _, q := range w.server.srqs.queues {
		q.mu.Lock()
		posted, promised = posted+q.posted, promised+q.promised
		q.mu.Unlock()
	}
	if sum != promised || posted < promised {
		w.t.Fatalf("connections have receives for %d messages, of which the queue promised %d and posted %d", sum, promised, posted)
	}
	return posted, promised
}

// TestSharedShapes makes all kinds of calls, of both versions, by connections that share their
// receives.
func TestSharedShapes(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
		cfg.OwnReceives, cfg.Versions, cfg.Extensions = -1, []int{1, 2}, allExtensions
	})
	w.handler.async = true
	var clients []*Client
	var wg sync.WaitGroup
	for i := range 3 {
		c := w.dial(func(cfg *Config) {
			cfg.Handler = &testHandler{}
			if i%2 == 1 {
				cfg.Versions, cfg.Extensions = []int{1, 2}, allExtensions
			}
		})
		clients = append(clients, c)
		wg.Go(func() { testShapes(w, c) })
	}
	wg.Wait()
	w.promises()
	w.waitIdle()
	w.promises()
	w.close(clients...)
}

// TestSharedOwn: the first connections have queues of their own, and so do those that need other
// receives; so does one that comes when another has gone.
func TestSharedOwn(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		cfg.OwnReceives, cfg.InlineCall, cfg.Versions, cfg.Extensions = 2, 16384, []int{1, 2}, allExtensions
	})
	dial := func() *Client {
		return w.dial(func(cfg *Config) { cfg.InlineCall, cfg.Versions, cfg.Extensions = 16384, []int{1, 2}, allExtensions })
	}
	check := func(c *Client, size int, e Extensions) {
		t.Helper()
		if n := c.Negotiated(); n.Version != 2 || n.Remote.ReceiveSize != size || n.InlineCall != size || n.Extensions != e {
			t.Errorf("%+v, want messages of %d bytes and extensions %d", n, size, e)
		}
	}
	const own = 16384
	one, two, three, four := dial(), dial(), dial(), dial()
	for _, c := range []*Client{three, four} {
		check(c, wire.DefaultReceiveSize, TransportProperties)
	}
	for _, c := range []*Client{one, two} {
		if n := c.Negotiated(); n.Extensions != allExtensions || n.Remote.ReceiveSize <= own {
			t.Errorf("%+v, want all extensions and receives of %d bytes and more", n, own)
		}
	}
	one.Close()
	<-one.Done()
	eventually(t, "it is gone", func() bool { return w.server.Connections() == 3 })
	eventually(t, "its place is free", func() bool {
		w.server.srqs.mu.Lock()
		defer w.server.srqs.mu.Unlock()
		return w.server.srqs.own == 1
	})
	five, six := dial(), dial()
	check(six, wire.DefaultReceiveSize, TransportProperties)
	if n := five.Negotiated(); n.Extensions != allExtensions {
		t.Errorf("%+v, want all extensions", n)
	}
	w.close(two, three, four, five, six)
}

// TestSharedVersion1: private data announce receives that are not larger than the shared ones.
func TestSharedVersion1(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.OwnReceives, cfg.InlineCall = -1, 65536 })
	c := w.dial(func(cfg *Config) { cfg.InlineCall = 65536 })
	if err := plain(c, w.cpool, 5000, 10); err != nil {
		t.Error(err)
	}
	if n := c.Negotiated(); n.InlineCall != 4096 {
		t.Errorf("inline threshold %d, want 4096", n.InlineCall)
	}
	w.close(c)
}

// TestSharedSize: the size of shared receives is constant, whatever a client requests.
func TestSharedSize(t *testing.T) {
	both := func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{1, 2}, TransportProperties }
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { both(cfg); cfg.OwnReceives = -1 })
	c := w.dial(both)
	for _, size := range []int{1024, 65536} {
		if n := askReceiveSize(t, w, c, size); n != wire.DefaultReceiveSize {
			t.Errorf("asked for %d: %d bytes", size, n)
		}
		testShapes(w, c)
	}
	if n := c.Negotiated(); n.Remote.ReceiveSize != wire.DefaultReceiveSize {
		t.Errorf("receives of %d bytes, want %d", n.Remote.ReceiveSize, wire.DefaultReceiveSize)
	}
	w.close(c)
}

// TestSharedOverrun: a client that sends more than it may loses its connection. Others do not
// notice.
func TestSharedOverrun(t *testing.T) {
	const credits = 4
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.OwnReceives, cfg.Credits = -1, credit.Static(credits) })
	c := w.dial(nil)
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		p := w.rawDial(rawPrivate(4096))
		p.null(1)
		conn := func() *Conn {
			w.server.mu.Lock()
			defer w.server.mu.Unlock()
			for s := range w.server.conns {
				if s.info.Remote.String() == p.ep.LocalAddr().String() {
					return s
				}
			}
			t.Fatal("the connection is not there")
			return nil
		}()
		for i := range credits + spareReceives + 3 {
			m := p.mem(128)
			n := copy(m, plainMsg(i+2, rpcCall(i+2, procHang)))
			if p.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: [][]byte{m[:n]}}}) != nil {
				break // it has ended
			}
		}
		_ = p.end()
		<-conn.done
		if !errors.Is(conn.err, errOverrun) {
			t.Errorf("it ended with %v, want %v", conn.err, errOverrun)
		}
		p.close()
		w.handler.release()
		for range 3 {
			if err := null(c, w.cpool, procNull); err != nil {
				t.Fatal(err)
			}
		}
		if posted, promised := w.promises(); promised != credits+spareReceives || posted > promised+sharedMargin {
			t.Errorf("%d receives are posted and %d promised, to one connection with %d credits", posted, promised, credits)
		}
	}
	w.close(c)
}

// TestSharedChurn: however many connections come and go, with calls in flight, no more receives are
// posted than for those that were there at once.
func TestSharedChurn(t *testing.T) {
	const credits, atOnce = 8, 4
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) { cfg.OwnReceives, cfg.Credits = -1, credit.Static(credits) })
	w.handler.async = true
	stays := w.dial(nil)
	for range 25 {
		var wg sync.WaitGroup
		for range atOnce - 1 {
			wg.Go(func() {
				c := w.dial(nil)
				var calls sync.WaitGroup
				for range credits {
					calls.Go(func() { _ = null(c, w.cpool, procNull) })
				}
				if err := null(c, w.cpool, procNull); err != nil {
					t.Error(err)
				}
				c.Close() // in the middle of the others
				calls.Wait()
				<-c.Done()
			})
		}
		for range 10 {
			if err := null(stays, w.cpool, procNull); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		eventually(t, "the others are gone", func() bool { return w.server.Connections() == 1 })
	}
	w.waitIdle()
	posted, promised := w.promises()
	if most := atOnce*(credits+spareReceives) + sharedMargin; promised != credits+spareReceives || posted > most {
		t.Errorf("%d receives are posted, %d promised; want at most %d, and %d", posted, promised, most, credits+spareReceives)
	}
	for range posted { // unused receives of the others are taken before more are posted
		if err := null(stays, w.cpool, procNull); err != nil {
			t.Fatal(err)
		}
	}
	w.waitIdle()
	if posted, _ := w.promises(); posted > credits+spareReceives+sharedMargin {
		t.Errorf("%d receives are posted, want at most %d", posted, credits+spareReceives+sharedMargin)
	}
	w.close(stays)
}

// TestSharedFull: a connection that finds the shared queue full has its own, and one whose provider
// has none.
func TestSharedFull(t *testing.T) {
	for _, most := range []int{8, -1} {
		w := newEnv(t, rdmatest.Options{MaxShared: most}, sharedFrom(-1))
		var clients []*Client
		for range 4 {
			c := w.dial(nil)
			clients = append(clients, c)
			for range 10 {
				if err := null(c, w.cpool, procNull); err != nil {
					t.Fatal(err)
				}
			}
		}
		shared := 0
		w.server.mu.Lock()
		for c := range w.server.conns {
			if c.receives.queue.shared {
				shared++
			}
		}
		w.server.mu.Unlock()
		if most < 0 && shared != 0 || most > 0 && (shared == 0 || shared == len(clients)) {
			t.Errorf("with room for %d, %d of %d connections share", most, shared, len(clients))
		}
		w.promises()
		w.close(clients...)
	}
}

// device is a queue of receives, first in, first out.
type device struct{ queue []rdma.Receive }

func (d *device) PostReceives(rs []rdma.Receive) error {
	d.queue = append(d.queue, rs...)
	return nil
}

// TestSharedAccounts: whatever connections do, in any order, each message that their peers may send
// finds a receive; nothing leaks.
func TestSharedAccounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(low, high int, what string) int { return rapid.IntRange(low, high).Draw(rt, what) }
		pool := bufpool.New(int64(8 << 20))
		defer func() {
			if err := pool.Close(); err != nil {
				rt.Errorf("at the end: %v", err)
			}
		}()
		d := new(device)
		told := 0
		q := newRecvQueue(pool, [][]int{{4096}})
		q.shared, q.to, q.depth, q.margin, q.onPosted = true, d, draw(4, 40, "depth"), draw(0, 8, "margin"), func(n int) { told += n }
		type conn struct {
			recvCredits
			may  int // messages that the peer may send
			held []*oncrpc.Message
		}
		var conns []*conn
		pick := func() *conn {
			if len(conns) == 0 {
				rt.Skip("no connection")
			}
			return conns[draw(0, len(conns)-1, "connection")]
		}
		end := func(c *conn) {
			c.close()
			for _, m := range c.held {
				m.Release()
			}
		}
		remove := func(c *conn) {
			conns = slices.DeleteFunc(conns, func(o *conn) bool { return o == c })
			end(c)
		}
		receive := func() (*recvBuffer, *oncrpc.Message) {
			if len(d.queue) == 0 {
				rt.Fatal("a message finds no receive")
			}
			s := q.completed(d.queue[0].ID)
			d.queue = d.queue[1:]
			m := new(oncrpc.Message)
			s.moveTo(nil, 100, m, pool)
			return s, m
		}
		rt.Repeat(map[string]func(*rapid.T){
			"open": func(*rapid.T) {
				c := &conn{recvCredits: recvCredits{queue: q, credits: 1, extra: spareReceives}}
				if _, err := c.prepare(); err != nil {
					end(c)
					return
				}
				c.may = 1
				conns = append(conns, c)
			},
			"call": func(*rapid.T) {
				c := pick()
				if c.may == 0 {
					rt.Skip("no credit")
				}
				c.may--
				if !c.expected() {
					rt.Fatal("a message within the credits is not expected")
				}
				s, m := receive()
				c.consume(s, true)
				c.held = append(c.held, m)
			},
			"answer": func(*rapid.T) {
				c := pick()
				if len(c.held) == 0 {
					rt.Skip("nothing to answer")
				}
				g, err := c.answer(credit.Static(draw(1, 12, "credits")), credit.Max, 1, 1)
				if err != nil {
					rt.Fatal(err)
				}
				c.grantSent(g)
				c.held[0].Release()
				c.held = c.held[1:]
				c.may = max(0, g.credits-len(c.held))
			},
			"overrun": func(*rapid.T) {
				c := pick()
				for len(d.queue) > 0 {
					if !c.expected() {
						s := q.completed(d.queue[0].ID)
						d.queue = d.queue[1:]
						c.overrun(s)
						break
					}
					s, m := receive()
					c.consume(s, true)
					c.held = append(c.held, m)
				}
				remove(c)
			},
			"end": func(*rapid.T) {
				remove(pick())
			},
			"": func(*rapid.T) {
				sum, may, held := 0, 0, 0
				for _, c := range conns {
					sum, may, held = sum+c.posted, may+c.may, held+len(c.held)
				}
				switch {
				case q.posted != len(d.queue) || q.posted != told || q.posted > q.depth:
					rt.Fatalf("%d receives are posted, %d counted and %d told of; depth %d", len(d.queue), q.posted, told, q.depth)
				case q.promised != sum || q.posted < q.promised || sum < may:
					rt.Fatalf("%d are posted, %d promised, connections have %d, and their peers may send %d", q.posted, q.promised, sum, may)
				case q.prepared > held+1:
					rt.Fatalf("%d receives are ready for %d held messages", q.prepared, held)
				}
			},
		})
		for _, c := range conns {
			end(c)
		}
		if q.promised != 0 {
			rt.Errorf("%d are promised to nobody", q.promised)
		}
		q.close()
		if told != 0 {
			rt.Errorf("told of %d receives that are not there any more", told)
		}
	})
}
