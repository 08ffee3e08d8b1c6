package wire

import "encoding/binary"

// PropertyID names a transport property.
type PropertyID uint32

// Transport properties: of draft-cel-nfsv4-rpcrdma-version-two-05 section 6.2, and of rtrext section 8.
const (
	// ReceiveBufferSize is a uint32: the largest message in bytes that the sender of the property can receive. Default 4096.
	ReceiveBufferSize PropertyID = 1
	// BackwardRequestSupport is a uint32, one of Backward. Default BackwardInline.
	BackwardRequestSupport PropertyID = 2
	// RTRSupport is a uint32: bits of operations that the sender of the property accepts, AcceptsRequest and so on. Default 0.
	RTRSupport PropertyID = 3
	// ReceiveBufferStructure is a BufferStructure. Default: one segment of ReceiveBufferSize.
	ReceiveBufferStructure PropertyID = 4
	// RequestReceiveLimit is a uint32: the most transmissions of a request that the sender of the property accepts. Default 1.
	RequestReceiveLimit PropertyID = 5
	// ResponseSendLimit is a uint32: the most transmissions of a reply that the sender of the property will send. Default 1.
	ResponseSendLimit PropertyID = 6
	// ExperimentalProperty is the first of those that anybody may use.
	ExperimentalProperty PropertyID = 0xFFFFFF00
)

// What a side can do with requests of the backward direction.
const (
	BackwardNone    = 0
	BackwardInline  = 1
	BackwardGeneral = 2
)

// Bits of RTRSupport.
const (
	AcceptsRequest  = 1 // XmtReq
	AcceptsResponse = 2 // XmtResp
	AcceptsContinue = 4 // XmtCont
)

// Property is one property: propval of the draft.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                              ID                               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|   Length of the value; 0 means the property's default         |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                             Value                             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
type Property struct {
	ID    PropertyID
	Value []byte
}

// Properties is the body of a property message.
type Properties struct {
	// Set is the list of properties of ConnProp, ReqProp and UpdProp, and of RespProp those that are told besides.
	Set []Property
	// Fixed says, in ConnProp, of each property of Set whether it never changes. Done and Rejected say, in RespProp, of each property of the
	// ReqProp that is answered what became of it. Bit N mod 32 of word N div 32 belongs to property N.
	Fixed, Done, Rejected []uint32

	values []byte // memory of the values
}

// Bit tells whether bit n of a propsubset is set.
func Bit(set []uint32, n int) bool { return n/32 < len(set) && set[n/32]>>(n%32)&1 != 0 }

const (
	maxSubset         = MaxProperties/32 + 1
	maxPropertyValues = 8 << 10
)

func (p *Properties) reset() {
	clear(p.Set)
	p.Set, p.Fixed, p.Done, p.Rejected, p.values = p.Set[:0], p.Fixed[:0], p.Done[:0], p.Rejected[:0], p.values[:0]
}

func (p *Properties) parse(r *reader, proc Procedure) {
	if proc == RespProp {
		p.Done = r.subset(p.Done)
		p.Rejected = r.subset(p.Rejected)
	}
	n := r.uint32()
	if r.err == nil && n > MaxProperties {
		r.fail("propset", "it has %d properties, at most %d are accepted", n, MaxProperties)
	}
	// The values are copied: they must not be cut by the segments of a receive.
	if p.values == nil {
		p.values = make([]byte, 0, maxPropertyValues)
	}
	for range n {
		id, size := PropertyID(r.uint32()), r.uint32()
		if r.err == nil && (uint64(size) > uint64(r.left) || int(size) > maxPropertyValues-len(p.values)) {
			r.fail("pv_data", "property %d has %d bytes; the message ends after %d, and all may have %d together", uint32(id), size, r.left, maxPropertyValues)
		}
		if r.err != nil {
			return
		}
		at := len(p.values)
		for i := range int(size+3) &^ 3 {
			b := r.byte()
			if i < int(size) {
				p.values = append(p.values, b)
			}
		}
		p.Set = append(p.Set, Property{id, p.values[at:len(p.values):len(p.values)]})
	}
	if proc == ConnProp {
		p.Fixed = r.subset(p.Fixed)
	}
}

// subset reads a propsubset. Bits that belong to no property are ignored.
func (r *reader) subset(dst []uint32) []uint32 {
	n := r.uint32()
	if r.err == nil && n > maxSubset {
		r.fail("propsubset", "it has %d words, at most %d are accepted", n, maxSubset)
	}
	for range n {
		if r.err != nil {
			break
		}
		dst = append(dst, r.uint32())
	}
	return dst
}

func (r *reader) byte() (b byte) {
	if r.err != nil || r.left < 1 {
		r.fail("length", "message ends inside a property")
		return 0
	}
	for len(r.cur) == 0 {
		r.cur, r.rest = r.rest[0], r.rest[1:]
	}
	b = r.cur[0]
	r.left, r.pos, r.cur = r.left-1, r.pos+1, r.cur[1:]
	return b
}

// Append appends the body of a property message.
func (p *Properties) Append(dst []byte, proc Procedure) []byte {
	if proc == RespProp {
		dst = appendSubset(dst, p.Done)
		dst = appendSubset(dst, p.Rejected)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(p.Set)))
	for _, v := range p.Set {
		dst = binary.BigEndian.AppendUint32(dst, uint32(v.ID))
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v.Value)))
		dst = append(dst, v.Value...)
		dst = append(dst, make([]byte, -len(v.Value)&3)...)
	}
	if proc == ConnProp {
		dst = appendSubset(dst, p.Fixed)
	}
	return dst
}

func appendSubset(dst []byte, set []uint32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(set)))
	for _, w := range set {
		dst = binary.BigEndian.AppendUint32(dst, w)
	}
	return dst
}

// AppendProperties appends a property message: as a procedure of its own, or, with alias, as the operation of RDMA2_OPTIONAL that means the same.
func AppendProperties(dst []byte, xid XID, credits Credits, d Direction, proc Procedure, p *Properties, alias bool) []byte {
	if !alias {
		return p.Append(AppendFixed(dst, xid, Version2, credits, proc), proc)
	}
	at := len(dst)
	dst = BeginOption(dst, xid, credits, d, OptConnProp+Operation(proc-ConnProp))
	return EndOption(p.Append(dst, proc), at)
}

// Uint32 returns the value of a property that is a uint32; ok is false if it is none.
func (p *Property) Uint32() (v uint32, ok bool) {
	if len(p.Value) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(p.Value), true
}

// SetUint32 adds a property that is a uint32.
func (p *Properties) SetUint32(id PropertyID, v uint32) {
	p.Set = append(p.Set, Property{id, binary.BigEndian.AppendUint32(nil, v)})
}
