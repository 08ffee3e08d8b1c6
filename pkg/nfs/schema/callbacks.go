package schema

// Limits that the protocol leaves open.
const (
	maxNotifications  = 4096
	maxNotification   = 1 << 20
	maxReferringLists = 256
	maxReferringCalls = 4096
)

// notify4 is an array of notifications of directories or devices: a bitmap of types, and an opaque
// of values.
var notify4 = list(maxNotifications, structure(bits(0), text(0, maxNotification)))

// callbacks40 are the callbacks of NFS version 4.0 (RFC 7531).
var callbacks40 = []operation{
	{
		code:    OpCBGetAttr,
		args:    structure(fh4, bits(AttrMask)),
		results: result(attributes, void),
	},
	{
		code:    OpCBRecall,
		args:    structure(stateid4, u32, fh4), // truncate
		results: status,
	},
}

// callbacks41 are the callbacks added by NFS version 4.1 (RFC 5662).
var callbacks41 = []operation{
	{
		code: OpCBLayoutRecall,
		args: structure(u32, u32, u32, only(0, // layout type, iomode, changed
			on(1, structure(fh4, offset4, length4, stateid4)), // LAYOUTRECALL4_FILE
			on(2, fixed(16)), // LAYOUTRECALL4_FSID
			on(3, void),      // LAYOUTRECALL4_ALL
		)),
		results: status,
	},
	{
		code:    OpCBNotify,
		args:    structure(stateid4, fh4, notify4),
		results: status,
	},
	{
		code:    OpCBPushDeleg,
		args:    structure(fh4, delegation4),
		results: status,
	},
	{
		code:    OpCBRecallAny,
		args:    structure(u32, bits(0)), // craa_objects_to_keep
		results: status,
	},
	{
		code:    OpCBRecallableObjAvail,
		args:    structure(u32, bits(0)),
		results: status,
	},
	{
		code:    OpCBRecallSlot,
		args:    u32, // rsa_target_highest_slotid
		results: status,
	},
	{
		code: OpCBSequence,
		args: structure(sessionid4, fixed(4*4), list(maxReferringLists,
			structure(sessionid4, list(maxReferringCalls, fixed(8))),
		)),
		results: result(structure(sessionid4, fixed(4*4)), void),
	},
	{
		code:    OpCBWantsCancelled,
		args:    fixed(2 * 4),
		results: status,
	},
	{
		code:    OpCBNotifyLock,
		args:    structure(fh4, stateOwner4),
		results: status,
	},
	{
		code:    OpCBNotifyDeviceID,
		args:    notify4,
		results: status,
	},
}

// callbacks42 is the callback added by NFS version 4.2 (RFC 7863).
var callbacks42 = []operation{
	{
		code: OpCBOffload,
		args: structure(fh4, stateid4, union(0, length4, // coa_bytes_copied
			on(0, written4),
		)),
		results: status,
	},
}
