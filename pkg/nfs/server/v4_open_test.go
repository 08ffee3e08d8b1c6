package server

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/test/prereq"
)

// Kinds of creation, as arguments.
var (
	noCreate   = nfs4test.Fields(0)
	unchecked  = nfs4test.Fields(1, 0, nfs4test.Attrs([]uint32{nfs4.AttrMode}, 0o644))
	guarded    = nfs4test.Fields(1, 1, nfs4test.Attrs([]uint32{nfs4.AttrMode}, 0o644))
	truncating = nfs4test.Fields(1, 0, nfs4test.Attrs([]uint32{nfs4.AttrSize}, uint64(0)))
)

func exclusive(verifier string) nfs4test.Raw { return nfs4test.Fields(1, 2, nfs4test.Raw(verifier)) }
func exclusive1(verifier string, attrs nfs4test.Raw) nfs4test.Raw {
	return nfs4test.Fields(1, 3, nfs4test.Raw(verifier), attrs)
}

// openOp is OPEN of a name in the current directory.
func openOp(owner string, access, deny int, how nfs4test.Raw, name string) nfs4test.Raw {
	return op4(nfs4.OpOpen, 0, access, deny, uint64(0), owner, how, int(nfs4.ClaimNull), name)
}

// openFH is OPEN of the current filehandle.
func openFH(owner string, access, deny int) nfs4test.Raw {
	return op4(nfs4.OpOpen, 0, access, deny, uint64(0), owner, noCreate, int(nfs4.ClaimFH))
}

// opened is the result of OPEN, with the file's handle.
type opened struct {
	nfs4.OpenRes
	handle []byte
}

func (s *session4) open(owner string, access, deny int, how nfs4test.Raw, name string) opened {
	s.t.Helper()
	res := s.ok(rootFH, openOp(owner, access, deny, how, name), op4(nfs4.OpGetFH))
	o := opened{handle: append([]byte{}, res.Handle(s.t, 3)...)}
	o.Decode(opResult(res, 2))
	return o
}

func putFH(h []byte) nfs4test.Raw { return op4(nfs4.OpPutFH, h) }

func stateID(id nfs4.StateID) nfs4test.Raw { return nfs4test.Fields(id.Seq, nfs4test.Raw(id.Other[:])) }

func closeOp(id nfs4.StateID) nfs4test.Raw { return op4(nfs4.OpClose, 0, stateID(id)) }

const (
	accR, accW, accRW = nfs4.ShareAccessRead, nfs4.ShareAccessWrite, nfs4.ShareAccessBoth
)

// TestOpenCreate has every mode of creation, with and without the file (RFC 8881 section 18.16.3).
func TestOpenCreate(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	r.put("file", "contents")
	for i, c := range []struct {
		how  nfs4test.Raw
		name string
		want nfs4.Status
		size int
	}{
		{noCreate, "none", nfs4.ErrNoEnt, 0},
		{noCreate, "file", nfs4.OK, 8},
		{unchecked, "a", nfs4.OK, 0},
		{unchecked, "file", nfs4.OK, 8},
		{guarded, "b", nfs4.OK, 0},
		{guarded, "b", nfs4.ErrExist, 0},
		{guarded, "file", nfs4.ErrExist, 8},
		{exclusive("verifier"), "c", nfs4.OK, 0},
		{exclusive("verifier"), "c", nfs4.OK, 0},
		{exclusive("VERIFIER"), "c", nfs4.ErrExist, 0},
		{exclusive("verifier"), "file", nfs4.ErrExist, 8},
		{exclusive1("verifier", nfs4test.Attrs([]uint32{nfs4.AttrMode}, 0o640)), "d", nfs4.OK, 0},
		{exclusive1("verifier", nfs4test.Attrs([]uint32{nfs4.AttrMode}, 0o640)), "d", nfs4.OK, 0},
		{exclusive1("VERIFIER", nfs4test.Attrs([]uint32{nfs4.AttrMode}, 0o640)), "d", nfs4.ErrExist, 0},
		{exclusive1("verifier", nfs4test.Attrs([]uint32{nfs4.AttrTimeModifySet}, 0)), "e", nfs4.ErrInval, 0},
		{nfs4test.Fields(1, 1, nfs4test.Attrs([]uint32{nfs4.AttrType}, 1)), "e", nfs4.ErrInval, 0},
		{nfs4test.Fields(1, 1, nfs4test.Attrs([]uint32{nfs4.AttrArchive}, true)), "e", nfs4.ErrAttrNotSupp, 0},
		{nfs4test.Fields(1, 4), "e", nfs4.ErrBadXDR, 0},
		{truncating, "file", nfs4.OK, 0},
	} {
		res := s.do(rootFH, openOp(fmt.Sprint("owner", i), accRW, 0, c.how, c.name))
		expect(t, fmt.Sprintf("%d: %s", i, c.name), res, c.want)
		if c.want == nfs4.OK || c.want == nfs4.ErrExist {
			if st := r.lstat(c.name); st.Size != int64(c.size) {
				t.Errorf("%d: %s has %d bytes, must have %d", i, c.name, st.Size, c.size)
			}
		}
	}
	if mode := r.lstat("d").Mode & 0o7777; mode != 0o640 {
		t.Errorf("mode %o", mode)
	}
	if n := r.s.v4.state.Stats(time.Now()).Opens; n != 9 {
		t.Errorf("%d opens, must be 9", n)
	}
}

// TestOpenArguments has arguments that OPEN refuses.
func TestOpenArguments(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	r.put("file", "contents")
	r.must(errors.Join(os.Mkdir(r.path("dir"), 0o755), os.Symlink("file", r.path("link"))))
	for _, c := range []struct {
		name string
		op   nfs4test.Raw
		want nfs4.Status
	}{
		{"no access", openOp("o", 0, 0, noCreate, "file"), nfs4.ErrInval},
		{"unknown access", openOp("o", 4, 0, noCreate, "file"), nfs4.ErrInval},
		{"unknown deny", openOp("o", accR, 4, noCreate, "file"), nfs4.ErrInval},
		{"unknown wish", openOp("o", accR|0x600, 0, noCreate, "file"), nfs4.ErrInval},
		{"a directory", openOp("o", accR, 0, noCreate, "dir"), nfs4.ErrIsDir},
		{"a directory, created", openOp("o", accR, 0, unchecked, "dir"), nfs4.ErrIsDir},
		{"a link", openOp("o", accR, 0, noCreate, "link"), nfs4.ErrSymlink},
		{"no name", openOp("o", accR, 0, noCreate, ""), nfs4.ErrInval},
		{"dot", openOp("o", accR, 0, noCreate, "."), nfs4.ErrBadName},
		{"dot dot", openOp("o", accR, 0, unchecked, ".."), nfs4.ErrBadName},
		{"a slash", openOp("o", accR, 0, noCreate, "a/b"), nfs4.ErrBadChar},
		{"a long name", openOp("o", accR, 0, noCreate, string(make([]byte, 256))), nfs4.ErrBadChar},
		{"a directory's handle", openFH("o", accR, 0), nfs4.ErrIsDir},
		{"a reclaim after its end", op4(nfs4.OpOpen, 0, accR, 0, uint64(0), "o", noCreate, int(nfs4.ClaimPrevious), 0), nfs4.ErrIsDir},
		{"a delegation", op4(nfs4.OpOpen, 0, accR, 0, uint64(0), "o", noCreate, int(nfs4.ClaimDelegateCur), stateID(nfs4.StateID{}), "file"), nfs4.ErrBadStateID},
		{"an earlier delegation", op4(nfs4.OpOpen, 0, accR, 0, uint64(0), "o", noCreate, int(nfs4.ClaimDelegatePrev), "file"), nfs4.ErrNotSupp},
		{"an unknown claim", op4(nfs4.OpOpen, 0, accR, 0, uint64(0), "o", noCreate, 7), nfs4.ErrBadXDR},
	} {
		expect(t, c.name, s.do(rootFH, c.op), c.want)
	}
	file := s.ok(rootFH, op4(nfs4.OpLookup, "file"), op4(nfs4.OpGetFH)).Handle(t, 3)
	expect(t, "in a file", s.do(putFH(file), openOp("o", accR, 0, noCreate, "file")), nfs4.ErrNotDir)
	expect(t, "reclaim", s.do(putFH(file), op4(nfs4.OpOpen, 0, accR, 0, uint64(0), "o", noCreate, int(nfs4.ClaimPrevious), 0)), nfs4.ErrNoGrace)
	if n := r.s.v4.state.Stats(time.Now()).Opens; n != 0 {
		t.Errorf("%d opens after failures", n)
	}
	// A wish for a delegation is answered.
	for want, why := range map[int]uint32{0x100: nfs4.WhyResource, 0x400: nfs4.WhyNotWanted, 0x500: nfs4.WhyCancelled} {
		o := s.open("o", accR|want, 0, noCreate, "file")
		if o.Delegation.Type != nfs4.DelegNoneExt || o.Delegation.Why != why {
			t.Errorf("wish %#x: %+v", want, o.Delegation)
		}
	}
}

// TestOpenPermissions opens as a user.
func TestOpenPermissions(t *testing.T) {
	r := newEnv4(t, nil)
	if !r.s.Info().Identities {
		prereq.Missing(t, "the process cannot act as others")
	}
	r.put("file", "contents")
	r.must(errors.Join(os.Chmod(r.dir, 0o755), os.Chmod(r.path("file"), 0o604)))
	u := r.as(1001, 1001).session("user")
	u.ok(rootFH, openOp("o", accR, 0, noCreate, "file"))
	u.fails(nfs4.ErrAccess, rootFH, openOp("o", accW, 0, noCreate, "file"))
	u.fails(nfs4.ErrAccess, rootFH, openOp("o", accR, 0, truncating, "file"))
	u.fails(nfs4.ErrAccess, rootFH, openOp("o", accR, 0, unchecked, "new"))
	if st := r.lstat("file"); st.Size != 8 {
		t.Errorf("%d bytes after a refused truncation", st.Size)
	}
	// Whoever may execute a file may read it.
	r.must(os.Chmod(r.path("file"), 0o701))
	u.ok(rootFH, openOp("o", accR, 0, noCreate, "file"))
	u.fails(nfs4.ErrAccess, rootFH, openOp("o", accRW, 0, noCreate, "file"))
	// The creator may use a file whatever its mode is.
	r.must(os.Chmod(r.path("."), 0o777))
	none := nfs4test.Fields(1, 1, nfs4test.Attrs([]uint32{nfs4.AttrMode}, 0))
	u.ok(rootFH, openOp("o", accRW, 0, none, "mine"))
}

// TestShares has share reservations of two owners (RFC 8881 section 9.7).
func TestShares(t *testing.T) {
	r := newEnv4(t, nil)
	a, b := r.session("a"), r.session("b")
	r.put("file", "contents")
	o := a.open("owner", accR, nfs4.ShareDenyWrite, noCreate, "file")
	b.fails(nfs4.ErrShareDenied, rootFH, openOp("owner", accW, 0, noCreate, "file"))
	b.fails(nfs4.ErrShareDenied, rootFH, openOp("owner", accR, nfs4.ShareDenyRead, noCreate, "file"))
	b.fails(nfs4.ErrShareDenied, rootFH, openOp("owner", accRW, 0, truncating, "file"))
	if st := r.lstat("file"); st.Size != 8 {
		t.Errorf("%d bytes after a refused truncation", st.Size)
	}
	b.open("owner", accR, 0, noCreate, "file")
	a.fails(nfs4.ErrShareDenied, rootFH, openOp("another owner", accW, 0, noCreate, "file"))
	// The same owner adds to its open, and gives back.
	two := a.open("owner", accRW, 0, noCreate, "file")
	if two.StateID.Other != o.StateID.Other || two.StateID.Seq != 2 {
		t.Errorf("stateid %v after %v", two.StateID, o.StateID)
	}
	down := func(id nfs4.StateID, access, deny int) nfs4test.Raw {
		return op4(nfs4.OpOpenDowngrade, stateID(id), 0, access, deny)
	}
	file := putFH(o.handle)
	a.fails(nfs4.ErrOldStateID, file, down(o.StateID, accR, nfs4.ShareDenyWrite))
	a.fails(nfs4.ErrInval, file, down(two.StateID, accW, 0)) // never opened so
	a.fails(nfs4.ErrInval, file, down(two.StateID, 0, 0))
	a.fails(nfs4.ErrInval, file, down(two.StateID, accRW, nfs4.ShareDenyBoth))
	b.fails(nfs4.ErrBadStateID, file, down(two.StateID, accR, 0))
	a.ok(file, down(two.StateID, accR, nfs4.ShareDenyWrite))
	two.StateID.Seq++
	a.fails(nfs4.ErrBadStateID, file, closeOp(nfs4.StateID{Seq: 9, Other: two.StateID.Other}))
	a.fails(nfs4.ErrOldStateID, file, closeOp(o.StateID))
	a.fails(nfs4.ErrBadStateID, rootFH, closeOp(two.StateID))
	b.fails(nfs4.ErrBadStateID, file, closeOp(two.StateID))
	a.fails(nfs4.ErrBadStateID, file, closeOp(nfs4.AnonymousStateID))
	a.fails(nfs4.ErrBadStateID, file, closeOp(nfs4.CurrentStateID))
	a.ok(file, closeOp(two.StateID))
	a.fails(nfs4.ErrBadStateID, file, closeOp(two.StateID))
	b.ok(rootFH, openOp("owner", accW, 0, noCreate, "file"))
}

// TestCurrentStateID opens, writes and closes in one COMPOUND (RFC 8881 section 16.2.3.1.2).
func TestCurrentStateID(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	now := stateID(nfs4.CurrentStateID)
	write := op4(nfs4.OpWrite, now, uint64(0), 2, "data")
	s.ok(rootFH, openOp("o", accW, 0, unchecked, "file"), write, op4(nfs4.OpClose, 0, now))
	if st := r.lstat("file"); st.Size != 4 {
		t.Errorf("%d bytes", st.Size)
	}
	s.fails(nfs4.ErrBadStateID, rootFH, openOp("o", accW, 0, unchecked, "file"), op4(nfs4.OpGetFH), op4(nfs4.OpSaveFH), rootFH, op4(nfs4.OpClose, 0, now))
	s.ok(rootFH, openOp("o", accW, 0, unchecked, "file"), op4(nfs4.OpSaveFH), rootFH, op4(nfs4.OpRestoreFH), write, op4(nfs4.OpClose, 0, now))
}

// TestStateIDsOfIO uses every kind of stateid to read and write.
func TestStateIDsOfIO(t *testing.T) {
	r := newEnv4(t, nil)
	s, other := r.session("client"), r.session("other")
	r.put("file", "contents")
	r.put("second", "contents")
	rd := s.open("reader", accR, 0, noCreate, "file")
	wr := s.open("writer", accW, nfs4.ShareDenyWrite, noCreate, "file")
	second := s.open("reader", accR, 0, noCreate, "second")
	file := putFH(rd.handle)
	stale := rd.StateID
	stale.Other[0] ^= 0x80
	future, unknown := rd.StateID, rd.StateID
	future.Seq = 7
	unknown.Other[11] ^= 0x40
	latest := rd.StateID
	latest.Seq = 0
	for _, c := range []struct {
		name        string
		by          *session4
		id          nfs4.StateID
		read, write nfs4.Status
	}{
		{"of a reader", s, rd.StateID, nfs4.OK, nfs4.ErrOpenMode},
		{"of a reader, latest", s, latest, nfs4.OK, nfs4.ErrOpenMode},
		{"of a writer", s, wr.StateID, nfs4.OK, nfs4.OK},
		{"of another file", s, second.StateID, nfs4.ErrBadStateID, nfs4.ErrBadStateID},
		{"of another client", other, rd.StateID, nfs4.ErrBadStateID, nfs4.ErrBadStateID},
		{"of another instance", s, stale, nfs4.ErrBadStateID, nfs4.ErrBadStateID},
		{"from the future", s, future, nfs4.ErrBadStateID, nfs4.ErrBadStateID},
		{"unknown", s, unknown, nfs4.ErrBadStateID, nfs4.ErrBadStateID},
		{"anonymous", s, nfs4.AnonymousStateID, nfs4.OK, nfs4.ErrLocked},
		{"bypass", s, nfs4.BypassStateID, nfs4.OK, nfs4.ErrLocked},
		{"invalid", s, nfs4.InvalidStateID, nfs4.ErrBadStateID, nfs4.ErrBadStateID},
		{"current, without one", s, nfs4.CurrentStateID, nfs4.ErrBadStateID, nfs4.ErrBadStateID},
	} {
		expect(t, "READ with a stateid "+c.name, c.by.do(file, op4(nfs4.OpRead, stateID(c.id), uint64(0), 100)), c.read)
		expect(t, "WRITE with a stateid "+c.name, c.by.do(file, op4(nfs4.OpWrite, stateID(c.id), uint64(0), 2, "data")), c.write)
	}
	// TEST_STATEID and FREE_STATEID.
	res := s.ok(op4(nfs4.OpTestStateID, 4, stateID(rd.StateID), stateID(future), stateID(unknown), stateID(nfs4.AnonymousStateID)))
	var tested nfs4.TestStateIDRes
	tested.Decode(opResult(res, 1))
	if want := []nfs4.Status{nfs4.OK, nfs4.ErrBadStateID, nfs4.ErrBadStateID, nfs4.ErrBadStateID}; fmt.Sprint(tested.Statuses) != fmt.Sprint(want) {
		t.Errorf("TEST_STATEID: %v, must be %v", tested.Statuses, want)
	}
	s.fails(nfs4.ErrLocksHeld, op4(nfs4.OpFreeStateID, stateID(rd.StateID)))
	s.fails(nfs4.ErrBadStateID, op4(nfs4.OpFreeStateID, stateID(unknown)))
	s.fails(nfs4.ErrBadStateID, op4(nfs4.OpFreeStateID, stateID(nfs4.AnonymousStateID)))
	other.fails(nfs4.ErrBadStateID, op4(nfs4.OpFreeStateID, stateID(rd.StateID)))
	s.ok(file, closeOp(rd.StateID))
	s.fails(nfs4.ErrBadStateID, file, op4(nfs4.OpRead, stateID(rd.StateID), uint64(0), 100))
}

// TestUnlinkedOpenFile reads a file after its last name was removed.
func TestUnlinkedOpenFile(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	r.put("file", "contents")
	o := s.open("o", accR, 0, noCreate, "file")
	s.ok(rootFH, op4(nfs4.OpRemove, "file"))
	s.ok(putFH(o.handle), op4(nfs4.OpRead, stateID(o.StateID), uint64(0), 100))
	s.ok(putFH(o.handle), closeOp(o.StateID))
	s.fails(nfs4.ErrStale, putFH(o.handle), op4(nfs4.OpGetAttr, nfs4test.Bitmap(nfs4.AttrSize)))
}
