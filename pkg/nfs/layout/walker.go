package layout

import (
	"encoding/binary"
	"fmt"

	"sluice.dev/sluice/pkg/xdr"
)

// MaxOps is how many operations a COMPOUND may have here.
const MaxOps = 256

// MaxMinor is the last minor version of NFS version 4.
const MaxMinor = 2

// Numbers of the programs whose messages a Walker knows.
const (
	nfsProgram    = 100003
	mountProgram  = 100005
	nfsaclProgram = 100227
)

// outsideOps is the Op of what belongs to no operation.
const outsideOps = -1

type direction bool

const (
	arguments direction = false
	results   direction = true
)

// walkerState is what a Walker needs on its way.
type walkerState struct {
	op      int
	entry   int    // the Span of the innermost element of a list that is noted
	status  uint32 // the status read last
	strange bool   // an attribute is not in the table
	placed  []int
	turn    int // how many operations there were that have an eligible result
	value   xdr.Decoder
	pieces  [][]byte
}

func (e *Error) Error() string {
	if e.Op < 0 {
		return "layout: " + e.Err.Error()
	}
	return fmt.Sprintf("layout: operation %d, number %d: %v", e.Op, e.Code, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ResultsPlaced is Results for a reply some of whose eligible results are elsewhere, without d knowing where they were taken out. Of those of the procedure or of all operations
// READ and READLINK in the order of their results, failed ones included, placed[k] tells how many bytes of the k-th
// are missing behind its count word, their round-up among them or not; 0 if it is there.
func (w *Walker) ResultsPlaced(p Proc, d *xdr.Decoder, placed []int) error {
	w.placed = placed
	err := w.walk(p, d, results)
	w.placed = nil
	return err
}

func (w *Walker) walk(p Proc, d *xdr.Decoder, dir direction) error {
	w.Spans, w.Ops = w.Spans[:0], w.Ops[:0]
	w.op, w.strange, w.turn = outsideOps, false, 0
	if dir == arguments {
		w.Minor = 0
	}
	var procedures []procedure
	switch {
	case p.Callback || p.Program == nfsProgram && p.Version == 4:
		switch p.Procedure {
		case 0:
			return nil
		case 1:
			return w.compound(p, d, dir)
		}
	case p.Program == nfsProgram && p.Version == 3:
		procedures = nfs3
	case p.Program == mountProgram && p.Version == 3:
		procedures = mount
	case p.Program == nfsaclProgram && p.Version == 3:
		procedures = nfsacl
	}
	if p.Procedure >= uint32(len(procedures)) {
		return &Error{
			Op: outsideOps, Unknown: true,
			Err: fmt.Errorf("there is no procedure %d of program %d version %d", p.Procedure, p.Program, p.Version),
		}
	}
	if dir == arguments {
		w.run(d, procedures[p.Procedure].args)
	} else {
		w.run(d, procedures[p.Procedure].results)
	}
	if err := d.Err(); err != nil {
		w.drop(0)
		return &Error{Op: outsideOps, Err: err}
	}
	return nil
}

// The fields before the operations.
var (
	compoundArgs     = structure(text(0, maxTag), word(Minor))
	callbackArgs     = structure(compoundArgs, u32) // callback_ident
	compoundResults  = structure(word(Status), text(0, maxTag))
	operationsNumber = word(Operations)
)

// compound walks a COMPOUND or CB_COMPOUND.
func (w *Walker) compound(p Proc, d *xdr.Decoder, dir direction) error {
	switch {
	case dir == results:
		w.run(d, compoundResults)
	case p.Callback:
		w.run(d, callbackArgs)
	default:
		w.run(d, compoundArgs)
	}
	minor := uint32(MaxMinor)
	if dir == arguments && d.Err() == nil {
		minor = uint32(w.Spans[0].Value)
		w.Minor = minor
		if minor > MaxMinor {
			d.Fail("minor version is %d, must be 0 to %d", minor, MaxMinor)
			return &Error{Op: outsideOps, Err: d.Err()}
		}
	}
	w.run(d, operationsNumber)
	if err := d.Err(); err != nil {
		w.drop(0)
		return &Error{Op: outsideOps, Err: err}
	}
	n := w.Spans[len(w.Spans)-1].Value
	if n > MaxOps {
		d.Fail("there are %d operations, at most %d are understood", n, MaxOps)
		return &Error{Op: outsideOps, Err: d.Err()}
	}
	entries := forward
	if p.Callback {
		entries = backward
	}
	for i := range int(n) {
		if err := w.operation(d, entries, i, minor, dir); err != nil {
			return err
		}
	}
	w.op = outsideOps
	return nil
}

// operation walks operation i.
func (w *Walker) operation(d *xdr.Decoder, entries []entry, i int, minor uint32, dir direction) error {
	op := Op{Pos: d.Pos(), First: len(w.Spans)}
	w.op, w.status = i, 0
	op.Code = d.Uint32()
	e := &illegal
	unknown := false
	if op.Code != OpIllegal {
		unknown = op.Code >= uint32(len(entries)) || !entries[op.Code].known || entries[op.Code].minor > minor
		if !unknown {
			e = &entries[op.Code]
		}
	}
	switch {
	case d.Err() != nil:
		unknown = false
	case unknown:
		d.Fail("there is no operation %d in minor version %d", op.Code, minor)
	case dir == results:
		w.run(d, e.results)
		op.Status = w.status
		if e == &forward[OpRead] || e == &forward[OpReadlink] {
			w.turn++
		}
	default:
		w.run(d, e.args)
	}
	if err := d.Err(); err != nil {
		w.drop(op.First)
		return &Error{Op: i, Code: op.Code, Unknown: unknown, Attr: w.strange, Err: err}
	}
	op.End, op.Last = d.Pos(), len(w.Spans)
	w.Ops = append(w.Ops, op)
	return nil
}

// drop forgets the spans from i on.
func (w *Walker) drop(i int) {
	clear(w.Spans[i:])
	w.Spans = w.Spans[:i]
}

func (w *Walker) span(mark Mark, pos, length int, value uint64, b []byte) {
	w.Spans = append(w.Spans, Span{Mark: mark, Op: w.op, Pos: pos, Len: length, Value: value, B: b})
}

// begin notes a field that is yet to be walked, and end completes it.
func (w *Walker) begin(mark Mark, pos int, value uint64) int {
	w.span(mark, pos, 0, value, nil)
	return len(w.Spans) - 1
}

func (w *Walker) end(span, pos int) { w.Spans[span].Len = pos - w.Spans[span].Pos }

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

// words reads a bitmap4 and returns its words.
func words(d *xdr.Decoder) []byte {
	n := d.Uint32()
	if n > maxBitmapWords {
		d.Fail("bitmap has %d words, at most %d are understood", n, maxBitmapWords)
		return nil
	}
	return d.Fixed(int(n) * 4)
}

func (w *Walker) bitmap(d *xdr.Decoder, st *step) {
	if st.mark == 0 {
		n := d.Uint32()
		if n > uint32(st.n) {
			d.Fail("bitmap has %d words, at most %d are understood", n, st.n)
			return
		}
		d.Skip(int(n) * 4)
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
	skip := 0 // fixed values one behind the other
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

// watched notes the value of an attribute. How long it is has to be found out first.
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
			w.run(d, s) // d fails in the same place
			return
		}
	}
	w.span(Attr, pos, size, uint64(n), d.Fixed(size))
}
