package schema

// Limits that the protocol leaves open.
const (
	maxImplName    = maxString
	maxMachineName = 255
	maxGroups      = 16
	maxGSSHandle   = 65536
	maxSecParms    = 64
	maxAlgorithms  = 64
	maxDevices     = 4096
	maxLayouts     = 256
	maxLayoutBody  = 1 << 20
	maxStateIDs    = 65536
	maxSSV         = 65536
)

// Types of RFC 5662.
var (
	sessionid4 = fixed(16)
	deviceid4  = fixed(16)
	gssHandle4 = text(0, maxGSSHandle)
	implID4    = upTo(1, structure(text(0, maxImplName), text(0, maxImplName), time4))

	callbackSec4 = list(maxSecParms, only(0,
		on(0, void), // AUTH_NONE
		on(1, structure( // AUTH_SYS
			u32, // stamp
			opaque(0, maxMachineName),
			u32, u32, // uid, gid
			upTo(maxGroups, u32),
		)),
		on(6, structure(u32, gssHandle4, gssHandle4)), // RPCSEC_GSS
	))

	protectOps4 = structure(bits(0), bits(0))
	oids4       = list(maxAlgorithms, text(0, maxOID))

	channel4 = structure(
		count4, // ca_headerpadsize
		word(MaxRequestSize),
		word(MaxResponseSize),
		word(MaxResponseSizeCached),
		word(MaxOperations),
		count4,       // ca_maxrequests
		upTo(1, u32), // ca_rdma_ird
	)

	layoutBody4 = structure(u32, text(0, maxLayoutBody)) // the layout type

	// A boolean, and a value on TRUE.
	changedTime4   = optional(0, time4)
	changedOffset4 = optional(0, offset4)
	changedSize4   = optional(0, length4)
	someStateid4   = optional(0, stateid4)
)

// ops41 are the operations added by NFS version 4.1 (RFC 5662).
var ops41 = []operation{
	{
		code:    OpBackchannelCtl,
		args:    structure(u32, callbackSec4), // bca_cb_program
		results: status,
	},
	{
		code:    OpBindConnToSession,
		args:    structure(sessionid4, u32, u32), // direction, RDMA mode
		results: result(structure(sessionid4, u32, u32), void),
	},
	{
		code: OpExchangeID,
		args: structure(
			verifier4, opaque(ClientOwner, opaqueLimit),
			word(ExchangeFlags),
			only(0,
				on(0, void),        // SP4_NONE
				on(1, protectOps4), // SP4_MACH_CRED
				on(2, structure(protectOps4, oids4, oids4, u32, u32)), // SP4_SSV
			),
			implID4,
		),
		results: result(structure(
			clientid4,
			u32, // eir_sequenceid
			word(ExchangeFlags),
			only(0,
				on(0, void),
				on(1, protectOps4),
				on(2, structure(protectOps4, fixed(4*4), list(maxAlgorithms, gssHandle4))),
			),
			u64, opaque(ServerOwner, opaqueLimit), // so_minor_id
			opaque(ServerScope, opaqueLimit),
			implID4,
		), void),
	},
	{
		code: OpCreateSession,
		// sequence, flags; callback program
		args:    structure(clientid4, u32, u32, channel4, channel4, u32, callbackSec4),
		results: result(structure(sessionid4, u32, u32, channel4, channel4), void),
	},
	{
		code:    OpDestroySession,
		args:    sessionid4,
		results: status,
	},
	{
		code:    OpFreeStateID,
		args:    stateid4,
		results: status,
	},
	{
		code: OpGetDirDelegation,
		// gdda_signal_deleg_avail
		args: structure(u32, bits(0), time4, time4, bits(AttrMask), bits(AttrMask)),
		results: result(only(0,
			on(0, structure(verifier4, stateid4, bits(0), bits(0), bits(0))), // GDD4_OK
			on(1, u32), // GDD4_UNAVAIL
		), void),
	},
	{
		code:    OpGetDeviceInfo,
		args:    structure(deviceid4, u32, word(Count), bits(0)), // the layout type
		results: result(structure(layoutBody4, bits(0)), void, on(errTooSmall, count4)),
	},
	{
		code:    OpGetDeviceList,
		args:    structure(u32, word(Count), u64, verifier4), // the layout type; cookie
		results: result(structure(u64, verifier4, list(maxDevices, deviceid4), u32), void),
	},
	{
		code: OpLayoutCommit,
		args: structure(
			offset4, length4, u32, stateid4, // reclaim
			changedOffset4,
			changedTime4,
			layoutBody4,
		),
		results: result(changedSize4, void),
	},
	{
		code: OpLayoutGet,
		// signal, layout type, iomode
		args: structure(u32, u32, u32, offset4, length4, length4, stateid4, word(Count)),
		results: result(
			structure(u32, stateid4, list(maxLayouts, structure(offset4, length4, u32, layoutBody4))),
			void, on(errLayoutTryLater, u32),
		),
	},
	{
		code: OpLayoutReturn,
		args: structure(u32, u32, u32, union(0, void, // reclaim, layout type, iomode
			// LAYOUTRETURN4_FILE
			on(1, structure(offset4, length4, stateid4, text(0, maxLayoutBody))),
		)),
		results: result(someStateid4, void),
	},
	{
		code:    OpSecInfoNoName,
		args:    word(Style),
		results: secinfo4,
	},
	{
		code:    OpSequence,
		args:    structure(sessionid4, fixed(4*4)),
		results: result(structure(sessionid4, fixed(5*4)), void),
	},
	{
		code:    OpSetSSV,
		args:    structure(text(0, maxSSV), text(0, maxSSV)),
		results: result(text(0, maxSSV), void),
	},
	{
		code:    OpTestStateID,
		args:    list(maxStateIDs, stateid4),
		results: result(list(maxStateIDs, u32), void),
	},
	{
		code: OpWantDelegation,
		args: structure(u32, only(0,
			on(4, void), // CLAIM_FH
			on(6, void), // CLAIM_DELEG_PREV_FH
			on(1, u32),  // CLAIM_PREVIOUS
		)),
		results: result(delegation4, void),
	},
	{
		code:    OpDestroyClientID,
		args:    clientid4,
		results: status,
	},
	{
		code:    OpReclaimComplete,
		args:    u32, // rca_one_fs
		results: status,
	},
}
