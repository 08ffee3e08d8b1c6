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

func FuzzArgs(f *testing.F) {
	for _, c := range readCaptured(f) {
		if !c.reply {
			f.Add(uint8(c.procedure), c.stream, 0, 0)
			for _, it := range c.items {
				f.Add(uint8(c.procedure), c.stream, it.Position, it.Length)
			}
		}
	}
	f.Fuzz(func(t *testing.T, procedure uint8, stream []byte, at, length int) {
		if procedure < nfs3.Procedures {
			fuzzDecode(t, nfs3test.NFS[procedure].NewArgs(), stream, at, length)
		} else {
			fuzzDecode(t, nfs3test.Mount[procedure%nfs3.MountProcedures].NewArgs(), stream, at, length)
		}
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
	f.Fuzz(func(t *testing.T, procedure uint8, stream []byte, at, length int) {
		if procedure < nfs3.Procedures {
			fuzzDecode(t, nfs3test.NFS[procedure].NewRes(), stream, at, length)
		} else {
			fuzzDecode(t, nfs3test.Mount[procedure%nfs3.MountProcedures].NewRes(), stream, at, length)
		}
	})
}
