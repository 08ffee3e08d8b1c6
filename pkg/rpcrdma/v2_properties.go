package rpcrdma

import (
	"bytes"
	"slices"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// receiving returns the operations that this side accepts, and whether requests are among them.
func (k *negotiator) receiving() (support uint32, requests bool) {
	back := k.backGroups()
	if k.server || back {
		support |= wire.AcceptsRequest
	}
	if !k.server || back {
		support |= wire.AcceptsResponse
	}
	if k.cfg.has(MessageContinuation) {
		support |= wire.AcceptsContinue
	}
	return support, k.server || back
}

// structure is the buffer structure of receives that the peer knows.
func (k *negotiator) structure() *wire.BufferStructure {
	n := uint32(k.ownReceiveSize())
	b := &wire.BufferStructure{Length: n, Groups: []wire.BufferGroup{{Count: 1, BufferSegment: wire.BufferSegment{Length: n, Align: 1}}}}
	if k.cfg.has(SendBasedPlacement) {
		t := uint32(k.cfg.Placement.ReceiveBuffer)
		b.Length += t
		b.Groups = append(b.Groups, wire.BufferGroup{Count: 1, BufferSegment: wire.BufferSegment{Length: t, Align: pageSize, Flags: wire.Targetable}})
	}
	return b
}

// properties are those of this side for RDMA2_CONNPROP. Only the size of receives may change; see
// v2_resize.go.
func (k *negotiator) properties() *wire.Properties {
	p := new(wire.Properties)
	structure := k.structure()
	p.SetUint32(wire.ReceiveBufferSize, structure.Length)
	backward := uint32(wire.BackwardInline)
	switch {
	case k.server:
	case k.cfg.ReverseCredits == 0:
		backward = wire.BackwardNone
	case k.cfg.has(MessageContinuation | SendBasedPlacement):
		backward = wire.BackwardGeneral
	}
	p.SetUint32(wire.BackwardRequestSupport, backward)
	if k.cfg.has(MessageContinuation | SendBasedPlacement) {
		support, requests := k.receiving()
		p.SetUint32(wire.RTRSupport, support)
		if k.cfg.has(SendBasedPlacement) { // otherwise it follows RBSIZ, and changes with that
			p.SetStructure(structure)
		}
		if requests {
			p.SetUint32(wire.RequestReceiveLimit, uint32(k.cfg.callTransmissions()))
			p.SetUint32(wire.ResponseSendLimit, uint32(k.cfg.replyTransmissions()))
		}
	}
	for i, v := range p.Set {
		if v.ID != wire.ReceiveBufferSize || !k.resizable() {
			p.Fixed = wire.Mark(p.Fixed, i)
		}
	}
	return p
}

// own are the values of this side's properties, as the peer sees them.
func (k *negotiator) own() *wire.Values {
	v := new(wire.Values)
	if k.sentProps {
		_ = v.Set(k.properties().Set) // they are good
	}
	return v
}

// connProp takes the peer's properties, and answers with ours if they were not sent. The peer may
// send them once.
func (k *negotiator) connProp(ic *inCall) {
	if k.gotProps || k.server && k.negotiated.Load().version != 0 {
		ic.refuse(wire.BadXDR, BadHeader, "RDMA2_CONNPROP is not the first message")
		return
	}
	if err := k.values.Set(ic.hdr.Props.Set); err != nil {
		if !k.firstAnswered() {
			ic.refuse(wire.BadXDR, BadHeader, "%v", err)
			return
		}
		k.takeGrant(&ic.inbound)
		k.adopt(k.negotiatedV2()) // with defaults
		ic.drop(BadHeader, err.Error())
		return
	}
	if err := k.prepareGroups(); err != nil {
		ic.refuse(wire.System, NoMemory, "%v", err)
		return
	}
	k.gotProps = true
	for i, v := range ic.hdr.Props.Set {
		if v.ID.Known() && !wire.Bit(ic.hdr.Props.Fixed, i) {
			k.mutable |= 1 << v.ID
		}
	}
	if k.isAnswer(ic.hdr.XID) || k.firstAnswered() {
		k.takeGrant(&ic.inbound)
	}
	answer := !k.sentProps
	k.sentProps = true
	k.adopt(k.negotiatedV2())
	if !answer {
		ic.recycle()
		return
	}
	k.sendProperties(ic, wire.ConnProp, k.properties())
	k.openCalls()
}

// updProp takes new values of the peer's properties. It ignores properties that may not change: the
// peer left them out at the beginning, or declared them fixed (draft -05 section 6.3.1).
func (k *negotiator) updProp(ic *inCall) {
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
	k.negotiated.Store(k.negotiatedV2())
	ic.recycle()
}

// reqProp answers a request for other properties of this side. Present values and other sizes of
// receives are granted.
func (k *negotiator) reqProp(ic *inCall) {
	is, answer := k.properties().Set, new(wire.Properties)
	set := ic.hdr.Props.Set
	if err := new(wire.Values).Set(set); err != nil {
		ic.refuse(wire.BadXDR, BadHeader, "%v", err)
		return
	}
	for i := range set {
		same := func(v wire.Property) bool { return v.ID == set[i].ID && bytes.Equal(v.Value, set[i].Value) }
		if k.sentProps && slices.ContainsFunc(is, same) || k.resize(&set[i]) {
			answer.Done = wire.Mark(answer.Done, i)
		} else {
			answer.Rejected = wire.Mark(answer.Rejected, i)
		}
	}
	k.sendProperties(ic, wire.RespProp, answer)
}

// sendProperties answers a property message, in its own form.
func (k *negotiator) sendProperties(ic *inCall, proc wire.Procedure, p *wire.Properties) {
	h := &ic.hdr
	credits, head, err := ic.answerHead()
	if err != nil {
		ic.failUnanswered(err)
		return
	}
	if !k.server { // property messages are of the forward direction: a client requests
		credits = k.askedNow()
	}
	head = wire.AppendProperties(head, h.XID, credits, wire.Reply, proc, p, h.Alias)
	ic.answerWith(head)
}
