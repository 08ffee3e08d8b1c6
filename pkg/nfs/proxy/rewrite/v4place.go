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
	// unset is no filehandle at all.
	unset place = iota
	// anywhere is somewhere inside, at the root maybe.
	anywhere
	// beneath is what is not the root.
	beneath
	// root is the export's root itself.
	root
)

func (p place) isRoot() bool    { return p == root }
func (p place) mayBeRoot() bool { return p == anywhere || p == root }

// track follows the current and the saved filehandle through a COMPOUND.
type track struct{ current, saved place }

// after moves on by an operation that succeeds. handle is that of PUTFH, named tells whether an OPEN is by name.
func (t *track) after(code, minor uint32, handle []byte, named bool, r *Roots) {
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
	case layout.OpLookupP, layout.OpOpenAttr:
		t.current = anywhere
	case layout.OpSecInfo, layout.OpSecInfoNoName:
		if minor > 0 { // RFC 8881 section 2.6.3.1.1.8
			t.current = unset
		}
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

// filehandles says which filehandles an operation works on.
type filehandles uint8

const (
	currentFH filehandles = 1 << iota
	savedFH
)

// worksOn has the operations that fail without a filehandle (RFC 8881 section 18, RFC 7530 section
// 16, RFC 7862 section 15, RFC 8276 section 8.4), but for those that are refused here anyway.
var worksOn = [layout.OpRemoveXattr + 1]filehandles{
	layout.OpAccess:           currentFH,
	layout.OpClose:            currentFH,
	layout.OpCommit:           currentFH,
	layout.OpCreate:           currentFH,
	layout.OpDelegReturn:      currentFH,
	layout.OpGetAttr:          currentFH,
	layout.OpGetFH:            currentFH,
	layout.OpLink:             currentFH | savedFH,
	layout.OpLock:             currentFH,
	layout.OpLockT:            currentFH,
	layout.OpLockU:            currentFH,
	layout.OpLookup:           currentFH,
	layout.OpLookupP:          currentFH,
	layout.OpNVerify:          currentFH,
	layout.OpOpen:             currentFH,
	layout.OpOpenAttr:         currentFH,
	layout.OpOpenConfirm:      currentFH,
	layout.OpOpenDowngrade:    currentFH,
	layout.OpRead:             currentFH,
	layout.OpReaddir:          currentFH,
	layout.OpReadlink:         currentFH,
	layout.OpRemove:           currentFH,
	layout.OpRename:           currentFH | savedFH,
	layout.OpRestoreFH:        savedFH,
	layout.OpSaveFH:           currentFH,
	layout.OpSecInfo:          currentFH,
	layout.OpSetAttr:          currentFH,
	layout.OpVerify:           currentFH,
	layout.OpWrite:            currentFH,
	layout.OpGetDirDelegation: currentFH,
	layout.OpSecInfoNoName:    currentFH,
	layout.OpWantDelegation:   currentFH,
	layout.OpAllocate:         currentFH,
	layout.OpCopy:             currentFH | savedFH,
	layout.OpDeallocate:       currentFH,
	layout.OpIOAdvise:         currentFH,
	layout.OpOffloadCancel:    currentFH,
	layout.OpOffloadStatus:    currentFH,
	layout.OpReadPlus:         currentFH,
	layout.OpSeek:             currentFH,
	layout.OpWriteSame:        currentFH,
	layout.OpClone:            currentFH | savedFH,
	layout.OpGetXattr:         currentFH,
	layout.OpSetXattr:         currentFH,
	layout.OpListXattrs:       currentFH,
	layout.OpRemoveXattr:      currentFH,
}

// lacks returns the status of an operation for which there is no filehandle, or ok4.
func (t *track) lacks(needs filehandles, code, minor uint32) uint32 {
	switch {
	case needs&currentFH != 0 && t.current == unset, needs&savedFH != 0 && t.saved == unset:
		if code == layout.OpRestoreFH && minor == 0 {
			return errRestoreFH // RFC 7530 section 16.31
		}
		return errNoFileHandle
	}
	return ok4
}
