package rewrite

import (
	"bytes"

	"sluice.dev/sluice/pkg/nfs/schema"
)

// place is the known position of a filehandle.
//
// A name, or a newly created object, never is the root: no name is `..`, and no directory is its
// own descendant. The depth is unknown, since directories may be moved between two operations of a
// COMPOUND: one LOOKUPP may already lead to the root.
type place uint8

const (
	// unset: there is no filehandle.
	unset place = iota
	// anywhere: inside the export, perhaps its root.
	anywhere
	// beneath: not the root.
	beneath
	// root: the export's root.
	root
)

func (p place) isRoot() bool    { return p == root }
func (p place) mayBeRoot() bool { return p == anywhere || p == root }

// fhTracker tracks the current and the saved filehandle of a COMPOUND.
type fhTracker struct{ current, saved place }

// advance applies a successful operation. handle is that of PUTFH; named marks an OPEN by name.
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

// contains reports whether a handle is one of the root's. A backend may have different root handles
// in versions 3 and 4, and accept both in either.
func (r *Roots) contains(handle []byte) bool {
	return bytes.Equal(handle, r.V4) || len(r.V3) > 0 && bytes.Equal(handle, r.V3)
}

// handleCount returns the number of root handles that LOOKUPP must be checked against.
func (r *Roots) handleCount() int {
	if len(r.V3) > 0 && !bytes.Equal(r.V3, r.V4) {
		return 2
	}
	return 1
}

// filehandles is a set of filehandles that an operation needs.
type filehandles uint8

const (
	currentFH filehandles = 1 << iota
	savedFH
)

// worksOn has the operations that fail without a filehandle (RFC 8881 section 18, RFC 7530 section
// 16, RFC 7862 section 15, RFC 8276 section 8.4), except operations that are always refused.
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

// checkFilehandles returns the status for a missing filehandle, or ok4.
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
