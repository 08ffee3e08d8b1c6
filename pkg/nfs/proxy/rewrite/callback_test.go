package rewrite

import (
	"slices"
	"testing"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

// cbCompound is a CB_COMPOUND call.
func cbCompound(minor int, ops ...raw) raw {
	b := fields(xidV4, oncrpc.MsgCall, oncrpc.RPCVersion, 0x40000000, 1, 1, credV4, "tag", minor, 0, len(ops))
	return append(b, slices.Concat(ops...)...)
}

// cbReply is a client's reply.
func cbReply(status int, results ...raw) []byte {
	b := resultsOf(status, results...)
	b[0] = 0xff
	return b
}

var (
	cbSequence   = op(schema.OpCBSequence, stateID, 1, 0, 0, 0, 0)
	cbSequenceOK = op(schema.OpCBSequence, 0, stateID, 1, 0, 0, 0)
)

// sendCallback rewrites a callback. It returns the client's call, or the answer to the backend.
func sendCallback(tb testing.TB, b *Callback, x *Export, in *oncrpc.Call) (forwarded, answer []byte) {
	tb.Helper()
	var out oncrpc.Message
	defer out.Release()
	if b.Args(x, in, &out) {
		return flat(&out), nil
	}
	return nil, flat(&in.Reply)
}

// TestCallbacks checks that every handle in a callback is signed.
func TestCallbacks(t *testing.T) {
	x := exportV4(t, sign.Required)
	signedFH := x.signed(someFH)
	size := gotAttr([]uint32{3, 4}, uint64(1), uint64(2))[8:]
	for _, test := range []struct {
		name       string
		call, sent []raw
		status     int
		reply      []raw
		gotStatus  int
		got        []raw
	}{
		{
			name: "CB_RECALL",
			call: []raw{op(schema.OpCBRecall, stateID, 1, someFH)}, sent: []raw{op(schema.OpCBRecall, stateID, 1, signedFH)},
			reply: []raw{ok(schema.OpCBRecall)},
		},
		{
			name: "CB_RECALL fails",
			call: []raw{op(schema.OpCBRecall, stateID, 1, someFH)}, sent: []raw{op(schema.OpCBRecall, stateID, 1, signedFH)},
			status: errBadHandle, reply: []raw{op(schema.OpCBRecall, errBadHandle)},
		},
		{
			name: "CB_GETATTR",
			call: []raw{op(schema.OpCBGetAttr, someFH, bitmap(3, 4, aFH))}, sent: []raw{op(schema.OpCBGetAttr, signedFH, bitmap(3, 4))},
			reply: []raw{ok(schema.OpCBGetAttr, size)},
		},
		{
			name: "CB_NOTIFY",
			call: []raw{op(schema.OpCBNotify, stateID, someFH, 1, bitmap(2), "removed")}, sent: []raw{op(schema.OpCBNotify, stateID, signedFH, 1, bitmap(2), "removed")},
			reply: []raw{ok(schema.OpCBNotify)},
		},
		{
			name: "CB_PUSH_DELEG",
			call: []raw{op(schema.OpCBPushDeleg, someFH, 1, stateID, 0, 0, 0, 0, "who@")}, sent: []raw{op(schema.OpCBPushDeleg, signedFH, 1, stateID, 0, 0, 0, 0, "who@")},
			reply: []raw{ok(schema.OpCBPushDeleg)},
		},
		{
			name: "CB_NOTIFY_LOCK",
			call: []raw{op(schema.OpCBNotifyLock, someFH, owner)}, sent: []raw{op(schema.OpCBNotifyLock, signedFH, owner)},
			reply: []raw{ok(schema.OpCBNotifyLock)},
		},
		{
			name: "CB_OFFLOAD",
			call: []raw{op(schema.OpCBOffload, someFH, stateID, 5, uint64(9))}, sent: []raw{op(schema.OpCBOffload, signedFH, stateID, 5, uint64(9))},
			reply: []raw{ok(schema.OpCBOffload)},
		},
		{
			name: "what has no handle",
			call: []raw{op(schema.OpCBRecallAny, 1, bitmap(1)), op(schema.OpCBRecallSlot, 3)}, sent: []raw{op(schema.OpCBRecallAny, 1, bitmap(1)), op(schema.OpCBRecallSlot, 3)},
			reply: []raw{ok(schema.OpCBRecallAny), ok(schema.OpCBRecallSlot)},
		},
		{
			name: "CB_LAYOUTRECALL",
			call: []raw{op(schema.OpCBLayoutRecall, 1, 1, 0, 1, someFH, uint64(0), uint64(0), stateID), op(schema.OpCBRecallSlot, 3)}, sent: []raw{},
			reply: []raw{}, gotStatus: errNoMatching, got: []raw{op(schema.OpCBLayoutRecall, errNoMatching)},
		},
		{
			name: "CB_NOTIFY_DEVICEID",
			call: []raw{op(schema.OpCBRecallSlot, 3), op(schema.OpCBNotifyDeviceID, 0)}, sent: []raw{op(schema.OpCBRecallSlot, 3)},
			reply: []raw{ok(schema.OpCBRecallSlot)}, gotStatus: errNotSupp, got: []raw{ok(schema.OpCBRecallSlot), op(schema.OpCBNotifyDeviceID, errNotSupp)},
		},
		{
			name: "unknown",
			call: []raw{op(77)}, sent: []raw{},
			reply: []raw{}, gotStatus: errOpIllegal, got: []raw{op(schema.OpIllegal, errOpIllegal)},
		},
		{
			name: "a handle that cannot be signed",
			call: []raw{op(schema.OpCBRecall, stateID, 0, make([]byte, 128))}, sent: []raw{},
			reply: []raw{}, gotStatus: errBadHandle, got: []raw{op(schema.OpCBRecall, errBadHandle)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b Callback
			in := arrived(t, cbCompound(1, slices.Concat([]raw{cbSequence}, test.call)...))
			if op0 := test.call[0]; op0[3] == schema.OpCBOffload {
				in = arrived(t, cbCompound(2, slices.Concat([]raw{cbSequence}, test.call)...))
			}
			minor := int(in.Stream[0][len(in.Stream[0])-len(slices.Concat(test.call...))-len(cbSequence)-9])
			sent, answer := sendCallback(t, &b, x, in)
			if answer != nil {
				t.Fatalf("answered with %x", answer)
			}
			sameBytes(t, "the callback", sent, cbCompound(minor, slices.Concat([]raw{cbSequence}, test.sent)...))
			if test.got == nil {
				test.got, test.gotStatus = test.reply, test.status
			}
			var m oncrpc.Message
			m.Stream = append(m.Stream, cbReply(test.status, slices.Concat([]raw{cbSequenceOK}, test.reply)...))
			if err := b.Results(x, in, &m); err != nil {
				t.Fatal(err)
			}
			sameBytes(t, "the reply", flat(&in.Reply), resultsOf(test.gotStatus, slices.Concat([]raw{cbSequenceOK}, test.got)...))
			readable(t, &nfsv4.CbCompound4args{}, sent[in.ArgsAt:])
			readable(t, &nfsv4.CbCompound4res{}, flat(&in.Reply)[oncrpc.MinReplyLen:])
		})
	}
}

// TestCallbackAnswers covers callbacks that the client never gets.
func TestCallbackAnswers(t *testing.T) {
	x := exportV4(t, sign.Required)
	status := func(s oncrpc.AcceptStat) []byte { return fields(xidV4, oncrpc.MsgReply, 0, 0, 0, uint32(s)) }
	for _, test := range []struct {
		name       string
		call, want []byte
	}{
		{"minor version", cbCompound(3, cbSequence), resultsOf(errMinorMismatch)},
		{"layout at once", cbCompound(1, op(schema.OpCBLayoutRecall, 1, 1, 0, 3)), resultsOf(errNoMatching, op(schema.OpCBLayoutRecall, errNoMatching))},
		{"cut short", cbCompound(1, cbSequence)[:80], status(oncrpc.GarbageArgs)},
		{"another procedure", fields(xidV4, 0, 2, 0x40000000, 1, 2, credV4), status(oncrpc.ProcUnavail)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b Callback
			_, answer := sendCallback(t, &b, x, arrived(t, test.call))
			sameBytes(t, "the answer", answer, test.want)
		})
	}
}

// TestCallbackNull checks that NULL passes in both directions.
func TestCallbackNull(t *testing.T) {
	x := exportV4(t, sign.Required)
	var b Callback
	call := fields(xidV4, 0, 2, 0x40000000, 1, 0, credV4)
	in := arrived(t, call)
	sent, _ := sendCallback(t, &b, x, in)
	sameBytes(t, "the callback", sent, call)
	var m oncrpc.Message
	m.Stream = append(m.Stream, fields(7, 1, 0, 0, 0, 0))
	if err := b.Results(x, in, &m); err != nil {
		t.Fatal(err)
	}
	sameBytes(t, "the reply", flat(&in.Reply), fields(xidV4, 1, 0, 0, 0, 0))
}

// TestCallbackUnreadable covers forbidden replies of a client.
func TestCallbackUnreadable(t *testing.T) {
	x := exportV4(t, sign.Required)
	for name, reply := range map[string][]byte{
		"a handle":        cbReply(0, cbSequenceOK, ok(schema.OpCBGetAttr, fattr([]uint32{aFH}, x.signed(someFH)))),
		"another result":  cbReply(0, cbSequenceOK, ok(schema.OpCBRecall)),
		"too many":        cbReply(0, cbSequenceOK, ok(schema.OpCBGetAttr, fattr(nil)), ok(schema.OpCBRecall)),
		"cut short":       cbReply(0, cbSequenceOK, ok(schema.OpCBGetAttr, fattr(nil)))[:60],
		"not even header": {1, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var b Callback
			in := arrived(t, cbCompound(1, cbSequence, op(schema.OpCBGetAttr, someFH, bitmap(3))))
			sendCallback(t, &b, x, in)
			var m oncrpc.Message
			m.Stream = append(m.Stream, reply)
			if err := b.Results(x, in, &m); err == nil {
				t.Errorf("it became %x", flat(&in.Reply))
			}
		})
	}
}
