package server

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
)

// lockNew is LOCK by a lock-owner's first stateid.
func lockNew(o opened, owner string, typ nfs4.LockType, offset, length uint64) nfs4test.Raw {
	return op4(nfs4.OpLock, int(typ), false, offset, length, true, 0, stateID(o.StateID), 0, uint64(0), owner)
}

func lockMore(id nfs4.StateID, typ nfs4.LockType, offset, length uint64) nfs4test.Raw {
	return op4(nfs4.OpLock, int(typ), false, offset, length, false, stateID(id), 0)
}

func unlock(id nfs4.StateID, offset, length uint64) nfs4test.Raw {
	return op4(nfs4.OpLockU, int(nfs4.LockRead), 0, stateID(id), offset, length)
}

func lockTest(owner string, typ nfs4.LockType, offset, length uint64) nfs4test.Raw {
	return op4(nfs4.OpLockT, int(typ), offset, length, uint64(0), owner)
}

// locked is the stateid in the result of LOCK or LOCKU.
func (s *session4) locked(ops ...nfs4test.Raw) (id nfs4.StateID) {
	s.t.Helper()
	res := s.ok(ops...)
	id.Decode(opResult(res, len(res.Ops)-1))
	return id
}

// refusedBy checks the lock in NFS4ERR_DENIED.
func (s *session4) refusedBy(want nfs4.LockDenied, ops ...nfs4test.Raw) {
	s.t.Helper()
	res := s.do(ops...)
	if expect(s.t, "conflict", res, nfs4.ErrDenied); res.Status != uint32(nfs4.ErrDenied) {
		return
	}
	var got nfs4.LockDenied
	got.Decode(opResult(res, len(res.Ops)-1))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("denied by %+v, must be %+v", got, want)
	}
}

const toEnd = math.MaxUint64

// TestLocks has locks of two clients, and of a local process.
func TestLocks(t *testing.T) {
	r := newEnv4(t, nil)
	a, b := r.session("a"), r.session("b")
	r.put("file", "contents")
	oa, ob := a.open("open", accRW, 0, noCreate, "file"), b.open("open", accRW, 0, noCreate, "file")
	file := putFH(oa.handle)
	first := a.locked(file, lockNew(oa, "locker", nfs4.LockWrite, 10, 20))
	by := func(offset, length uint64, typ nfs4.LockType) nfs4.LockDenied {
		return nfs4.LockDenied{Offset: offset, Length: length, Type: typ, Owner: nfs4.Owner{ClientID: a.client, Owner: []byte("locker")}}
	}
	b.refusedBy(by(10, 20, nfs4.LockWrite), file, lockNew(ob, "locker", nfs4.LockRead, 29, 1))
	b.refusedBy(by(10, 20, nfs4.LockWrite), file, lockTest("locker", nfs4.LockReadW, 0, toEnd))
	a.refusedBy(by(10, 20, nfs4.LockWrite), file, lockTest("another", nfs4.LockRead, 0, 11))
	a.ok(file, lockTest("locker", nfs4.LockWrite, 0, toEnd))
	b.ok(file, lockTest("locker", nfs4.LockWrite, 30, toEnd))
	lb := b.locked(file, lockNew(ob, "locker", nfs4.LockWrite, 30, toEnd))
	a.fails(nfs4.ErrDenied, file, lockMore(first, nfs4.LockRead, 0, 31))
	// The locks are the file system's.
	local, err := os.OpenFile(r.path("file"), os.O_RDWR, 0)
	r.must(err)
	defer local.Close()
	setLock := func(typ int16, start, length int64) error {
		return unix.FcntlFlock(local.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: typ, Start: start, Len: length})
	}
	for _, c := range []struct {
		start, length int64
		want          error
	}{{0, 10, nil}, {10, 1, unix.EAGAIN}, {29, 1, unix.EAGAIN}, {1 << 40, 0, unix.EAGAIN}} {
		if err := setLock(unix.F_WRLCK, c.start, c.length); err != c.want { //nolint:errorlint // an errno
			t.Errorf("a local lock of %d bytes at %d: %v, must be %v", c.length, c.start, err, c.want)
		}
	}
	byLocal := nfs4.LockDenied{Length: 10, Type: nfs4.LockWrite, Owner: nfs4.Owner{Owner: []byte("local process")}}
	a.refusedBy(byLocal, file, lockMore(first, nfs4.LockWrite, 5, 3))
	a.refusedBy(byLocal, file, lockTest("new", nfs4.LockWrite, 5, 3))
	// The refused lock left no trace: others take the range when the process has gone.
	r.must(setLock(unix.F_UNLCK, 0, 0))
	b.locked(file, lockMore(lb, nfs4.LockWrite, 5, 3))
	// Unlocking splits a range.
	first = a.locked(file, unlock(first, 15, 5))
	if first.Seq != 2 {
		t.Errorf("stateid %v after LOCK and LOCKU", first)
	}
	b.ok(file, lockTest("locker", nfs4.LockWrite, 15, 5))
	b.refusedBy(by(20, 10, nfs4.LockWrite), file, lockTest("locker", nfs4.LockWrite, 15, 6))
	r.must(setLock(unix.F_WRLCK, 15, 5))
	r.must(setLock(unix.F_UNLCK, 0, 0))
	// A lock stateid with locks is not freed; CLOSE ends it.
	a.fails(nfs4.ErrLocksHeld, op4(nfs4.OpFreeStateID, stateID(first)))
	a.ok(file, closeOp(oa.StateID))
	a.fails(nfs4.ErrBadStateID, file, unlock(first, 0, toEnd))
	r.must(setLock(unix.F_WRLCK, 10, 20))
	lb = b.locked(file, unlock(nfs4.StateID{Other: lb.Other}, 0, toEnd))
	b.ok(op4(nfs4.OpFreeStateID, stateID(lb)))
	b.fails(nfs4.ErrBadStateID, op4(nfs4.OpFreeStateID, stateID(lb)))
}

// TestLockArguments has arguments that LOCK, LOCKT and LOCKU refuse.
func TestLockArguments(t *testing.T) {
	r := newEnv4(t, nil)
	s, other := r.session("client"), r.session("other")
	r.put("file", "contents")
	r.put("second", "contents")
	o := s.open("open", accR, 0, noCreate, "file")
	second := s.open("open", accRW, 0, noCreate, "second")
	file := putFH(o.handle)
	id := s.locked(file, lockNew(o, "locker", nfs4.LockRead, 0, 1))
	old := id
	id = s.locked(file, lockMore(id, nfs4.LockRead, 5, 1))
	for _, c := range []struct {
		name string
		by   *session4
		fh   nfs4test.Raw
		op   nfs4test.Raw
		want nfs4.Status
	}{
		{"no bytes", s, file, lockMore(id, nfs4.LockRead, 0, 0), nfs4.ErrInval},
		{"beyond the largest offset", s, file, lockMore(id, nfs4.LockRead, 3, toEnd-1), nfs4.ErrInval},
		{"an unknown type", s, file, lockMore(id, 5, 0, 1), nfs4.ErrBadXDR},
		{"a lock for writing of a file open for reading", s, file, lockMore(id, nfs4.LockWrite, 0, 1), nfs4.ErrOpenMode},
		{"the same by a new owner", s, file, lockNew(o, "another", nfs4.LockWrite, 0, 1), nfs4.ErrOpenMode},
		{"an old stateid", s, file, lockMore(old, nfs4.LockRead, 0, 1), nfs4.ErrOldStateID},
		{"an open stateid in place of a lock's", s, file, lockMore(o.StateID, nfs4.LockRead, 0, 1), nfs4.ErrBadStateID},
		{"a lock stateid in place of an open's", s, file, lockNew(opened{OpenRes: nfs4.OpenRes{StateID: id}}, "l", nfs4.LockRead, 0, 1), nfs4.ErrBadStateID},
		{"a stateid of another file", s, file, lockNew(second, "l", nfs4.LockRead, 0, 1), nfs4.ErrBadStateID},
		{"a stateid of another client", other, file, lockMore(id, nfs4.LockRead, 0, 1), nfs4.ErrBadStateID},
		{"a directory", s, rootFH, lockMore(id, nfs4.LockRead, 0, 1), nfs4.ErrIsDir},
		{"a reclaim", s, file, op4(nfs4.OpLock, 1, true, uint64(0), uint64(1), false, stateID(id), 0), nfs4.ErrNoGrace},
		{"LOCKT of no bytes", s, file, lockTest("l", nfs4.LockRead, 0, 0), nfs4.ErrInval},
		{"LOCKT of a directory", s, rootFH, lockTest("l", nfs4.LockRead, 0, 1), nfs4.ErrIsDir},
		{"LOCKU of no bytes", s, file, unlock(id, 0, 0), nfs4.ErrInval},
		{"LOCKU with an old stateid", s, file, unlock(old, 0, 1), nfs4.ErrOldStateID},
		{"LOCKU with an open stateid", s, file, unlock(o.StateID, 0, 1), nfs4.ErrBadStateID},
		{"LOCKU of another client", other, file, unlock(id, 0, 1), nfs4.ErrBadStateID},
	} {
		expect(t, c.name, c.by.do(c.fh, c.op), c.want)
	}
	// Nothing has changed.
	if st := r.s.v4.state.Stats(time.Now()); st.Locks != 1 || st.Ranges != 2 {
		t.Errorf("%d lock stateids, %d ranges", st.Locks, st.Ranges)
	}
	s.ok(file, lockMore(id, nfs4.LockRead, math.MaxInt64, 10)) // beyond the longest file
}
