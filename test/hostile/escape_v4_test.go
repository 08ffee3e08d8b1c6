//go:build kernel

package hostile

import (
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/schema"
)

// Statuses of version 4.
const (
	errNoEnt         = 2
	errNotDir        = 20
	errInval         = 22
	errROFS          = 30
	errBadHandle     = 10001
	errNotSupp       = 10004
	errAttrNotSupp   = 10032
	errBadXDR        = 10036
	errBadChar       = 10040
	errBadName       = 10041
	errOpIllegal     = 10044
	errLayoutUnavail = 10059
	errTooManyOps    = 10070
)

var (
	putRoot   = op(schema.OpPutRootFH)
	putPublic = op(schema.OpPutPubFH)
	getFH     = op(schema.OpGetFH)
	saveFH    = op(schema.OpSaveFH)
	restoreFH = op(schema.OpRestoreFH)
	lookupP   = op(schema.OpLookupP)
)

func lookup(name string) raw  { return op(schema.OpLookup, name) }
func putFH(handle []byte) raw { return op(schema.OpPutFH, handle) }
func list(attrs ...uint32) raw {
	return op(schema.OpReaddir, uint64(0), uint64(0), 4096, 8192, bitmap(attrs...))
}

// attempt is a COMPOUND that tries to leave the export.
type attempt struct {
	name   string
	ops    []raw
	status uint32
	code   int // of the last result
}

// TestWaysOut tries every way that leads up.
func TestWaysOut(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c := g.intrude(t, network, 0)
			c.begin(2)
			for _, a := range append(waysOut(c), attempt{
				"more often than can be guarded", []raw{putFH(c.walk("dir", "deep")), lookupP, lookupP, lookupP, getFH}, errTooManyOps, schema.OpLookupP,
			}) {
				t.Run(a.name, func(t *testing.T) { c.try(t, a) })
			}
		})
	}
}

// waysOut are attempts to go up.
func waysOut(c *intruder) []attempt {
	c.Helper()
	root, dir, deep := c.walk(), c.walk("dir"), c.walk("dir", "deep")
	const up, fh, find = schema.OpLookupP, schema.OpGetFH, schema.OpLookup
	return []attempt{
		{"up from the root", []raw{putRoot, lookupP, getFH}, errNoEnt, up},
		{"up from the public root", []raw{putPublic, lookupP, getFH}, errNoEnt, up},
		{"up from the root's handle", []raw{putFH(root), lookupP, getFH}, errNoEnt, up},
		{"down, up and up", []raw{putRoot, lookup("dir"), lookupP, lookupP, getFH}, errNoEnt, up},
		{"down, up and down stays inside", []raw{putRoot, lookup("dir"), lookupP, lookup("file"), getFH}, 0, fh},
		{"up from a handle", []raw{putFH(dir), lookupP, getFH}, 0, fh},
		{"up and up from a handle", []raw{putFH(dir), lookupP, lookupP, getFH}, errNoEnt, up},
		{"up from a deep handle", []raw{putFH(deep), lookupP, lookupP, getFH}, 0, fh},
		{"the root saved and restored", []raw{putRoot, saveFH, lookup("dir"), restoreFH, lookupP}, errNoEnt, up},
		{"a detour by the saved handle", []raw{putFH(root), saveFH, putFH(dir), lookup("deep"), restoreFH, lookupP}, errNoEnt, up},
		{"a deep place saved, left, and come back to", []raw{putFH(deep), saveFH, lookupP, restoreFH, lookupP, getFH}, 0, fh},
		{"down from where LOOKUPP led", []raw{putFH(dir), lookupP, lookupP, lookup(secretName), getFH}, errNoEnt, up},
		{"a sibling of the root", []raw{putRoot, lookup(secretName), getFH}, errNoEnt, find},
		{"a path as a name", []raw{putRoot, lookup("../" + secretName)}, errBadChar, find},
		{"through a link upwards", []raw{putRoot, lookup("up"), lookup(secretName)}, errNotDirOrLink, find},
		{"through a link to the top", []raw{putRoot, lookup("top"), lookup("etc")}, errNotDirOrLink, find},
		{"the list of a link", []raw{putRoot, lookup("up"), list(schema.AttrFileID)}, errNotDirOrLink, schema.OpReaddir},
		{"the security of the parent of the root", []raw{putRoot, op(schema.OpSecInfoNoName, 1)}, errNoEnt, schema.OpSecInfoNoName},
		{"of the parent of a handle", []raw{putFH(root), op(schema.OpSecInfoNoName, 1)}, errNoEnt, schema.OpSecInfoNoName},
		{"all lists", []raw{putRoot, list(schema.AttrFileID, schema.AttrFileHandle, schema.AttrMountedOnFileID)}, 0, schema.OpReaddir},
		{"the list of a directory", []raw{putFH(dir), list(schema.AttrFileID, schema.AttrFileHandle, schema.AttrMountedOnFileID)}, 0, schema.OpReaddir},
		{"what the root is mounted on", []raw{putRoot, op(schema.OpGetAttr, bitmap(schema.AttrMountedOnFileID))}, 0, schema.OpGetAttr},
		{"the same, by its handle", []raw{putFH(root), op(schema.OpGetAttr, bitmap(schema.AttrFileID, schema.AttrMountedOnFileID))}, 0, schema.OpGetAttr},
	}
}

// errNotDirOrLink stands for the statuses with which servers refuse a symbolic link as a directory.
const errNotDirOrLink = ^uint32(0)

// try makes an attempt, and checks that the session works afterwards.
func (c *intruder) try(t *testing.T, a attempt) {
	on := *c
	on.T = t
	res := on.next(a.ops...)
	if a.status == errNotDirOrLink {
		a.status = errNotDir
		if res.Status == 10029 { // NFS4ERR_SYMLINK
			a.status = 10029
		}
	}
	on.want(res, a.status, a.code)
	on.fine()
}
