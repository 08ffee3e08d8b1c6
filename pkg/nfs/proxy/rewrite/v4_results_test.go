package rewrite

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// part is an operation with its rewritten forms, which do not depend on its place.
type part struct {
	call, sent raw // sent is nil for a refused one
	reply, got raw // for a refused one, got is its result
	status     int // of the refusal
}

func same(call, reply raw) part { return part{call: call, sent: call, reply: reply, got: reply} }

func refusedPart(call raw, status int) part {
	return part{call: call, got: op(int(call[3]), status), status: status}
}

func parts(x *Export) []part {
	fh := x.signed(someFH)
	data := bytes.Repeat([]byte("d"), 1001)
	return []part{
		{call: putFH(fh), sent: putFH(someFH), reply: ok(schema.OpPutFH), got: ok(schema.OpPutFH)},
		{call: getFH, sent: getFH, reply: ok(schema.OpGetFH, someFH), got: ok(schema.OpGetFH, fh)},
		{call: getAttr(1, aFH), sent: getAttr(1, aFH), reply: gotAttr([]uint32{1, aFH}, 1, someFH), got: gotAttr([]uint32{1, aFH}, 1, fh)},
		{call: op(schema.OpNVerify, fattr([]uint32{aFH}, fh)), sent: rootCheck(someFH), reply: ok(schema.OpNVerify), got: ok(schema.OpNVerify)},
		{
			call: op(schema.OpReaddir, uint64(0), uint64(0), 1, 880, bitmap(aFH)), sent: op(schema.OpReaddir, uint64(0), uint64(0), 1, 720, bitmap(aFH)),
			reply: ok(schema.OpReaddir, uint64(1), 1, uint64(1), "a", fattr([]uint32{aFH}, someFH), 0, 1),
			got:   ok(schema.OpReaddir, uint64(1), 1, uint64(1), "a", fattr([]uint32{aFH}, fh), 0, 1),
		},
		same(lookup("name"), ok(schema.OpLookup)),
		same(saveFH, ok(schema.OpSaveFH)),
		same(op(schema.OpAccess, 63), ok(schema.OpAccess, 63, 63)),
		same(op(schema.OpRead, stateID, uint64(0), 5000), ok(schema.OpRead, 1, data)),
		same(op(schema.OpWrite, stateID, uint64(0), 0, data), ok(schema.OpWrite, len(data), 0, uint64(1))),
		same(op(schema.OpSetAttr, stateID, fattr([]uint32{33}, 0o600)), ok(schema.OpSetAttr, bitmap(33))),
		same(op(schema.OpGetXattr, "user.name"), ok(schema.OpGetXattr, "value")),
		same(open4(3, fields(1, 0, fattr([]uint32{33}, 0o600)), "new"), ok(schema.OpOpen, stateID, 1, uint64(1), uint64(2), 0, bitmap(33), 0)),
		refusedPart(putFH(someFH), errBadHandle),
		refusedPart(lookup(".."), errBadName),
		refusedPart(op(schema.OpCopyNotify, stateID, 1, "server"), errNotSupp),
	}
}

// TestCompose checks that a COMPOUND is rewritten part by part, up to the first one refused here or
// failed there.
func TestCompose(t *testing.T) {
	x := exportV4(t, sign.Required)
	all := parts(x)
	rapid.Check(t, func(rt *rapid.T) {
		// The first operation sets a filehandle.
		chosen := slices.Concat(all[:1], rapid.SliceOfN(rapid.SampledFrom(all), 0, 20).Draw(rt, "parts"))
		fails := rapid.IntRange(0, 20).Draw(rt, "failing")
		minor := rapid.SampledFrom([]int{0, 2}).Draw(rt, "minor")
		if minor == 0 { // 4.0 lacks extended attributes and COPY
			chosen = slices.DeleteFunc(chosen, func(p part) bool { return p.call[3] > schema.OpReleaseLockOwner })
		}
		var call, sent, reply, got []raw
		if minor > 0 {
			call, sent, reply, got = []raw{sequence}, []raw{sequence}, []raw{sequenceOK}, []raw{sequenceOK}
		}
		status, gotStatus, ended := 0, 0, false
		for i, p := range chosen {
			call = append(call, p.call)
			if ended {
				continue
			}
			if p.status != 0 {
				ended = true
				if status == 0 {
					got, gotStatus = append(got, p.got), p.status
				}
				continue
			}
			sent = append(sent, p.sent)
			switch {
			case status != 0: // the backend has stopped
			case i == fails:
				status, gotStatus = 13, 13
				failed := op(int(p.call[3]), 13)
				if p.call[3] == schema.OpSetAttr {
					failed = append(failed, bitmap()...)
				}
				reply, got = append(reply, failed), append(got, failed)
			default:
				reply, got = append(reply, p.reply), append(got, p.got)
			}
		}
		var c Call
		in := arrived(t, compoundV4(minor, call...))
		defer in.Recycle()
		forwarded, answer := sendV4(t, &c, x, &Caller{}, in)
		if len(sent) == 0 && ended {
			if want := resultsOf(gotStatus, got...); !bytes.Equal(answer, want) {
				rt.Fatalf("the answer is\n%x, want\n%x", answer, want)
			}
			return
		}
		if want := compoundV4(minor, sent...); !bytes.Equal(forwarded, want) {
			rt.Fatalf("the backend gets\n%x, want\n%x", forwarded, want)
		}
		if result, want := answerV4(t, &c, x, in, resultsOf(status, reply...)), resultsOf(gotStatus, got...); !bytes.Equal(result, want) {
			rt.Fatalf("the client gets\n%x, want\n%x", result, want)
		}
	})
}
