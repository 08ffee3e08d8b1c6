package schema

import (
	"encoding/binary"

	"sluice.dev/sluice/pkg/xdr"
)

// run walks one shape. Failures stick to d.
func (w *Walker) run(d *xdr.Decoder, s shape) {
	for i := range s {
		st := &s[i]
		switch st.do {
		case pass:
			d.Skip(st.n)
		case note:
			pos := d.Pos()
			w.span(st.mark, pos, st.n, 0, d.Fixed(st.n))
		case number:
			pos := d.Pos()
			w.span(st.mark, pos, 4, uint64(d.Uint32()), nil)
		case hyper64:
			pos := d.Pos()
			w.span(st.mark, pos, 8, d.Uint64(), nil)
		case identify:
			w.Spans[w.entry].Value = d.Uint64()
		case counted:
			w.counted(d, st)
		case eligible:
			w.eligible(d, st)
		case array:
			w.array(d, st)
		case linked:
			w.linked(d, st)
		case maybe:
			w.maybe(d, st)
		case whole:
			span := w.begin(st.mark, d.Pos(), 0)
			w.run(d, st.inner)
			w.end(span, d.Pos())
		case choose, strict, outcome:
			w.choose(d, st)
		case bitmap:
			w.bitmap(d, st)
		case fattr:
			w.attributes(d)
		}
	}
}

func (w *Walker) counted(d *xdr.Decoder, st *step) {
	pos := d.Pos()
	if st.mark != 0 {
		b := d.Opaque(st.n)
		w.span(st.mark, pos, d.Pos()-pos, uint64(len(b)), b)
		return
	}
	n := d.Uint32()
	if n > uint32(st.n) {
		d.Fail("length %d exceeds the limit of %d", n, st.n)
		return
	}
	d.Skip(xdr.Round(int(n)))
}

func (w *Walker) eligible(d *xdr.Decoder, st *step) {
	pos := d.Pos()
	was := 0
	if w.turn < len(w.placed) {
		was = w.placed[w.turn]
	}
	if was > 0 {
		n := int(d.Uint32())
		if d.Err() == nil && (n > st.n || was != n && was != xdr.Round(n)) {
			d.Fail("%d bytes were placed where the reply says %d", was, n)
		}
		d.Gap(xdr.Round(n))
		w.span(st.mark, pos, d.Pos()-pos, uint64(n), nil)
		w.Spans[len(w.Spans)-1].Out = true
		return
	}
	pieces, n, taken := d.Bulk(st.n, w.pieces[:0])
	clear(pieces)
	w.pieces = pieces
	w.span(st.mark, pos, d.Pos()-pos, uint64(n), nil)
	w.Spans[len(w.Spans)-1].Out = taken
}

func (w *Walker) array(d *xdr.Decoder, st *step) {
	pos := d.Pos()
	n := d.Uint32()
	if n > uint32(st.n) {
		d.Fail("there are %d elements, at most %d are understood", n, st.n)
		return
	}
	if st.mark != 0 {
		w.span(st.mark, pos, 4, uint64(n), nil)
	}
	if len(st.inner) == 1 && st.inner[0].do == pass {
		d.Skip(int(n) * st.inner[0].n)
		return
	}
	for ; n > 0 && d.Err() == nil; n-- {
		w.run(d, st.inner)
	}
}

func (w *Walker) linked(d *xdr.Decoder, st *step) {
	for {
		pos := d.Pos()
		if !d.Bool() {
			return
		}
		if st.mark == 0 {
			w.run(d, st.inner)
			continue
		}
		span := w.begin(st.mark, pos, 0)
		w.entry = span
		w.run(d, st.inner)
		w.end(span, d.Pos())
	}
}

func (w *Walker) maybe(d *xdr.Decoder, st *step) {
	pos := d.Pos()
	follows := d.Bool()
	span := 0
	if st.mark != 0 {
		value := uint64(0)
		if follows {
			value = 1
		}
		span = w.begin(st.mark, pos, value)
	}
	if follows {
		w.run(d, st.inner)
	}
	if st.mark != 0 {
		w.end(span, d.Pos())
	}
}

func (w *Walker) choose(d *xdr.Decoder, st *step) {
	pos := d.Pos()
	value := d.Uint32()
	if d.Err() != nil {
		return
	}
	if st.mark != 0 {
		w.span(st.mark, pos, 4, uint64(value), nil)
	}
	if st.do == outcome {
		w.status = value
	}
	s, ok := st.find(value)
	if !ok {
		d.Fail("there is no arm %d in this union", value)
		return
	}
	w.run(d, s)
}

// words reads a bitmap4 and returns its words. Only the message limits their number (RFC 8881
// section 3.3.7).
func words(d *xdr.Decoder) []byte { return d.Fixed(int(d.Uint32()) * 4) }

func (w *Walker) bitmap(d *xdr.Decoder, st *step) {
	if st.mark == 0 {
		d.Skip(int(d.Uint32()) * 4)
		return
	}
	pos := d.Pos()
	b := words(d)
	w.span(st.mark, pos, d.Pos()-pos, uint64(len(b)), b)
}

// attributes walks a fattr4.
func (w *Walker) attributes(d *xdr.Decoder) {
	span := w.begin(Attrs, d.Pos(), 0)
	mask := words(d)
	w.Spans[span].B, w.Spans[span].Value = mask, uint64(len(mask))
	pos := d.Pos()
	size := d.Uint32()
	w.span(AttrsLen, pos, 4, uint64(size), nil)
	if d.Err() != nil {
		return
	}
	if int64(size) > int64(d.Left()) {
		d.Fail("attributes have %d bytes, %d are left of the message", size, d.Left())
		return
	}
	end := d.Pos() + int(size)
	skip := 0 // consecutive fixed values
	for i := 0; i < len(mask); i += 4 {
		word := binary.BigEndian.Uint32(mask[i:])
		for n := uint32(i) * 8; word != 0; n, word = n+1, word>>1 {
			if word&1 == 0 {
				continue
			}
			if n <= maxAttr && attrLen[n] > 0 {
				skip += attrLen[n]
				continue
			}
			if !Known.Has(n) {
				w.strange = true
				d.Fail("attribute %d is not known", n)
				return
			}
			d.Skip(skip)
			skip = 0
			if Watched.Has(n) {
				w.watched(d, n)
			} else {
				w.run(d, attrs[n])
			}
		}
	}
	d.Skip(skip)
	if d.Err() == nil && d.Pos() != end {
		d.Fail("the values of the attributes end here, their length says byte %d", end)
	}
	w.end(span, d.Pos())
}

// watched notes the value of an attribute, after measuring it.
func (w *Walker) watched(d *xdr.Decoder, n uint32) {
	s, pos := attrs[n], d.Pos()
	size := s[0].n
	if len(s) != 1 || s[0].do != pass {
		w.value = *d
		w.run(&w.value, s)
		size = w.value.Pos() - pos
		failed := w.value.Err() != nil
		w.value = xdr.Decoder{}
		if failed {
			w.run(d, s) // fails in the same place
			return
		}
	}
	w.span(Attr, pos, size, uint64(n), d.Fixed(size))
}
