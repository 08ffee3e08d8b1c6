package rewrite

import (
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
)

var (
	putRootFH = op(schema.OpPutRootFH)
	lookupP   = op(schema.OpLookupP)
	saveFH    = op(schema.OpSaveFH)
	restoreFH = op(schema.OpRestoreFH)
	getID     = op(schema.OpGetAttr, bitmap(schema.AttrFileID))
	gotID     = ok(schema.OpGetAttr, fattr([]uint32{schema.AttrFileID}, uint64(7)))
	attrsNone = fattr(nil)
	stateID   = raw("0123456789abcdef")
	owner     = fields(uint64(1), "owner")
)

// open4 is an OPEN by name.
func open4(access int, create raw, name string) raw {
	return op(schema.OpOpen, 0, access, 0, owner, create, claimNull, name)
}

// TestUp checks that nothing leads above the root. Certain cases are decided here, others by the
// backend.
func TestUp(t *testing.T) {
	x := exportV4(t, sign.Required)
	some := putFH(x.signed(someFH))
	root := putFH(x.signed(rootV4))
	ok0, checked := ok(schema.OpLookupP), ok(schema.OpNVerify)
	type result = []raw
	for _, ex := range []exchange{
		{
			name: "from the root",
			call: []raw{putRootFH, lookupP, getFH}, sent: []raw{putFH(rootV4)},
			reply: result{ok(schema.OpPutFH)}, gotStatus: errNoEnt, got: result{ok(schema.OpPutRootFH), op(schema.OpLookupP, errNoEnt)},
		},
		{
			name: "from the root's handle",
			call: []raw{root, getID, lookupP}, sent: []raw{putFH(rootV4), getID},
			reply: result{ok(schema.OpPutFH), gotID}, gotStatus: errNoEnt, got: result{ok(schema.OpPutFH), gotID, op(schema.OpLookupP, errNoEnt)},
		},
		{
			name: "down and up",
			call: []raw{putRootFH, lookup("a"), lookup("b"), lookupP, lookupP, getFH},
			sent: []raw{putFH(rootV4), lookup("a"), lookup("b"), lookupP, rootCheck(rootV4), lookupP, getFH},
			reply: result{
				ok(schema.OpPutFH), ok(schema.OpLookup), ok(schema.OpLookup), ok0, checked, ok0, ok(schema.OpGetFH, rootV4),
			},
			got: result{
				ok(schema.OpPutRootFH), ok(schema.OpLookup), ok(schema.OpLookup), ok0, ok0, ok(schema.OpGetFH, x.signed(rootV4)),
			},
		},
		{
			name: "down once, up twice",
			call: []raw{putRootFH, lookup("a"), lookupP, lookupP}, sent: []raw{putFH(rootV4), lookup("a"), lookupP, rootCheck(rootV4), lookupP},
			status: errSame, reply: result{ok(schema.OpPutFH), ok(schema.OpLookup), ok0, op(schema.OpNVerify, errSame)},
			gotStatus: errNoEnt, got: result{ok(schema.OpPutRootFH), ok(schema.OpLookup), ok0, op(schema.OpLookupP, errNoEnt)},
		},
		{
			name: "from anywhere",
			call: []raw{some, lookupP, getFH}, sent: []raw{putFH(someFH), rootCheck(rootV4), lookupP, getFH},
			reply: result{ok(schema.OpPutFH), checked, ok0, ok(schema.OpGetFH, rootV4)},
			got:   result{ok(schema.OpPutFH), ok0, ok(schema.OpGetFH, x.signed(rootV4))},
		},
		{
			name: "from anywhere, which is the root",
			call: []raw{some, lookupP, getFH}, sent: []raw{putFH(someFH), rootCheck(rootV4), lookupP, getFH},
			status: errSame, reply: result{ok(schema.OpPutFH), op(schema.OpNVerify, errSame)},
			gotStatus: errNoEnt, got: result{ok(schema.OpPutFH), op(schema.OpLookupP, errNoEnt)},
		},
		{
			name: "from anywhere, which is gone",
			call: []raw{some, lookupP, getFH}, sent: []raw{putFH(someFH), rootCheck(rootV4), lookupP, getFH},
			status: 70, reply: result{ok(schema.OpPutFH), op(schema.OpNVerify, 70)},
			gotStatus: 70, got: result{ok(schema.OpPutFH), op(schema.OpLookupP, 70)},
		},
		{
			name: "from anywhere, LOOKUPP fails",
			call: []raw{some, lookupP, getFH}, sent: []raw{putFH(someFH), rootCheck(rootV4), lookupP, getFH},
			status: 20, reply: result{ok(schema.OpPutFH), checked, op(schema.OpLookupP, 20)},
			gotStatus: 20, got: result{ok(schema.OpPutFH), op(schema.OpLookupP, 20)},
		},
		{
			name: "twice from anywhere",
			call: []raw{some, lookupP, lookupP, getID}, sent: []raw{putFH(someFH), rootCheck(rootV4), lookupP, rootCheck(rootV4), lookupP, getID},
			status: errSame, reply: result{ok(schema.OpPutFH), checked, ok0, op(schema.OpNVerify, errSame)},
			gotStatus: errNoEnt, got: result{ok(schema.OpPutFH), ok0, op(schema.OpLookupP, errNoEnt)},
		},
		{
			name: "down from anywhere, and up three times",
			call: []raw{some, lookup("a"), lookupP, lookupP, lookupP},
			sent: []raw{putFH(someFH), lookup("a"), lookupP, rootCheck(rootV4), lookupP, rootCheck(rootV4), lookupP},
			reply: result{
				ok(schema.OpPutFH), ok(schema.OpLookup), ok0, checked, ok0, checked, ok0,
			},
			got: result{ok(schema.OpPutFH), ok(schema.OpLookup), ok0, ok0, ok0},
		},
		{
			name: "more than can be checked",
			call: []raw{some, lookupP, lookupP, lookupP, lookupP, lookupP},
			sent: []raw{putFH(someFH), rootCheck(rootV4), lookupP, rootCheck(rootV4), lookupP, rootCheck(rootV4), lookupP, rootCheck(rootV4), lookupP},
			reply: result{
				ok(schema.OpPutFH), checked, ok0, checked, ok0, checked, ok0, checked, ok0,
			},
			gotStatus: errTooManyOps, got: result{ok(schema.OpPutFH), ok0, ok0, ok0, ok0, op(schema.OpLookupP, errTooManyOps)},
		},
		{
			name: "the root saved, and restored further down",
			call: []raw{putRootFH, saveFH, lookup("a"), restoreFH, lookupP}, sent: []raw{putFH(rootV4), saveFH, lookup("a"), restoreFH},
			reply:     result{ok(schema.OpPutFH), ok(schema.OpSaveFH), ok(schema.OpLookup), ok(schema.OpRestoreFH)},
			gotStatus: errNoEnt, got: result{
				ok(schema.OpPutRootFH), ok(schema.OpSaveFH), ok(schema.OpLookup), ok(schema.OpRestoreFH), op(schema.OpLookupP, errNoEnt),
			},
		},
		{
			name:   "anywhere saved, and restored further down",
			call:   []raw{some, saveFH, putRootFH, lookup("a"), restoreFH, lookupP},
			sent:   []raw{putFH(someFH), saveFH, putFH(rootV4), lookup("a"), restoreFH, rootCheck(rootV4), lookupP},
			status: errSame, reply: result{
				ok(schema.OpPutFH), ok(schema.OpSaveFH), ok(schema.OpPutFH), ok(schema.OpLookup), ok(schema.OpRestoreFH), op(schema.OpNVerify, errSame),
			},
			gotStatus: errNoEnt, got: result{
				ok(schema.OpPutFH), ok(schema.OpSaveFH), ok(schema.OpPutRootFH), ok(schema.OpLookup), ok(schema.OpRestoreFH), op(schema.OpLookupP, errNoEnt),
			},
		},
		{
			name:   "a directory saved and restored, which another client has moved to the root",
			call:   []raw{putRootFH, lookup("a"), lookup("b"), saveFH, putRootFH, restoreFH, lookupP, lookupP},
			sent:   []raw{putFH(rootV4), lookup("a"), lookup("b"), saveFH, putFH(rootV4), restoreFH, lookupP, rootCheck(rootV4), lookupP},
			status: errSame, reply: result{
				ok(schema.OpPutFH), ok(schema.OpLookup), ok(schema.OpLookup), ok(schema.OpSaveFH), ok(schema.OpPutFH), ok(schema.OpRestoreFH), ok0,
				op(schema.OpNVerify, errSame),
			},
			gotStatus: errNoEnt, got: result{
				ok(schema.OpPutRootFH), ok(schema.OpLookup), ok(schema.OpLookup), ok(schema.OpSaveFH), ok(schema.OpPutRootFH), ok(schema.OpRestoreFH), ok0,
				op(schema.OpLookupP, errNoEnt),
			},
		},
		{
			name: "from a new directory",
			call: []raw{some, op(schema.OpCreate, 2, "d", attrsNone), lookupP, lookupP},
			sent: []raw{putFH(someFH), op(schema.OpCreate, 2, "d", attrsNone), lookupP, rootCheck(rootV4), lookupP},
			reply: result{
				ok(schema.OpPutFH), ok(schema.OpCreate, 1, uint64(1), uint64(2), 0), ok0, checked, ok0,
			},
			got: result{ok(schema.OpPutFH), ok(schema.OpCreate, 1, uint64(1), uint64(2), 0), ok0, ok0},
		},
		{
			name: "from an attribute directory",
			call: []raw{putRootFH, op(schema.OpOpenAttr, 0), lookupP}, sent: []raw{putFH(rootV4), op(schema.OpOpenAttr, 0), rootCheck(rootV4), lookupP},
			reply: result{ok(schema.OpPutFH), ok(schema.OpOpenAttr), checked, ok0}, got: result{ok(schema.OpPutRootFH), ok(schema.OpOpenAttr), ok0},
		},
		{
			name: "nothing to restore",
			call: []raw{putRootFH, restoreFH, lookupP}, sent: []raw{putFH(rootV4)},
			reply: result{ok(schema.OpPutFH)}, gotStatus: errNoFileHandle, got: result{ok(schema.OpPutRootFH), op(schema.OpRestoreFH, errNoFileHandle)},
		},
		{
			name: "SECINFO_NO_NAME of the root's parent",
			call: []raw{putRootFH, op(schema.OpSecInfoNoName, styleParent)}, sent: []raw{putFH(rootV4)},
			reply: result{ok(schema.OpPutFH)}, gotStatus: errNoEnt, got: result{ok(schema.OpPutRootFH), op(schema.OpSecInfoNoName, errNoEnt)},
		},
		{
			name: "SECINFO_NO_NAME of a parent somewhere",
			call: []raw{some, op(schema.OpSecInfoNoName, styleParent)}, sent: []raw{putFH(someFH)},
			reply: result{ok(schema.OpPutFH)}, gotStatus: errNoEnt, got: result{ok(schema.OpPutFH), op(schema.OpSecInfoNoName, errNoEnt)},
		},
		{
			name: "SECINFO_NO_NAME of a parent inside",
			call: []raw{some, lookup("a"), op(schema.OpSecInfoNoName, styleParent)}, sent: []raw{putFH(someFH), lookup("a"), op(schema.OpSecInfoNoName, styleParent)},
			reply: result{ok(schema.OpPutFH), ok(schema.OpLookup), ok(schema.OpSecInfoNoName, 1, 1)},
		},
		{
			name: "SECINFO_NO_NAME of the root",
			call: []raw{putRootFH, op(schema.OpSecInfoNoName, 0)}, sent: []raw{putFH(rootV4), op(schema.OpSecInfoNoName, 0)},
			reply: result{ok(schema.OpPutFH), ok(schema.OpSecInfoNoName, 1, 1)}, got: result{ok(schema.OpPutRootFH), ok(schema.OpSecInfoNoName, 1, 1)},
		},
	} {
		t.Run(ex.name, func(t *testing.T) { ex.run(t, x) })
	}
}

// TestTwoRoots covers a backend with two handles of the root, one from version 3. Neither leads up.
func TestTwoRoots(t *testing.T) {
	x := exportV4(t, sign.Required)
	x.Roots.Store(&Roots{V3: rootV3, V4: rootV4})
	for _, ex := range []exchange{
		{
			name: "by the handle of version 3",
			call: []raw{putFH(x.signed(rootV3)), lookupP}, sent: []raw{putFH(rootV3)},
			reply: []raw{ok(schema.OpPutFH)}, gotStatus: errNoEnt, got: []raw{ok(schema.OpPutFH), op(schema.OpLookupP, errNoEnt)},
		},
		{
			name: "from anywhere",
			call: []raw{putFH(x.signed(someFH)), lookupP}, sent: []raw{putFH(someFH), rootCheck(rootV4), rootCheck(rootV3), lookupP},
			reply: []raw{ok(schema.OpPutFH), ok(schema.OpNVerify), ok(schema.OpNVerify), ok(schema.OpLookupP)},
			got:   []raw{ok(schema.OpPutFH), ok(schema.OpLookupP)},
		},
		{
			name: "from anywhere, which is the root of version 3",
			call: []raw{putFH(x.signed(someFH)), lookupP}, sent: []raw{putFH(someFH), rootCheck(rootV4), rootCheck(rootV3), lookupP},
			status: errSame, reply: []raw{ok(schema.OpPutFH), ok(schema.OpNVerify), op(schema.OpNVerify, errSame)},
			gotStatus: errNoEnt, got: []raw{ok(schema.OpPutFH), op(schema.OpLookupP, errNoEnt)},
		},
	} {
		t.Run(ex.name, func(t *testing.T) { ex.run(t, x) })
	}
}

// TestNames checks names in all operations that have one.
func TestNames(t *testing.T) {
	x := exportV4(t, sign.Off)
	for name, status := range map[string]int{
		"": errInval, ".": errBadName, "..": errBadName, "a/b": errBadChar, "/": errBadChar, "../..": errBadChar, "a\x00": errBadChar, "\x00": errBadChar,
	} {
		for _, o := range []struct {
			code int
			op   raw
		}{
			{schema.OpLookup, lookup(name)},
			{schema.OpSecInfo, op(schema.OpSecInfo, name)},
			{schema.OpRemove, op(schema.OpRemove, name)},
			{schema.OpLink, op(schema.OpLink, name)},
			{schema.OpRename, op(schema.OpRename, name, "fine")},
			{schema.OpRename, op(schema.OpRename, "fine", name)},
			{schema.OpCreate, op(schema.OpCreate, 2, name, attrsNone)},
			{schema.OpCreate, op(schema.OpCreate, 5, "target", name, attrsNone)},
			{schema.OpOpen, open4(1, fields(0), name)},
			{schema.OpOpen, op(schema.OpOpen, 0, 1, 0, owner, 0, claimDelegateCur, stateID, name)},
			{schema.OpOpen, op(schema.OpOpen, 0, 1, 0, owner, 0, claimDelegatePrev, name)},
		} {
			ex := exchange{
				call: []raw{putFH(someFH), o.op, getFH}, sent: []raw{putFH(someFH)},
				reply: []raw{ok(schema.OpPutFH)}, gotStatus: status, got: []raw{ok(schema.OpPutFH), op(o.code, status)},
			}
			ex.run(t, x)
		}
	}
	// Similar names, and those of extended attributes, pass.
	for _, o := range []raw{
		lookup("..."), lookup(".a"), lookup("a.."), lookup(" "), lookup("\\"),
		op(schema.OpGetXattr, "user.a/b"), op(schema.OpRemoveXattr, ".."),
	} {
		ex := exchange{call: []raw{putFH(someFH), o}, status: 2, reply: []raw{ok(schema.OpPutFH), op(int(o[3]), 2)}}
		ex.run(t, x)
	}
}

// TestRefusedV4 covers operations that bypass the gateway, and changes to a read-only export.
func TestRefusedV4(t *testing.T) {
	x := exportV4(t, sign.Off)
	device := raw("0123456789abcdef")
	copying := func(sources ...any) raw {
		return op(schema.OpCopy, append([]any{stateID, stateID, uint64(0), uint64(0), uint64(10), 1, 1, len(sources)}, sources...)...)
	}
	elsewhere := fields(1, "server.example")
	readOnly, readWrite := Caller{ReadOnly: true}, Caller{}
	nowhere := uint64(0)
	for _, test := range []struct {
		name   string
		who    Caller
		op     raw
		status int // 0: it passes
	}{
		{"LAYOUTGET", readWrite, op(schema.OpLayoutGet, 0, 1, 1, nowhere, nowhere, nowhere, stateID, 100), errLayoutUnavail},
		{"GETDEVICEINFO", readWrite, op(schema.OpGetDeviceInfo, device, 1, 100, bitmap()), errNotSupp},
		{"GETDEVICELIST", readWrite, op(schema.OpGetDeviceList, 1, 1, nowhere, nowhere), errNotSupp},
		{"LAYOUTCOMMIT", readWrite, op(schema.OpLayoutCommit, nowhere, nowhere, 0, stateID, 0, 0, 1, ""), errNotSupp},
		{"LAYOUTRETURN", readWrite, op(schema.OpLayoutReturn, 0, 1, 1, 3), errNotSupp},
		{"LAYOUTERROR", readWrite, op(schema.OpLayoutError, nowhere, nowhere, stateID, 0), errNotSupp},
		{"LAYOUTSTATS", readWrite, op(schema.OpLayoutStats, nowhere, nowhere, stateID, device, device, device, 1, ""), errNotSupp},
		{"COPY_NOTIFY", readWrite, op(schema.OpCopyNotify, stateID, elsewhere), errNotSupp},
		{"COPY from elsewhere", readWrite, copying(elsewhere), errNotSupp},
		{"COPY within", readWrite, copying(), 0},
		{"OFFLOAD_STATUS", readWrite, op(schema.OpOffloadStatus, stateID), 0},
		{"an unknown operation", readWrite, op(9999), errOpIllegal},

		{"SETATTR", readOnly, op(schema.OpSetAttr, stateID, fattr([]uint32{4}, uint64(0))), errROFS},
		{"WRITE", readOnly, op(schema.OpWrite, stateID, nowhere, 2, "data"), errROFS},
		{"CREATE", readOnly, op(schema.OpCreate, 2, "d", attrsNone), errROFS},
		{"REMOVE", readOnly, op(schema.OpRemove, "a"), errROFS},
		{"RENAME", readOnly, op(schema.OpRename, "a", "b"), errROFS},
		{"LINK", readOnly, op(schema.OpLink, "a"), errROFS},
		{"ALLOCATE", readOnly, op(schema.OpAllocate, stateID, nowhere, nowhere), errROFS},
		{"DEALLOCATE", readOnly, op(schema.OpDeallocate, stateID, nowhere, nowhere), errROFS},
		{"COPY", readOnly, copying(), errROFS},
		{"CLONE", readOnly, op(schema.OpClone, stateID, stateID, nowhere, nowhere, nowhere), errROFS},
		{"WRITE_SAME", readOnly, op(schema.OpWriteSame, stateID, 2, nowhere, nowhere, nowhere, nowhere, 0, nowhere, ""), errROFS},
		{"SETXATTR", readOnly, op(schema.OpSetXattr, 0, "user.a", "b"), errROFS},
		{"REMOVEXATTR", readOnly, op(schema.OpRemoveXattr, "user.a"), errROFS},
		{"OPEN for writing", readOnly, open4(2, fields(0), "a"), errROFS},
		{"OPEN for both", readOnly, open4(3, fields(0), "a"), errROFS},
		{"OPEN for writing, wanting no delegation", readOnly, open4(2|0x400, fields(0), "a"), errROFS},
		{"OPEN that creates", readOnly, open4(1, fields(1, 0, attrsNone), "a"), errROFS},
		{"OPEN for reading", readOnly, open4(1, fields(0), "a"), 0},
		{"OPENATTR that creates", readOnly, op(schema.OpOpenAttr, 1), errROFS},
		{"OPENATTR", readOnly, op(schema.OpOpenAttr, 0), 0},
		{"GETXATTR", readOnly, op(schema.OpGetXattr, "user.a"), 0},
		{"READ", readOnly, op(schema.OpRead, stateID, nowhere, 100), 0},
		{"WRITE of others", readWrite, op(schema.OpWrite, stateID, nowhere, 2, "data"), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			code := int(test.op[3])
			ex := exchange{
				who: test.who, call: []raw{putFH(someFH), saveFH, test.op, getFH}, sent: []raw{putFH(someFH), saveFH},
				reply: []raw{ok(schema.OpPutFH), ok(schema.OpSaveFH)}, gotStatus: test.status, got: []raw{ok(schema.OpPutFH), ok(schema.OpSaveFH), op(code, test.status)},
			}
			switch {
			case test.status == 0:
				ex.sent, ex.got = nil, nil
				ex.status, ex.reply = 13, []raw{ok(schema.OpPutFH), ok(schema.OpSaveFH), op(code, 13)}
				if code == schema.OpSetAttr {
					ex.reply[2] = op(code, 13, bitmap())
				}
			case test.status == errOpIllegal:
				ex.got[2] = op(schema.OpIllegal, errOpIllegal)
			case code == schema.OpSetAttr:
				ex.got[2] = op(code, errROFS, bitmap())
			}
			ex.run(t, x)
			// An earlier failure wins.
			if test.status != 0 {
				ex.status, ex.reply, ex.got = 10001, []raw{op(schema.OpPutFH, 10001)}, nil
				ex.run(t, x)
			}
		})
	}
}

// TestLocalV4 checks that a refusal of the first operation does not reach the backend.
func TestLocalV4(t *testing.T) {
	x := exportV4(t, sign.Required)
	x.Minor[1] = false
	readOnly := Caller{ReadOnly: true}
	for _, test := range []struct {
		name string
		call []byte
		who  Caller
		want []byte
	}{
		{"minor version not offered", compoundV4(1, sequence), Caller{}, resultsOf(errMinorMismatch)},
		{"minor version unknown", compoundV4(3, sequence), Caller{}, resultsOf(errMinorMismatch)},
		{"minor version huge", compoundV4(-1, sequence), Caller{}, resultsOf(errMinorMismatch)},
		{"4.0 where nothing may be changed", compoundV4(0, putRootFH), readOnly, resultsOf(errMinorMismatch)},
		{"a forged handle first", compoundV4(0, putFH(someFH), getFH), Caller{}, resultsOf(errBadHandle, op(schema.OpPutFH, errBadHandle))},
		{"without a session", compoundV4(2, putFH(someFH), getFH), Caller{}, resultsOf(errNotInSession, op(schema.OpPutFH, errNotInSession))},
		{"SETATTR without a session", compoundV4(2, op(schema.OpSetAttr, stateID, fattr([]uint32{24}, 0, 0))), Caller{},
			resultsOf(errNotInSession, op(schema.OpSetAttr, errNotInSession, bitmap()))},
		{"an unknown operation first", compoundV4(2, op(99)), Caller{}, resultsOf(errOpIllegal, op(schema.OpIllegal, errOpIllegal))},
		{"one of another minor version", compoundV4(0, sequence), Caller{}, resultsOf(errOpIllegal, op(schema.OpIllegal, errOpIllegal))},
		{"what cannot be read", compoundV4(2, op(schema.OpSequence, "short")), Caller{}, resultsOf(errBadXDR, op(schema.OpSequence, errBadXDR))},
		{"no operation where there should be one", compoundV4(2, raw{}), Caller{}, resultsOf(errBadXDR, op(schema.OpIllegal, errBadXDR))},
		{"cut short", compoundV4(2, raw{})[:76], Caller{}, fields(xidV4, 1, 0, 0, 0, 4)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c Call
			_, got := sendV4(t, &c, x, &test.who, arrived(t, test.call))
			sameBytes(t, "the answer", got, test.want)
		})
	}
}

// TestTrailing checks that bytes after the last operation or result are dropped.
func TestTrailing(t *testing.T) {
	x := exportV4(t, sign.Off)
	call := compoundV4(2, sequence, putFH(someFH))
	var c Call
	in := arrived(t, slices.Concat(call, fields(1, 2, 3)))
	sent, _ := sendV4(t, &c, x, &Caller{}, in)
	sameBytes(t, "the call", sent, call)
	reply := resultsOf(0, sequenceOK, ok(schema.OpPutFH))
	sameBytes(t, "the reply", answerV4(t, &c, x, in, slices.Concat(reply, fields(1))), reply)
}
