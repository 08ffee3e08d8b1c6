package state

import (
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// TestExpelBusy ends a client while a COMPOUND of it runs: no other begins, and it ends with that.
func TestExpelBusy(t *testing.T) {
	e := newEnv(t, Config{})
	p := e.join("a", "v")
	a := nfs4.SequenceArgs{Session: p.session, Sequence: p.seq + 1}
	r, st := e.s.Sequence(&a, &Request{Ops: 1, Size: 200}, nil, e.now)
	e.must("SEQUENCE", st, nfs4.OK)
	if !e.s.Expel(p.c.ID()) {
		t.Fatal("the client is not there")
	}
	if n := e.s.Stats(e.now).Clients; n != 1 {
		t.Errorf("%d clients while a COMPOUND runs, want 1", n)
	}
	a.Slot, a.HighestSlot, a.Sequence = 1, 1, 1
	_, st = e.s.Sequence(&a, &Request{Ops: 1, Size: 200}, nil, e.now)
	e.must("another SEQUENCE", st, nfs4.ErrBadSession)
	e.s.Finish(&r.Slot, nil, e.now)
	if n := e.s.Stats(e.now).Clients; n != 0 {
		t.Errorf("%d clients afterwards, want none", n)
	}
}

// TestExpiries counts a client whose lease has expired.
func TestExpiries(t *testing.T) {
	e := newEnv(t, Config{Lease: time.Minute})
	e.join("a", "v")
	e.s.Tick(e.now.Add(2 * time.Minute))
	if st := e.s.Stats(e.now); st.Clients != 0 || st.Expiries != 1 {
		t.Errorf("%+v", st)
	}
}
