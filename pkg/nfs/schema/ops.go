package schema

// Numbers of the operations of a COMPOUND (RFC 7531, 5662, 7863, 8276).
const (
	OpAccess             = 3
	OpClose              = 4
	OpCommit             = 5
	OpCreate             = 6
	OpDelegPurge         = 7
	OpDelegReturn        = 8
	OpGetAttr            = 9
	OpGetFH              = 10
	OpLink               = 11
	OpLock               = 12
	OpLockT              = 13
	OpLockU              = 14
	OpLookup             = 15
	OpLookupP            = 16
	OpNVerify            = 17
	OpOpen               = 18
	OpOpenAttr           = 19
	OpOpenConfirm        = 20
	OpOpenDowngrade      = 21
	OpPutFH              = 22
	OpPutPubFH           = 23
	OpPutRootFH          = 24
	OpRead               = 25
	OpReaddir            = 26
	OpReadlink           = 27
	OpRemove             = 28
	OpRename             = 29
	OpRenew              = 30
	OpRestoreFH          = 31
	OpSaveFH             = 32
	OpSecInfo            = 33
	OpSetAttr            = 34
	OpSetClientID        = 35
	OpSetClientIDConfirm = 36
	OpVerify             = 37
	OpWrite              = 38
	OpReleaseLockOwner   = 39

	OpBackchannelCtl    = 40
	OpBindConnToSession = 41
	OpExchangeID        = 42
	OpCreateSession     = 43
	OpDestroySession    = 44
	OpFreeStateID       = 45
	OpGetDirDelegation  = 46
	OpGetDeviceInfo     = 47
	OpGetDeviceList     = 48
	OpLayoutCommit      = 49
	OpLayoutGet         = 50
	OpLayoutReturn      = 51
	OpSecInfoNoName     = 52
	OpSequence          = 53
	OpSetSSV            = 54
	OpTestStateID       = 55
	OpWantDelegation    = 56
	OpDestroyClientID   = 57
	OpReclaimComplete   = 58

	OpAllocate      = 59
	OpCopy          = 60
	OpCopyNotify    = 61
	OpDeallocate    = 62
	OpIOAdvise      = 63
	OpLayoutError   = 64
	OpLayoutStats   = 65
	OpOffloadCancel = 66
	OpOffloadStatus = 67
	OpReadPlus      = 68
	OpSeek          = 69
	OpWriteSame     = 70
	OpClone         = 71
	OpGetXattr      = 72
	OpSetXattr      = 73
	OpListXattrs    = 74
	OpRemoveXattr   = 75

	// OpIllegal is OP_ILLEGAL and OP_CB_ILLEGAL: the number in the result of an unknown operation.
	OpIllegal = 10044
)

// Numbers of the operations of a CB_COMPOUND.
const (
	OpCBGetAttr            = 3
	OpCBRecall             = 4
	OpCBLayoutRecall       = 5
	OpCBNotify             = 6
	OpCBPushDeleg          = 7
	OpCBRecallAny          = 8
	OpCBRecallableObjAvail = 9
	OpCBRecallSlot         = 10
	OpCBSequence           = 11
	OpCBWantsCancelled     = 12
	OpCBNotifyLock         = 13
	OpCBNotifyDeviceID     = 14
	OpCBOffload            = 15
)

// Statuses with further results (nfsstat4).
const (
	errTooSmall       = 10005
	errDenied         = 10010
	errClientIDInUse  = 10017
	errLayoutTryLater = 10058
	errOffloadNoReqs  = 10094
)

// operation is an operation of a COMPOUND or CB_COMPOUND, by number.
type operation struct {
	code          uint32
	args, results shape
}

// entry is an operation's entry in a table.
type entry struct {
	known         bool
	minor         uint32 // the first version with it
	args, results shape
}

// illegal is the entry of OpIllegal.
var illegal = entry{known: true, results: status}

// table indexes operations by number. Each list has the operations new in a minor version.
func table(versions ...[]operation) []entry {
	var t []entry
	for minor, ops := range versions {
		for _, op := range ops {
			for int(op.code) >= len(t) {
				t = append(t, entry{})
			}
			t[op.code] = entry{true, uint32(minor), op.args, op.results}
		}
	}
	return t
}

// forward and backward are the operations of COMPOUND and CB_COMPOUND.
var (
	forward  = table(ops40, ops41, ops42)
	backward = table(callbacks40, callbacks41, callbacks42)
)

// ResultSize returns the largest size of an operation's result in bytes, its number included; for
// an unknown operation that of OpIllegal. open: parts without a limit count as their count words
// alone.
func ResultSize(code uint32) (size int, open bool) {
	if code >= uint32(len(resultSizes)) {
		return 8, false
	}
	return resultSizes[code].size, resultSizes[code].open
}

var resultSizes = func() []extent {
	sizes := make([]extent, len(forward))
	for code, e := range forward {
		sizes[code] = extent{size: 8}
		if e.known {
			n, open := e.results.size()
			sizes[code] = extent{4 + n, open}
		}
	}
	return sizes
}()
