package server

import (
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
)

func TestRangeErrors(t *testing.T) { testFailures(t, rangeFailures) }

// rangeFailures are those of the operations of version 4.2 on ranges of files.
func rangeFailures(e *errorEnv) (list []failure) {
	add := func(op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops})
	}
	by := func(s *session4, op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops, by: s})
	}
	ranged := func(op nfs4.Op, id Raw, offset, length uint64) Raw { return op4(op, id, offset, length) }
	of := map[nfs4.Op]func(id Raw) Raw{
		nfs4.OpAllocate:   func(id Raw) Raw { return ranged(nfs4.OpAllocate, id, 0, 4096) },
		nfs4.OpDeallocate: func(id Raw) Raw { return ranged(nfs4.OpDeallocate, id, 0, 4096) },
		nfs4.OpReadPlus:   func(id Raw) Raw { return read4Plus(id, 0, 5) },
		nfs4.OpSeek:       func(id Raw) Raw { return op4(nfs4.OpSeek, id, uint64(0), 0) },
		nfs4.OpIOAdvise:   func(id Raw) Raw { return op4(nfs4.OpIOAdvise, id, uint64(0), uint64(0), 0) },
	}
	copies := map[nfs4.Op]func(src, dst Raw, from, to, n uint64) Raw{
		nfs4.OpCopy: func(src, dst Raw, from, to, n uint64) Raw {
			return op4(nfs4.OpCopy, src, dst, from, to, n, true, true, 0)
		},
		nfs4.OpClone: func(src, dst Raw, from, to, n uint64) Raw { return op4(nfs4.OpClone, src, dst, from, to, n) },
	}
	denied := e.session4.open("denier", accR, nfs4.ShareDenyBoth, unchecked, "denied")
	bad := e.badStateIDs()
	target := e.session4.open("target", accRW, 0, unchecked, "target")
	between := func(from, to Raw, op Raw) []Raw { return []Raw{from, saveFH, to, op} }
	for object, other := range map[string]nfs4.Status{
		"dir": nfs4.ErrIsDir, "link": nfs4.ErrSymlink, "pipe": nfs4.ErrWrongType, "socket": nfs4.ErrWrongType,
		"block": nfs4.ErrWrongType, "char": nfs4.ErrWrongType,
	} {
		for op, make := range of {
			want := other
			if op == nfs4.OpAllocate || op == nfs4.OpDeallocate {
				want = nfs4.ErrWrongType
			}
			add(op, want, "of "+object, in(object, make(anonymous))...)
		}
		h := putFH(e.handle(object))
		for op, make := range copies {
			add(op, nfs4.ErrWrongType, "from "+object, between(h, putFH(target.handle), make(anonymous, anonymous, 0, 0, 0))...)
			add(op, nfs4.ErrWrongType, "to "+object, between(putFH(target.handle), h, make(anonymous, anonymous, 0, 0, 0))...)
		}
	}
	writes := map[nfs4.Op]bool{nfs4.OpAllocate: true, nfs4.OpDeallocate: true}
	for op, make := range of {
		for _, x := range bad {
			if x.want != nfs4.ErrOpenMode || writes[op] {
				by(x.by, op, x.want, x.name, putFH(e.open.handle), make(stateID(x.id)))
			}
		}
		by(e.user, op, nfs4.ErrAccess, "of a file of root", in("secret", make(anonymous))...)
		if op != nfs4.OpIOAdvise && !writes[op] {
			add(op, nfs4.ErrLocked, "of a denied file", putFH(denied.handle), make(anonymous))
		}
		if writes[op] {
			by(e.guest, op, nfs4.ErrROFS, "with read-only access", in("file", make(anonymous))...)
			add(op, nfs4.ErrInval, "of no bytes", in("file", ranged(op, anonymous, 0, 0))...)
			add(op, nfs4.ErrInval, "beyond the largest number", in("file", ranged(op, anonymous, 1<<63, 1<<63))...)
		}
	}
	add(nfs4.OpAllocate, nfs4.ErrFBig, "beyond the largest offset", in("file", ranged(nfs4.OpAllocate, anonymous, 1<<63-1, 2))...)
	add(nfs4.OpSeek, nfs4.ErrUnionNotSupp, "for content 2", in("file", op4(nfs4.OpSeek, anonymous, uint64(0), 2))...)
	add(nfs4.OpSeek, nfs4.ErrNXIO, "from the end", in("file", op4(nfs4.OpSeek, anonymous, uint64(10), 0))...)
	add(nfs4.OpSeek, nfs4.ErrNXIO, "behind the end", in("file", op4(nfs4.OpSeek, anonymous, uint64(1)<<63, 1))...)

	file, open, to := putFH(e.handle("file")), putFH(e.open.handle), putFH(target.handle)
	for op, make := range copies {
		for _, x := range bad {
			by(x.by, op, x.want, "to, "+x.name, between(file, open, make(anonymous, stateID(x.id), 0, 0, 0))...)
			if x.want != nfs4.ErrOpenMode {
				by(x.by, op, x.want, "from, "+x.name, between(open, to, make(stateID(x.id), anonymous, 0, 0, 0))...)
			}
		}
		by(e.user, op, nfs4.ErrAccess, "from a file of root", between(putFH(e.handle("secret")), to, make(anonymous, anonymous, 0, 0, 0))...)
		by(e.user, op, nfs4.ErrAccess, "to a file of root", between(file, to, make(anonymous, anonymous, 0, 0, 0))...)
		by(e.guest, op, nfs4.ErrROFS, "with read-only access", between(file, to, make(anonymous, anonymous, 0, 0, 0))...)
		add(op, nfs4.ErrInval, "from behind the end", between(file, to, make(anonymous, anonymous, 11, 0, 0))...)
		add(op, nfs4.ErrInval, "of too much", between(file, to, make(anonymous, anonymous, 5, 0, 6))...)
		add(op, nfs4.ErrInval, "of the largest number", between(file, to, make(anonymous, anonymous, 5, 0, 1<<64-1))...)
		add(op, nfs4.ErrInval, "of an overlap", between(file, file, make(anonymous, anonymous, 0, 2, 5))...)
	}
	add(nfs4.OpCopy, nfs4.ErrInval, "within a file", between(file, file, copies[nfs4.OpCopy](anonymous, anonymous, 0, 20, 5))...)
	add(nfs4.OpCopy, nfs4.ErrFBig, "beyond the largest offset", between(file, to, copies[nfs4.OpCopy](anonymous, anonymous, 0, 1<<63-1, 5))...)
	add(nfs4.OpCopy, nfs4.ErrLocked, "from a denied file", between(putFH(denied.handle), to, copies[nfs4.OpCopy](anonymous, anonymous, 0, 0, 0))...)
	add(nfs4.OpCopy, nfs4.ErrLocked, "to a denied file", between(file, putFH(denied.handle), copies[nfs4.OpCopy](anonymous, anonymous, 0, 0, 0))...)
	return list
}

func read4Plus(id Raw, offset uint64, count int) Raw { return op4(nfs4.OpReadPlus, id, offset, count) }
