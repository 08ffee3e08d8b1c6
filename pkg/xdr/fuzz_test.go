package xdr

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/buildbarn/go-xdr/pkg/runtime"
)

// FuzzDecoder runs a program of reads over a message that lies in memory in different ways: it must
// see the same. The program's bytes are operations; the message has an item where items says so.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6}, []byte("\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x03abc\x00\x00\x00\x00\x05abcde\x00\x00\x00"), 3, 0, 0)
	f.Add([]byte{6, 0}, []byte("\x00\x00\x00\x05\x00\x00\x00\x22"), 1, 4, 5)
	f.Add([]byte{0, 6, 6}, []byte("\x00\x00\x00\x05\x00\x00\x00\x04\x00\x00\x00\x00"), 5, 8, 4)
	f.Add([]byte{6}, []byte("\x00\x00\x00\x05abcde"), 2, 0, 0)
	f.Add([]byte{4, 5}, []byte("\xff\xff\xff\xff\xff"), 2, 0, 0)
	f.Fuzz(func(t *testing.T, program, message []byte, cut, position, length int) {
		var items []Item
		if position > 0 && length >= 0 && length < 1000 {
			data := bytes.Repeat([]byte{0xd0}, length)
			items = []Item{{position &^ 3, length, [][]byte{data[:length/2], data[length/2:]}}}
		}
		whole := interpret(t, program, [][]byte{message}, items)
		for _, n := range []int{1, max(1, cut)} {
			if got := interpret(t, program, split(message, n), items); got != whole {
				t.Fatalf("whole:\n%s\nin pieces of %d:\n%s", whole, n, got)
			}
		}
	})
}

func interpret(t *testing.T, program []byte, stream [][]byte, items []Item) string {
	var d Decoder
	d.Reset(stream, items)
	var out bytes.Buffer
	var kept, copies [][]byte
	keep := func(b []byte) []byte {
		kept, copies = append(kept, b), append(copies, bytes.Clone(b))
		return b
	}
	for _, op := range program {
		before := d.Pos()
		switch limit := int(op >> 3); op & 7 {
		case 0:
			fmt.Fprint(&out, d.Uint32())
		case 1:
			fmt.Fprint(&out, d.Uint64())
		case 2:
			fmt.Fprint(&out, d.Bool())
		case 3:
			fmt.Fprintf(&out, "%x", keep(d.Fixed(limit)))
		case 4:
			fmt.Fprintf(&out, "%x", keep(d.Opaque(limit)))
		case 5:
			fmt.Fprintf(&out, "%q", d.String(limit))
		case 6:
			data, length, taken := d.Bulk(limit*limit, nil)
			if sum := len(bytes.Join(data, nil)); sum != length || length > limit*limit {
				t.Fatalf("bulk of %d bytes has %d, the limit is %d", length, sum, limit*limit)
			}
			fmt.Fprintf(&out, "%x %d %v", bytes.Join(data, nil), length, taken)
		case 7:
			d.Skip(limit)
		}
		if d.Pos() < before || d.Left() < 0 {
			t.Fatalf("position %d after %d, %d left", d.Pos(), before, d.Left())
		}
		fmt.Fprintf(&out, " @%d left %d used %d %v\n", d.Pos(), d.Left(), d.Used(), d.Err())
	}
	for i := range kept {
		if !bytes.Equal(kept[i], copies[i]) {
			t.Fatalf("what was %x became %x", copies[i], kept[i])
		}
	}
	return out.String()
}

// FuzzOracle reads a message as go-xdr does, value by value. go-xdr insists on zeros in the
// round-up, which senders do not owe.
func FuzzOracle(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, []byte("\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x05abcde\x00\x00\x00"))
	f.Add([]byte{11, 0}, []byte("\x00\x00\x00\x02ab\x00\x00\x00\x00\x00\x07"))
	f.Add([]byte{2}, []byte("\x00\x00\x00\x02"))
	f.Fuzz(func(t *testing.T, program, message []byte) {
		var d Decoder
		d.ResetBytes(message)
		r := bytes.NewReader(message)
		var e Encoder
		e.Reset(make([]byte, 0, len(message)), nil)
		for _, op := range program {
			var ours, theirs any
			var err error
			switch limit := uint32(op >> 2); op & 3 {
			case 0:
				v := d.Uint32()
				ours = v
				theirs, _, err = runtime.ReadUnsignedInt(r)
				e.Uint32(v)
			case 1:
				v := d.Uint64()
				ours = v
				theirs, _, err = runtime.ReadUnsignedHyper(r)
				e.Uint64(v)
			case 2:
				v := d.Bool()
				ours = v
				theirs, _, err = runtime.ReadBool(r)
				e.Bool(v)
			case 3:
				v := d.Opaque(int(limit))
				ours = string(v)
				var b []byte
				b, _, err = runtime.ReadVariableLengthOpaque(r, limit)
				theirs = string(b)
				e.Opaque(v)
			}
			if err != nil && d.Err() == nil && op&3 == 3 && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return // the round-up is not zero
			}
			if (err == nil) != (d.Err() == nil) {
				t.Fatalf("operation %d: ours %v, theirs %v", op, d.Err(), err)
			}
			if err != nil {
				return
			}
			if ours != theirs {
				t.Fatalf("operation %d: ours %v, theirs %v", op, ours, theirs)
			}
			if at := len(message) - r.Len(); at != d.Pos() || e.Overflow() || !bytes.Equal(e.Bytes(), message[:at]) {
				t.Fatalf("operation %d: at %d, written again %x, was %x", op, d.Pos(), e.Bytes(), message[:at])
			}
		}
	})
}
