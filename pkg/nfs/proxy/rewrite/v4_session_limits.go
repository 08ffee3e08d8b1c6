package rewrite

import (
	"crypto/sha256"
	"math"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// maxOwner is NFS4_OPAQUE_LIMIT, the limit of owners and scopes.
const maxOwner = 1024

// putDistinct makes an owner or scope unique to the export, and always the same. It appends the
// export's UID; without room for that it replaces the owner by a digest.
func putDistinct(e *Edits, s *schema.Span, uid []byte) {
	owner := s.B
	var sum [sha256.Size]byte
	if len(owner)+len(uid) > maxOwner {
		sum = sha256.Sum256(owner)
		owner = sum[:]
	}
	b := putOpaque(e, s.Pos, s.Len, len(owner)+len(uid))
	copy(b[copy(b, owner):], uid)
}

// nullCallbackAddress is an address that cannot be called: r_netid "tcp" and r_addr "0.0.0.0.0.0".
var nullCallbackAddress = []byte("\x00\x00\x00\x03tcp\x00\x00\x00\x00\x0b0.0.0.0.0.0\x00")

// nonPNFS replaces flags of EXCHANGE_ID by ones without layouts.
func nonPNFS(flags uint32) uint32 { return flags&^usePNFS | useNonPNFS }

// A session's limits differ between client and backend, since messages grow:
//
//   - A call grows by at most maxInserts operations of insertLen bytes, inserted or grown. The
//     gateway asks the backend for that much more, and grants the client that much less than the
//     backend grants.
//   - A reply grows by at most one tag for each operation, and by the result of a refused
//     operation. The gateway asks the backend for that much less, and grants the client that much
//     more, but never more than it asked for: no reply exceeds the client's limit. The number of
//     tags is bounded by maxSessionOps, and by the number of results with a handle that fit: a
//     client may ask for a few hundred bytes.
//   - READDIR has many handles; its lowered maxcount leaves room for their tags. A maxcount beyond
//     the whole reply is the client's own fault.
//   - A callback grows by one tag for each operation. The gateway asks the backend for that much
//     less, and grants the client its own offer (RFC 8881 section 18.36.3), unless the backend
//     insists on less.
//
// The grants follow from the client's call and the backend's reply alone, so that a repeated
// CREATE_SESSION gets the same answer.
const (
	// insertLen is the length of NVERIFY with a handle, the longest insertion; PUTFH for PUTROOTFH
	// is shorter.
	insertLen = 20 + sign.Max4
	// maxSessionOps bounds ca_maxoperations.
	maxSessionOps = 64
)

// channel has the limits of one channel in CREATE_SESSION.
type channel struct{ request, response, cached, ops uint32 }

// field returns the field with the mark.
func (c *channel) field(m schema.Mark) *uint32 {
	switch m {
	case schema.MaxRequestSize:
		return &c.request
	case schema.MaxResponseSize:
		return &c.response
	case schema.MaxResponseSizeCached:
		return &c.cached
	default:
		return &c.ops
	}
}

func (c *channel) setField(s *schema.Span) { *c.field(s.Mark) = uint32(s.Value) }

// saturatingAdd and saturatingSub stay within 32 bits.
func saturatingAdd(a, b uint32) uint32 { return uint32(min(uint64(a)+uint64(b), math.MaxUint32)) }
func saturatingSub(a, b uint32) uint32 { return a - min(a, b) }

// Minimum lengths of a message without operations (RPC header, tag and count of a COMPOUND,
// SEQUENCE), and of an operation or result with a handle to sign.
const (
	minReply4    = 24 + 12 + 44 // RPC header without verifier; result of SEQUENCE
	minCallback4 = 40 + 16 + 44 // with AUTH_NONE; CB_SEQUENCE without referring calls
	minHandle4   = 12 + 4       // number, status, length, and a handle of one byte
)

// tags returns the bytes for tags in a message of at most size bytes, of which fixed bytes have no
// handle. It is bounded by the handles that fit in the rest.
func (c *channel) tags(x *Export, size, fixed uint32) uint32 {
	grows := uint32(x.Signer.Overhead())
	return min(c.ops, maxSessionOps, saturatingAdd(saturatingSub(size, fixed), grows)/(minHandle4+grows)) * grows
}

// replyGrowth bounds the growth of a reply of at most size bytes.
func (c *channel) replyGrowth(x *Export, size uint32) uint32 {
	return c.tags(x, size, minReply4) + maxRefusal
}

// foreRequest returns the limits to ask of the backend for a client that asks for c.
func (c *channel) foreRequest(x *Export) channel {
	return channel{
		request:  saturatingAdd(c.request, maxInserts*insertLen),
		response: saturatingSub(c.response, c.replyGrowth(x, c.response)),
		cached:   saturatingSub(c.cached, c.replyGrowth(x, c.cached)),
		ops:      min(c.ops, maxSessionOps) + maxInserts,
	}
}

// foreGrant returns the limits to grant a client that asked for c.
func (c *channel) foreGrant(x *Export, granted channel) channel {
	return channel{
		request:  min(c.request, saturatingSub(granted.request, maxInserts*insertLen)),
		response: min(c.response, saturatingAdd(granted.response, c.replyGrowth(x, c.response))),
		cached:   min(c.cached, saturatingAdd(granted.cached, c.replyGrowth(x, c.cached))),
		// a backend may grant more than requested
		ops: min(c.ops, maxSessionOps, saturatingSub(granted.ops, maxInserts)),
	}
}

func (c *channel) backRequest(x *Export) channel {
	a := *c
	a.request, a.ops = saturatingSub(c.request, c.tags(x, c.request, minCallback4)), min(c.ops, maxSessionOps)
	return a
}

// backGrant reverts backRequest: a server may lower the sizes of the back channel, and keeps
// ca_maxoperations as offered.
func (c *channel) backGrant(x *Export, granted channel) channel {
	asked := c.backRequest(x)
	granted.request = min(c.request, saturatingAdd(granted.request, c.request-asked.request))
	if granted.ops == asked.ops {
		granted.ops = c.ops
	}
	return granted
}

// editSession writes limits into a CREATE_SESSION or its result, with the fields spans and the
// flags at flagsAt. It removes RDMA of the session's own kind, which would be between client and
// gateway.
func editSession(e *Edits, m *oncrpc.Message, spans []schema.Span, flagsAt int, fore, back channel) {
	var d xdr.Decoder
	if flags := wordAt(&d, m, flagsAt); flags&connRDMA != 0 {
		putUint32(e, flagsAt, flags&^connRDMA)
	}
	ch := &fore
	for i := range spans {
		s := &spans[i]
		if v := *ch.field(s.Mark); uint32(s.Value) != v {
			putUint32(e, s.Pos, v)
		}
		if s.Mark == schema.MaxOperations {
			ch = &back
			ird := s.Pos + 8 // after ca_maxrequests
			if n := wordAt(&d, m, ird); n > 0 {
				clear(e.Replace(ird, 4+4*int(n), 4))
			}
		}
	}
}

// readLimits returns the limits in a result of CREATE_SESSION.
func readLimits(spans []schema.Span) (fore, back channel) {
	ch := &fore
	for i := range spans {
		ch.setField(&spans[i])
		if spans[i].Mark == schema.MaxOperations {
			ch = &back
		}
	}
	return fore, back
}
