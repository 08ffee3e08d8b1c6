package wire

import "fmt"

// Values are the properties of one side: those announced, and defaults for the rest. The zero
// Values are the defaults. They must not be copied.
type Values struct {
	size         uint32 // as announced, or 0
	structure    BufferStructure
	hasStructure bool // the structure was announced

	backward        uint32 // as announced, if hasBackward
	hasBackward     bool
	support         uint32
	requests, reply uint32 // as announced, or 0
}

// DefaultReceiveSize is the default of ReceiveBufferSize.
const DefaultReceiveSize = 4096

// ReceiveSize returns the size in bytes of the largest message that the side receives: the smaller
// of ReceiveBufferSize and the length of ReceiveBufferStructure, as far as announced (rtrext
// section 8.3).
func (v *Values) ReceiveSize() uint32 {
	switch {
	case v.hasStructure && (v.size == 0 || v.size > v.structure.Length):
		return v.structure.Length
	case v.size != 0:
		return v.size
	}
	return DefaultReceiveSize
}

// Structure returns the structure of the side's receive buffers. It is v's until the next Set.
func (v *Values) Structure() *BufferStructure {
	if !v.hasStructure {
		v.structure.plain(v.ReceiveSize())
	}
	return &v.structure
}

// Backward returns the side's support of requests in the backward direction: BackwardNone,
// BackwardInline or BackwardGeneral.
func (v *Values) Backward() uint32 {
	if !v.hasBackward {
		return BackwardInline
	}
	return v.backward
}

// Support returns the bits of the operations that the side accepts, AcceptsRequest and so on.
func (v *Values) Support() uint32 { return v.support }

// RequestLimit returns the most transmissions of a request that the side accepts, at least 1.
func (v *Values) RequestLimit() uint32 { return max(v.requests, 1) }

// ResponseLimit returns the most transmissions of a reply that the side sends, at least 1.
func (v *Values) ResponseLimit() uint32 { return max(v.reply, 1) }

// Reset restores the defaults and keeps v's memory.
func (v *Values) Reset() { *v = Values{structure: BufferStructure{Groups: v.structure.Groups[:0]}} }

// Set takes over the known properties of a set and ignores others. The error, a *ParseError, names
// a property with an invalid value; v is then unchanged.
func (v *Values) Set(set []Property) error {
	for i := range set {
		if err := set[i].Check(); err != nil {
			return err
		}
		for k := range i {
			if set[k].ID == set[i].ID && set[i].ID.Known() {
				return set[i].bad("it is there twice")
			}
		}
	}
	for i := range set {
		v.set(&set[i])
	}
	return nil
}

// set takes over a checked property.
func (v *Values) set(p *Property) {
	n, given := p.Uint32()
	switch p.ID {
	case ReceiveBufferSize:
		v.size = n
	case BackwardRequestSupport:
		v.backward, v.hasBackward = n, given
	case RTRSupport:
		v.support = n & (AcceptsRequest | AcceptsResponse | AcceptsContinue)
	case ReceiveBufferStructure:
		v.hasStructure = len(p.Value) > 0 && v.structure.Parse(p.Value) == nil
	case RequestReceiveLimit:
		v.requests = n
	case ResponseSendLimit:
		v.reply = n
	}
}

// Known reports whether the property is one of those above.
func (id PropertyID) Known() bool { return id >= ReceiveBufferSize && id <= ResponseSendLimit }

// Check returns the fault in a known property's value as a *ParseError. An empty value is the
// default.
func (p *Property) Check() error {
	if len(p.Value) == 0 || !p.ID.Known() {
		return nil
	}
	if p.ID == ReceiveBufferStructure {
		var b BufferStructure
		return b.Parse(p.Value)
	}
	n, ok := p.Uint32()
	switch {
	case !ok:
		return p.bad("it has %d bytes, must be 4, or none for the default", len(p.Value))
	case p.ID == ReceiveBufferSize && (n < MinBufferSize || n > MaxBufferSize):
		return p.bad("it is %d, must be %d to %d", n, MinBufferSize, MaxBufferSize)
	case p.ID == BackwardRequestSupport && n > BackwardGeneral:
		return p.bad("it is %d, must be 0, 1 or 2", n)
	case (p.ID == RequestReceiveLimit || p.ID == ResponseSendLimit) && n == 0:
		return p.bad("it is 0, must be 1 at least")
	}
	return nil
}

func (p *Property) bad(format string, args ...any) error {
	return &ParseError{Field: p.ID.String(), Reason: fmt.Sprintf(format, args...), Code: ErrChunk, Code2: BadXDR}
}

func (id PropertyID) String() string {
	if names := [...]string{"", "RBSIZ", "BRS", "RTRSUPP", "RBSTRUCT", "REQRXLIM", "RESPSXLIM"}; id.Known() {
		return names[id]
	}
	return fmt.Sprintf("property %#x", uint32(id))
}
