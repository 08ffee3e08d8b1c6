package rewrite

import (
	"bytes"

	"sluice.dev/sluice/pkg/nfs/layout"
)

// place is what is known of where a filehandle leads: some number of levels beneath the export's root, at least that many unless it is
// exact. The zero value is anywhere inside.
//
// It rests on this: a name leads one level down, as no name is `..` and no directory is its own descendant's child; what an operation
// creates is new, and so is not the root.
type place struct {
	depth int
	exact bool
}

// root is the export's root itself.
var root = place{exact: true}

func (p place) isRoot() bool    { return p == root }
func (p place) mayBeRoot() bool { return p.depth == 0 }
func (p place) child() place    { return place{p.depth + 1, p.exact} }

// parent is where LOOKUPP leads, from what is not the root.
func (p place) parent() place {
	if p.depth == 0 {
		return place{}
	}
	return place{p.depth - 1, p.exact}
}

// track follows the current and the saved filehandle through a COMPOUND.
type track struct{ current, saved place }

// after moves on by an operation that succeeds. handle is that of PUTFH, named tells whether an OPEN is by name.
func (t *track) after(code uint32, handle []byte, named bool, r *Roots) {
	switch code {
	case layout.OpPutRootFH, layout.OpPutPubFH:
		t.current = root
	case layout.OpPutFH:
		t.current = place{}
		if r.is(handle) {
			t.current = root
		}
	case layout.OpLookup, layout.OpCreate:
		t.current = t.current.child()
	case layout.OpOpen:
		if named {
			t.current = t.current.child()
		}
	case layout.OpLookupP:
		t.current = t.current.parent()
	case layout.OpOpenAttr, layout.OpSecInfo, layout.OpSecInfoNoName: // the latter leave none behind, if there is a session
		t.current = place{}
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
