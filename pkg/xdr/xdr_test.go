package xdr

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// split cuts b into slices of n bytes, with empty ones between.
func split(b []byte, n int) (s [][]byte) {
	for len(b) > n {
		s, b = append(s, b[:n:n], nil), b[n:]
	}
	return append(s, b)
}

// TestVectors writes and reads each value, whole and in pieces (RFC 4506 section 4).
func TestVectors(t *testing.T) {
	for _, tt := range []struct {
		name, hex string
		write     func(*Encoder)
		read      func(*Decoder) any
		want      any
	}{
		{"unsigned", "fffefdfc", func(e *Encoder) { e.Uint32(0xfffefdfc) }, func(d *Decoder) any { return d.Uint32() }, uint32(0xfffefdfc)},
		{"unsigned hyper", "fffefdfcfbfaf9f8", func(e *Encoder) { e.Uint64(0xfffefdfcfbfaf9f8) }, func(d *Decoder) any { return d.Uint64() }, uint64(0xfffefdfcfbfaf9f8)},
		{"true", "00000001", func(e *Encoder) { e.Bool(true) }, func(d *Decoder) any { return d.Bool() }, true},
		{"false", "00000000", func(e *Encoder) { e.Bool(false) }, func(d *Decoder) any { return d.Bool() }, false},
		{"fixed opaque", "0102030405000000", func(e *Encoder) { e.Fixed([]byte{1, 2, 3, 4, 5}) }, func(d *Decoder) any { return d.Fixed(5) }, []byte{1, 2, 3, 4, 5}},
		{"opaque", "00000005 0102030405000000", func(e *Encoder) { e.Opaque([]byte{1, 2, 3, 4, 5}) }, func(d *Decoder) any { return d.Opaque(5) }, []byte{1, 2, 3, 4, 5}},
		{"short opaque", "00000003 01020300", func(e *Encoder) { e.Opaque([]byte{1, 2, 3}) }, func(d *Decoder) any { return d.Opaque(3) }, []byte{1, 2, 3}},
		{"aligned opaque", "00000004 01020304", func(e *Encoder) { e.Opaque([]byte{1, 2, 3, 4}) }, func(d *Decoder) any { return d.Opaque(400) }, []byte{1, 2, 3, 4}},
		{"long opaque", "0000000a 0102030405060708090a0000", func(e *Encoder) { e.Opaque([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) }, func(d *Decoder) any { return d.Opaque(400) }, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{"string", "00000009 73696c6c7970726f67000000", func(e *Encoder) { e.String("sillyprog") }, func(d *Decoder) any { return d.String(255) }, "sillyprog"},
		{"empty string", "00000000", func(e *Encoder) { e.String("") }, func(d *Decoder) any { return d.String(0) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := unhex(t, tt.hex)
			var e Encoder
			e.Reset(make([]byte, 0, len(want)), nil)
			tt.write(&e)
			if e.Overflow() || !bytes.Equal(e.Bytes(), want) || e.Pos() != len(want) || e.Room() != 0 {
				t.Errorf("written: %x, want %x", e.Bytes(), want)
			}
			for room := range len(want) {
				e.Reset(bytes.Repeat([]byte{0xee}, len(want))[:0:room], nil)
				tt.write(&e)
				if !e.Overflow() {
					t.Errorf("%d bytes were written to %d", len(want), room)
				}
			}
			for n := 1; n <= len(want); n++ {
				// The next value is read too: it must not change the first.
				var d Decoder
				d.Reset(split(append(bytes.Clone(want), 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8), n), nil)
				got := tt.read(&d)
				if next := d.Uint64(); next != 0xa1a2a3a4a5a6a7a8 || d.Err() != nil || d.Left() != 0 || d.Pos() != len(want)+8 {
					t.Errorf("in pieces of %d: followed by %x, %v, %d left", n, next, d.Err(), d.Left())
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("in pieces of %d: %s", n, diff)
				}
				d.Reset(split(want[:len(want)-1], n), nil)
				tt.read(&d)
				if d.Err() == nil {
					t.Errorf("%d of %d bytes were enough", len(want)-1, len(want))
				}
			}
		})
	}
}

func TestDecoderFails(t *testing.T) {
	for _, tt := range []struct {
		name, hex string
		items     []Item
		read      func(*Decoder)
		want      string
	}{
		{"end", "0000", nil, func(d *Decoder) { d.Uint32() }, "at byte 0: message ends after 2 more bytes, 4 are needed"},
		{"boolean", "00000000 00000002", nil, func(d *Decoder) { d.Bool(); d.Bool() }, "at byte 8: boolean is 2, must be 0 or 1"},
		{"limit", "00000006 00000000", nil, func(d *Decoder) { d.Opaque(5) }, "length 6 exceeds the limit of 5"},
		{"largest length", "ffffffff", nil, func(d *Decoder) { d.Opaque(1 << 20) }, "length 4294967295 exceeds the limit of 1048576"},
		{"beyond the end", "00000006 00000000", nil, func(d *Decoder) { d.Opaque(10) }, "message ends after 4 more bytes, 8 are needed"},
		{"bulk beyond the end", "00000006 00000000", nil, func(d *Decoder) { d.Bulk(10, nil) }, "message ends after 4 more bytes, 6 are needed"},
		{"negative limit", "00000000", nil, func(d *Decoder) { d.Opaque(-1) }, "length 0 exceeds the limit of -1"},
		{"negative skip", "00000000", nil, func(d *Decoder) { d.Skip(-4) }, "length -4 is negative"},
		{"skip beyond the end", "00000000", nil, func(d *Decoder) { d.Skip(5) }, "message ends after 4 more bytes, 5 are needed"},
		{"item in an integer", "00000000 00000000", []Item{{Position: 4, Length: 4}}, func(d *Decoder) { d.Uint64() }, "at byte 0: an item was taken out at byte 4"},
		{"item in inline bytes", "00000005 0000000000000000", []Item{{Position: 4, Length: 5}}, func(d *Decoder) { d.Opaque(5) }, "an item was taken out at byte 4"},
		{"item passed", "00000000 00000001", []Item{{Position: 4, Length: 1}}, func(d *Decoder) { d.Uint32(); d.Uint32() }, "an item was taken out at byte 4"},
		{"item longer than its count", "00000004", []Item{{Position: 4, Length: 8}}, func(d *Decoder) { d.Bulk(10, nil) }, "item taken out here has 8 bytes, its count says 4"},
		{"item shorter than its count", "00000009", []Item{{Position: 4, Length: 8}}, func(d *Decoder) { d.Bulk(10, nil) }, "item taken out here has 8 bytes, its count says 9"},
		{"item beyond the limit", "00000008", []Item{{Position: 4, Length: 8}}, func(d *Decoder) { d.Bulk(7, nil) }, "length 8 exceeds the limit of 7"},
		{"item inside bulk", "00000008 00000000", []Item{{Position: 8, Length: 8}}, func(d *Decoder) { d.Bulk(8, nil) }, "an item was taken out at byte 8"},
		{"own failure", "00000008", nil, func(d *Decoder) { d.Uint32(); d.Fail("type is %d", 8); d.Fail("second") }, "xdr: at byte 4: type is 8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, n := range []int{1, 3, 100} {
				var d Decoder
				d.Reset(split(unhex(t, tt.hex), n), tt.items)
				tt.read(&d)
				var e *Error
				if err := d.Err(); !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("failed with %v, want %q", err, tt.want)
				}
				first := d.Err()
				data, _, _ := d.Bulk(100, nil)
				if d.Uint32() != 0 || d.Uint64() != 0 || d.Bool() || d.Opaque(10) != nil || d.Fixed(3) != nil || d.String(5) != "" || data != nil || d.Left() != 0 {
					t.Error("something was read after a failure")
				}
				if d.Err() != first { //nolint:errorlint // the very same
					t.Error("the first failure did not stick")
				}
			}
		})
	}
}

func TestBulk(t *testing.T) {
	// word, opaque<5>, word; the opaque inline, as an item, and as an item with its round-up.
	inline := unhex(t, "00000011 00000005 6162636465000000 00000022")
	reduced := unhex(t, "00000011 00000005 00000022")
	for _, tt := range []struct {
		name   string
		stream []byte
		items  []Item
		taken  bool
	}{
		{"inline", inline, nil, false},
		{"item", reduced, []Item{{8, 5, [][]byte{[]byte("ab"), nil, []byte("cde")}}}, true},
		{"item with round-up", reduced, []Item{{8, 8, [][]byte{[]byte("abcd"), []byte("e\x00\x00\x00")}}}, true},
	} {
		for n := 1; n <= len(tt.stream); n++ {
			var d Decoder
			d.Reset(split(tt.stream, n), tt.items)
			if v := d.Uint32(); v != 0x11 {
				t.Fatalf("%s: begins with %#x", tt.name, v)
			}
			data, length, taken := d.Bulk(5, [][]byte{[]byte("before")})
			if string(bytes.Join(data, nil)) != "beforeabcde" || length != 5 || taken != tt.taken {
				t.Errorf("%s: %q, length %d, taken %v", tt.name, data, length, taken)
			}
			if v := d.Uint32(); v != 0x22 || d.Pos() != 20 || d.Left() != 0 || d.Err() != nil || d.Used() != len(tt.items) {
				t.Errorf("%s: ends with %#x at %d, %v", tt.name, v, d.Pos(), d.Err())
			}
		}
	}
	var d Decoder
	d.Reset([][]byte{reduced}, []Item{{Position: 8, Length: 5}}) // known of, not fetched
	d.Uint32()
	if data, length, taken := d.Bulk(5, nil); len(data) != 0 || length != 5 || !taken || d.Uint32() != 0x22 {
		t.Errorf("not fetched: %q, length %d, taken %v, %v", data, length, taken, d.Err())
	}
	d.ResetBytes(unhex(t, "00000005 6162636465")) // the round-up at the end is missing
	if data, length, _ := d.Bulk(5, nil); string(bytes.Join(data, nil)) != "abcde" || length != 5 || d.Err() != nil {
		t.Errorf("without round-up: %q, %v", data, d.Err())
	}
	d.Reset([][]byte{unhex(t, "00000000")}, []Item{{Position: 4, Length: 0}})
	if _, length, taken := d.Bulk(5, nil); length != 0 || !taken || d.Err() != nil {
		t.Errorf("empty item: length %d, taken %v, %v", length, taken, d.Err())
	}
}

func TestEncoder(t *testing.T) {
	var e Encoder
	items := make([]Item, 1, 8)
	b := append(make([]byte, 0, 100), 0xff, 0xff, 0xff, 0xff) // counts as the beginning
	e.Reset(b, items[:0])
	at := len(e.Bytes())
	e.Uint32(0)
	e.Bulk([][]byte{[]byte("abc"), []byte("de")}, 5)
	e.Bulk(nil, 0) // nothing to take out
	e.Uint32(7)
	if e.Pos() != 4+4+4+8+4+4 {
		t.Errorf("at %d", e.Pos())
	}
	m := e.Mark()
	e.Bulk([][]byte{[]byte("xyz")}, 3)
	e.Fixed(make([]byte, 200))
	if !e.Overflow() {
		t.Error("200 bytes fitted in")
	}
	e.PutUint32(at, 99) // no effect: the contents are worthless
	e.Truncate(m)
	e.PutUint32(at, 0x55)
	e.Bulk([][]byte{[]byte("fghi")}, 4)
	if e.Overflow() {
		t.Error("the overflow was not taken back")
	}
	if want := unhex(t, "ffffffff 00000055 00000005 00000000 00000007 00000004"); !bytes.Equal(e.Bytes(), want) {
		t.Errorf("stream is %x, want %x", e.Bytes(), want)
	}
	want := []Item{{12, 5, [][]byte{[]byte("abc"), []byte("de")}}, {32, 4, [][]byte{[]byte("fghi")}}}
	if d := cmp.Diff(want, e.Items()); d != "" {
		t.Error(d)
	}
	if &e.Items()[0] != &items[0] || &e.Bytes()[0] != &b[0] {
		t.Error("not in the memory that was given")
	}
	if g := e.Grow(1000); g != nil || !e.Overflow() {
		t.Error("1000 bytes fitted in")
	}
}

func TestRound(t *testing.T) {
	for n, want := range []int{0, 4, 4, 4, 4, 8, 8, 8, 8, 12} {
		if Round(n) != want || Pad(n) != want-n {
			t.Errorf("Round(%d) = %d, Pad = %d", n, Round(n), Pad(n))
		}
	}
}

func TestAllocs(t *testing.T) {
	stream := split(unhex(t, "00000011 00000022 00000033 00000003 61626300 00000005 6162636465000000 00000005"), 1000)
	crossing := split(stream[0][:12], 5)
	items := []Item{{32 + 4, 5, [][]byte{[]byte("abcde")}}}
	mem, data := make([]byte, 0, 100), make([][]byte, 0, 4)
	itemMem := make([]Item, 0, 4)
	if n := testing.AllocsPerRun(100, func() {
		var d Decoder
		d.Reset(stream, items)
		d.Uint64()
		d.Uint32()
		d.Opaque(3)
		data, _, _ = d.Bulk(5, data[:0])
		data, _, _ = d.Bulk(5, data[:0])
		if d.Err() != nil || d.Used() != 1 {
			t.Fatal(d.Err())
		}
		d.Reset(crossing, nil)
		d.Uint64()
		d.Uint32()
		var e Encoder
		e.Reset(mem, itemMem)
		e.Uint64(1)
		e.Opaque(stream[0][:7])
		e.String("name")
		e.Bulk(data, 5)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestGap(t *testing.T) {
	var d Decoder
	d.ResetBytes([]byte{0, 0, 0, 1, 0, 0, 0, 2})
	d.Uint32()
	d.Gap(100)
	if v := d.Uint32(); v != 2 || d.Pos() != 108 || d.Left() != 0 || d.Err() != nil {
		t.Errorf("%d at %d, %d left, %v", v, d.Pos(), d.Left(), d.Err())
	}
	d.Uint32()
	d.Gap(4)
	if d.Pos() != 108 {
		t.Errorf("at %d after a failure", d.Pos())
	}
}
