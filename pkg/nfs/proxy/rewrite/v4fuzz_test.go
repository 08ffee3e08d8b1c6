package rewrite

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/layout"
	"sluice.dev/sluice/pkg/nfs/seal"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// readCompounds returns the COMPOUNDs that Linux sent, as messages whose handles are sealed by x, and their replies.
func readCompounds(tb testing.TB, x *Export) (calls, replies [][]byte) {
	for _, e := range readExchanged(tb) {
		if e.proc.Version != 4 || e.item.Length > 0 {
			continue
		}
		reply := slices.Concat(fields(xidV4, oncrpc.MsgReply, 0, 0, 0, 0), e.reply)
		var w, args layout.Walker
		var d, da xdr.Decoder
		d.ResetBytes(reply)
		d.Skip(oncrpc.MinReplyLen)
		da.ResetBytes(e.args)
		if w.Results(compoundProc, &d) != nil || args.Args(compoundProc, &da) != nil ||
			!slices.EqualFunc(w.Ops, args.Ops, func(r, a layout.Op) bool { return r.Code == a.Code }) {
			continue // its data went by RDMA, or it is of another call
		}
		for _, op := range w.Ops {
			if op.Code == layout.OpPutRootFH { // the backend was asked for another operation
				copy(reply[op.Pos:], fields(layout.OpPutFH))
			}
		}
		head := fields(xidV4, oncrpc.MsgCall, oncrpc.RPCVersion, 100003, 4, 1, credV4)
		calls, replies = append(calls, slices.Concat(head, sealArgs(tb, x.Seal, e))), append(replies, reply)
	}
	return calls, replies
}

// alters tells whether a call has anything that is never forwarded, or answered, as it is.
func alters(ops []layout.Op, spans []layout.Span) bool {
	looksOtherwise := without(layout.Bitmap{^uint32(0), ^uint32(0), ^uint32(0)}, aSupp, aLoc, aMaxRead, aMaxWrite, aMounted, aTypes, aLocInfo, aExcl)
	return slices.ContainsFunc(ops, func(o layout.Op) bool {
		return slices.Contains([]uint32{layout.OpPutRootFH, layout.OpPutPubFH, layout.OpLookupP, layout.OpExchangeID, layout.OpCreateSession, layout.OpSetClientID}, o.Code)
	}) || slices.ContainsFunc(spans, func(s layout.Span) bool {
		return s.Mark == layout.AttrMask && !inside(s.B, &looksOtherwise)
	})
}

// TestCapturedV4: what Linux says to Linux passes as it is when nothing is sealed, but for what has to be changed; and when handles are sealed
// the backend gets what it gets without, and the client what the backend says, sealed.
func TestCapturedV4(t *testing.T) {
	off, on := exportV4(t, seal.Off), exportV4(t, seal.Required)
	plainCalls, plainReplies := readCompounds(t, off)
	sealedCalls, _ := readCompounds(t, on)
	same := 0
	for i := range plainCalls {
		var c, cs Call
		in, ins := arrived(t, plainCalls[i]), arrived(t, sealedCalls[i])
		sent, _ := sendV4(t, &c, off, &Caller{}, in)
		sentSealed, _ := sendV4(t, &cs, on, &Caller{}, ins)
		rewritten := alters(c.walker.Ops, c.walker.Spans)
		if !rewritten {
			same++
			sameBytes(t, "a call that has nothing to be changed", sent, plainCalls[i])
		}
		if !slices.ContainsFunc(c.ops, func(o operation) bool { return o.code == layout.OpCreateSession || o.code == layout.OpReaddir }) { // they make room for seals
			sameBytes(t, "a call with sealed handles", sentSealed, sent)
		}
		got := answerV4(t, &c, off, in, slices.Clone(plainReplies[i]))
		gotSealed := answerV4(t, &cs, on, ins, slices.Clone(plainReplies[i]))
		if !rewritten {
			sameBytes(t, "a reply that has nothing to be changed", got, plainReplies[i])
		}
		checkReply(t, on, gotSealed)
		for _, x := range []*Export{off, on} {
			x.sessions.known.Store(nil) // the server was not asked for more operations than the client has
		}
	}
	if same < 5 {
		t.Errorf("only %d of %d calls had nothing to be changed", same, len(plainCalls))
	}
}

// checkReply holds what a client gets against what it may get: every handle is sealed, and nothing leads elsewhere.
func checkReply(t testing.TB, x *Export, reply []byte) {
	t.Helper()
	var w layout.Walker
	var d xdr.Decoder
	d.ResetBytes(reply)
	var h oncrpc.ReplyHeader
	if err := h.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if !h.Status.OK() {
		return
	}
	if err := w.Results(compoundProc, &d); err != nil || d.Left() > 0 {
		t.Fatalf("the client gets %x: %v, %d bytes left", reply, err, d.Left())
	}
	for _, s := range w.Spans {
		handle := s.B
		switch {
		case s.Mark == layout.Attrs && (has(s.B, aLoc) || has(s.B, aLocInfo)):
			t.Fatalf("the client gets attributes %x", s.B)
		case s.Mark == layout.Attr && s.Value == aSupp && (has(s.B[4:], aLoc) || has(s.B[4:], aLocInfo)):
			t.Fatalf("the client is told of attributes %x", s.B)
		case s.Mark == layout.Attr && s.Value == aFH:
			handle = opaqueIn(s.B)
		case s.Mark != layout.Handle:
			continue
		}
		if _, ok := x.Seal.Open(handle, seal.Max4); !ok {
			t.Fatalf("the client gets the handle %x", handle)
		}
	}
	if n := len(w.Ops); n > 0 {
		if status := binary.BigEndian.Uint32(reply[24:]); status == ok4 && w.Ops[n-1].Status != ok4 {
			t.Fatalf("the status is 0, the last result has %d", w.Ops[n-1].Status)
		}
	}
}

// FuzzCompound: whatever a client sends and a backend answers, the backend gets handles that were sealed, or the root's, and the client sealed ones; no name leads up, and no
// LOOKUPP goes unguarded from what may be the root.
func FuzzCompound(f *testing.F) {
	x := exportV4(f, seal.Required)
	calls, replies := readCompounds(f, x)
	head := fields(xidV4, oncrpc.MsgCall, oncrpc.RPCVersion, 100003, 4, 1, credV4)
	for i := range calls {
		f.Add(calls[i][len(head):], replies[i][oncrpc.MinReplyLen:], i%2 == 0)
	}
	for _, call := range [][]byte{
		compoundV4(2, sequence, putRootFH, lookup("a"), lookupP, lookupP), compoundV4(1, sequence, putFH(x.sealed(someFH)), lookupP),
		compoundV4(0, op(layout.OpVerify, fattr([]uint32{aFH}, x.sealed(someFH)))),
	} {
		f.Add(call[len(head):], resultsOf(0, sequenceOK, ok(layout.OpPutFH), ok(layout.OpNVerify), ok(layout.OpLookupP))[24:], true)
	}
	f.Fuzz(func(t *testing.T, args, results []byte, readOnly bool) {
		call := slices.Concat(head, args)
		in := arrived(t, call)
		defer in.Recycle()
		var c Call
		sent, answer := sendV4(t, &c, x, &Caller{ReadOnly: readOnly}, in)
		if answer != nil {
			checkReply(t, x, answer)
			return
		}
		checkForwarded(t, x, call, sent)
		var m oncrpc.Message
		m.Stream = append(m.Stream, slices.Concat(fields(xidV4, oncrpc.MsgReply, 0, 0, 0, 0), results))
		if err := c.Results(x, in, &m); err == nil {
			checkReply(t, x, flat(&in.Reply))
		}
	})
}

// checkForwarded holds what the backend gets against what it may get.
func checkForwarded(t *testing.T, x *Export, call, sent []byte) {
	t.Helper()
	in := arrived(t, sent)
	var w layout.Walker
	d := in.Args()
	if err := w.Args(compoundProc, d); err != nil || d.Left() > 0 {
		t.Fatalf("the backend gets %x: %v", sent, err)
	}
	for _, s := range w.Spans {
		switch {
		case s.Mark == layout.Name && w.Ops[s.Op].Code < layout.OpGetXattr && badName(s.B) != ok4:
			t.Fatalf("the backend gets the name %q", s.B)
		case s.Mark == layout.Handle && !bytes.Equal(s.B, rootV4) && !bytes.Contains(call, x.sealed(s.B)):
			t.Fatalf("the backend gets the handle %x", s.B)
		case s.Mark == layout.AttrMask && (has(s.B, aLoc) || has(s.B, aLocInfo)):
			t.Fatalf("the backend is asked for %x", s.B)
		}
	}
	beneath := false // surely not at the root
	for _, op := range w.Ops {
		switch op.Code {
		case layout.OpLookup, layout.OpCreate, layout.OpOpen, layout.OpNVerify:
			beneath = true
		case layout.OpPutFH:
			beneath = false
		case layout.OpRestoreFH:
			return // where it leads is another test's
		case layout.OpLookupP:
			if !beneath {
				t.Fatalf("LOOKUPP goes unguarded in %x", sent)
			}
			beneath = false
		}
	}
}

// FuzzCallback: the same for what the backend calls, and the client answers.
func FuzzCallback(f *testing.F) {
	x := exportV4(f, seal.Required)
	head := fields(xidV4, oncrpc.MsgCall, oncrpc.RPCVersion, 0x40000000, 1, 1, credV4)
	for _, call := range []raw{
		cbCompound(1, cbSequence, op(layout.OpCBRecall, stateID, 0, someFH)), cbCompound(1, cbSequence, op(layout.OpCBGetAttr, someFH, bitmap(3, aFH))),
		cbCompound(2, cbSequence, op(layout.OpCBOffload, someFH, stateID, 0, uint64(1), 0)), cbCompound(1, op(layout.OpCBLayoutRecall, 1, 1, 0, 3)),
	} {
		f.Add([]byte(call[len(head):]), resultsOf(0, cbSequenceOK, ok(layout.OpCBRecall))[24:])
	}
	f.Fuzz(func(t *testing.T, args, results []byte) {
		in := arrived(t, slices.Concat(head, args))
		defer in.Recycle()
		var b Callback
		sent, _ := sendCallback(t, &b, x, in)
		if sent == nil {
			return
		}
		var w layout.Walker
		got := arrived(t, sent)
		if err := w.Args(callbackProc, got.Args()); err != nil {
			t.Fatalf("the client gets %x: %v", sent, err)
		}
		for _, s := range w.Spans {
			if s.Mark != layout.Handle {
				continue
			}
			if _, ok := x.Seal.Open(s.B, seal.Max4); !ok {
				t.Fatalf("the client gets the handle %x", s.B)
			}
		}
		var m oncrpc.Message
		m.Stream = append(m.Stream, slices.Concat(fields(7, oncrpc.MsgReply, 0, 0, 0, 0), results))
		if err := b.Results(x, in, &m); err == nil && binary.BigEndian.Uint32(flat(&in.Reply)) != xidV4 {
			t.Fatal("the reply has another XID")
		}
	})
}
