package wire

import (
	"encoding/binary"
	"fmt"
)

// Transport properties of V2WorkingGroup (section 5.2 of its text).
const (
	// WGSendSize is a uint32: the longest message in bytes that the side sends. Default 4096.
	WGSendSize PropertyID = 1 + iota
	// WGReceiveSize is a uint32: the longest message that it receives. Default 4096.
	WGReceiveSize
	// WGSegmentSize is a uint32: the longest segment of a chunk in bytes. Default 1 MiB.
	WGSegmentSize
	// WGSegmentCount is a uint32: the most segments of a header. Default 16.
	WGSegmentCount
	// WGReverse is a uint32, one of the values below. Default WGReverseNone.
	WGReverse
	// WGHostAuth is an opaque: material that proves who the side is. There is no default.
	WGHostAuth
)

// Values of WGReverse.
const (
	WGReverseNone    = iota // no calls of the reverse direction
	WGReverseSimple         // calls and replies of one message each
	WGReverseCont           // of several
	WGReverseGeneral        // chunks too
)

// WGValues are the properties of one side in V2WorkingGroup.
type WGValues struct {
	SendSize, ReceiveSize     uint32
	SegmentSize, SegmentCount uint32
	Reverse                   uint32
	// HostAuth is nil if the side has sent none.
	HostAuth []byte
}

// DefaultWGValues hold for properties that a side does not send.
var DefaultWGValues = WGValues{SendSize: DefaultReceiveSize, ReceiveSize: DefaultReceiveSize, SegmentSize: 1 << 20, SegmentCount: 16}

// Set takes over the known properties of a set and ignores others. The error, a *ParseError, names
// a property with an invalid value; v is then unchanged.
func (v *WGValues) Set(set []Property) error {
	n := *v
	var seen uint32
	for i := range set {
		p := &set[i]
		if p.ID < WGSendSize || p.ID > WGHostAuth {
			continue
		}
		if seen>>p.ID&1 != 0 {
			return p.badWG("it is there twice")
		}
		seen |= 1 << p.ID
		if err := n.set(p); err != nil {
			return err
		}
	}
	*v = n
	return nil
}

func (v *WGValues) set(p *Property) error {
	if p.ID == WGHostAuth {
		return v.setHostAuth(p)
	}
	x := map[PropertyID]struct {
		to          *uint32
		def         uint32
		least, most uint32
	}{
		WGSendSize:     {&v.SendSize, DefaultWGValues.SendSize, MinBufferSize, MaxBufferSize},
		WGReceiveSize:  {&v.ReceiveSize, DefaultWGValues.ReceiveSize, MinBufferSize, MaxBufferSize},
		WGSegmentSize:  {&v.SegmentSize, DefaultWGValues.SegmentSize, 1, 1<<32 - 1},
		WGSegmentCount: {&v.SegmentCount, DefaultWGValues.SegmentCount, 0, 1<<32 - 1},
		WGReverse:      {&v.Reverse, DefaultWGValues.Reverse, WGReverseNone, WGReverseGeneral},
	}[p.ID]
	n, ok := p.Uint32()
	switch {
	case len(p.Value) == 0:
		n = x.def
	case !ok:
		return p.badWG("it has %d bytes, must be 4, or none for the default", len(p.Value))
	case n < x.least || n > x.most:
		return p.badWG("it is %d, must be %d to %d", n, x.least, x.most)
	}
	*x.to = n
	return nil
}

func (v *WGValues) setHostAuth(p *Property) error {
	if v.HostAuth = nil; len(p.Value) == 0 {
		return nil
	}
	if len(p.Value) < 4 {
		return p.badWG("it has %d bytes, must be 4 at least", len(p.Value))
	}
	n := binary.BigEndian.Uint32(p.Value)
	if want := 4 + (uint64(n)+3)&^3; want != uint64(len(p.Value)) {
		return p.badWG("it has %d bytes, must be %d", len(p.Value), want)
	}
	v.HostAuth = append([]byte{}, p.Value[4:4+n]...)
	return nil
}

// SetOpaque adds a property that is a variable-length opaque.
func (p *Properties) SetOpaque(id PropertyID, b []byte) {
	at := len(p.values)
	p.values = append(binary.BigEndian.AppendUint32(p.values, uint32(len(b))), b...)
	p.values = append(p.values, "\x00\x00\x00"[:-len(b)&3]...)
	p.add(id, at)
}

func (p *Property) badWG(format string, args ...any) error {
	name := [...]string{"", "SBSIZ", "RBSIZ", "RSSIZ", "RCSIZ", "BRS", "HOSTAUTH"}[p.ID]
	return &ParseError{Field: name, Reason: fmt.Sprintf(format, args...), Code: ErrChunk, Code2: InvalidProperty}
}
