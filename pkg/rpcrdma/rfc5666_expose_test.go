package rpcrdma

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// rfc5666Sets are all sets of the forms.
func rfc5666Sets() (sets []RFC5666) {
	for s := range allRFC5666 + 1 {
		sets = append(sets, s)
	}
	return sets
}

// TestRFC5666Pairs makes many calls at once between a client and a server with each pair of sets of
// forms. Every call must succeed, and all memory come back.
func TestRFC5666Pairs(t *testing.T) {
	moves := []move{
		{args: []int{3}}, {args: []int{3000}}, {args: []int{1500, 1200}, results: []int{1200}, inline: true}, {args: []int{200_000}},
		{results: []int{3000}}, {results: []int{5001}}, {results: []int{200_000, 7000}, memory: 2}, {results: []int{9000, 9000}, how: []int{1, 0}},
		{results: []int{9000}, how: []int{2}}, {args: []int{70_000}, results: []int{1 << 20}},
	}
	for _, server := range rfc5666Sets() {
		for _, client := range rfc5666Sets() {
			w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.RFC5666 = server })
			c := w.dial(func(cfg *Config) { cfg.RFC5666 = client })
			var wg sync.WaitGroup
			for i := range 60 {
				m := moves[i%len(moves)]
				wg.Go(func() {
					if err := m.do(c, w.cpool); err != nil {
						t.Errorf("server %#x, client %#x: %+v: %v", server, client, m, err)
					}
				})
				wg.Go(func() {
					if err := plain(c, w.cpool, 10, 200*i); err != nil {
						t.Errorf("server %#x, client %#x: plain: %v", server, client, err)
					}
				})
			}
			wg.Wait()
			w.close(c)
		}
	}
}

// readMsg asks for a result for which there is no room.
func readMsg(xid int) []byte { return plainMsg(xid, rpcCall(xid, procMove, moveArgs(nil, 20_000))) }

// TestExposedBound: a reply waits while as many as may be are exposed.
func TestExposedBound(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.RFC5666, cfg.Credits = ReadRead, credit.Static(32) })
	p := w.rawDial(rawPrivate(4096))
	p.null(1)
	for xid := 100; xid < 100+mostExposed+3; xid++ {
		p.send(readMsg(xid))
	}
	for range mostExposed {
		if h, _ := p.parse(p.get().b); len(h.Reads) != 1 {
			t.Fatalf("%+v", h)
		}
	}
	p.null(2) // others are answered meanwhile
	for k := range 3 {
		p.send(words(100+k, 1, 32, 3))
		if h, _ := p.parse(p.get().b); h.XID != wire.XID(100+mostExposed+k) || len(h.Reads) != 1 {
			t.Fatalf("%+v", h)
		}
	}
	p.send(readMsg(200)) // it waits, too, when the connection ends
	p.null(3)
	if n := w.budget.Used(); n < mostExposed*20_000 {
		t.Errorf("the budget has %d bytes", n)
	}
	p.close()
	w.close()
}

// TestDoneTimeout: a connection ends whose client never sends RDMA_DONE, but no other.
func TestDoneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := new(closedConns)
		w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.RFC5666, cfg.Observer = ReadRead, seen })
		p, other := w.rawDial(rawPrivate(4096)), w.rawDial(rawPrivate(4096))
		for i := range 3 {
			p.send(readMsg(1 + i))
			other.send(readMsg(1 + i))
			p.get()
			other.get()
			time.Sleep(doneTimeout - time.Second)
			other.send(words(1+i, 1, 32, 3))
			if i < 2 {
				p.send(words(1+i, 1, 32, 3))
			}
		}
		start := time.Now()
		if err := p.end(); err == nil {
			t.Error("the connection did not end")
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("it ended %v late", d-time.Second)
		}
		time.Sleep(time.Hour)
		if e := seen.ended(); len(e) != 1 || !errors.Is(e[0], ErrDoneTimeout) {
			t.Errorf("ended: %v", e)
		}
		other.null(9)
		p.close()
		other.close()
		w.close()
	})
}

// TestFetchTimeout: a connection ends whose server does not answer the RDMA Reads of a reply.
func TestFetchTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.NewFabric(rdmatest.Options{})
		c, p, w := newRequesterEnv(t, rawPrivate(4096), func(cfg *Config) { cfg.RFC5666 = ReadRead }, f)
		f.Inject(rdmatest.Fault{Do: rdmatest.Stall, From: rdmatest.Dialer, Op: rdma.Read})
		m := move{results: []int{5000}}
		r, err := m.build(w.cpool)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		done := submit(c, r)
		h, _ := p.parse(p.get().b)
		s := p.expose(p.mem(5000), rdma.RemoteRead)
		p.send(words(uint32(h.XID), 1, 8, 0, 1, 44, s, 0, 0, 0, uint32(h.XID), 1, 0, 0, 0, 0, 0, 0, 1, 0, 5000, tail))
		<-done
		if !errors.Is(r.Err, ErrReadTimeout) {
			t.Errorf("the call ended with %v", r.Err)
		}
		r.Free()
		p.close()
		w.close(c)
	})
}

// TestFetchCancelled: the reply to a cancelled call is not read, and RDMA_DONE frees the server's
// memory.
func TestFetchCancelled(t *testing.T) {
	c, p, w := newRequesterEnv(t, rawPrivate(4096), func(cfg *Config) { cfg.RFC5666 = ReadRead }, nil)
	m := move{results: []int{5000}}
	r, err := m.build(w.cpool)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	done := submit(c, r)
	h, _ := p.parse(p.get().b)
	c.Cancel(r, context.Canceled)
	<-done
	if !errors.Is(r.Err, context.Canceled) {
		t.Error(r.Err)
	}
	r.Free()
	p.send(words(uint32(h.XID), 1, 8, 0, 1, 44, wire.Segment{Handle: 77, Length: 5000}, 0, 0, 0, uint32(h.XID), 1, 0, 0, 0, 0, 0, 0, 1, 0, 5000, tail))
	if d, _ := p.parse(append(p.get().b, make([]byte, 12)...)); d.Procedure != wire.Done || d.XID != h.XID {
		t.Errorf("%+v", d)
	}
	ended := make(chan error, 1)
	go func() { ended <- null(c, w.cpool, procNull) }()
	p.answerNull(8)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	p.close()
	w.close(c)
}
