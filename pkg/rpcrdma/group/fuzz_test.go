package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// fuzzLayouts are the receive layouts of FuzzAssembler.
var fuzzLayouts = [][]int{{4096, -65536}, {200, -100, -50}, {1024}, {-300}, {128, -64, 32, -64}, {1, -1, 100, -3, -200}}

// FuzzAssembler passes arbitrary messages to an assembler. Each input message has a length of two
// bytes, then its bytes; the first byte of the input selects the layout.
func FuzzAssembler(f *testing.F) {
	seed := func(layout byte, sends ...[]byte) {
		b := []byte{layout}
		for _, s := range sends {
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
		}
		f.Add(b)
	}
	group := func(layout byte, payload int, items ...int) {
		m, bulk := rpc(payload, items, true)
		var p Planner
		var head wire.Transmit
		if err := p.Split(m, zeros, bulk); err != nil {
			f.Fatal(err)
		}
		if err := p.Lay(lay(f, fuzzLayouts[layout]...), wire.XmtReq, &head, Limits{20, 8}); err != nil {
			f.Fatal(err)
		}
		var sends [][]byte
		for _, x := range p.Write(make([]byte, p.Memory()), 7, 1) {
			sends = append(sends, join(x.Gather))
		}
		seed(layout, sends...)
	}
	group(0, 200, 5000)
	group(1, 200, 300)
	group(1, 1000, 30, 40)
	group(2, 3000)
	group(4, 100, 200)
	seed(1, request(3, 40, 40, nil), continuation(7, wire.Call, 1, 40, 40), continuation(7, wire.Call, 1, 40, 40), continuation(7, wire.Call, 2, 40, 40))
	seed(1, pad(request(1, 40, 40, both(sendBased(20, 10, 0, 0), sendBased(32, 10, 9, 0))), 200, 150))
	seed(1, reply(1, 40, func(t *wire.Transmit) { t.AddAbsent(32, 9, wire.TooShort); t.AddAbsent(0, 0, wire.NoItem) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		l := lay(t, fuzzLayouts[int(b[0])%len(fuzzLayouts)]...)
		a := NewAssembler(l)
		var all []*receive
		b = b[1:]
		for range 12 {
			if len(b) < 2 {
				return
			}
			n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
			send := b[2 : 2+n]
			b = b[2+n:]
			r, err := arrive(l, send)
			if err != nil {
				continue
			}
			outcome := a.Add(&r.hdr, r.segs, r.n, nil, 4)
			if outcome == Broken {
				all = nil
				outcome = a.Add(&r.hdr, r.segs, r.n, nil, 4)
			}
			switch outcome {
			case Broken:
				t.Fatal("a message breaks a group twice")
			case Bad:
				if a.Report().Code == 0 || a.open {
					t.Fatalf("report %+v, open %v", *a.Report(), a.open)
				}
				all = nil
			case More:
				all = append(all, r)
				if !a.open || len(all) >= 4 {
					t.Fatalf("%d transmissions", len(all))
				}
			case Whole:
				all = append(all, r)
				var m oncrpc.Message
				a.Message(&m)
				if err := inside(&m, all); err != nil {
					t.Fatal(err)
				}
				all = nil
			}
		}
	})
}

// inside checks that a message refers to received memory only, to no byte twice, with consistent
// lengths.
func inside(m *oncrpc.Message, all []*receive) error {
	used := map[*byte]bool{}
	slice := func(s []byte) error {
		for _, r := range all {
			at := 0
			for _, seg := range r.segs {
				end := min(len(seg), r.n-at)
				if off := uintptr(unsafe.Pointer(&s[0])) - uintptr(unsafe.Pointer(&seg[0])); end > 0 && off < uintptr(end) && int(off)+len(s) <= end {
					for i := range s {
						if used[&s[i]] {
							return errors.New("a byte is used twice")
						}
						used[&s[i]] = true
					}
					return nil
				}
				at += len(seg)
			}
		}
		return fmt.Errorf("%d bytes are not of what was received", len(s))
	}
	for _, s := range m.Stream {
		if err := slice(s); err != nil {
			return err
		}
	}
	pos, inline := 0, m.StreamLen()
	for i, it := range m.Items {
		if it.Position < pos || it.Position%4 != 0 || it.Position > inline || it.Length <= 0 {
			return fmt.Errorf("item %d of %d bytes is at %d", i, it.Length, it.Position)
		}
		pos = it.Position + xdr.Round(it.Length)
		inline += xdr.Round(it.Length)
		if it.Data == nil {
			continue
		}
		if n := split.Length(it.Data); n != it.Length {
			return fmt.Errorf("item %d has %d bytes of %d", i, n, it.Length)
		}
		for _, s := range it.Data {
			if err := slice(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func FuzzGroup(f *testing.F) {
	f.Add([]byte{10, 130}, uint16(100), uint32(300), uint32(0), byte(5), byte(8))
	f.Add([]byte{100, 200, 30, 140, 255}, uint16(5000), uint32(3000), uint32(700), byte(17), byte(3))
	f.Add([]byte{160}, uint16(64), uint32(9), uint32(65536), byte(40), byte(2))
	f.Fuzz(func(t *testing.T, shape []byte, payload uint16, one, other uint32, most, gather byte) {
		var segs []int
		for _, b := range shape[:min(len(shape), 16)] {
			n := 1 + int(b&127)*17
			if b > 127 {
				n = -n
			}
			segs = append(segs, n)
		}
		if len(segs) == 0 {
			return
		}
		var items []int
		for _, n := range []uint32{one, other} {
			if n > 0 {
				items = append(items, int(n%200000))
			}
		}
		for i := range items {
			items[i] = max(items[i], 1)
		}
		l := lay(t, segs...)
		m, bulk := rpc(max(int(payload)&^3, 16), items, payload&1 == 0)
		var p Planner
		n, err := transport(&p, l, m, bulk, Limits{Transmissions: int(most), Gather: max(2, int(gather))})
		var fit *FitError
		if err != nil && !errors.As(err, &fit) {
			t.Fatal(err)
		}
		if fit == nil || fit.Needed == 0 || fit.Needed > 200 {
			return
		}
		if fit.Needed <= int(most) {
			t.Fatalf("%d transmissions, %v", n, err)
		}
		if n, err := transport(&p, l, m, bulk, Limits{Transmissions: fit.Needed, Gather: max(2, int(gather))}); err != nil || n > fit.Needed {
			t.Fatalf("%d transmissions, %v; it said %d", n, err, fit.Needed)
		}
	})
}

func TestRandom(t *testing.T) {
	var p Planner
	rapid.Check(t, func(t *rapid.T) {
		var segs []Segment
		for range rapid.IntRange(1, 6).Draw(t, "segments") {
			segs = append(segs, Segment{Length: rapid.IntRange(1, 3000).Draw(t, "length"), Target: rapid.Bool().Draw(t, "target")})
		}
		l, err := NewLayout(segs...)
		if err != nil {
			t.Fatal(err)
		}
		items := rapid.SliceOfN(rapid.IntRange(1, 9000), 0, 4).Draw(t, "items")
		m, bulk := rpc(4*rapid.IntRange(5, 2000).Draw(t, "payload"), items, rapid.Bool().Draw(t, "taken"))
		lim := Limits{Transmissions: rapid.IntRange(1, 20).Draw(t, "limit"), Gather: rapid.IntRange(2, 20).Draw(t, "gather")}
		n, err := transport(&p, l, m, bulk, lim)
		var fit *FitError
		switch {
		case err == nil && n > lim.Transmissions:
			t.Fatalf("%d transmissions, %d are allowed", n, lim.Transmissions)
		case err != nil && !errors.As(err, &fit):
			t.Fatal(err)
		case fit != nil && fit.Needed > 0 && fit.Needed <= lim.Transmissions:
			t.Fatal(err)
		}
	})
}

// TestDamage carries random groups and loses, doubles, exchanges, cuts or changes transmissions. A
// message that arrives whole refers to received memory only.
func TestDamage(t *testing.T) {
	l := lay(t, 200, -100, -50)
	rapid.Check(t, func(t *rapid.T) {
		m, bulk := rpc(4*rapid.IntRange(5, 100).Draw(t, "payload"), rapid.SliceOfN(rapid.IntRange(1, 300), 0, 3).Draw(t, "items"), true)
		var p Planner
		var head wire.Transmit
		if err := p.Split(m, zeros, bulk); err != nil {
			t.Fatal(err)
		}
		if err := p.Lay(l, wire.XmtReq, &head, Limits{20, 20}); err != nil {
			t.Fatal(err)
		}
		var sends [][]byte
		for _, x := range p.Write(make([]byte, p.Memory()), 7, 1) {
			sends = append(sends, join(x.Gather))
		}
		i, j := rapid.IntRange(0, len(sends)-1).Draw(t, "i"), rapid.IntRange(0, len(sends)-1).Draw(t, "j")
		switch rapid.IntRange(0, 4).Draw(t, "damage") {
		case 0:
			sends = append(sends[:i], sends[i+1:]...)
		case 1:
			sends = append(sends, sends[i])
		case 2:
			sends[i], sends[j] = sends[j], sends[i]
		case 3:
			sends[i] = sends[i][:rapid.IntRange(0, len(sends[i])).Draw(t, "cut")]
		case 4:
			sends[i][rapid.IntRange(0, min(len(sends[i]), 120)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		a := NewAssembler(l)
		var all []*receive
		for _, s := range sends {
			r, err := arrive(l, s)
			if err != nil {
				a.GiveUp()
				all = nil
				continue
			}
			switch a.Add(&r.hdr, r.segs, r.n, nil, 20) {
			case More:
				all = append(all, r)
			case Whole:
				var got oncrpc.Message
				a.Message(&got)
				if err := inside(&got, append(all, r)); err != nil {
					t.Fatal(err)
				}
				all = nil
			default:
				all = nil
			}
		}
	})
}
