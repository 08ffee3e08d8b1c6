package rewrite

import (
	"crypto/sha256"
	"math"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// maxOwner is the limit of client owners, server owners and scopes (NFS4_OPAQUE_LIMIT).
const maxOwner = 1024

// putDistinct makes an owner or scope one that no other export makes of it, and the same every time. What the export adds stands
// behind it; where there is no room for that, a digest stands for the owner.
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

// nullCallbackAddress is a callback address at which nobody can be called: r_netid "tcp" and r_addr "0.0.0.0.0.0".
var nullCallbackAddress = []byte("\x00\x00\x00\x03tcp\x00\x00\x00\x00\x0b0.0.0.0.0.0\x00")

// nonPNFS are flags of EXCHANGE_ID that ask for, or offer, no layouts.
func nonPNFS(flags uint32) uint32 { return flags&^usePNFS | useNonPNFS }

// The limits of a session bound messages and COMPOUNDs as the client sees them, and as the backend sees them, and the two differ:
//
//   - A call gets longer by what is inserted or grows, maxInserts operations of at most insertLen bytes, and has so many
//     operations more. The backend is asked to take as much more than the client sends, and the client is told that much less than the backend takes.
//   - A reply gets longer by tags, of which each operation has at most one, and by the result of an operation that is refused. The backend is asked to send as
//     much less than the client takes, and the client is told that much more than the backend sends, but never more than it asked for: no
//     reply exceeds what the client was told. How many operations there are is bounded by maxSessionOps for it, and by how many results with
//     a handle there is room for: a client may ask for a few hundred bytes, which a backend may well take.
//   - READDIR has many handles; what is taken off its maxcount leaves room for their tags. One whose maxcount exceeds what the whole reply may
//     have is its client's own doing.
//   - A callback gets longer by one tag for each operation. The backend is asked to send as much less. The client is told what it has offered
//     (RFC 8881 section 18.36.3), unless the backend itself insists on less.
//
// What the client was told follows from its own call and from the backend's reply alone, so that a CREATE_SESSION sent again is answered alike.
const (
	// insertLen is the length of NVERIFY with a handle, the longest of what is inserted; PUTFH in the place of PUTROOTFH is shorter.
	insertLen = 20 + sign.Max4
	// maxSessionOps bounds ca_maxoperations.
	maxSessionOps = 64
)

// channel is what a client asks of one channel in CREATE_SESSION.
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

// saturatingAdd and difference stay within 32 bits.
func saturatingAdd(a, b uint32) uint32 { return uint32(min(uint64(a)+uint64(b), math.MaxUint32)) }
func saturatingSub(a, b uint32) uint32 { return a - min(a, b) }

// What stands in a message of a channel besides operations, at least: the RPC header, tag and count
// of a COMPOUND, and SEQUENCE; and the length of the shortest operation or result with a handle,
// when that is signed.
const (
	minReply4    = 24 + 12 + 44 // RPC header without verifier; SEQUENCE's result
	minCallback4 = 40 + 16 + 44 // with AUTH_NONE; CB_SEQUENCE without referring calls
	minHandle4   = 12 + 4       // number, status, length, and a handle of one byte
)

// tags returns how many bytes of a message of at most size bytes are left to tags, if fixed bytes
// of it have no handle. There are no more tags than handles have room in what remains.
func (c *channel) tags(x *Export, size, fixed uint32) uint32 {
	grows := uint32(x.Signer.Overhead())
	return min(c.ops, maxSessionOps, saturatingAdd(saturatingSub(size, fixed), grows)/(minHandle4+grows)) * grows
}

// replyGrowth bounds what a reply of at most size bytes is longer for the client than for the backend.
func (c *channel) replyGrowth(x *Export, size uint32) uint32 {
	return c.tags(x, size, minReply4) + maxRefusal
}

// foreRequest returns what the backend is asked for in the place of what the client asks for.
func (c *channel) foreRequest(x *Export) channel {
	return channel{
		request:  saturatingAdd(c.request, maxInserts*insertLen),
		response: saturatingSub(c.response, c.replyGrowth(x, c.response)),
		cached:   saturatingSub(c.cached, c.replyGrowth(x, c.cached)),
		ops:      min(c.ops, maxSessionOps) + maxInserts,
	}
}

// foreGrant returns what the client, which asked for c, is told when the backend has granted some limits.
func (c *channel) foreGrant(x *Export, granted channel) channel {
	return channel{
		request:  min(c.request, saturatingSub(granted.request, maxInserts*insertLen)),
		response: min(c.response, saturatingAdd(granted.response, c.replyGrowth(x, c.response))),
		cached:   min(c.cached, saturatingAdd(granted.cached, c.replyGrowth(x, c.cached))),
		ops:      min(c.ops, maxSessionOps, saturatingSub(granted.ops, maxInserts)), // a backend may grant more than it was asked for
	}
}

func (c *channel) backRequest(x *Export) channel {
	a := *c
	a.request, a.ops = saturatingSub(c.request, c.tags(x, c.request, minCallback4)), min(c.ops, maxSessionOps)
	return a
}

// backGrant takes back what backRequest has changed: a server may make the sizes of the back channel
// smaller, and leaves ca_maxoperations as it is offered.
func (c *channel) backGrant(x *Export, granted channel) channel {
	asked := c.backRequest(x)
	granted.request = min(c.request, saturatingAdd(granted.request, c.request-asked.request))
	if granted.ops == asked.ops {
		granted.ops = c.ops
	}
	return granted
}

// editSession writes limits into a CREATE_SESSION or its result, whose fields are spans and whose flags are at flagsAt, and takes out what
// asks for or offers RDMA of the session's own kind: what the client has instead is between it and the gateway.
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
			ird := s.Pos + 8 // behind ca_maxrequests
			if n := wordAt(&d, m, ird); n > 0 {
				clear(e.Replace(ird, 4+4*int(n), 4))
			}
		}
	}
}

// readLimits returns what a backend has granted in the fields of a result of CREATE_SESSION.
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
