package rpcrdma

import (
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Properties are the transport properties of one side: what it told, and defaults for the rest.
type Properties struct {
	// ReceiveSize is the largest message in bytes that the side receives.
	ReceiveSize int
	// Backward says what it can do with calls of the reverse direction: wire.BackwardNone, wire.BackwardInline or wire.BackwardGeneral.
	Backward uint32
}

func propertiesOf(v *wire.Values) Properties {
	return Properties{ReceiveSize: int(v.ReceiveSize()), Backward: v.Backward()}
}

// properties are those of this side, as RDMA2_CONNPROP tells them. None of them changes.
func (c *Conn) properties() *wire.Properties {
	p := new(wire.Properties)
	p.SetUint32(wire.ReceiveBufferSize, uint32(c.receiveSize()))
	backward := uint32(wire.BackwardInline)
	if !c.server && c.cfg.BackCredits == 0 {
		backward = wire.BackwardNone
	}
	p.SetUint32(wire.BackwardRequestSupport, backward)
	for i := range p.Set {
		p.Fixed = wire.Mark(p.Fixed, i)
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
	if k.given {
		ic.refuse(wire.BadXDR, BadHeader, "RDMA2_CONNPROP comes for the second time")
		return
	}
	if err := k.values.Set(ic.hdr.Props.Set); err != nil {
		ic.refuse(wire.BadXDR, BadHeader, "%v", err)
		return
	}
	k.given = true
	for i, v := range ic.hdr.Props.Set {
		if v.ID.Known() && !wire.Bit(ic.hdr.Props.Fixed, i) {
			k.mutable |= 1 << v.ID
		}
	}
	c.terms.Store(c.terms2())
	if k.answered(ic.hdr.XID) || k.first() {
		k.credits(ic)
	}
	if k.told {
		ic.recycle()
		return
	}
	k.told = true
	ic.tell(wire.ConnProp, c.properties())
	c.out.start()
}

// updProp takes new values of the peer's properties. Those that may not change are ignored: the peer left them out at the
// beginning, or said that they never do (draft -05 section 6.3.1).
func (k *control) updProp(ic *inCall) {
	set := ic.hdr.Props.Set
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

// reqProp answers the wish for other properties of this side. They do not change, so what is granted is what is so already.
func (k *control) reqProp(ic *inCall) {
	is, answer := propertiesOf(k.own()), new(wire.Properties)
	set := ic.hdr.Props.Set
	for i := range set {
		want := k.own()
		if err := want.Set(set[i : i+1]); err != nil {
			ic.refuse(wire.BadXDR, BadHeader, "%v", err)
			return
		}
		if set[i].ID.Known() && propertiesOf(want) == is {
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
	head = wire.AppendProperties(head, h.XID, credits, wire.Reply, proc, p, h.Alias)
	ic.lists = append(ic.lists[:0], head)
	ic.work.wrs = append(ic.work.wrs[:0], rdma.WorkRequest{ID: idAnswer | uint64(ic.id), Op: rdma.Send, Signaled: true, Local: ic.lists})
	ic.post()
}
