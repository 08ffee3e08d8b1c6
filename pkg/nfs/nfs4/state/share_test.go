package state

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// greedy is a host that takes all that it gets.
type greedy struct {
	e    *env
	addr netip.Addr
	n    int
}

func (g *greedy) exchange() (*Client, Exchanged, nfs4.Status) {
	g.n++
	x, st := g.e.s.ExchangeID(fmt.Append(nil, g.addr, g.n), nfs4.Verifier{}, Principal{}, g.addr, false, g.e.now)
	return g.e.s.clients[x.ClientID], x, st
}

func (g *greedy) session(x *Exchanged) nfs4.Status {
	ch := nfs4.ChannelAttrs{MaxRequestSize: 1 << 20, MaxResponseSize: 1 << 20, MaxOperations: 8, MaxRequests: 64}
	_, st := g.e.s.CreateSession(&nfs4.CreateSessionArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: ch, Back: ch}, 2, Principal{}, nil, g.e.now)
	x.Sequence++
	return st
}

// client returns a client that has completed its recovery.
func (g *greedy) client() *Client {
	g.e.t.Helper()
	c, x, st := g.exchange()
	g.e.must("EXCHANGE_ID", st, nfs4.OK)
	g.e.must("CREATE_SESSION", g.session(&x), nfs4.OK)
	g.e.must("RECLAIM_COMPLETE", g.e.s.ReclaimComplete(c, g.e.now), nfs4.OK)
	return c
}

func hosts(e *env) (a, b *greedy) {
	return &greedy{e: e, addr: netip.MustParseAddr("192.0.2.1")}, &greedy{e: e, addr: netip.MustParseAddr("192.0.2.2")}
}

// TestFloodOfUnconfirmed: a host that never confirms its clients loses its own.
func TestFloodOfUnconfirmed(t *testing.T) {
	e := newEnv(t, Config{MaxClients: 16})
	a, b := hosts(e)
	first, x, st := b.exchange()
	e.must("the first", st, nfs4.OK)
	for range 1000 {
		_, _, st := a.exchange()
		e.must("one of a flood", st, nfs4.OK)
	}
	if n := len(e.s.clients); n > 1+8 {
		t.Errorf("%d clients", n)
	}
	e.must("the other's confirmation", b.session(&x), nfs4.OK)
	for range 1000 {
		_, _, st := a.exchange()
		e.must("one of a flood", st, nfs4.OK)
	}
	if first.ended {
		t.Error("the other's client has ended")
	}
}

// TestFullOfUnconfirmed: some hosts fill the table. They lose their clients to each other.
func TestFullOfUnconfirmed(t *testing.T) {
	e := newEnv(t, Config{MaxClients: 16})
	honest, _ := hosts(e)
	first, _, st := honest.exchange()
	e.must("the first", st, nfs4.OK)
	for i := range 1000 {
		e.now = e.now.Add(time.Millisecond)
		g := &greedy{e: e, addr: netip.AddrFrom4([4]byte{198, 51, 100, byte(i % 7)}), n: i}
		_, _, st := g.exchange()
		e.must("one of a flood", st, nfs4.OK)
	}
	if n := len(e.s.clients); n > 16 || n < 8 || first.ended {
		t.Errorf("%d clients; the first has ended: %v", n, first.ended)
	}
}

// TestShares: a host has half of each table, and the other gets as much as it would alone.
func TestShares(t *testing.T) {
	const limit = 64
	e := newEnv(t, Config{MaxClients: limit, MaxOpens: limit, MaxLocks: limit, MaxAllSlots: 8 * limit})
	a, b := hosts(e)
	fill := func(g *greedy) (clients, opens, locks int, slots bool) {
		c := g.client()
		open := func(n int) (Opened, nfs4.Status) {
			return e.s.Open(&OpenRequest{Client: c, Owner: fmt.Append(nil, n), File: testFile(1), Access: Read}, e.now)
		}
		o, st := open(0)
		for opens = 0; st == nfs4.OK; opens++ {
			_, st = open(opens + 1)
		}
		e.must("an open too many", st, nfs4.ErrDelay)
		for st = nfs4.OK; st == nfs4.OK; locks++ {
			_, _, st = e.s.Lock(&LockRequest{
				Client: c, File: testFile(1), NewOwner: true, OpenID: o.ID, Owner: []byte("l"),
				Range: Range{uint64(2 * locks), uint64(2 * locks), false},
			}, e.now)
		}
		e.must("a lock too many", st, nfs4.ErrDelay)
		for clients = 1; ; clients++ {
			_, x, st := g.exchange()
			if st != nfs4.OK {
				e.must("a client too many", st, nfs4.ErrDelay)
				return clients, opens, locks - 1, slots
			}
			for range 16 {
				slots = g.session(&x) == nfs4.OK || slots
			}
			if !e.s.clients[x.ClientID].confirmed { // no slots were left
				return clients, opens, locks - 1, slots
			}
		}
	}
	for _, g := range []*greedy{a, b} {
		clients, opens, locks, slots := fill(g)
		t.Logf("%v: %d clients, %d opens, %d locks; used: %+v", g.addr, clients, opens, locks, e.s.used)
		if opens < limit/4 || opens > limit/2 || locks < limit/4-2 || locks > limit/2 || !slots {
			t.Errorf("%v has %d opens, %d locks", g.addr, opens, locks)
		}
	}
	if n := e.s.used; n.clients > limit || n.opens > limit || n.ranges > limit || n.slots > 8*limit {
		t.Errorf("used: %+v", n)
	}
	for _, c := range e.s.clients {
		e.s.endClient(c)
	}
	if len(e.s.hosts) != 0 || e.s.used != (amounts{}) {
		t.Errorf("left: %+v of %d hosts", e.s.used, len(e.s.hosts))
	}
}
