package rewrite

import (
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// TestNoFileHandle checks that an operation without its filehandle is answered here, after the
// backend has got those before it: NFS-Ganesha 4.3 ends on a READ_PLUS without one.
func TestNoFileHandle(t *testing.T) {
	x := exportV4(t, sign.Required)
	put, sentPut, putOK := putFH(x.signed(someFH)), putFH(someFH), ok(schema.OpPutFH)
	readPlus := op(schema.OpReadPlus, stateID, uint64(0), 4096)
	free, freed := op(schema.OpFreeStateID, stateID), ok(schema.OpFreeStateID)
	for _, test := range []struct {
		name                string
		before, sent, reply []raw
		op                  raw
	}{
		{"READ_PLUS", nil, nil, nil, readPlus},
		{"READ_PLUS behind others", []raw{free}, []raw{free}, []raw{freed}, readPlus},
		{"GETATTR", nil, nil, nil, getAttr(1)},
		{"LOOKUPP", nil, nil, nil, lookupP},
		{"LOOKUP", nil, nil, nil, lookup("a")},
		{"SAVEFH", nil, nil, nil, saveFH},
		{"RESTOREFH", []raw{put}, []raw{sentPut}, []raw{putOK}, restoreFH},
		{"LINK", nil, nil, nil, op(schema.OpLink, "a")},
		{"LINK without a saved one", []raw{put}, []raw{sentPut}, []raw{putOK}, op(schema.OpLink, "a")},
		{"RENAME without a saved one", []raw{put}, []raw{sentPut}, []raw{putOK}, op(schema.OpRename, "a", "b")},
		{"SEEK", nil, nil, nil, op(schema.OpSeek, stateID, uint64(0), 0)},
		{"LISTXATTRS", nil, nil, nil, op(schema.OpListXattrs, uint64(0), 4096)},
		{"RECLAIM_COMPLETE of a file system", nil, nil, nil, op(schema.OpReclaimComplete, 1)},
		{
			"behind SECINFO_NO_NAME", []raw{put, op(schema.OpSecInfoNoName, 0)}, []raw{sentPut, op(schema.OpSecInfoNoName, 0)},
			[]raw{putOK, ok(schema.OpSecInfoNoName, 1, 1)}, readPlus,
		},
		{"behind SECINFO", []raw{put, op(schema.OpSecInfo, "a")}, []raw{sentPut, op(schema.OpSecInfo, "a")}, []raw{putOK, ok(schema.OpSecInfo, 1, 1)}, readPlus},
	} {
		code := int(test.op[3])
		ex := exchange{
			name: test.name, call: append(slices.Clone(test.before), test.op, getFH), sent: append([]raw{}, test.sent...), reply: test.reply,
			gotStatus: errNoFileHandle, got: append(slices.Clone(test.reply), op(code, errNoFileHandle)),
		}
		t.Run(test.name, func(t *testing.T) { ex.run(t, x) })
	}
	for _, ex := range []exchange{
		{
			name: "a saved one is enough for RESTOREFH", call: []raw{put, saveFH, op(schema.OpSecInfoNoName, 0), restoreFH, readPlus},
			sent:  []raw{sentPut, saveFH, op(schema.OpSecInfoNoName, 0), restoreFH, readPlus},
			reply: []raw{putOK, ok(schema.OpSaveFH), ok(schema.OpSecInfoNoName, 1, 1), ok(schema.OpRestoreFH), ok(schema.OpReadPlus, 1, 0)},
		},
		{
			name: "RECLAIM_COMPLETE of all", call: []raw{op(schema.OpReclaimComplete, 0)}, reply: []raw{ok(schema.OpReclaimComplete)},
		},
	} {
		t.Run(ex.name, func(t *testing.T) { ex.run(t, x) })
	}
}

// TestNoFileHandle40 covers version 4.0: RESTOREFH has a status of its own, and SECINFO keeps the
// filehandle.
func TestNoFileHandle40(t *testing.T) {
	x := exportV4(t, sign.Off)
	for _, test := range []struct {
		op   raw
		want uint32
	}{{getAttr(1), errNoFileHandle}, {restoreFH, errRestoreFH}} {
		var c Call
		_, answer := sendV4(t, &c, x, &Caller{}, arrived(t, compoundV4(0, test.op)))
		sameBytes(t, "the answer", answer, resultsOf(int(test.want), op(int(test.op[3]), test.want)))
	}
	var c Call
	call := compoundV4(0, putFH(someFH), op(schema.OpSecInfo, "a"), getFH)
	sent, _ := sendV4(t, &c, x, &Caller{}, arrived(t, call))
	sameBytes(t, "the call", sent, call)
}

// TestNotOnlyOp checks that an operation which must be alone outside a session is not executed when
// a refusal removes those after it.
func TestNotOnlyOp(t *testing.T) {
	x := exportV4(t, sign.Off)
	destroy := op(schema.OpDestroySession, raw("0123456789abcdef"))
	var c Call
	_, answer := sendV4(t, &c, x, &Caller{}, arrived(t, compoundV4(1, destroy, getFH)))
	sameBytes(t, "the answer", answer, resultsOf(errNotOnlyOp, op(schema.OpDestroySession, errNotOnlyOp)))
}
