package rewrite

import "sluice.dev/sluice/pkg/nfs/schema"

// Statuses made by the gateway (nfsstat4).
const (
	ok4              = 0
	errNoEnt         = 2
	errInval         = 22
	errROFS          = 30
	errBadHandle     = 10001
	errNotSupp       = 10004
	errSame          = 10009
	errDelay         = 10008
	errResource      = 10018
	errNoFileHandle  = 10020
	errMinorMismatch = 10021
	errRestoreFH     = 10030
	errAttrNotSupp   = 10032
	errBadXDR        = 10036
	errBadChar       = 10040
	errBadName       = 10041
	errOpIllegal     = 10044
	errLayoutUnavail = 10059
	errNoMatching    = 10060
	errTooManyOps    = 10070
	errNotInSession  = 10071
	errNotOnlyOp     = 10081
)

// Values of fields.
const (
	accessWritesV4    = 0x4 | 0x8 | 0x10 | 0x80 // MODIFY, EXTEND, DELETE, XAWRITE
	shareAccessWrite  = 2
	openCreate        = 1
	claimNull         = 0
	claimDelegateCur  = 2
	claimDelegatePrev = 3
	styleParent       = 1
)

// Flags of EXCHANGE_ID and CREATE_SESSION.
const (
	useNonPNFS = 0x10000
	usePNFS    = 0x20000 | 0x40000 // of metadata and data servers
	connRDMA   = 4
)

// refusedOps has the operations that bypass the gateway, and their statuses: layouts, devices, and
// the permission to copy to another server.
var refusedOps = [...]uint32{
	schema.OpGetDeviceInfo: errNotSupp,
	schema.OpGetDeviceList: errNotSupp,
	schema.OpLayoutCommit:  errNotSupp,
	schema.OpLayoutGet:     errLayoutUnavail,
	schema.OpLayoutReturn:  errNotSupp,
	schema.OpLayoutError:   errNotSupp,
	schema.OpLayoutStats:   errNotSupp,
	schema.OpCopyNotify:    errNotSupp,
	schema.OpRemoveXattr:   ok4,
}

// writingOps has the operations that always change something.
var writingOps = [...]bool{
	schema.OpCreate:      true,
	schema.OpLink:        true,
	schema.OpRemove:      true,
	schema.OpRename:      true,
	schema.OpSetAttr:     true,
	schema.OpWrite:       true,
	schema.OpAllocate:    true,
	schema.OpCopy:        true,
	schema.OpDeallocate:  true,
	schema.OpWriteSame:   true,
	schema.OpClone:       true,
	schema.OpSetXattr:    true,
	schema.OpRemoveXattr: true,
}

// sessionless reports whether an operation may begin a COMPOUND of version 4.1 or later (RFC 8881,
// section 2.10.6.1.1).
func sessionless(code uint32) bool {
	switch code {
	case schema.OpSequence, schema.OpExchangeID, schema.OpCreateSession, schema.OpDestroySession, schema.OpBindConnToSession, schema.OpDestroyClientID:
		return true
	}
	return false
}

// checkNameV4 returns the status that refuses a name in a directory, or ok4. Only plain names pass,
// so none leads up.
func checkNameV4(name []byte) uint32 {
	switch {
	case len(name) == 0:
		return errInval
	case len(name) == 1 && name[0] == '.', len(name) == 2 && name[0] == '.' && name[1] == '.':
		return errBadName
	}
	for _, b := range name {
		if b == '/' || b == 0 {
			return errBadChar
		}
	}
	return ok4
}

// failureLenV4 returns the number of zero bytes after the status of a refused operation. Those of
// SETATTR mean that nothing was set.
func failureLenV4(code uint32) int {
	if code == schema.OpSetAttr {
		return 4
	}
	return 0
}
