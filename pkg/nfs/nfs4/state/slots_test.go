package state

import (
	"net/netip"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// slotted is a client that uses its slots as RFC 8881 section 2.10.6.1 says.
type slotted struct {
	e    *env
	p    *peer
	seqs []uint32
	res  nfs4.SequenceRes
}

// use sends a request on each slot up to highest, all at once.
func (c *slotted) use(highest int) {
	c.e.t.Helper()
	var open []Slot
	for i := 0; i <= highest; i++ {
		for len(c.seqs) <= i {
			c.seqs = append(c.seqs, 0)
		}
		c.seqs[i]++
		r, st := c.e.s.Sequence(&nfs4.SequenceArgs{Session: c.p.session, Slot: uint32(i), HighestSlot: uint32(highest), Sequence: c.seqs[i], CacheThis: true},
			&Request{Ops: 1}, nil, c.e.now)
		c.e.must("SEQUENCE", st, nfs4.OK)
		open = append(open, r.Slot)
		c.res = r.Res
	}
	for i := range open {
		c.e.s.Finish(&open[i], make([]byte, 100), c.e.now)
	}
	// The client forgets the slots that the server does not have any more.
	c.seqs = c.seqs[:min(len(c.seqs), int(c.res.HighestSlot)+1)]
}

func (e *env) slotted(name string, slots uint32) *slotted {
	e.t.Helper()
	x, st := e.s.ExchangeID([]byte(name), nfs4.Verifier{}, Principal{}, netip.Addr{}, false, e.now)
	e.must("EXCHANGE_ID", st, nfs4.OK)
	ch := nfs4.ChannelAttrs{MaxRequestSize: 1 << 20, MaxResponseSize: 1 << 20, MaxResponseSizeCached: 4096, MaxOperations: 8, MaxRequests: slots}
	r, st := e.s.CreateSession(&nfs4.CreateSessionArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: ch, Back: ch}, 2, Principal{}, nil, e.now)
	e.must("CREATE_SESSION", st, nfs4.OK)
	return &slotted{e: e, p: &peer{session: r.Session}, res: nfs4.SequenceRes{HighestSlot: r.Fore.MaxRequests - 1}}
}

// TestSlotsFollowLoad: a session gives back slots that it does not use, and gets them again.
func TestSlotsFollowLoad(t *testing.T) {
	e := newEnv(t, Config{})
	c := e.slotted("client", 64)
	if c.res.HighestSlot != 63 {
		t.Fatalf("%d slots", c.res.HighestSlot+1)
	}
	c.use(63)
	for range quietRequests {
		c.use(0)
	}
	if c.res.HighestSlot != 63 || c.res.TargetHighestSlot != 31 {
		t.Errorf("after quiet requests: %+v", c.res)
	}
	for range 3 * quietRequests {
		c.use(0)
	}
	if c.res.HighestSlot != minSlots-1 || c.res.TargetHighestSlot != minSlots-1 || e.s.Stats(e.now).Slots != minSlots {
		t.Errorf("after many: %+v", c.res)
	}
	for range 10 {
		c.use(int(c.res.TargetHighestSlot))
	}
	if c.res.HighestSlot != 63 || e.s.Stats(e.now).Slots != 64 {
		t.Errorf("under load: %+v", c.res)
	}
	// A client that goes on as before keeps them.
	for range quietRequests {
		c.use(0)
	}
	c.use(40)
	if c.res.HighestSlot != 63 || c.res.TargetHighestSlot != 63 {
		t.Errorf("a client that needs its slots: %+v", c.res)
	}
	e.must("DESTROY_SESSION", e.s.DestroySession(c.p.session, nil, nil), nfs4.OK)
	if n := e.s.Stats(e.now).Slots; n != 0 {
		t.Errorf("%d slots are left", n)
	}
}

// TestSlotsAreBounded: the slots of all sessions are, and a new session always gets some.
func TestSlotsAreBounded(t *testing.T) {
	e := newEnv(t, Config{MaxAllSlots: 200})
	a := e.slotted("a", 64)
	for i, want := range []uint32{64, 36, minSlots, minSlots} {
		if c := e.slotted(string(rune('b'+i)), 64); c.res.HighestSlot != want-1 {
			t.Errorf("session %d has %d slots, must have %d", i, c.res.HighestSlot+1, want)
		}
	}
	// The others give some back soon.
	a.use(3)
	a.use(3)
	if a.res.HighestSlot >= 63 {
		t.Errorf("a session with few requests while slots are scarce: %+v", a.res)
	}
	if n := e.s.Stats(e.now).Slots; n > 200 {
		t.Errorf("%d slots", n)
	}
}

// TestIdleSessionsGiveSlotsBack: when slots become scarce, sessions that use few of theirs are
// asked once to give half of them back.
func TestIdleSessionsGiveSlotsBack(t *testing.T) {
	e := newEnv(t, Config{MaxAllSlots: 100})
	reachable := func(c *slotted) *Session {
		n := e.s.sessions[c.p.session]
		n.back.addConn(n)
		n.back.up = true
		return n
	}
	a := e.slotted("a", 40)
	n := reachable(a)
	if list := e.s.Squeezed(); list != nil || e.s.Ended() {
		t.Errorf("%d sessions while there are slots", len(list))
	}
	e.slotted("unreachable", 64)
	reachable(e.slotted("small", minSlots))
	e.slotted("last", 64)
	if !e.s.scarce() || !e.s.Ended() {
		t.Fatalf("%d slots are used", e.s.used.slots)
	}
	if list := e.s.Squeezed(); len(list) != 1 || list[0] != n {
		t.Errorf("%d sessions", len(list))
	}
	if list := e.s.Squeezed(); list != nil {
		t.Errorf("%d sessions once more", len(list))
	}
	if highest, ok := e.s.TargetSlot(n); highest != 19 || !ok {
		t.Errorf("target %d, %v", highest, ok)
	}
	a.use(10) // its client complies
	if _, ok := e.s.TargetSlot(n); ok && len(n.slots) > 20 || len(n.slots) > 20 {
		t.Errorf("%d slots are left", len(n.slots))
	}
}
