package wire

import "encoding/binary"

// PropertyID names a transport property.
type PropertyID uint32

// Transport properties: of draft-cel-nfsv4-rpcrdma-version-two-05 section 6.2, and of rtrext
// section 8.
const (
	// ReceiveBufferSize is a uint32: the largest message in bytes that the sender of the property
	// can receive. Default 4096.
	ReceiveBufferSize PropertyID = 1
	// BackwardRequestSupport is a uint32, one of Backward. Default BackwardInline.
	BackwardRequestSupport PropertyID = 2
	// RTRSupport is a uint32: bits of operations that the sender of the property accepts,
	// AcceptsRequest and so on. Default 0.
	RTRSupport PropertyID = 3
	// ReceiveBufferStructure is a BufferStructure. Default: one segment of ReceiveBufferSize.
	ReceiveBufferStructure PropertyID = 4
	// RequestReceiveLimit is a uint32: the most transmissions of a request that the sender of the
	// property accepts. Default 1.
	RequestReceiveLimit PropertyID = 5
	// ResponseSendLimit is a uint32: the most transmissions of a reply that the sender of the
	// property will send. Default 1.
	ResponseSendLimit PropertyID = 6
	// ExperimentalProperty is the first of those for free use.
	ExperimentalProperty PropertyID = 0xFFFFFF00
)

// Values of BackwardRequestSupport.
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
	// Set has the properties of ConnProp, ReqProp and UpdProp, and in RespProp those announced
	// besides.
	Set []Property
	// Fixed, in ConnProp, marks the properties of Set that never change. Done and Rejected, in
	// RespProp, mark the results of the ReqProp's properties. Bit N mod 32 of word N div 32 belongs
	// to property N.
	Fixed, Done, Rejected []uint32

	values []byte // memory of the values
}

// Bit reports whether bit n of a propsubset is set.
func Bit(set []uint32, n int) bool { return n/32 < len(set) && set[n/32]>>(n%32)&1 != 0 }

const (
	maxSubset         = (MaxProperties + 31) / 32
	maxPropertyValues = 8 << 10
)

// Reset empties p and keeps its memory.
func (p *Properties) Reset() {
	clear(p.Set)
	p.Set, p.Fixed, p.Done, p.Rejected, p.values = p.Set[:0], p.Fixed[:0], p.Done[:0], p.Rejected[:0], p.values[:0]
}

func (p *Properties) parse(r *Reader, proc Procedure) {
	if proc == RespProp {
		p.Done = r.subset(p.Done)
		p.Rejected = r.subset(p.Rejected)
	}
	n := r.Uint32()
	if r.err == nil && n > MaxProperties {
		r.Fail("rpcrdma2_propset", "it has %d properties, at most %d are accepted", n, MaxProperties)
	}
	for range n {
		id, size := PropertyID(r.Uint32()), r.Uint32()
		padded := (uint64(size) + 3) &^ 3
		switch {
		case r.err != nil:
			return
		case padded > uint64(r.left):
			r.ends("rdma_data", padded)
			return
		case int(size) > maxPropertyValues-len(p.values):
			r.Fail("rdma_data", "property %d has %d bytes, all properties may have %d together", uint32(id), size, maxPropertyValues)
			return
		}
		// The value is copied: it must not be cut by the segments of a receive.
		at := len(p.values)
		p.values = r.take(p.values, int(size))
		r.skip(int(padded) - int(size))
		p.add(id, at)
	}
	if proc == ConnProp {
		p.Fixed = r.subset(p.Fixed)
	}
}

func (p *Properties) add(id PropertyID, at int) {
	p.Set = append(p.Set, Property{id, p.values[at:len(p.values):len(p.values)]})
}

// subset reads a propsubset. Bits without a property are ignored.
func (r *Reader) subset(dst []uint32) []uint32 {
	n := r.Uint32()
	if r.err == nil && n > maxSubset {
		r.Fail("rpcrdma2_propsubset", "it has %d words, at most %d are accepted", n, maxSubset)
	}
	for range n {
		if r.err != nil {
			break
		}
		dst = append(dst, r.Uint32())
	}
	return dst
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
		dst = append(dst, "\x00\x00\x00"[:-len(v.Value)&3]...)
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

// AppendProperties appends a property message: as a procedure of its own or, with alias, as the
// equivalent operation of RDMA2_OPTIONAL.
func AppendProperties(dst []byte, xid XID, credits Credits, d Direction, proc Procedure, p *Properties, alias bool) []byte {
	if !alias {
		return p.Append(AppendFixed(dst, xid, Version2, credits, proc), proc)
	}
	at := len(dst)
	dst = BeginOption(dst, xid, credits, d, OptConnProp+Operation(proc-ConnProp))
	return EndOption(p.Append(dst, proc), at)
}

// Uint32 returns the value of a property that is a uint32; otherwise ok is false.
func (p *Property) Uint32() (v uint32, ok bool) {
	if len(p.Value) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(p.Value), true
}

// SetUint32 adds a property that is a uint32.
func (p *Properties) SetUint32(id PropertyID, v uint32) {
	at := len(p.values)
	p.values = binary.BigEndian.AppendUint32(p.values, v)
	p.add(id, at)
}

// SetStructure adds ReceiveBufferStructure.
func (p *Properties) SetStructure(b *BufferStructure) {
	at := len(p.values)
	p.values = b.Append(p.values)
	p.add(ReceiveBufferStructure, at)
}

// Outcome reads the result of property n of want in p, the answer to a ReqProp. It returns the
// property's new value, or ok = false if the change was rejected. An answer that leaves it out, or
// has more than one result for it, rejects it (draft -05 section 6.3.3).
func (p *Properties) Outcome(want []Property, n int) (now Property, ok bool) {
	said := 0
	if Bit(p.Done, n) {
		now, ok, said = want[n], true, 1
	}
	if Bit(p.Rejected, n) {
		ok, said = false, said+1
	}
	for _, other := range p.Set {
		if other.ID == want[n].ID {
			now, ok, said = other, true, said+1
		}
	}
	return now, ok && said == 1
}

// Mark sets bit n of a propsubset.
func Mark(set []uint32, n int) []uint32 {
	for len(set) <= n/32 {
		set = append(set, 0)
	}
	set[n/32] |= 1 << (n % 32)
	return set
}
