package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

func ok(code int, list ...any) raw { return op(code, append([]any{0}, list...)...) }

func putFH(handle []byte) raw { return op(schema.OpPutFH, handle) }

func lookup(name string) raw { return op(schema.OpLookup, name) }

// rootCheck is the operation inserted before a LOOKUPP.
func rootCheck(handle []byte) raw {
	return op(schema.OpNVerify, fattr([]uint32{schema.AttrFileHandle}, handle))
}

// TestRootV4 checks that operations to the root lead to the export's root, and that only clients
// see signed handles.
func TestRootV4(t *testing.T) {
	x := exportV4(t, sign.Required)
	for _, ex := range []exchange{
		{
			name:  "PUTROOTFH",
			call:  []raw{op(schema.OpPutRootFH), getFH},
			sent:  []raw{putFH(rootV4), getFH},
			reply: []raw{ok(schema.OpPutFH), ok(schema.OpGetFH, rootV4)},
			got:   []raw{ok(schema.OpPutRootFH), ok(schema.OpGetFH, x.signed(rootV4))},
		},
		{
			name:  "PUTPUBFH",
			call:  []raw{op(schema.OpPutPubFH)},
			sent:  []raw{putFH(rootV4)},
			reply: []raw{ok(schema.OpPutFH)},
			got:   []raw{ok(schema.OpPutPubFH)},
		},
		{
			name:   "PUTROOTFH fails",
			call:   []raw{op(schema.OpPutRootFH), getFH},
			sent:   []raw{putFH(rootV4), getFH},
			status: 70, reply: []raw{op(schema.OpPutFH, 70)},
			gotStatus: 70, got: []raw{op(schema.OpPutRootFH, 70)},
		},
		{
			name:  "PUTFH",
			call:  []raw{putFH(x.signed(someFH)), lookup("a"), getFH},
			sent:  []raw{putFH(someFH), lookup("a"), getFH},
			reply: []raw{ok(schema.OpPutFH), ok(schema.OpLookup), ok(schema.OpGetFH, []byte("another"))},
			got:   []raw{ok(schema.OpPutFH), ok(schema.OpLookup), ok(schema.OpGetFH, x.signed([]byte("another")))},
		},
		{
			name:      "foreign handle",
			call:      []raw{putFH(someFH), lookup("a"), getFH},
			sent:      []raw{},
			reply:     []raw{},
			gotStatus: errBadHandle, got: []raw{op(schema.OpPutFH, errBadHandle)},
		},
	} {
		t.Run(ex.name, func(t *testing.T) { ex.run(t, x) })
	}
}

// TestNoRootV4 checks that a COMPOUND waits for the root if its rewritten form depends on it.
func TestNoRootV4(t *testing.T) {
	x := exportV4(t, sign.Off)
	for _, roots := range []*Roots{nil, {V3: rootV3}} {
		x.Roots.Store(roots)
		for _, o := range []raw{putFH(someFH), op(schema.OpPutRootFH), op(schema.OpPutPubFH), op(schema.OpLookupP)} {
			var c Call
			var out oncrpc.Message
			var plan oncrpc.Plan
			_, err := c.Args(x, &Caller{}, arrived(t, compoundV4(2, sequence, o)), &out, &plan)
			if !errors.Is(err, ErrNoRoot) || len(out.Stream) > 0 {
				t.Errorf("operation %d: %v, %x", o[3], err, flat(&out))
			}
		}
		destroy := op(schema.OpFreeStateID, stateID)
		ex := exchange{call: []raw{destroy, destroy}, reply: []raw{ok(schema.OpFreeStateID), ok(schema.OpFreeStateID)}}
		ex.run(t, x)
	}
}

// TestNoSecondRoot checks that LOOKUPP waits until the root of version 3 is known, or known to be
// missing.
func TestNoSecondRoot(t *testing.T) {
	x := exportV4(t, sign.Required)
	for _, ex := range []struct {
		v3    bool
		roots Roots
		waits bool
	}{
		{true, Roots{V4: rootV4}, true},
		{true, Roots{V3: rootV3, V4: rootV4}, false},
		{true, Roots{V4: rootV4, No3: true}, false},
		{false, Roots{V4: rootV4}, false},
	} {
		x.V3 = ex.v3
		x.Roots.Store(&ex.roots)
		for _, o := range []raw{lookupP, getFH} {
			var c Call
			var out oncrpc.Message
			var plan oncrpc.Plan
			_, err := c.Args(x, &Caller{}, arrived(t, compoundV4(2, sequence, putFH(x.signed(someFH)), o)), &out, &plan)
			if waits := errors.Is(err, ErrNoRoot); waits != (ex.waits && o[3] == schema.OpLookupP) {
				t.Errorf("version 3 is offered: %v, roots %+v, operation %d: %v", ex.v3, &ex.roots, o[3], err)
			}
			out.Release()
		}
	}
}

// TestMismatch checks that a reply which does not match the backend's call is rejected.
func TestMismatch(t *testing.T) {
	x := exportV4(t, sign.Required)
	call := []raw{sequence, putFH(x.signed(someFH)), lookupP, getFH}
	put, checked, up := ok(schema.OpPutFH), ok(schema.OpNVerify), ok(schema.OpLookupP)
	for name, reply := range map[string][]byte{
		"another operation":         resultsOf(0, sequenceOK, put, up),
		"the root check is missing": resultsOf(0, sequenceOK, put, up, ok(schema.OpGetFH, someFH)),
		"too many":                  resultsOf(0, sequenceOK, put, checked, up, ok(schema.OpGetFH, someFH), put),
		"more behind a failure":     resultsOf(0, sequenceOK, put, op(schema.OpNVerify, errSame), up),
		"OP_ILLEGAL that is OK":     resultsOf(0, sequenceOK, op(schema.OpIllegal, 0)),
		"cut short":                 resultsOf(0, sequenceOK, put, checked, up, ok(schema.OpGetFH, someFH))[:100],
		"no status":                 resultsOf(0)[:24],
		"a handle without room":     resultsOf(0, sequenceOK, put, checked, up, ok(schema.OpGetFH, make([]byte, 125))),
	} {
		t.Run(name, func(t *testing.T) { refusesReply(t, x, call, reply) })
	}
	// Everything before an added refusal must have succeeded.
	refusesReply(t, x, []raw{sequence, putFH(x.signed(someFH)), lookup("..")}, resultsOf(13, sequenceOK, put))
}

// TestEarlyEnd checks that results the backend omits after a failure stay out.
func TestEarlyEnd(t *testing.T) {
	x := exportV4(t, sign.Required)
	for _, ex := range []exchange{
		{name: "no results", status: 10018, reply: []raw{}},
		{name: "an operation that the backend does not know", status: errOpIllegal, reply: []raw{op(schema.OpIllegal, errOpIllegal)}},
	} {
		ex.call, ex.sent = []raw{putRootFH, lookup("..")}, []raw{putFH(rootV4)}
		t.Run(ex.name, func(t *testing.T) { ex.run(t, x) })
	}
}

// TestTooManyV4 checks the status for too many operations, which differs in 4.0.
func TestTooManyV4(t *testing.T) {
	x := exportV4(t, sign.Off)
	var c Call
	in := arrived(t, compoundV4(0, putRootFH, putRootFH, putRootFH, putRootFH, putRootFH))
	sent, _ := sendV4(t, &c, x, &Caller{}, in)
	root := putFH(rootV4)
	sameBytes(t, "the call", sent, compoundV4(0, root, root, root, root))
	put, got := ok(schema.OpPutFH), ok(schema.OpPutRootFH)
	sameBytes(t, "the reply", answerV4(t, &c, x, in, resultsOf(0, put, put, put, put)),
		resultsOf(errResource, got, got, got, got, op(schema.OpPutRootFH, errResource)))
}

// TestFarTooManyV4 checks that a COMPOUND with more operations than are read is answered by the
// error of its first operation. SEQUENCE then keeps its slot.
func TestFarTooManyV4(t *testing.T) {
	x := exportV4(t, sign.Off)
	many := func(first raw, n int) []raw { return append([]raw{first}, slices.Repeat([]raw{getFH}, n-1)...) }
	bind := op(schema.OpBindConnToSession, raw("0123456789abcdef"), 1, 0)
	for _, ex := range []struct {
		name  string
		minor int
		ops   []raw
		want  []byte
	}{
		{"session", 1, many(sequence, schema.MaxOps+1), resultsOf(errTooManyOps, op(schema.OpSequence, errTooManyOps))},
		{"no session", 2, many(getFH, schema.MaxOps+1), resultsOf(errNotInSession, op(schema.OpGetFH, errNotInSession))},
		{"needs none", 1, many(bind, 2*schema.MaxOps), resultsOf(errTooManyOps, op(schema.OpBindConnToSession, errTooManyOps))},
		{"4.0", 0, many(putRootFH, schema.MaxOps+1), resultsOf(errResource, op(schema.OpPutRootFH, errResource))},
		{"unknown", 1, many(op(9999), schema.MaxOps+1), resultsOf(errOpIllegal, op(schema.OpIllegal, errOpIllegal))},
	} {
		t.Run(ex.name, func(t *testing.T) {
			var c Call
			_, answer := sendV4(t, &c, x, &Caller{}, arrived(t, compoundV4(ex.minor, ex.ops...)))
			sameBytes(t, "the answer", answer, ex.want)
		})
	}
	var c Call
	call := compoundV4(1, append([]raw{sequence, putFH(someFH)}, slices.Repeat([]raw{getFH}, schema.MaxOps-2)...)...)
	sent, _ := sendV4(t, &c, x, &Caller{}, arrived(t, call))
	sameBytes(t, "as many as are looked at", sent, call)
}

// TestFullV4 checks that insertions never exceed the operations whose results can be read.
func TestFullV4(t *testing.T) {
	x := exportV4(t, sign.Off)
	for _, ex := range []struct {
		before int
		sent   []raw
	}{
		{schema.MaxOps - 2, []raw{rootCheck(rootV4), lookupP}},
		{schema.MaxOps - 1, nil},
	} {
		ops := append([]raw{putFH(someFH)}, slices.Repeat([]raw{getFH}, ex.before-1)...)
		var c Call
		in := arrived(t, compoundV4(0, append(slices.Clone(ops), lookupP)...))
		sent, _ := sendV4(t, &c, x, &Caller{}, in)
		sameBytes(t, "the call", sent, compoundV4(0, append(ops, ex.sent...)...))
		if ex.sent != nil {
			continue
		}
		got := append([]raw{ok(schema.OpPutFH)}, slices.Repeat([]raw{ok(schema.OpGetFH, someFH)}, ex.before-1)...)
		sameBytes(t, "the reply", answerV4(t, &c, x, in, resultsOf(0, got...)), resultsOf(errResource, append(got, op(schema.OpLookupP, errResource))...))
	}
}

// TestGSSV4 checks that calls refused under RPCSEC_GSS get no reply without a verifier.
func TestGSSV4(t *testing.T) {
	x := exportV4(t, sign.Off)
	x.GSS = true
	// data, without integrity
	cred := fields(oncrpc.RPCSecGSS, []byte(fields(1, 0, 1, 1, "context")), 0, 0)
	call := slices.Concat(fields(xidV4, oncrpc.MsgCall, oncrpc.RPCVersion, 100003, 4, 1), cred, fields("", 2, 1), op(9999))
	var c Call
	_, answer := sendV4(t, &c, x, &Caller{}, arrived(t, call))
	sameBytes(t, "the answer", answer, fields(xidV4, oncrpc.MsgReply, 1, 1, uint32(oncrpc.AuthTooWeak)))
}

// TestSquashV4 checks that edits of the credential and of operations combine.
func TestSquashV4(t *testing.T) {
	x := exportV4(t, sign.Required)
	var c Call
	who := Caller{Squash: access.SquashAll, AnonUID: 65534, AnonGID: 65533}
	in := arrived(t, compoundV4(2, sequence, putRootFH, lookup("a"), putFH(x.signed(someFH)), lookup("..")))
	sent, _ := sendV4(t, &c, x, &who, in)
	want := compoundV4(2, sequence, putFH(rootV4), lookup("a"), putFH(someFH))
	cred := fields(oncrpc.AuthSys, []byte(fields(1, "client", 65534, 65533, 0)), 0, 0)
	sameBytes(t, "the call", sent, bytes.Replace(want, credV4, cred, 1))
	if c.ArgsAt != in.ArgsAt {
		t.Errorf("the arguments begin at %d", c.ArgsAt)
	}
}

// TestSecInfo checks that SECINFO lists RPCSEC_GSS only where it is permitted.
func TestSecInfo(t *testing.T) {
	krb5 := fields(6, "\x2a\x86\x48\x86\xf7\x12\x01\x02\x02", 0, 1)
	for _, gss := range []bool{false, true} {
		x := exportV4(t, sign.Off)
		x.GSS = gss
		for _, ex := range []exchange{
			{
				name: "Kerberos first",
				call: []raw{putRootFH, op(schema.OpSecInfo, "name")}, sent: []raw{putFH(rootV4), op(schema.OpSecInfo, "name")},
				reply: []raw{ok(schema.OpPutFH), ok(schema.OpSecInfo, 4, krb5, 1, krb5, 0)}, got: []raw{ok(schema.OpPutRootFH), ok(schema.OpSecInfo, 2, 1, 0)},
			},
			{
				name: "nothing else",
				call: []raw{putRootFH, op(schema.OpSecInfoNoName, 0)}, sent: []raw{putFH(rootV4), op(schema.OpSecInfoNoName, 0)},
				reply: []raw{ok(schema.OpPutFH), ok(schema.OpSecInfoNoName, 1, krb5)}, got: []raw{ok(schema.OpPutRootFH), ok(schema.OpSecInfoNoName, 0)},
			},
		} {
			if gss {
				ex.got = slices.Concat(ex.got[:1], ex.reply[1:])
			}
			t.Run(fmt.Sprintf("%s, gss %v", ex.name, gss), func(t *testing.T) { ex.run(t, x) })
		}
	}
}
