package schema

// Limits that the protocol leaves open.
const (
	maxSources   = 256
	maxURL       = maxString
	maxErrors    = 4096
	maxContents  = 65536
	maxPattern   = 1 << 20
	maxXattr     = 65536
	maxXattrKeys = 65536
)

// Types of RFC 7863 and RFC 8276.
var (
	netloc4 = only(0,
		on(1, text(0, maxURL)), // NL4_NAME
		on(2, text(0, maxURL)), // NL4_URL
		on(3, netaddr4),        // NL4_NETADDR
	)
	written4  = structure(upTo(1, stateid4), length4, u32, verifier4) // committed
	ioInfo4   = fixed(8 + 8)
	xattrKey4 = text(0, maxName)
)

// ops42 are the operations added by NFS version 4.2 (RFC 7863), and those of extended attributes
// (RFC 8276).
var ops42 = []operation{
	{
		code:    OpAllocate,
		args:    structure(stateid4, offset4, length4),
		results: status,
	},
	{
		code: OpCopy,
		args: structure(
			stateid4, stateid4, offset4, offset4, length4,
			u32, u32, // consecutive, synchronous
			countedBy(Sources, maxSources, netloc4),
		),
		results: result(structure(written4, u32, u32), void, on(errOffloadNoReqs, fixed(8))),
	},
	{
		code:    OpCopyNotify,
		args:    structure(stateid4, netloc4),
		results: result(structure(time4, stateid4, list(maxSources, netloc4)), void),
	},
	{
		code:    OpDeallocate,
		args:    structure(stateid4, offset4, length4),
		results: status,
	},
	{
		code:    OpIOAdvise,
		args:    structure(stateid4, offset4, length4, bits(0)),
		results: result(bits(0), void),
	},
	{
		code: OpLayoutError,
		args: structure(offset4, length4, stateid4, list(maxErrors,
			structure(deviceid4, u32, u32), // status, operation
		)),
		results: status,
	},
	{
		code:    OpLayoutStats,
		args:    structure(offset4, length4, stateid4, ioInfo4, ioInfo4, deviceid4, layoutBody4),
		results: status,
	},
	{
		code:    OpOffloadCancel,
		args:    stateid4,
		results: status,
	},
	{
		code:    OpOffloadStatus,
		args:    stateid4,
		results: result(structure(length4, upTo(1, u32)), void), // osr_complete
	},
	{
		code: OpReadPlus,
		args: structure(stateid4, offset4, word(Count)),
		results: result(structure(u32, list(maxContents, union(0, void, // eof
			on(0, structure(offset4, text(0, maxData))), // NFS4_CONTENT_DATA
			on(1, structure(offset4, length4)),          // NFS4_CONTENT_HOLE
		))), void),
	},
	{
		code:    OpSeek,
		args:    structure(stateid4, offset4, u32),     // sa_what
		results: result(structure(u32, offset4), void), // eof
	},
	{
		code: OpWriteSame,
		args: structure(stateid4, u32, // stable
			offset4, length4, length4, length4, count4, length4, text(0, maxPattern),
		),
		results: result(written4, void),
	},
	{
		code:    OpClone,
		args:    structure(stateid4, stateid4, offset4, offset4, length4),
		results: status,
	},
	{
		code:    OpGetXattr,
		args:    xattrKey4,
		results: result(text(0, maxXattr), void),
	},
	{
		code:    OpSetXattr,
		args:    structure(u32, xattrKey4, text(0, maxXattr)), // option
		results: result(change4, void),
	},
	{
		code:    OpListXattrs,
		args:    structure(u64, word(Count)),                                      // cookie
		results: result(structure(u64, list(maxXattrKeys, xattrKey4), u32), void), // eof
	},
	{
		code:    OpRemoveXattr,
		args:    xattrKey4,
		results: result(change4, void),
	},
}
