package rpcrdma

import (
	"bytes"
	"slices"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Properties are the transport properties of one side: what it told, and defaults for the rest.
type Properties struct {
	// ReceiveSize is the largest message in bytes that the side receives.
	ReceiveSize int
	// Backward says what it can do with calls of the reverse direction: wire.BackwardNone, wire.BackwardInline or wire.BackwardGeneral.
	Backward uint32
	// Support are bits of operations that it accepts, wire.AcceptsRequest and so on.
	Support uint32
	// RequestLimit is the most transmissions of a request that it accepts, ResponseLimit the most of a reply that it sends.
	RequestLimit, ResponseLimit int
	// Targets is how many bytes of a receive bulk data may be placed in.
	Targets int
}

func propertiesOf(v *wire.Values) Properties {
	p := Properties{
		ReceiveSize: int(v.ReceiveSize()), Backward: v.Backward(), Support: v.Support(),
		RequestLimit: int(v.RequestLimit()), ResponseLimit: int(v.ResponseLimit()),
	}
	for _, s := range v.Structure().Segments() {
		if s.Flags&wire.Targetable != 0 {
			p.Targets += int(s.Length)
		}
	}
	return p
}

// receiving are the operations that this side accepts, and whether requests are among them.
func (c *Conn) receiving() (support uint32, requests bool) {
	back := c.backGroups()
	if c.server || back {
		support |= wire.AcceptsRequest
	}
	if !c.server || back {
		support |= wire.AcceptsResponse
	}
	if c.cfg.has(MessageContinuation) {
		support |= wire.AcceptsContinue
	}
	return support, c.server || back
}

// structure is that of receives whose peer has been told of it.
func (c *Conn) structure() *wire.BufferStructure {
	n := uint32(c.control.size())
	b := &wire.BufferStructure{Length: n, Groups: []wire.BufferGroup{{Count: 1, BufferSegment: wire.BufferSegment{Length: n, Align: 1}}}}
	if c.cfg.has(SendBasedPlacement) {
		t := uint32(c.cfg.Placement.ReceiveBuffer)
		b.Length += t
		b.Groups = append(b.Groups, wire.BufferGroup{Count: 1, BufferSegment: wire.BufferSegment{Length: t, Align: pageSize, Flags: wire.Targetable}})
	}
	return b
}

// properties are those of this side, as RDMA2_CONNPROP tells them. Only the size of receives may change; see resize.go.
func (c *Conn) properties() *wire.Properties {
	p := new(wire.Properties)
	structure := c.structure()
	p.SetUint32(wire.ReceiveBufferSize, structure.Length)
	backward := uint32(wire.BackwardInline)
	switch {
	case c.server:
	case c.cfg.ReverseCredits == 0:
		backward = wire.BackwardNone
	case c.cfg.has(MessageContinuation | SendBasedPlacement):
		backward = wire.BackwardGeneral
	}
	p.SetUint32(wire.BackwardRequestSupport, backward)
	if c.cfg.has(MessageContinuation | SendBasedPlacement) {
		support, requests := c.receiving()
		p.SetUint32(wire.RTRSupport, support)
		if c.cfg.has(SendBasedPlacement) { // otherwise it is what RBSIZ says, and changes with that
			p.SetStructure(structure)
		}
		if requests {
			p.SetUint32(wire.RequestReceiveLimit, uint32(c.cfg.callTransmissions()))
			p.SetUint32(wire.ResponseSendLimit, uint32(c.cfg.replyTransmissions()))
		}
	}
	for i, v := range p.Set {
		if v.ID != wire.ReceiveBufferSize || !c.resizable() {
			p.Fixed = wire.Mark(p.Fixed, i)
		}
	}
	return p
}

// own are the values of this side's properties, as the peer sees them.
func (k *control) own() *wire.Values {
	v := new(wire.Values)
	if k.told {
		_ = v.Set(k.c.properties().Set) // they are good
	}
	return v
}

// connProp takes the peer's properties, and tells our own if that has not been done. The peer may tell them once.
func (k *control) connProp(ic *inCall) {
	c := k.c
	if k.given || c.server && c.terms.Load().version != 0 {
		ic.refuse(wire.BadXDR, BadHeader, "RDMA2_CONNPROP is not the first message")
		return
	}
	if err := k.values.Set(ic.hdr.Props.Set); err != nil {
		if !k.first() {
			ic.refuse(wire.BadXDR, BadHeader, "%v", err)
			return
		}
		k.credits(ic)
		c.settle(c.terms2()) // with defaults
		c.drop(ic, BadHeader, err.Error())
		return
	}
	if err := c.groups.ready(c); err != nil {
		ic.refuse(wire.System, NoMemory, "%v", err)
		return
	}
	k.given = true
	for i, v := range ic.hdr.Props.Set {
		if v.ID.Known() && !wire.Bit(ic.hdr.Props.Fixed, i) {
			k.mutable |= 1 << v.ID
		}
	}
	if k.answered(ic.hdr.XID) || k.first() {
		k.credits(ic)
	}
	answer := !k.told
	k.told = true
	c.settle(c.terms2())
	if !answer {
		ic.recycle()
		return
	}
	ic.tell(wire.ConnProp, c.properties())
	c.out.start()
}

// updProp takes new values of the peer's properties. Those that may not change are ignored: the peer left them out at the
// beginning, or said that they never do (draft -05 section 6.3.1).
func (k *control) updProp(ic *inCall) {
	set := ic.hdr.Props.Set
	if err := new(wire.Values).Set(set); err != nil {
		ic.refuse(wire.BadXDR, BadHeader, "%v", err)
		return
	}
	n := 0
	for _, v := range set {
		if v.ID.Known() && k.mutable>>v.ID&1 != 0 {
			set[n] = v
			n++
		}
	}
	if err := k.values.Set(set[:n]); err != nil {
		ic.refuse(wire.BadXDR, BadHeader, "%v", err)
		return
	}
	k.c.terms.Store(k.c.terms2())
	ic.recycle()
}

// reqProp answers the wish for other properties of this side: what is so already, and other receives.
func (k *control) reqProp(ic *inCall) {
	is, answer := k.c.properties().Set, new(wire.Properties)
	set := ic.hdr.Props.Set
	if err := new(wire.Values).Set(set); err != nil {
		ic.refuse(wire.BadXDR, BadHeader, "%v", err)
		return
	}
	for i := range set {
		same := func(v wire.Property) bool { return v.ID == set[i].ID && bytes.Equal(v.Value, set[i].Value) }
		if k.told && slices.ContainsFunc(is, same) || k.resize(&set[i]) {
			answer.Done = wire.Mark(answer.Done, i)
		} else {
			answer.Rejected = wire.Mark(answer.Rejected, i)
		}
	}
	ic.tell(wire.RespProp, answer)
}

// tell answers a property message, in the form in which it came.
func (ic *inCall) tell(proc wire.Procedure, p *wire.Properties) {
	h := &ic.hdr
	ic.state = serving
	credits, err := ic.credits()
	var head []byte
	if err == nil {
		head, err = ic.newHead(wire.FirstMessage)
	}
	if err != nil {
		ic.giveUp(err)
		return
	}
	if c := ic.c; !c.server { // property messages are of the forward direction: a client requests
		c.out.mu.Lock()
		credits = wire.Credits(c.out.asked())
		c.out.mu.Unlock()
	}
	head = wire.AppendProperties(head, h.XID, credits, wire.Reply, proc, p, h.Alias)
	ic.answerWith(head)
}
