package schema

// Limits that the protocol leaves open.
const (
	maxTag        = 1024
	maxNetAddr    = 1024
	maxOID        = 1024
	maxSecFlavors = 256
)

// Types of RFC 7531.
var (
	seqid4     = u32
	stateid4   = fixed(16)
	clientid4  = u64
	verifier4  = fixed(8)
	offset4    = u64
	length4    = u64
	count4     = u32
	component4 = text(Name, maxName)
	fh4        = opaque(Handle, handleV4)
	change4    = fixed(4 + 8 + 8)
	netaddr4   = structure(text(0, maxNetAddr), text(0, maxNetAddr)) // r_netid, r_addr

	stateOwner4 = structure(clientid4, opaque(0, opaqueLimit))
	denied4     = structure(offset4, length4, u32, stateOwner4) // locktype

	delegationRead4  = structure(stateid4, u32, ace4) // recall
	delegationWrite4 = structure(stateid4, u32, spaceLimit4, ace4)
	spaceLimit4      = only(0,
		on(1, u64),      // NFS_LIMIT_SIZE
		on(2, fixed(8)), // NFS_LIMIT_BLOCKS
	)
	// Types 4 and 5 are those of RFC 9754.
	delegation4 = only(0,
		on(0, void), // OPEN_DELEGATE_NONE
		on(1, delegationRead4),
		on(2, delegationWrite4),
		on(3, union(0, void, // OPEN_DELEGATE_NONE_EXT
			on(1, u32), // WND4_CONTENTION
			on(2, u32), // WND4_RESOURCE
		)),
		on(4, delegationRead4),
		on(5, delegationWrite4),
	)

	secinfo4 = result(countedBy(Flavors, maxSecFlavors, as(Flavor, union(0, void,
		on(6, structure(text(0, maxOID), u32, u32)), // RPCSEC_GSS: oid, qop, service
	))), void)
)

// ops40 are the operations of NFS version 4.0 (RFC 7531).
var ops40 = []operation{
	{
		code:    OpAccess,
		args:    u32,
		results: result(structure(u32, word(Access)), void), // supported
	},
	{
		code:    OpClose,
		args:    structure(seqid4, stateid4),
		results: result(stateid4, void),
	},
	{
		code:    OpCommit,
		args:    structure(offset4, count4),
		results: result(verifier4, void),
	},
	{
		code: OpCreate,
		args: structure(
			union(0, void,
				on(3, fixed(8)),      // NF4BLK
				on(4, fixed(8)),      // NF4CHR
				on(5, bulk(maxPath)), // NF4LNK
			),
			component4,
			attributes,
		),
		results: result(structure(change4, bits(0)), void),
	},
	{
		code:    OpDelegPurge,
		args:    clientid4,
		results: status,
	},
	{
		code:    OpDelegReturn,
		args:    stateid4,
		results: status,
	},
	{
		code:    OpGetAttr,
		args:    bits(AttrMask),
		results: result(attributes, void),
	},
	{
		code:    OpGetFH,
		results: result(fh4, void),
	},
	{
		code:    OpLink,
		args:    component4,
		results: result(change4, void),
	},
	{
		code: OpLock,
		args: structure(u32, u32, offset4, length4, only(0, // locktype, reclaim
			on(1, structure(seqid4, stateid4, seqid4, stateOwner4)),
			on(0, structure(stateid4, seqid4)),
		)),
		results: result(stateid4, void, on(errDenied, denied4)),
	},
	{
		code:    OpLockT,
		args:    structure(u32, offset4, length4, stateOwner4), // locktype
		results: result(void, void, on(errDenied, denied4)),
	},
	{
		code:    OpLockU,
		args:    structure(u32, seqid4, stateid4, offset4, length4), // locktype
		results: result(stateid4, void),
	},
	{
		code:    OpLookup,
		args:    component4,
		results: status,
	},
	{
		code:    OpLookupP,
		results: status,
	},
	{
		code:    OpNVerify,
		args:    attributes,
		results: status,
	},
	{
		code: OpOpen,
		args: structure(
			seqid4,
			word(ShareAccess),
			u32, // share_deny
			stateOwner4,
			union(OpenType, void, on(1, only(0, // OPEN4_CREATE
				on(0, attributes),                       // UNCHECKED4
				on(1, attributes),                       // GUARDED4
				on(2, verifier4),                        // EXCLUSIVE4
				on(3, structure(verifier4, attributes)), // EXCLUSIVE4_1
			))),
			only(Claim,
				on(0, component4),                      // CLAIM_NULL
				on(1, u32),                             // CLAIM_PREVIOUS: delegate_type
				on(2, structure(stateid4, component4)), // CLAIM_DELEGATE_CUR
				on(3, component4),                      // CLAIM_DELEGATE_PREV
				on(4, void),                            // CLAIM_FH
				on(5, stateid4),                        // CLAIM_DELEG_CUR_FH
				on(6, void),                            // CLAIM_DELEG_PREV_FH
			),
		),
		results: result(structure(stateid4, change4, u32, bits(0), delegation4), void), // rflags
	},
	{
		code:    OpOpenAttr,
		args:    u32, // createdir
		results: status,
	},
	{
		code:    OpOpenConfirm,
		args:    structure(stateid4, seqid4),
		results: result(stateid4, void),
	},
	{
		code:    OpOpenDowngrade,
		args:    structure(stateid4, seqid4, word(ShareAccess), u32), // share_deny
		results: result(stateid4, void),
	},
	{
		code:    OpPutFH,
		args:    fh4,
		results: status,
	},
	{
		code:    OpPutPubFH,
		results: status,
	},
	{
		code:    OpPutRootFH,
		results: status,
	},
	{
		code:    OpRead,
		args:    structure(stateid4, offset4, word(Count)),
		results: result(structure(u32, bulk(maxData)), void), // eof
	},
	{
		code: OpReaddir,
		args: structure(u64, verifier4, word(DirCount), word(Count), bits(AttrMask)), // cookie
		results: result(structure(
			verifier4,
			chain(0, structure(u64, text(EntryName, maxName), attributes)), // cookie
			u32, // eof
		), void),
	},
	{
		code:    OpReadlink,
		results: result(bulk(maxPath), void),
	},
	{
		code:    OpRemove,
		args:    component4,
		results: result(change4, void),
	},
	{
		code:    OpRename,
		args:    structure(component4, component4),
		results: result(structure(change4, change4), void),
	},
	{
		code:    OpRenew,
		args:    clientid4,
		results: status,
	},
	{
		code:    OpRestoreFH,
		results: status,
	},
	{
		code:    OpSaveFH,
		results: status,
	},
	{
		code:    OpSecInfo,
		args:    component4,
		results: secinfo4,
	},
	{
		code:    OpSetAttr,
		args:    structure(stateid4, attributes),
		results: result(bits(0), bits(0)),
	},
	{
		code: OpSetClientID,
		args: structure(
			verifier4, opaque(ClientOwner, opaqueLimit),
			u32, as(CallbackAddress, netaddr4), // cb_program
			u32, // callback_ident
		),
		results: result(structure(clientid4, verifier4), void, on(errClientIDInUse, netaddr4)),
	},
	{
		code:    OpSetClientIDConfirm,
		args:    structure(clientid4, verifier4),
		results: status,
	},
	{
		code:    OpVerify,
		args:    attributes,
		results: status,
	},
	{
		code:    OpWrite,
		args:    structure(stateid4, offset4, u32, bulk(maxData)), // stable
		results: result(structure(count4, u32, verifier4), void),  // committed
	},
	{
		code:    OpReleaseLockOwner,
		args:    stateOwner4,
		results: status,
	},
}
