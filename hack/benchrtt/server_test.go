package benchrtt

import (
	"bytes"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// NFSACL's SETACL.
const (
	aclProgram = 100227
	aclVersion = 3
	aclSet     = 2
)

// entries of the directory. With names of 40 bytes, attributes and handles they fill a READDIRPLUS
// result of 64 KiB up to 12 bytes.
const entries = 348

var file = nfs3.Handle(bytes.Repeat([]byte{7}, 28))

// content is the content of the file, and the data written to it.
var content = func() []byte {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i>>12) ^ byte(i*7)
	}
	return b
}()

// server answers at once, from memory.
type server struct {
	answering func() // called just before each reply goes
	calls     int
}

// ServeRPC implements oncrpc.Handler.
func (s *server) ServeRPC(c *oncrpc.Call) {
	if err := s.serve(c); err != nil {
		panic(fmt.Sprintf("program %d procedure %d: %v", c.Program, c.Procedure, err))
	}
	s.calls++
	s.answering()
	c.Respond()
}

func (s *server) serve(c *oncrpc.Call) error {
	room := 256
	if c.Program == nfs3.Program && c.Procedure == nfs3.ProcReaddirPlus {
		room = 64 << 10
	}
	e, err := c.BeginReply(oncrpc.MinReplyLen + 4 + room)
	if err != nil {
		return err
	}
	d := c.Args()
	attr := nfs3.PostOpAttr{Present: true, Attr: nfs3.Attr{Type: nfs3.Reg, Nlink: 1, Size: uint64(len(content))}}
	switch {
	case c.Program == aclProgram && c.Procedure == aclSet:
		e.Uint32(uint32(nfs3.OK))
		attr.Encode(e)
		return setACL(d)
	case c.Program != nfs3.Program:
		c.ReplyAccept(oncrpc.ProgUnavail)
	case c.Procedure == nfs3.ProcGetAttr:
		(&nfs3.GetAttrRes{Attr: attr.Attr}).Encode(e)
	case c.Procedure == nfs3.ProcFSInfo:
		(&nfs3.FSInfoRes{Attr: attr, RTMax: 1 << 20, WTMax: 1 << 20, DTPref: 64 << 10}).Encode(e)
	case c.Procedure == nfs3.ProcRead:
		return read(c, d, e, attr)
	case c.Procedure == nfs3.ProcWrite:
		var a nfs3.WriteArgs
		a.Decode(d)
		if !bytes.Equal(bytes.Join(a.Data, nil), content[:a.Count]) {
			return fmt.Errorf("%d bytes are not what was written", a.Count)
		}
		(&nfs3.WriteRes{Wcc: nfs3.WccData{After: attr}, Count: a.Count, Committed: a.Stable}).Encode(e)
	case c.Procedure == nfs3.ProcReaddirPlus:
		return list(d, e, attr)
	default:
		c.ReplyAccept(oncrpc.ProcUnavail)
	}
	return d.Err()
}

func read(c *oncrpc.Call, d *xdr.Decoder, e *xdr.Encoder, attr nfs3.PostOpAttr) error {
	var a nfs3.ReadArgs
	a.Decode(d)
	buf, err := c.Pool().Get(int(a.Count))
	if err != nil {
		return err
	}
	copy(buf.B, content)
	c.Reply.Own(buf)
	(&nfs3.ReadRes{Attr: attr, Count: a.Count, Data: [][]byte{buf.B}}).Encode(e)
	return d.Err()
}

func list(d *xdr.Decoder, e *xdr.Encoder, attr nfs3.PostOpAttr) error {
	var a nfs3.ReaddirPlusArgs
	a.Decode(d)
	var w nfs3.ListWriter
	w.Begin(e, &nfs3.ReaddirRes{Attr: attr}, a.MaxCount, a.DirCount)
	for i := range entries {
		w.AddPlus(&nfs3.EntryPlus{
			Entry: nfs3.Entry{FileID: uint64(i + 2), Name: fmt.Appendf(nil, "%040d", i), Cookie: uint64(i + 1)},
			Attr:  attr, Handle: nfs3.PostOpFH{Handle: file},
		})
	}
	if status := w.End(true); status != nfs3.OK {
		return status
	}
	return d.Err()
}

func setACL(d *xdr.Decoder) error {
	d.Opaque(nfs3.MaxHandle)
	d.Uint32() // mask
	for range 2 {
		d.Uint32() // count
		if n := d.Uint32(); n != aclEntries {
			return fmt.Errorf("%d entries, %d were sent", n, aclEntries)
		}
		d.Skip(12 * aclEntries)
	}
	return d.Err()
}
