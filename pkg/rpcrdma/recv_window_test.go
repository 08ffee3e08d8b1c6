package rpcrdma

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// The race windows of draft-cel-nfsv4-rfc5666-implementation-experience section 4.5: moments at
// which posted receives and messages in process are fewer than the credits that the other side has.
// The raw peer uses every credit in the moment that it gets it, before the message that brings it
// has left the sender's hands. The fabric ends the connection when a message finds no receive.

// eager sends messages within a limit. Its methods run on the raw peer's goroutine.
type eager struct {
	p           *rawPeer
	sent, under int
	bufs        [][]byte
	make        func(xid int) []byte
}

func newEager(p *rawPeer, first int, message func(xid int) []byte) *eager {
	g := &eager{p: p, sent: first, make: message}
	for range rawReceives {
		g.bufs = append(g.bufs, p.mem(256))
	}
	return g
}

// fill sends as many messages as the limit allows.
func (g *eager) fill(limit int) {
	for ; g.under < min(limit, rawReceives); g.under++ {
		b := g.make(g.sent)
		m := g.bufs[g.sent%len(g.bufs)]
		g.p.post(m[:copy(m, b)])
		g.sent++
	}
}

// TestServerWindow: the client has as many calls under way as the server granted, all the time,
// while grants rise and fall.
func TestServerWindow(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%v", async), func(t *testing.T) {
			policy := new(wish)
			policy.n.Store(3)
			w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Credits = policy })
			w.handler.async = async
			p := w.rawDial(rawPrivate(4096))
			g := newEager(p, 1, func(xid int) []byte { return append(words(xid, 1, 60, 0, 0, 0, 0), rpcCall(xid, procNull)...) })
			answers, done := 0, make(chan struct{})
			take := func(b []byte) {
				g.under--
				answers++
				if answers%50 == 0 { // a grant counts from the next answer on
					policy.n.Store([]int32{1, 60, 2, 33, 60, 7}[answers/50%6])
				}
				switch {
				case answers < 3000:
					g.fill(int(binary.BigEndian.Uint32(b[8:])))
				case g.under == 0:
					close(done)
				}
			}
			p.take.Store(&take)
			g.under = 1
			p.send(plainMsg(0, rpcCall(0, procNull)))
			p.await(done)
			p.take.Store(nil)
			policy.n.Store(7)
			for xid := range 200 { // each answer may give back one receive
				p.null(10_000 + xid)
			}
			w.waitIdle()
			p.close()
			w.close()
		})
	}
}

// TestClientWindow: the server answers at once, and has as many calls of the reverse direction
// under way as the client granted.
func TestClientWindow(t *testing.T) {
	callbacks := &testHandler{}
	c, p, w := newRequesterEnv(t, rawPrivate(4096), func(cfg *Config) {
		cfg.Credits, cfg.Handler, cfg.ReverseCredits = credit.Static(20), callbacks, 5
	}, nil)
	calls, answers := 0, newEager(p, 0, nil)
	reverse := newEager(p, 1<<20, func(xid int) []byte { return plainMsg(xid, rpcCall(xid, procNull)) })
	var ended atomic.Bool
	idle := make(chan struct{})
	take := func(b []byte) {
		xid, credits, isReply := binary.BigEndian.Uint32(b), int(binary.BigEndian.Uint32(b[8:])), binary.BigEndian.Uint32(b[32:]) == oncrpc.MsgReply
		if !isReply {
			calls++
			answers.make = func(int) []byte {
				return words(xid, 1, 1+calls*7%20, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0)
			}
			answers.under = 0
			answers.fill(1)
			if calls == 1 {
				reverse.fill(1)
			}
			return
		}
		reverse.under--
		switch {
		case !ended.Load():
			reverse.fill(credits)
		case reverse.under == 0:
			close(idle)
		}
	}
	p.take.Store(&take)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for range 50 {
				if err := null(c, w.cpool, procNull); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	ended.Store(true)
	p.await(idle)
	p.close()
	w.close(c)
}

// await waits for c, or the connection's end.
func (p *rawPeer) await(c <-chan struct{}) {
	p.t.Helper()
	select {
	case <-c:
	case err := <-p.ended:
		p.t.Fatalf("connection ended: %v", err)
	case <-time.After(time.Minute):
		p.t.Fatal("nothing came for a minute")
	}
}
