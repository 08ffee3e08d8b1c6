package rewrite

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// readCompounds returns captured COMPOUNDs of Linux, with handles signed by x, and their replies.
func readCompounds(tb testing.TB, x *Export) (calls, replies [][]byte) {
	for _, e := range readExchanged(tb) {
		if e.proc.Version != 4 || e.item.Length > 0 {
			continue
		}
		reply := slices.Concat(fields(xidV4, oncrpc.MsgReply, 0, 0, 0, 0), e.reply)
		var w, args schema.Walker
		var d, da xdr.Decoder
		d.ResetBytes(reply)
		d.Skip(oncrpc.MinReplyLen)
		da.ResetBytes(e.args)
		if w.Results(compoundProc, &d) != nil || args.Args(compoundProc, &da) != nil ||
			!slices.EqualFunc(w.Ops, args.Ops, func(r, a schema.Op) bool { return r.Code == a.Code }) {
			continue // its data moved by RDMA, or it belongs to another call
		}
		for _, op := range w.Ops {
			if op.Code == schema.OpPutRootFH { // the backend got another operation
				copy(reply[op.Pos:], fields(schema.OpPutFH))
			}
		}
		head := fields(xidV4, oncrpc.MsgCall, oncrpc.RPCVersion, 100003, 4, 1, credV4)
		calls, replies = append(calls, slices.Concat(head, signArgs(tb, x.Signer, e))), append(replies, reply)
	}
	return calls, replies
}

// alters reports whether a call or its reply never passes unchanged.
func alters(ops []schema.Op, spans []schema.Span) bool {
	looksOtherwise := exclude(schema.Bitmap{^uint32(0), ^uint32(0), ^uint32(0)}, aSupp, aLoc, aMaxRead, aMaxWrite, aMounted, aTypes, aLocInfo, aExcl)
	return slices.ContainsFunc(ops, func(o schema.Op) bool {
		return slices.Contains([]uint32{schema.OpPutRootFH, schema.OpPutPubFH, schema.OpLookupP, schema.OpExchangeID, schema.OpCreateSession, schema.OpSetClientID}, o.Code)
	}) || slices.ContainsFunc(spans, func(s schema.Span) bool {
		return s.Mark == schema.AttrMask && !isSubset(s.B, &looksOtherwise)
	})
}

// TestCapturedV4 checks that captured messages pass unchanged without signing, except for required
// changes, and that signing changes only handles.
func TestCapturedV4(t *testing.T) {
	off, on := exportV4(t, sign.Off), exportV4(t, sign.Required)
	plainCalls, plainReplies := readCompounds(t, off)
	signedCalls, _ := readCompounds(t, on)
	same := 0
	for i := range plainCalls {
		var c, cs Call
		in, ins := arrived(t, plainCalls[i]), arrived(t, signedCalls[i])
		sent, _ := sendV4(t, &c, off, &Caller{}, in)
		sentSigned, _ := sendV4(t, &cs, on, &Caller{}, ins)
		rewritten := alters(c.walker.Ops, c.walker.Spans)
		if !rewritten {
			same++
			sameBytes(t, "a call that has nothing to be changed", sent, plainCalls[i])
		}
		// they leave room for tags
		if !slices.ContainsFunc(c.ops, func(o operation) bool { return o.code == schema.OpCreateSession || o.code == schema.OpReaddir }) {
			sameBytes(t, "a call with signed handles", sentSigned, sent)
		}
		got := answerV4(t, &c, off, in, slices.Clone(plainReplies[i]))
		gotSigned := answerV4(t, &cs, on, ins, slices.Clone(plainReplies[i]))
		if !rewritten {
			sameBytes(t, "a reply that has nothing to be changed", got, plainReplies[i])
		}
		checkReply(t, on, gotSigned)
		for _, x := range []*Export{off, on} {
			x.sessions.known.Store(nil) // the captured server knew no gateway
		}
	}
	if same < 5 {
		t.Errorf("only %d of %d calls had nothing to be changed", same, len(plainCalls))
	}
}

// checkReply checks a client's reply: every handle is signed, and nothing leads elsewhere.
func checkReply(t testing.TB, x *Export, reply []byte) {
	t.Helper()
	var w schema.Walker
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
		case s.Mark == schema.Attrs && (hasAttr(s.B, aLoc) || hasAttr(s.B, aLocInfo)):
			t.Fatalf("the client gets attributes %x", s.B)
		case s.Mark == schema.Attr && s.Value == aSupp && (hasAttr(s.B[4:], aLoc) || hasAttr(s.B[4:], aLocInfo)):
			t.Fatalf("the client gets attributes %x", s.B)
		case s.Mark == schema.Attr && s.Value == aFH:
			handle = opaqueBytes(s.B)
		case s.Mark != schema.Handle:
			continue
		}
		if _, ok := x.Signer.Verify(handle, sign.Max4); !ok {
			t.Fatalf("the client gets the handle %x", handle)
		}
	}
	if n := len(w.Ops); n > 0 {
		if status := binary.BigEndian.Uint32(reply[24:]); status == ok4 && w.Ops[n-1].Status != ok4 {
			t.Fatalf("the status is 0, the last result has %d", w.Ops[n-1].Status)
		}
	}
}

// FuzzCompound checks that the backend gets only handles that were signed, or the root's, that the
// client gets only signed ones, that no name leads up, and that each LOOKUPP from a possible root
// has a root check.
func FuzzCompound(f *testing.F) {
	x := exportV4(f, sign.Required)
	calls, replies := readCompounds(f, x)
	head := fields(xidV4, oncrpc.MsgCall, oncrpc.RPCVersion, 100003, 4, 1, credV4)
	for i := range calls {
		f.Add(calls[i][len(head):], replies[i][oncrpc.MinReplyLen:], i%2 == 0)
	}
	for _, call := range [][]byte{
		compoundV4(2, sequence, putRootFH, lookup("a"), lookupP, lookupP), compoundV4(1, sequence, putFH(x.signed(someFH)), lookupP),
		compoundV4(0, op(schema.OpVerify, fattr([]uint32{aFH}, x.signed(someFH)))),
	} {
		f.Add(call[len(head):], resultsOf(0, sequenceOK, ok(schema.OpPutFH), ok(schema.OpNVerify), ok(schema.OpLookupP))[24:], true)
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

// checkForwarded checks the backend's call.
func checkForwarded(t *testing.T, x *Export, call, sent []byte) {
	t.Helper()
	in := arrived(t, sent)
	var w schema.Walker
	d := in.Args()
	if err := w.Args(compoundProc, d); err != nil || d.Left() > 0 {
		t.Fatalf("the backend gets %x: %v", sent, err)
	}
	for _, s := range w.Spans {
		switch {
		case s.Mark == schema.Name && w.Ops[s.Op].Code < schema.OpGetXattr && checkNameV4(s.B) != ok4:
			t.Fatalf("the backend gets the name %q", s.B)
		case s.Mark == schema.Handle && !bytes.Equal(s.B, rootV4) && !bytes.Contains(call, x.signed(s.B)):
			t.Fatalf("the backend gets the handle %x", s.B)
		case s.Mark == schema.AttrMask && (hasAttr(s.B, aLoc) || hasAttr(s.B, aLocInfo)):
			t.Fatalf("the backend is asked for %x", s.B)
		}
	}
	beneath := false // certainly not the root
	for _, op := range w.Ops {
		switch op.Code {
		case schema.OpLookup, schema.OpCreate, schema.OpOpen, schema.OpNVerify:
			beneath = true
		case schema.OpPutFH:
			beneath = false
		case schema.OpRestoreFH:
			return // another test covers its place
		case schema.OpLookupP:
			if !beneath {
				t.Fatalf("LOOKUPP has no root check in %x", sent)
			}
			beneath = false
		}
	}
}

// FuzzCallback is FuzzCompound for callbacks.
func FuzzCallback(f *testing.F) {
	x := exportV4(f, sign.Required)
	head := fields(xidV4, oncrpc.MsgCall, oncrpc.RPCVersion, 0x40000000, 1, 1, credV4)
	for _, call := range []raw{
		cbCompound(1, cbSequence, op(schema.OpCBRecall, stateID, 0, someFH)), cbCompound(1, cbSequence, op(schema.OpCBGetAttr, someFH, bitmap(3, aFH))),
		cbCompound(2, cbSequence, op(schema.OpCBOffload, someFH, stateID, 0, uint64(1), 0)), cbCompound(1, op(schema.OpCBLayoutRecall, 1, 1, 0, 3)),
	} {
		f.Add([]byte(call[len(head):]), resultsOf(0, cbSequenceOK, ok(schema.OpCBRecall))[24:])
	}
	f.Fuzz(func(t *testing.T, args, results []byte) {
		in := arrived(t, slices.Concat(head, args))
		defer in.Recycle()
		var b Callback
		sent, _ := sendCallback(t, &b, x, in)
		if sent == nil {
			return
		}
		var w schema.Walker
		got := arrived(t, sent)
		if err := w.Args(callbackProc, got.Args()); err != nil {
			t.Fatalf("the client gets %x: %v", sent, err)
		}
		for _, s := range w.Spans {
			if s.Mark != schema.Handle {
				continue
			}
			if _, ok := x.Signer.Verify(s.B, sign.Max4); !ok {
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
