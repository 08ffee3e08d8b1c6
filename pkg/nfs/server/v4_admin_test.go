package server

import (
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// TestClients4 lists clients with their state, and ends one: its locks are gone, in the file system
// too, and it comes back without them.
func TestClients4(t *testing.T) {
	r := newEnv4(t, nil)
	r.put("file", "contents")
	a, b := r.session("a"), r.session("b")
	o := a.open("o", accRW, 0, noCreate, "file")
	file := putFH(o.handle)
	a.locked(file, lockNew(o, "l", nfs4.LockWrite, 0, 10))
	clients, omitted := r.s.NFS4Clients(1)
	if len(clients) != 1 || omitted != 1 {
		t.Fatalf("%d clients, %d omitted: want 1 and 1", len(clients), omitted)
	}
	if c := &clients[0]; c.ID != a.client || string(c.Owner) != "a" || c.Opens != 1 || c.Ranges != 1 || c.Sessions != 1 || c.Reclaiming {
		t.Errorf("%+v", c)
	}
	if r.s.ExpelNFS4Client(1) {
		t.Error("ended a client that is not there")
	}
	b.fails(nfs4.ErrDenied, file, lockTest("l", nfs4.LockWrite, 0, 10))
	if !r.s.ExpelNFS4Client(a.client) {
		t.Error("the client is not there")
	}
	b.ok(file, lockTest("l", nfs4.LockWrite, 0, 10))
	b.locked(file, lockNew(b.open("o", accRW, 0, noCreate, "file"), "l", nfs4.LockWrite, 0, 10))
	if res := r.compound(1, a.seq(0)); nfs4.Status(res.Status) != nfs4.ErrBadSession {
		t.Errorf("SEQUENCE of the ended client: %v", nfs4.Status(res.Status))
	}
	a.again()
	if st := r.s.NFS4Stats(); st.Clients != 2 || st.Opens != 1 || st.Ranges != 1 || st.Expiries != 0 {
		t.Errorf("%+v", st)
	}
	counts := map[nfs4.Op][2]uint64{}
	for _, o := range r.s.NFS4Operations() {
		counts[o.Op] = [2]uint64{o.OK, o.Failed}
		if o.Seconds <= 0 {
			t.Errorf("%v took no time", o.Op)
		}
	}
	if counts[nfs4.OpOpen] != [2]uint64{2, 0} || counts[nfs4.OpLockT] != [2]uint64{1, 1} || counts[nfs4.OpSequence][1] != 1 {
		t.Errorf("%v", counts)
	}
	r.compound(1, op4(4711))
	for _, o := range r.s.NFS4Operations() {
		if o.Op == nfs4.OpIllegal && o.Failed == 1 {
			delete(counts, nfs4.OpOpen)
		}
	}
	if counts[nfs4.OpOpen][0] != 0 {
		t.Error("the unknown operation was not counted")
	}
}
