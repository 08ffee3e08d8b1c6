// Package nfs3test draws random messages of NFS version 3, MOUNT and NFSACL. Tests of codecs and of
// bindings use them.
package nfs3test

import (
	"bytes"
	"sync"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/xdr"
)

// Message is the arguments or results of a procedure.
type Message interface {
	Encode(e *xdr.Encoder)
	Decode(d *xdr.Decoder)
}

// Codec makes the messages of one procedure: empty ones to decode into, and random ones.
type Codec struct {
	Name              string
	NewArgs, NewRes   func() Message
	DrawArgs, DrawRes func(t *rapid.T) Message
}

// NFS has the procedures of NFS version 3, in order.
var NFS = [nfs3.Procedures]Codec{
	nfs3.ProcNull:        codec(void, void),
	nfs3.ProcGetAttr:     codec(handleArgs, getAttrRes),
	nfs3.ProcSetAttr:     codec(setAttrArgs, wccRes),
	nfs3.ProcLookup:      codec(dirOpArgs, lookupRes),
	nfs3.ProcAccess:      codec(accessArgs, accessRes),
	nfs3.ProcReadlink:    codec(handleArgs, readlinkRes),
	nfs3.ProcRead:        codec(readArgs, readRes),
	nfs3.ProcWrite:       codec(writeArgs, writeRes),
	nfs3.ProcCreate:      codec(createArgs, createRes),
	nfs3.ProcMkdir:       codec(mkdirArgs, createRes),
	nfs3.ProcSymlink:     codec(symlinkArgs, createRes),
	nfs3.ProcMknod:       codec(mknodArgs, createRes),
	nfs3.ProcRemove:      codec(dirOpArgs, wccRes),
	nfs3.ProcRmdir:       codec(dirOpArgs, wccRes),
	nfs3.ProcRename:      codec(renameArgs, renameRes),
	nfs3.ProcLink:        codec(linkArgs, linkRes),
	nfs3.ProcReaddir:     codec(readdirArgs, readdirRes),
	nfs3.ProcReaddirPlus: codec(readdirPlusArgs, readdirPlusRes),
	nfs3.ProcFSStat:      codec(handleArgs, fsStatRes),
	nfs3.ProcFSInfo:      codec(handleArgs, fsInfoRes),
	nfs3.ProcPathConf:    codec(handleArgs, pathConfRes),
	nfs3.ProcCommit:      codec(commitArgs, commitRes),
}

// Mount has the procedures of MOUNT, in order.
var Mount = [nfs3.MountProcedures]Codec{
	nfs3.MountProcNull:    codec(void, void),
	nfs3.MountProcMnt:     codec(mountArgs, mountRes),
	nfs3.MountProcDump:    codec(void, dumpRes),
	nfs3.MountProcUmnt:    codec(mountArgs, void),
	nfs3.MountProcUmntAll: codec(void, void),
	nfs3.MountProcExport:  codec(void, exportRes),
}

// ACL has the procedures of NFSACL, in order.
var ACL = [nfs3.ACLProcedures]Codec{
	nfs3.ACLProcNull:   codec(void, void),
	nfs3.ACLProcGetACL: codec(getACLArgs, getACLRes),
	nfs3.ACLProcSetACL: codec(setACLArgs, setACLRes),
}

func init() {
	for i := range NFS {
		NFS[i].Name = nfs3.ProcedureName(uint32(i))
	}
	for i := range Mount {
		Mount[i].Name = nfs3.MountProcedureName(uint32(i))
	}
	for i := range ACL {
		ACL[i].Name = nfs3.ACLProcedureName(uint32(i))
	}
}

type pointer[T any] interface {
	*T
	Message
}

func codec[A, R any, PA pointer[A], PR pointer[R]](args func(*rapid.T) A, res func(*rapid.T) R) Codec {
	return Codec{
		NewArgs:  func() Message { return PA(new(A)) },
		NewRes:   func() Message { return PR(new(R)) },
		DrawArgs: func(t *rapid.T) Message { v := args(t); return PA(&v) },
		DrawRes:  func(t *rapid.T) Message { v := res(t); return PR(&v) },
	}
}

// Encode returns m's stream and the items taken out of it. m fits in 64 KiB, or is a list, which
// ends there.
func Encode(m Message) ([]byte, []xdr.Item) {
	room := rooms.Get().(*[64 << 10]byte)
	defer rooms.Put(room)
	var e xdr.Encoder
	e.Reset(room[:0], nil)
	if m.Encode(&e); e.Overflow() {
		panic("nfs3test: message longer than 64 KiB")
	}
	return bytes.Clone(e.Bytes()), e.Items()
}

var rooms = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// Flatten writes items back into the stream they were taken out of.
func Flatten(stream []byte, items []xdr.Item) []byte {
	var out []byte
	for _, it := range items {
		n := it.Position - len(out)
		out = append(out, stream[:n]...)
		stream = stream[n:]
		out = append(out, bytes.Join(it.Data, nil)...)
		out = append(out, make([]byte, xdr.Pad(it.Length))...)
	}
	return append(out, stream...)
}

// Void are no arguments, or no results.
type Void struct{}

// Encode writes nothing.
func (*Void) Encode(*xdr.Encoder) {}

// Decode reads nothing.
func (*Void) Decode(*xdr.Decoder) {}

func void(*rapid.T) Void { return Void{} }
