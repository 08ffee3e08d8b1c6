package server

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/xdr"
)

// FuzzServe4 runs operations of any bytes in a session. nfs4test.Read walks every reply by the
// schema.
func FuzzServe4(f *testing.F) {
	r := newEnv4(f, func(c *Config) { c.Files.Sync = new(syncs).sync })
	r.put("file", "content")
	if err := r.s.SetAccess([]Rule{{Networks: everyone[0].Networks, Squash: SquashAll}}); err != nil {
		f.Fatal(err)
	}
	r.must(chmodAll(r))
	r.must(unix.Chmod(r.dir, 0o777))
	s := r.session("client")
	size := Attrs([]uint32{nfs4.AttrSize}, uint64(5))
	for _, ops := range [][]Raw{
		{putRoot, lookup4("file"), read4(anonymous, 0, 5), write4(anonymous, 3, 2, "data")},
		{putRoot, readdir4(0, 1000, nfs4.AttrType, nfs4.AttrFileHandle, nfs4.AttrRdattrError, nfs4.AttrACL)},
		{putRoot, op4(nfs4.OpGetAttr, Bitmap(0, 1, 3, 4, 8, 12, 19, 33, 36, 47, 75, 82)), op4(nfs4.OpVerify, size)},
		{putRoot, lookup4("file"), setAttr4(size), op4(nfs4.OpCommit, uint64(0), 0)},
		{putRoot, op4(nfs4.OpCreate, 5, "target", "link", noAttrs), op4(nfs4.OpReadlink)},
		{putRoot, saveFH, op4(nfs4.OpRename, "link", "dir"), op4(nfs4.OpRemove, "dir")},
		{putRoot, lookup4("file"), saveFH, putRoot, op4(nfs4.OpLink, "second"), op4(nfs4.OpSecInfo, "file")},
		{putRoot, lookup4("file"), saveFH, op4(nfs4.OpCopy, anonymous, anonymous, uint64(0), uint64(9), uint64(2), true, true, 0)},
		{putRoot, lookup4("file"), op4(nfs4.OpSetXattr, 0, "name", "value"), op4(nfs4.OpGetXattr, "name"), op4(nfs4.OpListXattrs, uint64(0), 100)},
		{putRoot, lookup4("file"), op4(nfs4.OpSeek, anonymous, uint64(0), 1), op4(nfs4.OpReadPlus, anonymous, uint64(0), 100)},
		{putRoot, lookup4("file"), op4(nfs4.OpDeallocate, anonymous, uint64(0), uint64(5)), op4(nfs4.OpAccess, 0x3f)},
		{putRoot, openOp("owner", accRW, 0, unchecked, "new"), op4(nfs4.OpGetFH)},
	} {
		f.Add(uint8(len(ops)), []byte(slices.Concat(ops...)))
	}
	f.Fuzz(func(t *testing.T, count uint8, ops []byte) {
		allocate := []byte(op4(nfs4.OpAllocate)) // could fill the disk
		if len(ops) > 16<<10 || bytes.Contains(ops, allocate) {
			return
		}
		r.t = t
		defer func() { r.t = f }()
		s.slots[0]++
		s.compoundOf(Fields("tag", 2, 1+min(int(count), 14), s.seq(0), Raw(ops)))
		s.slots[0]++
		if res := s.compound(2, s.seq(0)); res.Status != 0 { // they ended the session
			s = r.session("client")
		}
	})
}

// FuzzCallbackAnswer reads answers of clients to CB_GETATTR and CB_RECALL. The schema can walk a
// valid one.
func FuzzCallbackAnswer(f *testing.F) {
	args := nfs4.CBSequenceArgs{Session: nfs4.SessionID{1, 2, 3}, Sequence: 7, Slot: 3, HighestSlot: 4}
	sequence := Fields(int(nfs4.OpCBSequence), 0, Raw(args.Session[:]), 7, 3, 4, 4)
	answer := func(st, count int, ops ...Raw) []byte { return Fields(st, "tag", count, slices.Concat(ops...)) }
	attrs := Attrs([]uint32{nfs4.AttrChange, nfs4.AttrSize}, uint64(8), uint64(9))
	f.Add(answer(0, 2, sequence, Fields(int(nfs4.OpCBGetAttr), 0, attrs)))
	f.Add(answer(0, 2, sequence, Fields(int(nfs4.OpCBGetAttr), 0, Attrs([]uint32{nfs4.AttrSize}, uint64(9)))))
	f.Add(answer(0, 2, sequence, Fields(int(nfs4.OpCBRecall), 0)))
	f.Add(answer(int(nfs4.ErrDelay), 2, sequence, Fields(int(nfs4.OpCBRecall), int(nfs4.ErrDelay))))
	f.Add(answer(int(nfs4.ErrDelay), 1, Fields(int(nfs4.OpCBSequence), int(nfs4.ErrDelay))))
	f.Add(answer(int(nfs4.ErrBadSession), 1, Fields(int(nfs4.OpCBSequence), int(nfs4.ErrBadSession))))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, op := range []nfs4.CBOp{nfs4.OpCBGetAttr, nfs4.OpCBRecall} {
			var d xdr.Decoder
			d.ResetBytes(b)
			ran, st, valid := readAnswer(&d, &args, op)
			if valid && ran && !bytes.Contains(b, sequence[:28]) || valid && !ran && st != nfs4.ErrDelay {
				t.Fatalf("ran %v, %v: %x", ran, st, b)
			}
			if !valid || !ran || op != nfs4.OpCBGetAttr || st != nfs4.OK {
				continue
			}
			q := holderQuery{d: &state.Delegation{}}
			if q.answer(&d); !q.answered {
				continue
			}
			var w schema.Walker
			var all xdr.Decoder
			all.ResetBytes(b[:len(b)-d.Left()])
			if err := w.Results(schema.Proc{Callback: true, Procedure: nfs4.ProcCompound}, &all); err != nil || all.Left() > 0 {
				t.Fatalf("size %d, and the schema says %v: %x", q.size, err, b)
			}
			if q.size > math.MaxInt64 {
				t.Fatalf("size %d: %x", q.size, b)
			}
		}
	})
}
