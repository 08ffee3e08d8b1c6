package rewrite

import (
	"bytes"

	"sluice.dev/sluice/pkg/nfs/schema"
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

// fhTracker follows the current and the saved filehandle through a COMPOUND.
type fhTracker struct{ current, saved place }

// advance moves on by an operation that succeeds. handle is that of PUTFH, named tells whether an OPEN is by name.
func (t *fhTracker) advance(code, minor uint32, handle []byte, named bool, r *Roots) {
	switch code {
	case schema.OpPutRootFH, schema.OpPutPubFH:
		t.current = root
	case schema.OpPutFH:
		t.current = anywhere
		if r.contains(handle) {
			t.current = root
		}
	case schema.OpLookup, schema.OpCreate:
		t.current = beneath
	case schema.OpOpen:
		if named {
			t.current = beneath
		}
	case schema.OpLookupP, schema.OpOpenAttr:
		t.current = anywhere
	case schema.OpSecInfo, schema.OpSecInfoNoName:
		if minor > 0 { // RFC 8881 section 2.6.3.1.1.8
			t.current = unset
		}
	case schema.OpSaveFH:
		t.saved = t.current
	case schema.OpRestoreFH:
		t.current = t.saved
	}
}

// contains tells whether a handle is one of the root's. A backend may know its root by one handle in version 3 and by another in version 4, and take
// either in both.
func (r *Roots) contains(handle []byte) bool {
	return bytes.Equal(handle, r.V4) || len(r.V3) > 0 && bytes.Equal(handle, r.V3)
}

// handleCount returns how many handles of the root a LOOKUPP has to be guarded against.
func (r *Roots) handleCount() int {
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
var worksOn = [schema.OpRemoveXattr + 1]filehandles{
	schema.OpAccess:           currentFH,
	schema.OpClose:            currentFH,
	schema.OpCommit:           currentFH,
	schema.OpCreate:           currentFH,
	schema.OpDelegReturn:      currentFH,
	schema.OpGetAttr:          currentFH,
	schema.OpGetFH:            currentFH,
	schema.OpLink:             currentFH | savedFH,
	schema.OpLock:             currentFH,
	schema.OpLockT:            currentFH,
	schema.OpLockU:            currentFH,
	schema.OpLookup:           currentFH,
	schema.OpLookupP:          currentFH,
	schema.OpNVerify:          currentFH,
	schema.OpOpen:             currentFH,
	schema.OpOpenAttr:         currentFH,
	schema.OpOpenConfirm:      currentFH,
	schema.OpOpenDowngrade:    currentFH,
	schema.OpRead:             currentFH,
	schema.OpReaddir:          currentFH,
	schema.OpReadlink:         currentFH,
	schema.OpRemove:           currentFH,
	schema.OpRename:           currentFH | savedFH,
	schema.OpRestoreFH:        savedFH,
	schema.OpSaveFH:           currentFH,
	schema.OpSecInfo:          currentFH,
	schema.OpSetAttr:          currentFH,
	schema.OpVerify:           currentFH,
	schema.OpWrite:            currentFH,
	schema.OpGetDirDelegation: currentFH,
	schema.OpSecInfoNoName:    currentFH,
	schema.OpWantDelegation:   currentFH,
	schema.OpAllocate:         currentFH,
	schema.OpCopy:             currentFH | savedFH,
	schema.OpDeallocate:       currentFH,
	schema.OpIOAdvise:         currentFH,
	schema.OpOffloadCancel:    currentFH,
	schema.OpOffloadStatus:    currentFH,
	schema.OpReadPlus:         currentFH,
	schema.OpSeek:             currentFH,
	schema.OpWriteSame:        currentFH,
	schema.OpClone:            currentFH | savedFH,
	schema.OpGetXattr:         currentFH,
	schema.OpSetXattr:         currentFH,
	schema.OpListXattrs:       currentFH,
	schema.OpRemoveXattr:      currentFH,
}

// checkFilehandles returns the status of an operation for which there is no filehandle, or ok4.
func (t *fhTracker) checkFilehandles(needs filehandles, code, minor uint32) uint32 {
	switch {
	case needs&currentFH != 0 && t.current == unset, needs&savedFH != 0 && t.saved == unset:
		if code == schema.OpRestoreFH && minor == 0 {
			return errRestoreFH // RFC 7530 section 16.31
		}
		return errNoFileHandle
	}
	return ok4
}
