//go:build kernel

package hostile

import (
	"bytes"
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// forgeries returns handles that this export has not issued. good is one that it has.
func (g *gate) forgeries(t *testing.T, good []byte, limit int) map[string][]byte {
	t.Helper()
	plain, ok := g.signer.Verify(good, limit)
	if !ok {
		t.Fatalf("%x is no handle of the export's", good)
	}
	another, err := sign.New([][]byte{bytes.Repeat([]byte{1}, sign.MinKey)}, []byte("export one"), sign.Required)
	check(t, err)
	list := map[string][]byte{
		"none":                       nil,
		"the backend's own":          plain,
		"with another key":           another.Append(nil, plain, limit),
		"a tag alone":                good[len(plain):],
		"with a tag of zeros":        append(bytes.Clone(plain), make([]byte, sign.TagLen)...),
		"longer by a byte":           append(bytes.Clone(good), 0),
		"as long as handles can get": append(bytes.Clone(good), make([]byte, limit-len(good))...),
		"of zeros":                   make([]byte, limit),
	}
	for n := 1; n < len(good); n++ {
		list[fmt.Sprintf("cut to %d bytes", n)] = good[:n]
	}
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		list[fmt.Sprintf("bit %d flipped", bit)] = b
	}
	for handle, path := range g.h.outside {
		list["the backend's of "+path+fmt.Sprintf(", %d bytes", len(handle))] = []byte(handle)
		list["of "+path+" with the tag of another"+fmt.Sprintf(", %d bytes", len(handle))] = append([]byte(handle), good[len(plain):]...)
	}
	return list
}

// TestForgedHandles tries handles that the export has not issued, in both versions.
func TestForgedHandles(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	foreign := h.foreign()
	c := g.intrude(t, "tcp", 0)
	c.begin(1)
	good := c.walk("file")
	for what, handle := range g.forgeries(t, good, sign.Max4) {
		res := c.next(putRoot, saveFH, putFH(handle), op(schema.OpRead, anonymous, uint64(0), 100))
		if res.Status != errBadHandle || len(res.Ops) != 4 {
			t.Errorf("PUTFH of a handle %s: status %d, %d results", what, res.Status, len(res.Ops))
		}
	}
	c.want(c.next(putFH(foreign)), errBadHandle, schema.OpPutFH)
	c.want(c.next(putRoot, op(schema.OpVerify, nfs4test.Attrs([]uint32{schema.AttrFileHandle}, foreign))), errBadHandle, schema.OpVerify)
	c.want(c.next(putFH(good), op(schema.OpVerify, nfs4test.Attrs([]uint32{schema.AttrFileHandle}, good))), 0, schema.OpVerify)
	c.fine()

	root := c.mount(t)
	before := h.relay.count()
	forged := g.forgeries(t, root, sign.Max3)
	forged["foreign"] = foreign
	for what, handle := range forged {
		for procedure, args := range procedures3(handle, root, "name") {
			if status, _, _ := c.call3(nfs4test.NFS, procedure, args); status != uint32(nfs3.ErrBadHandle) {
				t.Errorf("%s with a handle %s: status %d", nfs3.ProcedureName(procedure), what, status)
			}
		}
		for procedure := range uint32(2) {
			args := fields(handle, 0)
			if procedure == 1 {
				args = fields(handle, 0, 0, 0, 0, 0)
			}
			if status, _, _ := c.call3(nfs4test.NFSACL, 1+procedure, args); status != uint32(nfs3.ErrBadHandle) {
				t.Errorf("procedure %d of NFSACL with a handle %s: status %d", 1+procedure, what, status)
			}
		}
	}
	if calls := h.relay.since(before); len(calls) > 0 {
		t.Errorf("the backend got %v", calls)
	}
}

// mount returns the root's handle of version 3.
func (c *intruder) mount(t *testing.T) []byte {
	t.Helper()
	status, spans, _ := c.call3(nfs4test.Mount, 1, fields("/"))
	if status != 0 {
		t.Fatalf("MNT: status %d", status)
	}
	return handleIn(t, spans)
}

// procedures3 returns arguments for every procedure of version 3 but NULL: a handle, a second one
// where there are two, and a name.
func procedures3(handle, second []byte, name string) map[uint32]raw {
	sattr := fields(0, 0, 0, 0, 0, 0)
	return map[uint32]raw{
		nfs3.ProcGetAttr:     fields(handle),
		nfs3.ProcSetAttr:     fields(handle, sattr, 0),
		nfs3.ProcLookup:      fields(handle, name),
		nfs3.ProcAccess:      fields(handle, 0x3f),
		nfs3.ProcReadlink:    fields(handle),
		nfs3.ProcRead:        fields(handle, uint64(0), 100),
		nfs3.ProcWrite:       fields(handle, uint64(0), 4, 2, "data"),
		nfs3.ProcCreate:      fields(handle, name, 0, sattr),
		nfs3.ProcMkdir:       fields(handle, name, sattr),
		nfs3.ProcSymlink:     fields(handle, name, sattr, "target"),
		nfs3.ProcMknod:       fields(handle, name, 7, sattr), // NF3FIFO
		nfs3.ProcRemove:      fields(handle, name),
		nfs3.ProcRmdir:       fields(handle, name),
		nfs3.ProcRename:      fields(handle, name, second, "new"),
		nfs3.ProcLink:        fields(handle, second, name),
		nfs3.ProcReaddir:     fields(handle, uint64(0), uint64(0), 4096),
		nfs3.ProcReaddirPlus: fields(handle, uint64(0), uint64(0), 4096, 32768),
		nfs3.ProcFSStat:      fields(handle),
		nfs3.ProcFSInfo:      fields(handle),
		nfs3.ProcPathConf:    fields(handle),
		nfs3.ProcCommit:      fields(handle, uint64(0), 0),
	}
}
