// Package nfs4 has the types and codecs of NFS versions 4.1 and 4.2 (RFC 8881, RFC 7862) and of
// extended attributes (RFC 8276), for servers, clients and callbacks.
//
// A COMPOUND is decoded one operation after another: [CompoundArgs] first, then an [Op] and its
// arguments each. Every operation has an arguments and a result struct with Encode and Decode,
// unless it has no fields; those that are equal on the wire share one by an alias. A result is the
// part after the status, for NFS4_OK; results of other statuses have types of their own, such as
// [LockDenied].
//
// Handles, names, owners and values of attributes are views of the message's memory, valid as long
// as that is, and data of READ and WRITE stay where they lie (xdr.Decoder.Bulk and
// xdr.Encoder.Bulk). Decode overwrites its struct and reuses the memory of its slices, so a struct
// that is kept costs nothing. Counts are checked before memory is taken. Failures stick to the
// decoder: ask its Err when Decode is done; the status of the operation is NFS4ERR_BADXDR then.
//
// Unions and enumerations are checked while decoding. Numbers, flags and names are not, since the
// RFCs have statuses for those.
package nfs4

// Program and Version number NFS version 4, procedures ProcNull and ProcCompound (RFC 8881 section
// 16). The program of callbacks is the client's choice, their version CallbackVersion.
const (
	Program         = 100003
	Version         = 4
	CallbackVersion = 1

	ProcNull     = 0
	ProcCompound = 1
)

// Limits.
const (
	// MaxHandle bounds a file handle, in bytes (NFS4_FHSIZE).
	MaxHandle = 128
	// MaxOpaque bounds owners and names of servers and implementations, in bytes
	// (NFS4_OPAQUE_LIMIT).
	MaxOpaque = 1024
	// MaxName is the longest name of a directory entry in Linux's file systems, in bytes. Longer
	// ones up to MaxPath are decoded, so that a server can answer NFS4ERR_NAMETOOLONG.
	MaxName = 255
	// MaxPath bounds a name and the target of a symbolic link, in bytes.
	MaxPath = 4096
	// MaxTag bounds the tag of a COMPOUND, in bytes.
	MaxTag = 1024
	// MaxData bounds the data of a READ or WRITE, and the list of a READDIR, in bytes.
	MaxData = 1 << 20
	// MaxBitmap bounds the words of a bitmap. Linux has the same limit.
	MaxBitmap = 1000
	// MaxAttrs bounds the values of a fattr4, in bytes.
	MaxAttrs = 256 << 10
	// MaxACEs bounds the entries of an access control list.
	MaxACEs = 2048
	// MaxStateIDs bounds the stateids of a TEST_STATEID.
	MaxStateIDs = 4096
	// MaxSecParms bounds the callback_sec_parms4 of a call, and the flavors of a SECINFO.
	MaxSecParms = 16
	// MaxAlgorithms bounds the algorithms of state protection.
	MaxAlgorithms = 64
	// MaxReferring bounds the referring calls of a CB_SEQUENCE, in each list and in all.
	MaxReferring = 1024
	// MaxXattr bounds the value of an extended attribute, in bytes (XATTR_SIZE_MAX of Linux).
	MaxXattr = 64 << 10
	// MaxXattrNames bounds the names of a LISTXATTRS.
	MaxXattrNames = 64 << 10
	// MaxSources bounds the source servers of a COPY.
	MaxSources = 256
	// MaxContents bounds the segments of a READ_PLUS.
	MaxContents = 4096
)

// Op is the number of an operation of COMPOUND.
type Op uint32

// Operations of COMPOUND (RFC 5662, 7863, 8276). Those of version 4.0 alone are listed for their
// names.
const (
	OpAccess             Op = 3
	OpClose              Op = 4
	OpCommit             Op = 5
	OpCreate             Op = 6
	OpDelegPurge         Op = 7
	OpDelegReturn        Op = 8
	OpGetAttr            Op = 9
	OpGetFH              Op = 10
	OpLink               Op = 11
	OpLock               Op = 12
	OpLockT              Op = 13
	OpLockU              Op = 14
	OpLookup             Op = 15
	OpLookupP            Op = 16
	OpNVerify            Op = 17
	OpOpen               Op = 18
	OpOpenAttr           Op = 19
	OpOpenConfirm        Op = 20
	OpOpenDowngrade      Op = 21
	OpPutFH              Op = 22
	OpPutPubFH           Op = 23
	OpPutRootFH          Op = 24
	OpRead               Op = 25
	OpReaddir            Op = 26
	OpReadlink           Op = 27
	OpRemove             Op = 28
	OpRename             Op = 29
	OpRenew              Op = 30
	OpRestoreFH          Op = 31
	OpSaveFH             Op = 32
	OpSecInfo            Op = 33
	OpSetAttr            Op = 34
	OpSetClientID        Op = 35
	OpSetClientIDConfirm Op = 36
	OpVerify             Op = 37
	OpWrite              Op = 38
	OpReleaseLockOwner   Op = 39
	OpBackchannelCtl     Op = 40
	OpBindConnToSession  Op = 41
	OpExchangeID         Op = 42
	OpCreateSession      Op = 43
	OpDestroySession     Op = 44
	OpFreeStateID        Op = 45
	OpGetDirDelegation   Op = 46
	OpGetDeviceInfo      Op = 47
	OpGetDeviceList      Op = 48
	OpLayoutCommit       Op = 49
	OpLayoutGet          Op = 50
	OpLayoutReturn       Op = 51
	OpSecInfoNoName      Op = 52
	OpSequence           Op = 53
	OpSetSSV             Op = 54
	OpTestStateID        Op = 55
	OpWantDelegation     Op = 56
	OpDestroyClientID    Op = 57
	OpReclaimComplete    Op = 58
	OpAllocate           Op = 59
	OpCopy               Op = 60
	OpCopyNotify         Op = 61
	OpDeallocate         Op = 62
	OpIOAdvise           Op = 63
	OpLayoutError        Op = 64
	OpLayoutStats        Op = 65
	OpOffloadCancel      Op = 66
	OpOffloadStatus      Op = 67
	OpReadPlus           Op = 68
	OpSeek               Op = 69
	OpWriteSame          Op = 70
	OpClone              Op = 71
	OpGetXattr           Op = 72
	OpSetXattr           Op = 73
	OpListXattrs         Op = 74
	OpRemoveXattr        Op = 75

	// OpIllegal is the number in the result of an unknown operation.
	OpIllegal Op = 10044

	// Operations bounds the numbers, OpIllegal apart.
	Operations = 76
)

var opNames = [Operations]string{
	3: "ACCESS", "CLOSE", "COMMIT", "CREATE", "DELEGPURGE", "DELEGRETURN", "GETATTR", "GETFH", "LINK", "LOCK", "LOCKT",
	"LOCKU", "LOOKUP", "LOOKUPP", "NVERIFY", "OPEN", "OPENATTR", "OPEN_CONFIRM", "OPEN_DOWNGRADE", "PUTFH", "PUTPUBFH",
	"PUTROOTFH", "READ", "READDIR", "READLINK", "REMOVE", "RENAME", "RENEW", "RESTOREFH", "SAVEFH", "SECINFO", "SETATTR",
	"SETCLIENTID", "SETCLIENTID_CONFIRM", "VERIFY", "WRITE", "RELEASE_LOCKOWNER", "BACKCHANNEL_CTL",
	"BIND_CONN_TO_SESSION", "EXCHANGE_ID", "CREATE_SESSION", "DESTROY_SESSION", "FREE_STATEID", "GET_DIR_DELEGATION",
	"GETDEVICEINFO", "GETDEVICELIST", "LAYOUTCOMMIT", "LAYOUTGET", "LAYOUTRETURN", "SECINFO_NO_NAME", "SEQUENCE",
	"SET_SSV", "TEST_STATEID", "WANT_DELEGATION", "DESTROY_CLIENTID", "RECLAIM_COMPLETE", "ALLOCATE", "COPY",
	"COPY_NOTIFY", "DEALLOCATE", "IO_ADVISE", "LAYOUTERROR", "LAYOUTSTATS", "OFFLOAD_CANCEL", "OFFLOAD_STATUS",
	"READ_PLUS", "SEEK", "WRITE_SAME", "CLONE", "GETXATTR", "SETXATTR", "LISTXATTRS", "REMOVEXATTR",
}

// String returns the operation's name in the RFC, like "GETATTR"; "ILLEGAL" for an unknown one.
func (o Op) String() string {
	if o < Operations && opNames[o] != "" {
		return opNames[o]
	}
	return "ILLEGAL"
}

// Known reports whether minor version 1 or 2 has the operation. Those of version 4.0 alone, such as
// SETCLIENTID, are known: their status is NFS4ERR_NOTSUPP (RFC 8881 section 2.10.6.3).
func (o Op) Known(minor uint32) bool {
	switch {
	case o >= Operations || opNames[o] == "":
		return false
	case minor < 2:
		return o <= OpReclaimComplete
	}
	return true
}

// CBOp is the number of an operation of CB_COMPOUND.
type CBOp uint32

// Operations of CB_COMPOUND (RFC 5662, 7863).
const (
	OpCBGetAttr            CBOp = 3
	OpCBRecall             CBOp = 4
	OpCBLayoutRecall       CBOp = 5
	OpCBNotify             CBOp = 6
	OpCBPushDeleg          CBOp = 7
	OpCBRecallAny          CBOp = 8
	OpCBRecallableObjAvail CBOp = 9
	OpCBRecallSlot         CBOp = 10
	OpCBSequence           CBOp = 11
	OpCBWantsCancelled     CBOp = 12
	OpCBNotifyLock         CBOp = 13
	OpCBNotifyDeviceID     CBOp = 14
	OpCBOffload            CBOp = 15
	OpCBIllegal            CBOp = 10044
)
