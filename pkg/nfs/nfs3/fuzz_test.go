package nfs3_test

import (
	"bytes"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/xdr"
)

// A decoder takes any bytes without a panic. A decoded message is encoded and decoded again to the
// same bytes.
func fuzzDecode(t *testing.T, m nfs3test.Message, stream []byte, at, length int) {
	var items []xdr.Item
	if length > 0 && length <= 1<<16 && at >= 0 && at <= len(stream) {
		items = []xdr.Item{{Position: at &^ 3, Length: length, Data: [][]byte{make([]byte, length)}}}
	}
	var d xdr.Decoder
	d.Reset([][]byte{stream[:len(stream)/2], stream[len(stream)/2:]}, items)
	m.Decode(&d)
	if d.Err() != nil {
		return
	}
	first := nfs3test.Flatten(nfs3test.Encode(m))
	d.ResetBytes(first)
	m.Decode(&d)
	if d.Err() != nil || d.Left() != 0 {
		t.Fatalf("%T: encoded, it is not decoded: %v, %d bytes left of\n%x", m, d.Err(), d.Left(), first)
	}
	if second := nfs3test.Flatten(nfs3test.Encode(m)); !bytes.Equal(first, second) {
		t.Fatalf("%T: encoded as\n%x\nand then as\n%x", m, first, second)
	}
}

// firstACL is the number that stands for the first procedure of NFSACL.
const firstACL = 200

// codecOf returns the codec of a procedure of any program.
func codecOf(procedure uint8) nfs3test.Codec {
	switch {
	case procedure < nfs3.Procedures:
		return nfs3test.NFS[procedure]
	case procedure < firstACL:
		return nfs3test.Mount[procedure%nfs3.MountProcedures]
	}
	return nfs3test.ACL[(procedure-firstACL)%nfs3.ACLProcedures]
}

func FuzzArgs(f *testing.F) {
	for _, c := range readCaptured(f) {
		if !c.reply {
			f.Add(uint8(c.procedure), c.stream, 0, 0)
			for _, it := range c.items {
				f.Add(uint8(c.procedure), c.stream, it.Position, it.Length)
			}
		}
	}
	set := nfs3.SetACLArgs{Object: nfs3.Handle{1, 2, 3, 4}, ACL: nfs3.ACL{
		Mask: nfs3.ACLMask, AccessCount: 1, Access: []nfs3.ACLEntry{{Type: nfs3.ACLUser, ID: 7, Perm: 5}},
	}}
	stream, _ := nfs3test.Encode(&set)
	f.Add(uint8(firstACL+nfs3.ACLProcSetACL), stream, 0, 0)
	f.Fuzz(func(t *testing.T, procedure uint8, stream []byte, at, length int) {
		fuzzDecode(t, codecOf(procedure).NewArgs(), stream, at, length)
	})
}

func FuzzResults(f *testing.F) {
	for _, c := range readCaptured(f) {
		if c.reply && len(c.stream) < 4096 {
			f.Add(uint8(c.procedure), c.stream, 0, 0)
			for _, it := range c.items {
				f.Add(uint8(c.procedure), c.stream, it.Position, it.Length)
			}
		}
	}
	mnt := []byte("\x00\x00\x00\x00\x00\x00\x00\x04\x01\x02\x03\x04\x00\x00\x00\x01\x00\x00\x00\x01")
	f.Add(uint8(nfs3.Procedures+2+nfs3.MountProcMnt), mnt, 0, 0) // 22+2 is a multiple of 6
	get, _ := nfs3test.Encode(&nfs3.GetACLRes{ACL: nfs3.ACL{Access: []nfs3.ACLEntry{{Type: nfs3.ACLUser, ID: 7, Perm: 5}}}})
	f.Add(uint8(firstACL+nfs3.ACLProcGetACL), get, 0, 0)
	f.Fuzz(func(t *testing.T, procedure uint8, stream []byte, at, length int) {
		fuzzDecode(t, codecOf(procedure).NewRes(), stream, at, length)
	})
}
