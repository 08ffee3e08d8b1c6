package schema

import (
	"encoding/binary"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/xdr"
)

// generator makes messages of a shape, with every arm of its unions and values without an arm.
type generator struct {
	t   *rapid.T
	b   []byte
	out []xdr.Item // the eligible opaques
	// old omits the additions of RFC 9754.
	old bool
	// spoil gives the next union without a default arm an invalid value, and ends the message
	// there.
	spoil, spoilt bool
}

func (g *generator) word(v uint32)  { g.b = binary.BigEndian.AppendUint32(g.b, v) }
func (g *generator) flag() uint32   { return uint32(rapid.IntRange(0, 1).Draw(g.t, "flag")) }
func (g *generator) upTo(n int) int { return rapid.IntRange(0, n).Draw(g.t, "n") }

func (g *generator) opaque(limit int) (pos, n int) {
	n = g.upTo(min(limit, 9))
	g.word(uint32(n))
	pos = len(g.b)
	for range n {
		g.b = append(g.b, 'x')
	}
	g.b = append(g.b, make([]byte, xdr.Pad(n))...)
	return pos, n
}

// discriminants of unions with a default arm: values with and without an arm.
var discriminants = rapid.OneOf(
	rapid.Uint32Range(0, 12),
	rapid.SampledFrom([]uint32{errTooSmall, errDenied, errClientIDInUse, errLayoutTryLater, errOffloadNoReqs, 10000, 10026, 10070, 10084}),
)

func (g *generator) shape(s shape) {
	for i := range s {
		if g.spoilt {
			return
		}
		st := &s[i]
		switch st.do {
		case pass, note:
			for range st.n / 4 {
				g.word(g.flag()) // includes booleans
			}
		case number:
			g.word(g.flag())
		case hyper64, identify:
			g.word(g.flag())
			g.word(g.flag())
		case counted:
			g.opaque(st.n)
		case eligible:
			if pos, n := g.opaque(st.n); n > 0 {
				g.out = append(g.out, xdr.Item{Position: pos, Length: n})
			}
		case array:
			n := g.upTo(min(st.n, 3))
			g.word(uint32(n))
			for range n {
				g.shape(st.inner)
			}
		case linked:
			for range g.upTo(3) {
				g.word(1)
				g.shape(st.inner)
			}
			g.word(0)
		case maybe:
			v := g.flag()
			g.word(v)
			if v == 1 {
				g.shape(st.inner)
			}
		case whole:
			g.shape(st.inner)
		case choose, outcome:
			v := discriminants.Draw(g.t, "value")
			g.word(v)
			inner, _ := st.find(v)
			g.shape(inner)
		case strict:
			arms := st.arms
			if g.old && &arms[0] == &delegation4[0].arms[0] {
				arms = arms[:4]
			}
			if g.spoil {
				g.word(rapid.Uint32Range(0, 12).Filter(func(v uint32) bool {
					_, ok := st.find(v)
					return !ok
				}).Draw(g.t, "no arm"))
				g.b = append(g.b, make([]byte, 256)...)
				g.spoilt = true
				return
			}
			a := rapid.SampledFrom(arms).Draw(g.t, "arm")
			g.word(a.value)
			g.shape(a.shape)
		case bitmap:
			n := g.upTo(3)
			g.word(uint32(n))
			for range n {
				g.word(g.flag())
			}
		case fattr:
			g.attributes()
		}
	}
}

func (g *generator) attributes() {
	var mask Bitmap
	for _, n := range rapid.SliceOfN(rapid.IntRange(0, maxAttr), 0, 5).Draw(g.t, "attributes") {
		if attrs[n] != nil {
			mask.add(n)
		}
	}
	g.word(uint32(len(mask)))
	for _, w := range mask {
		g.word(w)
	}
	at := len(g.b)
	g.word(0)
	for n := range attrs {
		if mask.Has(uint32(n)) {
			g.shape(attrs[n])
		}
	}
	binary.BigEndian.PutUint32(g.b[at:], uint32(len(g.b)-at-4))
}

// split cuts b into pieces, as transports do.
func split(t *rapid.T, b []byte) [][]byte {
	var pieces [][]byte
	for _, at := range rapid.SliceOfN(rapid.IntRange(0, len(b)), 0, 3).Draw(t, "cuts") {
		if at < len(b) {
			pieces, b = append(pieces, b[:at]), b[at:]
		}
	}
	return append(pieces, b)
}
