package schema

import "slices"

// A shape is a type of XDR: a list of steps. Void has none. Adjacent unmarked fields of fixed
// length merge into one step.
type shape []step

var void shape

// step is one action.
type step struct {
	do    action
	mark  Mark
	n     int   // bytes, limit of a length, or bound of a count
	inner shape // of elements, of the optional part, of the default arm
	arms  []arm
	// own: n is the protocol's limit; otherwise this package's, where the protocol has none.
	own bool
}

type action uint8

const (
	// pass skips n bytes.
	pass action = iota
	// note notes n bytes.
	note
	// number notes a word.
	number
	// hyper64 notes an unsigned hyper.
	hyper64
	// identify reads an unsigned hyper into the Value of its entry.
	identify
	// counted passes over a counted opaque, and notes it if it has a mark.
	counted
	// eligible is a counted opaque that may have been taken out.
	eligible
	// array is a counted array. A mark notes the count word.
	array
	// linked is a linked list. A mark notes each element.
	linked
	// maybe is optional-data. A mark notes it, with its boolean.
	maybe
	// whole notes inner as one field.
	whole
	// choose is a union, inner the default arm.
	choose
	// strict is a union without a default arm.
	strict
	// outcome is a union over a status, inner the default arm.
	outcome
	// bitmap is a bitmap4.
	bitmap
	// fattr is a fattr4.
	fattr
)

// arm is a union's arm for a value of its discriminant.
type arm struct {
	value uint32
	shape
}

// on is an arm.
func on(value uint32, s shape) arm { return arm{value, s} }

// structure concatenates fields.
func structure(fields ...shape) shape {
	var s shape
	for _, f := range fields {
		for _, st := range f {
			if last := len(s) - 1; last >= 0 && st.do == pass && s[last].do == pass {
				s[last].n += st.n
				continue
			}
			s = append(s, st)
		}
	}
	return s
}

// fixed is n bytes, a multiple of four.
func fixed(n int) shape { return shape{{do: pass, n: n}} }

// The basic types. Enumerations and booleans count as u32: their values are not checked.
var (
	u32 = fixed(4)
	u64 = fixed(8)
)

// noted is n bytes with a mark.
func noted(mark Mark, n int) shape { return shape{{do: note, mark: mark, n: n}} }

// word is a number of 32 bits with a mark.
func word(mark Mark) shape { return shape{{do: number, mark: mark}} }

// hyper is a number of 64 bits with a mark.
func hyper(mark Mark) shape { return shape{{do: hyper64, mark: mark}} }

// opaque is a counted opaque or string with the protocol's limit.
func opaque(mark Mark, limit int) shape { return shape{{do: counted, mark: mark, n: limit, own: true}} }

// text is a counted opaque or string without a limit in the protocol; limit is this package's.
func text(mark Mark, limit int) shape { return shape{{do: counted, mark: mark, n: limit}} }

// bulk is an eligible opaque.
func bulk(limit int) shape { return shape{{do: eligible, mark: Data, n: limit}} }

// list is a counted array of at most bound elements; the protocol has no limit.
func list(bound int, element shape) shape { return shape{{do: array, n: bound, inner: element}} }

// upTo is a counted array with the protocol's bound.
func upTo(bound int, element shape) shape {
	return shape{{do: array, n: bound, inner: element, own: true}}
}

// countedBy is a list with a mark on its count word.
func countedBy(mark Mark, bound int, element shape) shape {
	return shape{{do: array, mark: mark, n: bound, inner: element}}
}

// chain is a linked list. Each element gets the mark, unless that is 0. Only the message bounds it.
func chain(mark Mark, element shape) shape { return shape{{do: linked, mark: mark, inner: element}} }

// optional is an optional value.
func optional(mark Mark, s shape) shape { return shape{{do: maybe, mark: mark, inner: s}} }

// as notes all of s as one field.
func as(mark Mark, s shape) shape { return shape{{do: whole, mark: mark, inner: s}} }

// union is a union with a default arm. A mark notes the discriminant.
func union(mark Mark, otherwise shape, arms ...arm) shape {
	return shape{{do: choose, mark: mark, inner: otherwise, arms: arms}}
}

// only is a union without a default arm.
func only(mark Mark, arms ...arm) shape { return shape{{do: strict, mark: mark, arms: arms}} }

// result is the result of an operation or procedure: its status, and a shape for success and for
// other statuses.
func result(ok, otherwise shape, arms ...arm) shape {
	return shape{{do: outcome, mark: Status, inner: otherwise, arms: append([]arm{on(0, ok)}, arms...)}}
}

// status is a result without more fields.
var status = result(void, void)

// bits is a bitmap4.
func bits(mark Mark) shape { return shape{{do: bitmap, mark: mark, n: sizedWords}} }

// attributes is a fattr4.
var attributes = shape{{do: fattr, mark: Attrs}}

// find returns a union's arm for a value, and whether there is one.
func (st *step) find(value uint32) (shape, bool) {
	for i := range st.arms {
		if st.arms[i].value == value {
			return st.arms[i].shape, true
		}
	}
	return st.inner, st.do != strict
}

// size returns the largest size of s in bytes. open: parts without a limit count as their count
// words alone.
func (s shape) size() (n int, open bool) {
	for i := range s {
		m, o := s[i].size()
		n, open = n+m, open || o
	}
	return n, open
}

func (st *step) size() (n int, open bool) {
	switch st.do {
	case pass, note:
		return st.n, false
	case number:
		return 4, false
	case hyper64, identify:
		return 8, false
	case bitmap:
		return 4 + 4*st.n, false
	case counted:
		if st.own {
			return 4 + (st.n+3)&^3, false
		}
		return 4, true
	case array:
		if st.own {
			n, open = st.inner.size()
			return 4 + st.n*n, open
		}
		return 4, true
	case maybe:
		n, open = st.inner.size()
		return 4 + n, open
	case whole:
		return st.inner.size()
	case choose, strict, outcome:
		shapes := []shape{st.inner}
		for _, a := range st.arms {
			shapes = append(shapes, a.shape)
		}
		for s := range slices.Values(shapes) {
			m, o := s.size()
			n, open = max(n, m), open || o
		}
		return 4 + n, open
	case fattr:
		return 4 + 4*sizedWords + 4, true
	default: // eligible, linked
		return 4, true
	}
}
