package rewrite

import (
	"testing"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
)

const (
	aSupp, aFH, aID, aLoc, aMaxRead, aMaxWrite = schema.AttrSupported, schema.AttrFileHandle, schema.AttrFileID, schema.AttrFSLocations, schema.AttrMaxRead, schema.AttrMaxWrite
	aMounted, aTypes, aLocInfo, aExcl          = schema.AttrMountedOnFileID, schema.AttrFSLayoutTypes, schema.AttrFSLocationsInfo, schema.AttrSuppAttrExclCreat
)

func getAttr(attrs ...uint32) raw { return op(schema.OpGetAttr, bitmap(attrs...)) }

func gotAttr(attrs []uint32, values ...any) raw { return ok(schema.OpGetAttr, fattr(attrs, values...)) }

// below sets a filehandle that is not the root.
func below(x *Export) (call, sent, reply []raw) {
	return []raw{putFH(x.signed(someFH)), lookup("a")}, []raw{putFH(someFH), lookup("a")}, []raw{ok(schema.OpPutFH), ok(schema.OpLookup)}
}

// TestAttrs covers the attributes that clients request, compare, set and get.
func TestAttrs(t *testing.T) {
	x := exportV4(t, sign.Required)
	call, sent, reply := below(x)
	list := func(before []raw, o raw) []raw { return append(append([]raw{}, before...), o) }
	everything := fields(3, uint32(0xffffffff), uint32(0xffffffff), uint32(0xffffffff))
	offered3 := fields(3, visibleAttrs[0], visibleAttrs[1], visibleAttrs[2])
	for _, ex := range []exchange{
		{
			name: "locations are not asked for",
			call: list(call, getAttr(aSupp, aLoc, 33, aLocInfo)), sent: list(sent, op(schema.OpGetAttr, fields(3, 1, 2, 0))),
			reply: list(reply, gotAttr([]uint32{33}, 0o644)), got: list(reply, gotAttr([]uint32{33}, 0o644)),
		},
		{
			name: "nor what is not known",
			call: list(call, op(schema.OpGetAttr, fields(4, 2, 0, uint32(0xffffffff), 5))), sent: list(sent, op(schema.OpGetAttr, fields(3, 2, 0, visibleAttrs[2]))),
			reply: list(reply, gotAttr([]uint32{1}, 2)), got: list(reply, gotAttr([]uint32{1}, 2)),
		},
		{
			name: "nor what has a number of 256 and above",
			call: list(call, getAttr(1, 33, 256, 1023)), sent: list(sent, op(schema.OpGetAttr, fields(3, 2, 2, 0))),
			reply: list(reply, gotAttr([]uint32{1, 33}, 2, 0o644)),
		},
		{
			name:  "nor in the entries of a directory",
			call:  list(call, op(schema.OpReaddir, uint64(0), uint64(0), 512, 4096, bitmap(1, 300))),
			sent:  list(sent, op(schema.OpReaddir, uint64(0), uint64(0), 512, 4096, fields(3, 2, 0, 0))),
			reply: list(reply, ok(schema.OpReaddir, uint64(1), 0, 1)),
		},
		{
			name: "such a number is not set",
			call: list(call, op(schema.OpSetAttr, stateID, fattr([]uint32{33, 256}, 0o644, 1))), sent: sent,
			reply: reply, gotStatus: errAttrNotSupp, got: list(reply, op(schema.OpSetAttr, errAttrNotSupp, bitmap())),
		},
		{
			name: "nor compared",
			call: list(call, op(schema.OpNVerify, fattr([]uint32{33, 256}, 0o644, 1))), sent: sent,
			reply: reply, gotStatus: errAttrNotSupp, got: list(reply, op(schema.OpNVerify, errAttrNotSupp)),
		},
		{
			name: "supported attributes",
			call: list(call, getAttr(aSupp, aExcl)), sent: list(sent, getAttr(aSupp, aExcl)),
			reply: list(reply, gotAttr([]uint32{aSupp, aExcl}, everything, everything)),
			got:   list(reply, gotAttr([]uint32{aSupp, aExcl}, offered3, offered3)),
		},
		{
			name: "the handle is signed, limits are ours, layouts are none",
			call: list(call, getAttr(1, aFH, aMaxRead, aMaxWrite, aTypes)), sent: list(sent, getAttr(1, aFH, aMaxRead, aMaxWrite, aTypes)),
			reply: list(reply, gotAttr([]uint32{1, aFH, aMaxRead, aMaxWrite, aTypes}, 2, []byte("x"), uint64(2<<20), uint64(4096), fields(2, 1, 4))),
			got:   list(reply, gotAttr([]uint32{1, aFH, aMaxRead, aMaxWrite, aTypes}, 2, x.signed([]byte("x")), uint64(1<<20), uint64(4096), fields(0))),
		},
		{
			name:  "a handle is compared as the backend knows it",
			call:  list(call, op(schema.OpVerify, fattr([]uint32{1, aFH, 33}, 2, x.signed(someFH), 7))),
			sent:  list(sent, op(schema.OpVerify, fattr([]uint32{1, aFH, 33}, 2, someFH, 7))),
			reply: list(reply, ok(schema.OpVerify)), got: list(reply, ok(schema.OpVerify)),
		},
		{
			name: "NVERIFY too",
			call: list(call, op(schema.OpNVerify, fattr([]uint32{aFH}, x.signed(someFH)))), sent: list(sent, rootCheck(someFH)),
			status: errSame, reply: list(reply, op(schema.OpNVerify, errSame)), gotStatus: errSame, got: list(reply, op(schema.OpNVerify, errSame)),
		},
		{
			name: "a forged one is not compared",
			call: list(call, op(schema.OpNVerify, fattr([]uint32{aFH}, someFH))), sent: sent,
			reply: reply, gotStatus: errBadHandle, got: list(reply, op(schema.OpNVerify, errBadHandle)),
		},
		{
			name: "what looks otherwise here is not compared",
			call: list(call, op(schema.OpVerify, fattr([]uint32{aTypes}, 0))), sent: sent,
			reply: reply, gotStatus: errAttrNotSupp, got: list(reply, op(schema.OpVerify, errAttrNotSupp)),
		},
		{
			name: "locations are not compared",
			call: list(call, op(schema.OpNVerify, fattr([]uint32{aLoc}, 0, 0))), sent: sent,
			reply: reply, gotStatus: errAttrNotSupp, got: list(reply, op(schema.OpNVerify, errAttrNotSupp)),
		},
		{
			name: "locations are not set",
			call: list(call, op(schema.OpCreate, 2, "d", fattr([]uint32{aLoc}, 0, 0))), sent: sent,
			reply: reply, gotStatus: errAttrNotSupp, got: list(reply, op(schema.OpCreate, errAttrNotSupp)),
		},
		{
			name: "handles are not set",
			call: list(call, op(schema.OpSetAttr, stateID, fattr([]uint32{aFH}, x.signed(someFH)))), sent: sent,
			reply: reply, gotStatus: errInval, got: list(reply, op(schema.OpSetAttr, errInval, bitmap())),
		},
		{
			name: "unknown attributes are not set",
			call: list(call, open4(2, fields(1, 0, fields(3, 0, 0, 1<<30, 4, 0)), "a")), sent: sent,
			reply: reply, gotStatus: errAttrNotSupp, got: list(reply, op(schema.OpOpen, errAttrNotSupp)),
		},
		{
			name:  "directory notifications have no handles",
			call:  list(call, op(schema.OpGetDirDelegation, 0, bitmap(3), raw(make([]byte, 24)), bitmap(1, aFH), bitmap(aFH, 33))),
			sent:  list(sent, op(schema.OpGetDirDelegation, 0, bitmap(3), raw(make([]byte, 24)), bitmap(1), fields(2, 0, 2))),
			reply: list(reply, ok(schema.OpGetDirDelegation, 1, 0)), got: list(reply, ok(schema.OpGetDirDelegation, 1, 0)),
		},
		{
			name: "ACCESS where everything may be changed",
			call: list(call, op(schema.OpAccess, 0x1ff)), sent: list(sent, op(schema.OpAccess, 0x1ff)),
			reply: list(reply, ok(schema.OpAccess, 0x1ff, 0x1ff)), got: list(reply, ok(schema.OpAccess, 0x1ff, 0x1ff)),
		},
		{
			name: "ACCESS where nothing may be changed", who: Caller{ReadOnly: true},
			call: list(call, op(schema.OpAccess, 0x1ff)), sent: list(sent, op(schema.OpAccess, 0x1ff)),
			reply: list(reply, ok(schema.OpAccess, 0x1ff, 0x1ff)), got: list(reply, ok(schema.OpAccess, 0x1ff, 0x163)),
		},
	} {
		t.Run(ex.name, func(t *testing.T) { ex.run(t, x) })
	}
}

// TestSupportedCompared checks that VERIFY and NVERIFY compare sets of attributes with the values
// that GETATTR returns here.
func TestSupportedCompared(t *testing.T) {
	x := exportV4(t, sign.Required)
	const all = uint32(0xffffffff)
	x.Roots.Store(&Roots{V4: rootV4, FileID4: 128, No3: true, Supported4: []uint32{all, all, all}, ExclCreat4: []uint32{16, 2}})
	call, sent, reply := below(x)
	reply = append(reply, ok(schema.OpVerify))
	here, there := fields(3, visibleAttrs[0], visibleAttrs[1], visibleAttrs[2]), fields(3, all, all, all)
	for _, c := range []struct {
		name       string
		call, sent raw
	}{
		{"those returned here", fattr([]uint32{aSupp}, here), fattr([]uint32{aSupp}, there)},
		{"those of the backend, which are hidden", fattr([]uint32{aSupp}, there), fattr([]uint32{aSupp}, fields(3, all&^1, all, all))},
		{"others", fattr([]uint32{aSupp}, fields(1, 2)), fattr([]uint32{aSupp}, fields(1, 2|1<<aLoc))},
		{"none", fattr([]uint32{aSupp}, fields(0)), fattr([]uint32{aSupp}, fields(0))},
		{"far ones", fattr([]uint32{aSupp}, fields(9, 2, 0, 0, 0, 0, 0, 0, 0, 1)), fattr([]uint32{aSupp}, fields(9, 2, 0, 0, 0, 0, 0, 0, 0, 1))},
		{"those of CREATE", fattr([]uint32{aExcl}, fields(2, 16, 2)), fattr([]uint32{aExcl}, fields(2, 16, 2))},
		{"those of CREATE with a hidden one", fattr([]uint32{aExcl}, fields(2, 1<<aLoc, 2)), fattr([]uint32{aExcl}, fields(2, 1<<aLoc|1, 2))},
		{"beside a handle", fattr([]uint32{aSupp, aFH}, here, x.signed(someFH)), fattr([]uint32{aSupp, aFH}, there, someFH)},
	} {
		ex := exchange{name: c.name, call: append(call[:2:2], op(schema.OpVerify, c.call)), sent: append(sent[:2:2], op(schema.OpVerify, c.sent)), reply: reply}
		t.Run(c.name, func(t *testing.T) { ex.run(t, x) })
	}
	// Version 4.0 has none beyond mounted_on_fileid.
	old := visibleAttrs[1] & (1<<24 - 1)
	var c Call
	forwarded, _ := sendV4(t, &c, x, &Caller{}, arrived(t, compoundV4(0, putFH(x.signed(someFH)), op(schema.OpNVerify, fattr([]uint32{aSupp}, fields(2, visibleAttrs[0], old))))))
	sameBytes(t, "the call", forwarded, compoundV4(0, putFH(someFH), op(schema.OpNVerify, fattr([]uint32{aSupp}, fields(2, all, old)))))
}

// TestMountedOn checks that the root's mounted_on_fileid is hidden, as it belongs to a directory
// above.
func TestMountedOn(t *testing.T) {
	x := exportV4(t, sign.Off)
	const rootID, otherID, aboveID = uint64(128), uint64(129), uint64(2)
	both := func(id, mounted uint64) raw { return gotAttr([]uint32{aID, aMounted}, id, mounted) }
	ask, askOne := getAttr(aID, aMounted), getAttr(aMounted)
	toRoot := ok(schema.OpPutFH)
	for _, ex := range []exchange{
		{
			name: "the root", call: []raw{putFH(rootV4), ask},
			reply: []raw{toRoot, both(rootID, aboveID)}, got: []raw{toRoot, both(rootID, rootID)},
		},
		{
			name: "the root, without its fileid", call: []raw{putFH(rootV4), askOne},
			reply: []raw{toRoot, gotAttr([]uint32{aMounted}, aboveID)}, got: []raw{toRoot, gotAttr([]uint32{aMounted}, rootID)},
		},
		{
			name: "what turns out to be the root, without its fileid", call: []raw{putFH(someFH), getAttr(1, aMounted)}, sent: []raw{putFH(someFH), getAttr(1, aID, aMounted)},
			reply: []raw{toRoot, gotAttr([]uint32{1, aID, aMounted}, 2, rootID, aboveID)}, got: []raw{toRoot, gotAttr([]uint32{1, aMounted}, 2, rootID)},
		},
		{
			name: "what is mounted further down, without its fileid", call: []raw{putFH(someFH), getAttr(1, aMounted, 300)}, sent: []raw{putFH(someFH), op(schema.OpGetAttr, fields(3, 1<<1|1<<20, 1<<(aMounted-32), 0))},
			reply: []raw{toRoot, gotAttr([]uint32{1, aID, aMounted}, 2, otherID, aboveID)}, got: []raw{toRoot, gotAttr([]uint32{1, aMounted}, 2, aboveID)},
		},
		{
			name: "what turns out to be the root", call: []raw{putFH(someFH), ask},
			reply: []raw{toRoot, both(rootID, aboveID)}, got: []raw{toRoot, both(rootID, rootID)},
		},
		{
			name: "what is mounted further down", call: []raw{putFH(someFH), ask},
			reply: []raw{toRoot, both(otherID, aboveID)},
		},
		{
			name: "what cannot be the root", call: []raw{putFH(someFH), lookup("a"), askOne},
			reply: []raw{toRoot, ok(schema.OpLookup), gotAttr([]uint32{aMounted}, aboveID)},
		},
	} {
		t.Run(ex.name, func(t *testing.T) { ex.run(t, x) })
	}
}

// TestNoFileID checks that mounted_on_fileid is hidden where the backend returns no fileid.
func TestNoFileID(t *testing.T) {
	x := exportV4(t, sign.Off)
	refusesReply(t, x, []raw{sequence, putFH(someFH), getAttr(aMounted)}, resultsOf(0, sequenceOK, ok(schema.OpPutFH), gotAttr([]uint32{aMounted}, uint64(2))))
}

// TestReaddirV4 checks that entries have signed handles, and that maxcount leaves room for the
// tags.
func TestReaddirV4(t *testing.T) {
	x := exportV4(t, sign.Required)
	call, sent, reply := below(x)
	readdir := func(maxcount int, attrs ...uint32) raw {
		return op(schema.OpReaddir, uint64(0), uint64(0), 512, maxcount, bitmap(attrs...))
	}
	entries := func(handle func([]byte) []byte) raw {
		b := fields(0, uint64(1))
		for i := range 100 {
			b = append(b, fields(1, uint64(i), "name", fattr([]uint32{1, aFH, aID}, 1, handle([]byte{byte(i)}), uint64(i)))...)
			b = append(b, fields(1, uint64(i), "odd", fattr([]uint32{11}, 5))...)
		}
		return op(schema.OpReaddir, append(b, fields(0, 1)...))
	}
	plain := func(h []byte) []byte { return h }
	for _, ex := range []exchange{
		{
			name: "with handles",
			call: append(call, readdir(8800, 1, aFH, aID, aMounted, aLoc), getFH), sent: append(sent, readdir(7200, 1, aFH, aID, aMounted), getFH),
			reply: append(reply, entries(plain), ok(schema.OpGetFH, someFH)), got: append(reply, entries(x.signed), ok(schema.OpGetFH, x.signed(someFH))),
		},
		{
			name: "without",
			call: append(call, readdir(8800, 1, aID)), sent: append(sent, readdir(8800, 1, aID)),
			reply: append(reply, ok(schema.OpReaddir, uint64(1), 0, 1)), got: append(reply, ok(schema.OpReaddir, uint64(1), 0, 1)),
		},
	} {
		t.Run(ex.name, func(t *testing.T) { ex.run(t, x) })
	}
}

// TestRoomForTags checks that all entries within the lowered maxcount fit in maxcount when signed.
func TestRoomForTags(t *testing.T) {
	for _, maxcount := range []uint64{0, 1, 43, 44, 4096, 1 << 20, 0xffffffff} {
		room := uint64(roomForTags(maxcount, sign.TagLen))
		if grown := room + room/minEntryV4*sign.TagLen; grown > maxcount {
			t.Errorf("maxcount %d becomes %d, which grows to %d", maxcount, room, grown)
		}
	}
}

// TestElsewhere checks that unrequested attributes about other locations make a reply unreadable.
func TestElsewhere(t *testing.T) {
	x := exportV4(t, sign.Off)
	for _, result := range []raw{
		gotAttr([]uint32{aLoc}, 0, 0),
		ok(schema.OpReaddir, uint64(1), 1, uint64(1), "a", fattr([]uint32{aLoc}, 0, 0), 0, 1),
	} {
		call := []raw{sequence, putFH(someFH), getAttr(aLoc)}
		if result[3] == schema.OpReaddir {
			call[2] = op(schema.OpReaddir, uint64(0), uint64(0), 1, 1, bitmap())
		}
		refusesReply(t, x, call, resultsOf(0, sequenceOK, ok(schema.OpPutFH), result))
	}
}
