package server

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/pkg/oncrpc"
)

// validCall is a successful COMPOUND whose last operation is op.
type validCall struct {
	op  nfs4.Op
	ops []Raw
}

// validCalls has a call of each operation.
func validCalls(e *errorEnv) []validCall {
	file, open := putFH(e.handle("file")), putFH(e.open.handle)
	name := func(op nfs4.Op, n string) Raw { return op4(op, n) }
	e.must(unix.Setxattr(e.path("file"), "user.there", []byte("value"), 0))
	from := e.session4.open("copier", accR, 0, noCreate, "file")
	e.other.sequence++
	second := e.other.compound(1, createSession(e.other.client, e.other.sequence-1))
	lone := e.client4("lone", "verifier")
	free := e.locked(open, lockNew(e.open, "free", nfs4.LockWrite, 100, 1))
	free = e.locked(open, unlock(free, 0, toEnd))
	same := Attrs([]uint32{nfs4.AttrSize, nfs4.AttrOwner}, uint64(10), "0")
	other := Attrs([]uint32{nfs4.AttrSize}, uint64(11))
	mode := Attrs([]uint32{nfs4.AttrMode}, 0o600)
	copied := []any{stateID(from.StateID), stateID(e.open.StateID), uint64(0), uint64(0), uint64(0)}
	return []validCall{
		{nfs4.OpExchangeID, []Raw{op4(nfs4.OpExchangeID, Raw("verifier"), "new", 0, 0, 1, "example.org", "client", uint64(1), 2)}},
		{nfs4.OpCreateSession, []Raw{createSession(e.other.client, e.other.sequence, 0, Channel(8192, 16, 4), Channel(4096, 4, 2), 1, 1, 0)}},
		{nfs4.OpDestroySession, []Raw{op4(nfs4.OpDestroySession, Raw(slices.Clone(second.Op(0)[:16])))}},
		{nfs4.OpDestroyClientID, []Raw{op4(nfs4.OpDestroyClientID, lone.client)}},
		{nfs4.OpBackchannelCtl, []Raw{op4(nfs4.OpBackchannelCtl, 0x40000001, 1, 1, 7, "machine", 1, 2, 2, 3, 4)}},
		{nfs4.OpTestStateID, []Raw{op4(nfs4.OpTestStateID, 3, stateID(e.lock), stateID(e.open.StateID), anonymous)}},
		{nfs4.OpFreeStateID, []Raw{op4(nfs4.OpFreeStateID, stateID(free))}},
		{nfs4.OpPutFH, []Raw{file}},
		{nfs4.OpPutRootFH, []Raw{putRoot}},
		{nfs4.OpPutPubFH, []Raw{op4(nfs4.OpPutPubFH)}},
		{nfs4.OpGetFH, []Raw{file, getFH}},
		{nfs4.OpSaveFH, []Raw{file, saveFH}},
		{nfs4.OpRestoreFH, []Raw{file, saveFH, op4(nfs4.OpRestoreFH)}},
		{nfs4.OpGetAttr, []Raw{file, op4(nfs4.OpGetAttr, Bitmap(nfs4.AttrSupported, nfs4.AttrOwner, nfs4.AttrMode))}},
		{nfs4.OpSetAttr, []Raw{open, op4(nfs4.OpSetAttr, stateID(e.open.StateID), mode)}},
		{nfs4.OpVerify, []Raw{file, op4(nfs4.OpVerify, same)}},
		{nfs4.OpNVerify, []Raw{file, op4(nfs4.OpNVerify, other)}},
		{nfs4.OpAccess, []Raw{file, op4(nfs4.OpAccess, 0x3f)}},
		{nfs4.OpLookup, []Raw{putRoot, lookup4("file")}},
		{nfs4.OpLookupP, in("dir", op4(nfs4.OpLookupP))},
		{nfs4.OpCreate, []Raw{putRoot, op4(nfs4.OpCreate, int(nfs4.Lnk), "target", "new", mode)}},
		{nfs4.OpRemove, []Raw{putRoot, name(nfs4.OpRemove, "file")}},
		{nfs4.OpRename, []Raw{putRoot, saveFH, op4(nfs4.OpRename, "file", "new")}},
		{nfs4.OpLink, []Raw{file, saveFH, putRoot, name(nfs4.OpLink, "new")}},
		{nfs4.OpReadlink, in("link", op4(nfs4.OpReadlink))},
		{nfs4.OpSecInfo, []Raw{putRoot, name(nfs4.OpSecInfo, "file")}},
		{nfs4.OpSecInfoNoName, []Raw{putRoot, op4(nfs4.OpSecInfoNoName, 0)}},
		{nfs4.OpReaddir, []Raw{putRoot, readdir4(0, 4096, nfs4.AttrType, nfs4.AttrFileHandle)}},
		{nfs4.OpRead, []Raw{open, read4(stateID(e.open.StateID), 0, 10)}},
		{nfs4.OpWrite, []Raw{open, write4(stateID(e.open.StateID), 0, 2, "data")}},
		{nfs4.OpCommit, []Raw{file, op4(nfs4.OpCommit, uint64(0), 0)}},
		{nfs4.OpOpen, []Raw{putRoot, openOp("new owner", accRW, 0, guarded, "new")}},
		{nfs4.OpOpenDowngrade, []Raw{open, op4(nfs4.OpOpenDowngrade, stateID(e.open.StateID), 0, accRW, 0)}},
		{nfs4.OpClose, []Raw{open, closeOp(e.open.StateID)}},
		{nfs4.OpLock, []Raw{open, lockNew(e.open, "new", nfs4.LockWrite, 100, 10)}},
		{nfs4.OpLockT, []Raw{open, lockTest("new", nfs4.LockWrite, 100, 10)}},
		{nfs4.OpLockU, []Raw{open, unlock(e.lock, 0, 1)}},
		{nfs4.OpAllocate, []Raw{open, op4(nfs4.OpAllocate, stateID(e.open.StateID), uint64(0), uint64(100))}},
		{nfs4.OpDeallocate, []Raw{open, op4(nfs4.OpDeallocate, stateID(e.open.StateID), uint64(0), uint64(10))}},
		{nfs4.OpSeek, []Raw{open, op4(nfs4.OpSeek, stateID(e.open.StateID), uint64(0), 0)}},
		{nfs4.OpReadPlus, []Raw{open, read4Plus(stateID(e.open.StateID), 0, 10)}},
		{nfs4.OpIOAdvise, []Raw{open, op4(nfs4.OpIOAdvise, stateID(e.open.StateID), uint64(0), uint64(10), Bitmap(4))}},
		{nfs4.OpCopy, []Raw{file, saveFH, open, op4(nfs4.OpCopy, append(slices.Clone(copied), true, true, 0)...)}},
		{nfs4.OpClone, []Raw{file, saveFH, open, op4(nfs4.OpClone, copied...)}},
		{nfs4.OpGetXattr, []Raw{file, name(nfs4.OpGetXattr, "there")}},
		{nfs4.OpSetXattr, []Raw{file, op4(nfs4.OpSetXattr, nfs4.XattrEither, "new", "value")}},
		{nfs4.OpListXattrs, []Raw{file, op4(nfs4.OpListXattrs, uint64(0), 4096)}},
		{nfs4.OpRemoveXattr, []Raw{file, name(nfs4.OpRemoveXattr, "there")}},
	}
}

// eachValidCall runs a test for each operation, with an env of its own.
func eachValidCall(t *testing.T, test func(t *testing.T, e *errorEnv, v *validCall)) {
	t.Helper()
	for i, v := range validCalls(newErrorEnv(t)) {
		t.Run(v.op.String(), func(t *testing.T) {
			e := newErrorEnv(t)
			test(t, e, &validCalls(e)[i])
		})
	}
}

// TestEveryOperation calls each operation without a session, without a filehandle, with arguments
// that are cut off, and then as it should be.
func TestEveryOperation(t *testing.T) {
	known := map[nfs4.Op]bool{ // tested elsewhere
		nfs4.OpSequence: true, nfs4.OpBindConnToSession: true, nfs4.OpReclaimComplete: true, nfs4.OpSetSSV: true,
		nfs4.OpDelegReturn: true, nfs4.OpOffloadStatus: true, nfs4.OpOffloadCancel: true,
	}
	eachValidCall(t, func(t *testing.T, e *errorEnv, v *validCall) {
		known[v.op] = true
		last := v.ops[len(v.ops)-1]
		op := &operations4[v.op]
		before := e.snapshot()
		if !op.sessionless {
			expect(t, "without a session", e.compound(2, last), nfs4.ErrOpNotInSession)
			expect(t, "without a session, and another operation", e.compound(2, last, putRoot), nfs4.ErrOpNotInSession)
		}
		if op.fh {
			e.fails(nfs4.ErrNoFileHandle, last)
		}
		if op.savedFH {
			e.fails(nfs4.ErrNoFileHandle, putRoot, last)
		}
		for cut := 4; cut < len(last); cut += 4 {
			ops := append(slices.Clone(v.ops[:len(v.ops)-1]), last[:cut])
			if st := nfs4.Status(e.do(ops...).Status); st != nfs4.ErrBadXDR {
				t.Errorf("%d bytes of %d: %v, must be NFS4ERR_BADXDR", cut, len(last), st)
			}
		}
		if after := e.snapshot(); after != before {
			t.Errorf("failures changed\n%s\nto\n%s", before, after)
		}
		if st := nfs4.Status(e.do(v.ops...).Status); st != nfs4.OK && (v.op != nfs4.OpClone || st != nfs4.ErrNotSupp) {
			t.Errorf("a valid call: %v", st)
		}
	})
	for i := range operations4 {
		if op := nfs4.Op(i); operations4[i].run != nil && !known[op] {
			t.Errorf("%v has no valid call", op)
		}
	}
}

// TestReplyTooBig calls each operation in sessions whose replies have too little room for its
// result. It must fail before it has an effect.
func TestReplyTooBig(t *testing.T) {
	eachValidCall(t, func(t *testing.T, e *errorEnv, v *validCall) {
		// The reply up to the operation's status fits.
		res := e.do(v.ops[:len(v.ops)-1]...)
		expect(t, "the operations before", res, nfs4.OK)
		size := max(120, oncrpc.MinReplyLen+len(res.Bytes)+resultHead)
		for ; ; size += 8 {
			if size > 4096 {
				t.Fatal("4096 bytes are too little")
			}
			cached := e.limited(8192, size)
			cached.cache = true
			before := e.snapshot()
			res := cached.do(v.ops...)
			if st := nfs4.Status(res.Status); st != nfs4.ErrRepTooBigToCache {
				if st != nfs4.OK && (v.op != nfs4.OpClone || st != nfs4.ErrNotSupp) {
					t.Errorf("%d bytes: %v", size, st)
				}
				if n := oncrpc.MinReplyLen + len(res.Bytes); n > size {
					t.Errorf("a reply of %d bytes, at most %d are allowed", n, size)
				}
				return
			}
			if after := e.snapshot(); after != before {
				t.Fatalf("%d bytes: the failure changed\n%s\nto\n%s", size, before, after)
			}
			cached.destroy()
			plain := e.limited(size, size)
			before = e.snapshot()
			plain.fails(nfs4.ErrRepTooBig, v.ops...)
			if after := e.snapshot(); after != before {
				t.Fatalf("%d bytes: the failure changed\n%s\nto\n%s", size, before, after)
			}
			plain.destroy()
		}
	})
}

// limited returns another session of the client, with limits of replies.
func (e *errorEnv) limited(response, cached int) *session4 {
	e.t.Helper()
	fore := Fields(0, 64<<10, response, cached, 16, testSlots, 0)
	res := e.compound(1, createSession(e.client, e.sequence, 0, fore, Channel(4096, 4, 2), 1, 0))
	if res.Status != 0 {
		e.t.Fatalf("CREATE_SESSION: %v", nfs4.Status(res.Status))
	}
	e.sequence++
	s := *e.session4
	s.id, s.slots = slices.Clone(Raw(res.Op(0)[:16])), make([]uint32, testSlots)
	return &s
}

func (s *session4) destroy() {
	s.t.Helper()
	if st := nfs4.Status(s.compound(1, op4(nfs4.OpDestroySession, s.id)).Status); st != nfs4.OK {
		s.t.Fatalf("DESTROY_SESSION: %v", st)
	}
}
