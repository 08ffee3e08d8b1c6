package rewrite

import (
	"bytes"

	"sluice.dev/sluice/pkg/nfs/layout"
)

// place is what is known of where a filehandle leads.
//
// It rests on this: what a name leads to is not the root, as no name is `..` and no directory is its own descendant's child; nor is what an
// operation creates. How deep it is cannot be known, since directories may be moved between two operations of a COMPOUND: one LOOKUPP
// from there may lead to the root already.
type place uint8

const (
	// anywhere is somewhere inside, at the root maybe.
	anywhere place = iota
	// beneath is what is not the root.
	beneath
	// root is the export's root itself.
	root
)

func (p place) isRoot() bool    { return p == root }
func (p place) mayBeRoot() bool { return p != beneath }

// track follows the current and the saved filehandle through a COMPOUND.
type track struct{ current, saved place }

// after moves on by an operation that succeeds. handle is that of PUTFH, named tells whether an OPEN is by name.
func (t *track) after(code uint32, handle []byte, named bool, r *Roots) {
	switch code {
	case layout.OpPutRootFH, layout.OpPutPubFH:
		t.current = root
	case layout.OpPutFH:
		t.current = anywhere
		if r.is(handle) {
			t.current = root
		}
	case layout.OpLookup, layout.OpCreate:
		t.current = beneath
	case layout.OpOpen:
		if named {
			t.current = beneath
		}
	case layout.OpLookupP, layout.OpOpenAttr, layout.OpSecInfo, layout.OpSecInfoNoName: // the latter leave none behind, if there is a session
		t.current = anywhere
	case layout.OpSaveFH:
		t.saved = t.current
	case layout.OpRestoreFH:
		t.current = t.saved
	}
}

// is tells whether a handle is one of the root's. A backend may know its root by one handle in version 3 and by another in version 4, and take
// either in both.
func (r *Roots) is(handle []byte) bool {
	return bytes.Equal(handle, r.V4) || len(r.V3) > 0 && bytes.Equal(handle, r.V3)
}

// guards returns how many handles of the root a LOOKUPP has to be guarded against.
func (r *Roots) guards() int {
	if len(r.V3) > 0 && !bytes.Equal(r.V3, r.V4) {
		return 2
	}
	return 1
}
