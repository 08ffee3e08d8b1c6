package schema

import (
	"fmt"

	"sluice.dev/sluice/pkg/xdr"
)

// MaxOps bounds the operations of a COMPOUND.
const MaxOps = 256

// MaxMinor is the last minor version of NFS version 4.
const MaxMinor = 2

// Numbers of the known programs.
const (
	nfsProgram    = 100003
	mountProgram  = 100005
	nfsaclProgram = 100227
)

// maxKept bounds the spans kept for the next message; a list of a megabyte has some hundred
// thousand.
const maxKept = 16 << 10

// outsideOps is the Op of a field outside the operations.
const outsideOps = -1

type direction bool

const (
	arguments direction = false
	results   direction = true
)

// walkerState is the state of a walk.
type walkerState struct {
	op      int
	entry   int    // the Span of the innermost noted list element
	status  uint32 // the last status
	strange bool   // an attribute is not in the table
	placed  []int
	turn    int // the number of operations so far with an eligible result
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

// ResultsPlaced is Results for a reply with eligible results placed elsewhere, at places unknown to
// d: placed[k] is the number of bytes missing after the count word of the k-th, with or without
// their round-up; 0 if it is inline. In a COMPOUND the k-th belongs to the k-th READ or READLINK,
// failed ones included.
func (w *Walker) ResultsPlaced(p Proc, d *xdr.Decoder, placed []int) error {
	w.placed = placed
	err := w.walk(p, d, results)
	w.placed = nil
	return err
}

func (w *Walker) walk(p Proc, d *xdr.Decoder, dir direction) error {
	w.Spans, w.Ops = w.Spans[:0], w.Ops[:0]
	if cap(w.Spans) > 2*maxKept { // append may have doubled it
		w.Spans = nil
	}
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
	entries := forward
	if p.Callback {
		entries = backward
	}
	if n > MaxOps {
		return w.tooMany(d, entries, n, minor, dir)
	}
	for i := range int(n) {
		if err := w.operation(d, entries, i, minor, dir); err != nil {
			return err
		}
	}
	w.op = outsideOps
	return nil
}

// tooMany returns the error for n operations. In a call it is about the first, which stands for all
// in the answer, as SEQUENCE does for a session's.
func (w *Walker) tooMany(d *xdr.Decoder, entries []entry, n uint64, minor uint32, dir direction) error {
	err := &Error{Op: outsideOps, TooMany: true}
	if dir == arguments {
		if err := w.operation(d, entries, 0, minor, dir); err != nil {
			return err
		}
		err.Op, err.Code = 0, w.Ops[0].Code
		w.drop(w.Ops[0].First)
		w.Ops = w.Ops[:0]
	}
	d.Fail("there are %d operations, at most %d are understood", n, MaxOps)
	err.Err = d.Err()
	return err
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

// begin notes a field before its walk; end completes it.
func (w *Walker) begin(mark Mark, pos int, value uint64) int {
	w.span(mark, pos, 0, value, nil)
	return len(w.Spans) - 1
}

func (w *Walker) end(span, pos int) { w.Spans[span].Len = pos - w.Spans[span].Pos }
