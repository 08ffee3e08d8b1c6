//go:build kernel

package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
)

// anonymous is the anonymous stateid.
var anonymous = make(raw, 16)

// noAttrs is an empty fattr4.
var noAttrs = nfs4test.Attrs(nil)

// open encodes OPEN by name.
func open(name string, share int, create raw) raw {
	return op(schema.OpOpen, 0, share, 0, uint64(0), "owner", create, 0, name)
}

var (
	noCreate = fields(0)
	create   = fields(1, 0, noAttrs)
)

// named returns each operation that takes a name in a directory.
func named(name string) []attempt {
	in := func(what string, code int, ops ...raw) attempt {
		return attempt{fmt.Sprintf("%s of %q", what, name), append([]raw{putRoot}, ops...), errBadName, code}
	}
	return []attempt{
		in("LOOKUP", schema.OpLookup, op(schema.OpLookup, name)),
		in("OPEN", schema.OpOpen, open(name, 1, noCreate)),
		in("OPEN that creates", schema.OpOpen, open(name, 2, create)),
		in("OPEN by a delegation", schema.OpOpen, op(schema.OpOpen, 0, 1, 0, uint64(0), "owner", noCreate, 2, anonymous, name)),
		in("OPEN by a former delegation", schema.OpOpen, op(schema.OpOpen, 0, 1, 0, uint64(0), "owner", noCreate, 3, name)),
		in("CREATE of a directory", schema.OpCreate, op(schema.OpCreate, 2, name, noAttrs)),
		in("CREATE of a link", schema.OpCreate, op(schema.OpCreate, 5, "target", name, noAttrs)),
		in("REMOVE", schema.OpRemove, op(schema.OpRemove, name)),
		in("RENAME from", schema.OpRename, saveFH, op(schema.OpRename, name, "new")),
		in("RENAME to", schema.OpRename, saveFH, op(schema.OpRename, "file", name)),
		in("LINK", schema.OpLink, lookup("file"), saveFH, putRoot, op(schema.OpLink, name)),
		in("SECINFO", schema.OpSecInfo, op(schema.OpSecInfo, name)),
	}
}

// TestNames tries invalid names in each operation that takes one.
func TestNames(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	c := g.intrude(t, "tcp", 0)
	c.begin(2)
	for name, status := range map[string]uint32{
		"..": errBadName, ".": errBadName, "": errInval, "../" + secretName: errBadChar, "/": errBadChar, "dir/..": errBadChar, "..\x00": errBadChar,
	} {
		for _, a := range named(name) {
			a.status = status
			t.Run(a.name, func(t *testing.T) { c.try(t, a) })
		}
	}
}

const (
	setPNFS   = 0x20000 | 0x40000
	nonPNFS   = 0x10000
	errDenied = 13 // NFS4ERR_ACCESS
)

// refusals are operations that the proxy refuses in every position behind a PUTROOTFH.
func refusals(foreign []byte) []attempt {
	where := fields(uint64(0), uint64(4096))
	hidden := func(code int, attr uint32, value ...any) attempt {
		return attempt{fmt.Sprintf("attribute %d in operation %d", attr, code), []raw{op(code, nfs4test.Attrs([]uint32{attr}, value...))}, errAttrNotSupp, code}
	}
	server := fields(1, "192.0.2.1") // NL4_NAME
	return []attempt{
		{"LAYOUTGET", []raw{op(schema.OpLayoutGet, false, 1, 1, where, uint64(0), anonymous, 4096)}, errLayoutUnavail, schema.OpLayoutGet},
		{"LAYOUTCOMMIT", []raw{op(schema.OpLayoutCommit, where, false, anonymous, false, false, 1, "")}, errNotSupp, schema.OpLayoutCommit},
		{"LAYOUTRETURN", []raw{op(schema.OpLayoutReturn, false, 1, 3, 3)}, errNotSupp, schema.OpLayoutReturn},
		{"LAYOUTERROR", []raw{op(schema.OpLayoutError, where, anonymous, 0)}, errNotSupp, schema.OpLayoutError},
		{"LAYOUTSTATS", []raw{op(schema.OpLayoutStats, where, anonymous, uint64(0), uint64(0), uint64(0), uint64(0), make(raw, 16), 1, "")}, errNotSupp, schema.OpLayoutStats},
		{"GETDEVICEINFO", []raw{op(schema.OpGetDeviceInfo, make(raw, 16), 1, 4096, 0)}, errNotSupp, schema.OpGetDeviceInfo},
		{"GETDEVICELIST", []raw{op(schema.OpGetDeviceList, 1, 10, uint64(0), uint64(0))}, errNotSupp, schema.OpGetDeviceList},
		{"COPY_NOTIFY", []raw{op(schema.OpCopyNotify, anonymous, server)}, errNotSupp, schema.OpCopyNotify},
		{
			"COPY from another server", []raw{op(schema.OpCopy, anonymous, anonymous, uint64(0), uint64(0), uint64(1), true, true, 1, server)},
			errNotSupp, schema.OpCopy,
		},
		{"a foreign handle", []raw{op(schema.OpPutFH, foreign)}, errBadHandle, schema.OpPutFH},
		{
			"a foreign handle compared", []raw{op(schema.OpVerify, nfs4test.Attrs([]uint32{schema.AttrFileHandle}, foreign))},
			errBadHandle, schema.OpVerify,
		},
		hidden(schema.OpVerify, schema.AttrFSLocations, 0, 0), hidden(schema.OpNVerify, schema.AttrFSLocations, 0, 0),
		hidden(schema.OpVerify, schema.AttrFSLocationsInfo, 0, 0, 0, 0), hidden(schema.OpVerify, schema.AttrMountedOnFileID, uint64(2)),
		{"LOOKUPP", []raw{lookupP}, errNoEnt, schema.OpLookupP},
		{"LOOKUP of ..", []raw{lookup("..")}, errBadName, schema.OpLookup},
		{"an operation that there is not", []raw{op(4711)}, errOpIllegal, schema.OpIllegal},
		{"one of what is to come", []raw{op(76, 1, 2, 3)}, errOpIllegal, schema.OpIllegal},
		{"one cut short", []raw{op(schema.OpLookup, 1000)}, errBadXDR, schema.OpLookup},
	}
}

// TestRefusedAnywhere puts every refused operation in every position: the operations before it are
// executed, those behind it are not.
func TestRefusedAnywhere(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	foreign := h.foreign()
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c := g.intrude(t, network, 0)
			c.begin(2)
			for _, a := range refusals(foreign) {
				t.Run(a.name, func(t *testing.T) {
					on := *c
					on.T = t
					before := []raw{putRoot, getFH, saveFH, op(schema.OpGetAttr, bitmap(schema.AttrFileID))}
					for n := range len(before) + 1 {
						if n == 0 && a.code == schema.OpLookupP {
							continue // no filehandle yet: the backend's refusal
						}
						ops := slices.Concat(before[:n], a.ops, []raw{op(schema.OpCreate, 2, "behind", noAttrs), lookup("dir"), getFH})
						if a.status == errBadXDR {
							ops = slices.Concat(before[:n], a.ops)
						}
						res := on.next(ops...)
						on.want(res, a.status, a.code)
						if len(res.Ops) != 1+n+1 {
							t.Errorf("behind %d operations: %d results", n, len(res.Ops))
						}
						on.fine()
					}
					res := on.next(putRoot, lookup("behind"))
					on.want(res, errNoEnt, schema.OpLookup)
				})
			}
		})
	}
}

// foreign returns a handle of another export of the same backend, signed for that export.
func (h *env) foreign() []byte {
	h.Helper()
	other := h.open(guard{uid: "export two", path: "/other", squash: access.SquashNone})
	c := other.intrude(h.T, "tcp", 0)
	c.Seen = nil // the second export holds files that are outside of the first
	s, err := nfs4test.NewSession(c.ctx, &c.Caller, 1, "foreign", 1, 0, 0)
	check(h, err)
	res, err := s.Next(c.ctx, 0, putRoot, lookup("file"), getFH)
	check(h, err)
	return bytes.Clone(res.Handle(h, 3))
}

// TestWaysAround checks that neither layouts nor other servers are offered.
func TestWaysAround(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	c := g.intrude(t, "tcp", 0)
	for _, flags := range []int{0, setPNFS, setPNFS | nonPNFS} {
		res := c.compound(2, nfs4test.ExchangeID(fmt.Sprint("owner ", flags), flags))
		c.want(res, 0, schema.OpExchangeID)
		if f := res.Find(0, schema.ExchangeFlags); f == nil || f.Value&setPNFS != 0 || f.Value&nonPNFS == 0 {
			t.Errorf("EXCHANGE_ID with flags %#x: the answer has %+v", flags, f)
		}
	}
	for _, p := range h.relay.since(0) {
		if flags := binary.BigEndian.Uint32(p.args[len(p.args)-12:]); slices.Contains(p.ops, schema.OpExchangeID) && flags != nonPNFS {
			t.Errorf("the backend gets EXCHANGE_ID with flags %#x", flags)
		}
	}
	// In 4.0 the backend would call back to an address that the client names.
	before := h.relay.count()
	c.want(c.compound(0, op(schema.OpSetClientID, raw("verifier"), "a client of 4.0", 0x40000000, "tcp", "192.0.2.1.8.1", 1)), 0, schema.OpSetClientID)
	if sent := h.relay.since(before); len(sent) != 1 || bytes.Contains(sent[0].args, []byte("192.0.2.1")) || !bytes.Contains(sent[0].args, []byte("0.0.0.0.0.0")) {
		t.Errorf("the backend gets SETCLIENTID as %v", sent)
	}
	c.begin(2)
	all := []uint32{schema.AttrFSLayoutTypes, schema.AttrFSLocations, schema.AttrFSLocationsInfo, 64}
	for _, ops := range [][]raw{
		{putRoot, op(schema.OpGetAttr, bitmap(append(all, schema.AttrSupported)...))},
		{putRoot, lookup("file"), op(schema.OpGetAttr, bitmap(all...))},
		{putRoot, list(append(all, schema.AttrFileHandle)...)},
	} {
		res := c.next(ops...)
		if res.Status != 0 {
			t.Fatalf("status %d", res.Status)
		}
		for i, s := range res.Spans {
			switch {
			case s.Mark == schema.Attrs && (has(s.B, schema.AttrFSLocations) || has(s.B, schema.AttrFSLocationsInfo)):
				t.Errorf("attributes %x have locations", s.B)
			case s.Mark == schema.Attr && s.Value == schema.AttrSupported && (has(s.B[4:], schema.AttrFSLocations) || has(s.B[4:], schema.AttrFSLocationsInfo)):
				t.Errorf("locations are supported: %x", s.B)
			case s.Mark == schema.Attr && s.Value == schema.AttrFSLayoutTypes && binary.BigEndian.Uint32(s.B) != 0:
				t.Errorf("span %d: layout types %x", i, s.B)
			}
		}
	}
}

func has(words []byte, n uint32) bool {
	at := int(n/32) * 4
	return at < len(words) && binary.BigEndian.Uint32(words[at:])>>(n%32)&1 != 0
}
