package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
)

// withState4 is withState for version 4.
func withState4(state string) func(*Config) {
	return func(c *Config) {
		withState(state)(c)
		c.NFS4 = &NFS4Config{}
	}
}

// again makes a session of a client after a restart of the server. Its recovery is not complete.
func (s *session4) again() *session4 {
	n := s.client4(s.owner, s.verifier)
	n.create()
	return n
}

// reclaim is OPEN with CLAIM_PREVIOUS.
func reclaim(owner string, access, deny int) nfs4test.Raw {
	return op4(nfs4.OpOpen, 0, access, deny, uint64(0), owner, noCreate, int(nfs4.ClaimPrevious), 0)
}

var reclaimComplete = op4(nfs4.OpReclaimComplete, false)

// TestRestart restarts the server while two clients have opens and locks (RFC 8881 section 8.4.2).
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	keep := withState4(dir)
	r := newEnv(t, keep)
	r.put("file", "contents")
	a, b := r.session("a"), r.session("b")
	oa, ob := a.open("o", accRW, 0, noCreate, "file"), b.open("o", accR, 0, noCreate, "file")
	file := putFH(oa.handle)
	a.locked(file, lockNew(oa, "l", nfs4.LockWrite, 0, 10))
	r.restart(keep)
	a.fails(nfs4.ErrBadSession)
	expect(t, "session of an earlier instance", r.compound(1, createSession(a.client, a.sequence)), nfs4.ErrStaleClientID)
	a, b = a.again(), b.again()
	c := r.client4("c", "verifier")
	c.create()
	// c was not there before, and a and b have state to reclaim.
	c.fails(nfs4.ErrReclaimBad, file, reclaim("o", accR, 0))
	c.ok(reclaimComplete)
	c.fails(nfs4.ErrGrace, rootFH, openOp("o", accR, 0, noCreate, "file"))
	a.fails(nfs4.ErrGrace, rootFH, openOp("o", accR, 0, noCreate, "file"))
	a.fails(nfs4.ErrBadStateID, file, closeOp(oa.StateID))
	expect(t, "TEST_STATEID", a.do(op4(nfs4.OpTestStateID, 1, stateID(ob.StateID))), nfs4.OK)
	res := a.ok(file, reclaim("o", accRW, 0))
	var again nfs4.OpenRes
	again.Decode(opResult(res, 2))
	lock := func(reclaim bool, owner string, id nfs4.StateID) nfs4test.Raw {
		return op4(nfs4.OpLock, int(nfs4.LockWrite), reclaim, uint64(0), uint64(10), true, 0, stateID(id), 0, uint64(0), owner)
	}
	a.fails(nfs4.ErrGrace, file, lock(false, "l", again.StateID))
	a.ok(file, lock(true, "l", again.StateID))
	res = b.ok(file, reclaim("o", accRW, 0))
	var other nfs4.OpenRes
	other.Decode(opResult(res, 2))
	b.fails(nfs4.ErrReclaimConflict, file, lock(true, "l", other.StateID))
	a.ok(reclaimComplete)
	a.fails(nfs4.ErrNoGrace, file, reclaim("o", accRW, 0))
	// The last one ends the grace period.
	b.ok(reclaimComplete)
	c.ok(rootFH, openOp("o", accR, 0, noCreate, "file"))
	b.fails(nfs4.ErrDenied, file, lock(false, "l", other.StateID))

	// A client that ends in order has no record, so nobody waits for it.
	for _, s := range []*session4{a, b, c} {
		if s == a {
			s.ok(file, closeOp(again.StateID))
			s.ok(op4(nfs4.OpDestroySession, s.id))
			expect(t, "DESTROY_CLIENTID", r.compound(1, op4(nfs4.OpDestroyClientID, s.client)), nfs4.OK)
		}
	}
	r.restart(keep)
	if a = a.again(); a == nil {
		t.Fatal()
	}
	a.fails(nfs4.ErrReclaimBad, file, reclaim("o", accR, 0))
	for _, s := range []*session4{b.again(), c.again()} {
		s.ok(reclaimComplete)
	}
	a.ok(reclaimComplete)
	a.ok(rootFH, openOp("o", accR, 0, noCreate, "file"))
}

// TestRecordFiles has damaged records, and a folder that cannot be made.
func TestRecordFiles(t *testing.T) {
	dir := t.TempDir()
	keep := withState4(dir)
	r := newEnv(t, keep)
	r.session("client")
	folders, err := filepath.Glob(filepath.Join(dir, "clients-*"))
	r.must(err)
	if len(folders) != 1 {
		t.Fatalf("folders of records: %v", folders)
	}
	records, err := os.ReadDir(folders[0])
	r.must(err)
	if len(records) != 1 {
		t.Fatalf("%d records, must be 1", len(records))
	}
	r.must(os.WriteFile(filepath.Join(folders[0], "half.new"), []byte("cl"), 0o600))
	r.must(os.WriteFile(filepath.Join(folders[0], "damaged"), []byte("another"), 0o600))
	r.restart(keep)
	if records, err = os.ReadDir(folders[0]); err != nil || len(records) != 1 {
		t.Errorf("%d records after a restart, %v", len(records), err)
	}
	if b, err := os.ReadFile(filepath.Join(folders[0], records[0].Name())); err != nil || !bytes.Equal(b, []byte("client")) {
		t.Errorf("the record is %q, %v", b, err)
	}
	r.stop()
	r.must(os.RemoveAll(folders[0]))
	r.must(os.WriteFile(folders[0], nil, 0o600))
	r.start(keep)
	if n := len(r.s.Info().Notes); n == 0 {
		t.Error("no note about the records")
	}
	r.session("client").open("o", accR, 0, unchecked, "file")
}

// TestRecordsInRoot keeps the records on the volume: a server with another state directory goes on,
// and clients of no version see or make their directory.
func TestRecordsInRoot(t *testing.T) {
	keep := func(c *Config) {
		c.NFS4, c.StateDir, c.Key = &NFS4Config{RecordsInRoot: true}, t.TempDir(), []byte("a key of 32 bytes for the handles")
	}
	r := newEnv(t, keep)
	r.put("file", "contents")
	a := r.session("a")
	o := a.open("o", accRW, 0, noCreate, "file")
	if records, err := os.ReadDir(r.path(hiddenRecords)); err != nil || len(records) != 1 {
		t.Fatalf("%d records (%v), want 1", len(records), err)
	}
	for _, name := range []string{hiddenRecords, ".SLUICE-clients"} {
		a.fails(nfs4.ErrNoEnt, rootFH, op4(nfs4.OpLookup, name))
		a.fails(nfs4.ErrNoEnt, rootFH, op4(nfs4.OpRemove, name))
		a.fails(nfs4.ErrNoEnt, rootFH, openOp("o", accR, 0, noCreate, name))
		a.fails(nfs4.ErrAccess, rootFH, openOp("o", accRW, 0, unchecked, name))
		a.fails(nfs4.ErrNoEnt, rootFH, op4(nfs4.OpSaveFH), op4(nfs4.OpRename, name, "moved"))
		a.fails(nfs4.ErrAccess, rootFH, op4(nfs4.OpSaveFH), op4(nfs4.OpRename, "file", name))
		a.fails(nfs4.ErrAccess, putFH(o.handle), op4(nfs4.OpSaveFH), rootFH, op4(nfs4.OpLink, name))
	}
	if list := a.entries4(4096); len(list) != 1 {
		t.Errorf("the list of the root is %v", list)
	}
	r.restart(keep)
	file := putFH(o.handle)
	if a = a.again(); a == nil {
		t.Fatal("no session")
	}
	a.ok(file, reclaim("o", accRW, 0))

	r.must(errors.Join(os.RemoveAll(r.path(hiddenRecords)), os.Symlink(t.TempDir(), r.path(hiddenRecords))))
	r.restart(keep)
	if notes := r.s.Info().Notes; len(notes) == 0 || !strings.Contains(notes[len(notes)-1], "is not a directory: remove or rename it") {
		t.Errorf("notes %q", notes)
	}
}
