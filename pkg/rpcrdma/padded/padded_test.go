package padded

import (
	"bytes"
	"encoding/binary"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		lengths   []int
		align     int
		threshold int // -1: nothing is padded
	}{
		{nil, 512, -1},
		{[]int{1023}, 512, -1},
		{[]int{1024}, 512, 1023},
		{[]int{1024}, 0, -1},
		{[]int{1024}, 1, -1},
		{[]int{4000, 2000, 10}, 512, 1999},
		{[]int{2000, 1999}, 512, 1998},
		{[]int{1024, 1023}, 512, -1},
	} {
		var args []oncrpc.Argument
		for _, n := range c.lengths {
			args = append(args, oncrpc.Argument{Length: n})
		}
		r, ok := Choose(args, c.align)
		if ok != (c.threshold >= 0) || ok && r != (Rule{c.align, c.threshold}) {
			t.Errorf("%+v: %+v %v", c, r, ok)
		}
	}
	if r, ok := Choose([]oncrpc.Argument{{Length: 5000}}, 1<<20); !ok || r.Align != MaxAlign {
		t.Errorf("alignment of 1 MiB: %+v %v", r, ok)
	}
}

// message is a header of offset bytes and opaques of lengths; those in out are items.
func message(offset int, lengths []int, out func(int) bool) (m oncrpc.Message, args []oncrpc.Argument) {
	pos := 0
	for k, n := range lengths {
		m.Stream = append(m.Stream, binary.BigEndian.AppendUint32(nil, uint32(n)))
		pos += 4
		data := bytes.Repeat([]byte{byte(k + 1)}, n)
		args = append(args, oncrpc.Argument{Position: pos, Length: n})
		if out(k) {
			m.Items = append(m.Items, xdr.Item{Position: pos, Length: n, Data: [][]byte{data[:n/2], data[n/2:]}})
		} else {
			m.Stream = append(m.Stream, append(data, make([]byte, xdr.Pad(n))...))
		}
		pos += xdr.Round(n)
	}
	return m, args
}

// FuzzRoundTrip pads a message and reads it again, whole and in pieces, with items and without.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte{10, 20, 0, 255}, uint8(7), uint16(100), uint8(36), uint8(5))
	f.Add([]byte("00g"), uint8(1), uint16(100), uint8(36), uint8(5))
	f.Add([]byte{1}, uint8(12), uint16(0), uint8(44), uint8(1))
	f.Fuzz(func(t *testing.T, list []byte, shift uint8, threshold uint16, offset, items uint8) {
		if len(list) > 8 {
			return
		}
		r := Rule{Align: 1 << (shift % 13), Threshold: int(threshold)}
		at := xdr.Round(int(offset))
		var lengths []int
		for _, n := range list {
			lengths = append(lengths, int(n)*5)
		}
		m, args := message(at, lengths, func(k int) bool { return items>>k&1 != 0 })
		plain, _ := message(at, lengths, func(int) bool { return false })
		want := bytes.Join(plain.Stream, nil)
		stream, ok := r.Append(nil, &m, args, at, make([]byte, max(r.Align, 4)))
		if !ok {
			t.Fatal("not appended")
		}
		sent := bytes.Join(stream, nil)
		for _, step := range []int{len(sent) + 1, 1, 7} {
			var pieces [][]byte
			for i := 0; i < len(sent); i += step {
				pieces = append(pieces, sent[i:min(i+step, len(sent))])
			}
			var d xdr.Decoder
			d.Reset(pieces, nil)
			d.SkipPads(r.Align, r.Threshold, at+len(sent))
			var found []oncrpc.Argument
			for k, n := range lengths {
				pos := d.Pos() + 4
				data, length, _ := d.Bulk(1<<20, nil)
				if length != n || !bytes.Equal(bytes.Join(data, nil), bytes.Repeat([]byte{byte(k + 1)}, n)) {
					t.Fatalf("opaque %d of %d bytes: %d, %v", k, n, length, d.Err())
				}
				found = append(found, oncrpc.Argument{Position: pos, Length: length})
			}
			if d.Err() != nil || d.Left() != 0 || d.Pos() != len(want) {
				t.Fatalf("%v, %d bytes left, position %d of %d", d.Err(), d.Left(), d.Pos(), len(want))
			}
			back, err := r.Strip(nil, pieces, nil, found, at+len(sent))
			if err != nil || !bytes.Equal(bytes.Join(back, nil), want) {
				t.Fatalf("%v: %x, want %x", err, bytes.Join(back, nil), want)
			}
		}
		for k := range args { // aligned in the Send
			if n := args[k].Length; n >= 20 && r.applies(n) {
				// the count before the data may end with the same byte
				if i := bytes.LastIndex(sent, bytes.Repeat([]byte{byte(k + 1)}, n)); (at+i)%r.Align != 0 {
					t.Fatalf("opaque %d is at %d of the Send", k, at+i)
				}
			}
		}
	})
}

// FuzzStrip reads messages that nobody has laid out.
func FuzzStrip(f *testing.F) {
	f.Add([]byte("abcdefgh"), uint32(8), uint32(0), uint16(4), uint16(4), uint16(100))
	f.Fuzz(func(t *testing.T, stream []byte, align, threshold uint32, position, length, size uint16) {
		if align&(align-1) != 0 {
			return
		}
		r := Rule{int(align), int(threshold)}
		var d xdr.Decoder
		d.Reset([][]byte{stream}, nil)
		d.SkipPads(r.Align, r.Threshold, int(size))
		_, _, _ = d.Bulk(1<<16, nil)
		items := []xdr.Item{{Position: int(length) &^ 3, Length: 8}}
		out, err := r.Strip(nil, [][]byte{stream}, items, []oncrpc.Argument{{Position: int(position), Length: int(length)}}, int(size))
		if n := len(bytes.Join(out, nil)); err == nil && n > len(stream) {
			t.Fatalf("%d bytes of %d", n, len(stream))
		}
	})
}
