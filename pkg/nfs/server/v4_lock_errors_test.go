package server

import (
	"math"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
)

func TestLockErrors(t *testing.T) { testFailures(t, lockFailures) }

// lockFailures are those of LOCK, LOCKT and LOCKU.
func lockFailures(e *errorEnv) (list []failure) {
	add := func(op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops})
	}
	by := func(s *session4, op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops, by: s})
	}
	file := putFH(e.open.handle)
	bad := e.badStateIDs()
	for _, x := range []struct {
		want           nfs4.Status
		name           string
		offset, length uint64
	}{
		{nfs4.ErrInval, "no bytes", 0, 0},
		{nfs4.ErrInval, "no bytes at the end", math.MaxUint64, 0},
		{nfs4.ErrInval, "beyond the largest offset", 1 << 63, 1<<63 + 1},
		{nfs4.ErrInval, "a sum of 1<<64 from 2 on", 2, math.MaxUint64 - 1},
		{nfs4.ErrInval, "a sum of 1<<64", 1 << 63, 1 << 63},
		{nfs4.ErrInval, "the last byte, counted", math.MaxUint64, 1},
	} {
		add(nfs4.OpLock, x.want, x.name, file, lockMore(e.lock, nfs4.LockWrite, x.offset, x.length))
		add(nfs4.OpLock, x.want, x.name+", new owner", file, lockNew(e.open, "l", nfs4.LockWrite, x.offset, x.length))
		add(nfs4.OpLockT, x.want, x.name, file, lockTest("l", nfs4.LockWrite, x.offset, x.length))
		add(nfs4.OpLockU, x.want, x.name, file, unlock(e.lock, x.offset, x.length))
	}
	for object, want := range map[string]nfs4.Status{
		"dir": nfs4.ErrIsDir, "link": nfs4.ErrSymlink, "pipe": nfs4.ErrWrongType, "socket": nfs4.ErrWrongType,
		"block": nfs4.ErrWrongType, "char": nfs4.ErrWrongType,
	} {
		add(nfs4.OpLock, want, "of "+object, in(object, lockNew(e.open, "l", nfs4.LockRead, 0, 1))...)
		add(nfs4.OpLockT, want, "of "+object, in(object, lockTest("l", nfs4.LockRead, 0, 1))...)
	}
	for _, typ := range []nfs4.LockType{0, 5} {
		add(nfs4.OpLock, nfs4.ErrBadXDR, "an unknown type", file, lockMore(e.lock, typ, 0, 1))
		add(nfs4.OpLockT, nfs4.ErrBadXDR, "an unknown type", file, lockTest("l", typ, 0, 1))
		add(nfs4.OpLockU, nfs4.ErrBadXDR, "an unknown type", file, op4(nfs4.OpLockU, int(typ), 0, stateID(e.lock), uint64(0), uint64(1)))
	}
	for _, x := range bad {
		switch x.want {
		case nfs4.ErrBadStateID:
			o := opened{OpenRes: nfs4.OpenRes{StateID: x.id}}
			by(x.by, nfs4.OpLock, x.want, x.name+" as an open", file, lockNew(o, "l", nfs4.LockRead, 8, 1))
			fallthrough
		case nfs4.ErrOldStateID:
			by(x.by, nfs4.OpLock, x.want, x.name, file, lockMore(x.id, nfs4.LockRead, 8, 1))
			by(x.by, nfs4.OpLockU, x.want, x.name, file, unlock(x.id, 8, 1))
		case nfs4.ErrOpenMode:
			o := opened{OpenRes: nfs4.OpenRes{StateID: x.id}}
			add(nfs4.OpLock, x.want, x.name, file, lockNew(o, "l", nfs4.LockWrite, 8, 1))
			add(nfs4.OpLock, x.want, x.name+", blocking", file, lockNew(o, "l", nfs4.LockWriteW, 8, 1))
		}
	}
	for name, id := range map[string]nfs4.StateID{"the anonymous stateid": nfs4.AnonymousStateID, "an open stateid": e.open.StateID} {
		add(nfs4.OpLock, nfs4.ErrBadStateID, name, file, lockMore(id, nfs4.LockRead, 8, 1))
		add(nfs4.OpLockU, nfs4.ErrBadStateID, name, file, unlock(id, 8, 1))
	}
	asOpen := opened{OpenRes: nfs4.OpenRes{StateID: e.lock}}
	add(nfs4.OpLock, nfs4.ErrBadStateID, "a lock stateid as an open", file, lockNew(asOpen, "l", nfs4.LockRead, 8, 1))
	writer := e.session4.open("writer", accW, 0, noCreate, "open")
	add(nfs4.OpLock, nfs4.ErrOpenMode, "for reading by a writer", file, lockNew(writer, "l", nfs4.LockRead, 8, 1))
	add(nfs4.OpLock, nfs4.ErrNoGrace, "a reclaim after its end", file,
		op4(nfs4.OpLock, int(nfs4.LockWrite), true, uint64(8), uint64(1), false, stateID(e.lock), 0))
	// The lock of errorEnv is for writing, of bytes 0 to 3.
	theirs := e.other.open("owner", accRW, 0, noCreate, "open")
	for _, typ := range []nfs4.LockType{nfs4.LockRead, nfs4.LockWrite, nfs4.LockReadW, nfs4.LockWriteW} {
		for _, r := range [][2]uint64{{0, 1}, {3, 1}, {3, 10}, {0, math.MaxUint64}, {2, math.MaxUint64}} {
			by(e.other, nfs4.OpLock, nfs4.ErrDenied, "a lock of another client", file, lockNew(theirs, "locker", typ, r[0], r[1]))
			by(e.other, nfs4.OpLockT, nfs4.ErrDenied, "a lock of another client", file, lockTest("locker", typ, r[0], r[1]))
			add(nfs4.OpLock, nfs4.ErrDenied, "a lock of another owner", file, lockNew(e.open, "another", typ, r[0], r[1]))
			add(nfs4.OpLockT, nfs4.ErrDenied, "a lock of another owner", file, lockTest("another", typ, r[0], r[1]))
		}
	}
	return list
}

// TestGraceOfLocks tests a lock in the grace period, before and after RECLAIM_COMPLETE.
func TestGraceOfLocks(t *testing.T) {
	keep := withState4(t.TempDir())
	r := newEnv(t, keep)
	r.put("file", "contents")
	r.session("a").open("o", accRW, 0, noCreate, "file")
	b := r.session("b")
	r.restart(keep)
	b = b.again()
	for range 2 {
		b.fails(nfs4.ErrGrace, in("file", lockTest("l", nfs4.LockWrite, 0, 1))...)
		b.fails(nfs4.ErrGrace, in("file", openFH("o", accR, 0))...)
		b.do(reclaimComplete)
	}
	if st := r.s.v4.state.Stats(time.Now()); !st.Grace {
		t.Error("the grace period is over")
	}
}
