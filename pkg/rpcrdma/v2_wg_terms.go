package rpcrdma

import (
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// workingGroup reports whether version 2 is spoken in the working group's dialect.
func (l *link) workingGroup() bool { return l.headerLimits.V2 == wire.V2WorkingGroup }

// negotiatedWG returns the values of the working group's dialect, from the peer's properties so
// far. recvMu is held.
func (k *negotiator) negotiatedWG() *negotiated {
	peer := &k.wgValues
	own := k.wgOwn()
	t := &negotiated{
		version:    wire.Version2,
		dialect:    wire.V2WorkingGroup,
		sendLimit:  min(k.privateData().SendSize, int(peer.ReceiveSize)),
		recvLimit:  min(k.receiveSize(), int(peer.SendSize)),
		invalidate: k.cfg.RemoteInvalidation,
		backward:   k.server && peer.Reverse != wire.WGReverseNone || !k.server,
		receive:    k.receiveSize(),
		segments:   int(min(peer.SegmentCount, 1<<16)),
		segment:    int(min(peer.SegmentSize, bufpool.MaxSize)),
		own:        Properties{ReceiveSize: int(own.ReceiveSize), Backward: wgBackward(own.Reverse), RequestLimit: 1, ResponseLimit: 1},
		peer:       Properties{ReceiveSize: int(peer.ReceiveSize), Backward: wgBackward(peer.Reverse), RequestLimit: 1, ResponseLimit: 1},
	}
	if k.gotProps {
		t.ext = TransportProperties
	}
	t.callMiddles, t.replyMiddles = k.cfg.Continuation.MaxCallTransmissions-1, k.cfg.Continuation.MaxReplyTransmissions-1
	if k.server && peer.Reverse == wire.WGReverseSimple {
		t.callMiddles = 0 // and a client that sends short replies
	}
	t.callLimit, t.replyLimit, t.sendReplies = t.callMiddles+1, t.replyMiddles+1, t.replyMiddles+1
	return t
}

// wgBackward is a side's support of calls of the reverse direction, in the values of Properties.
func wgBackward(reverse uint32) uint32 {
	switch reverse {
	case wire.WGReverseNone:
		return wire.BackwardNone
	case wire.WGReverseGeneral:
		return wire.BackwardGeneral
	}
	return wire.BackwardInline
}

// wgOwn are the properties of this side.
func (k *negotiator) wgOwn() wire.WGValues {
	v := wire.WGValues{
		SendSize: uint32(k.privateData().SendSize), ReceiveSize: uint32(k.receiveSize()), SegmentSize: bufpool.MaxSize,
		SegmentCount: uint32(min(k.cfg.Limits.ReadSegments, k.cfg.Limits.WriteSegments, k.cfg.Limits.SegmentsPerChunk)), HostAuth: k.cfg.HostAuth.Material,
	}
	if !k.server && k.cfg.ReverseCredits > 0 {
		v.Reverse = wire.WGReverseCont
	}
	return v
}

// wgProperties are those of this side as a message has them.
func (k *negotiator) wgProperties() *wire.Properties {
	v, p := k.wgOwn(), new(wire.Properties)
	p.SetUint32(wire.WGSendSize, v.SendSize)
	p.SetUint32(wire.WGReceiveSize, v.ReceiveSize)
	p.SetUint32(wire.WGSegmentSize, v.SegmentSize)
	p.SetUint32(wire.WGSegmentCount, v.SegmentCount)
	p.SetUint32(wire.WGReverse, v.Reverse)
	if v.HostAuth != nil {
		p.SetOpaque(wire.WGHostAuth, v.HostAuth)
	}
	return p
}

// otherDialect reports whether a server's first message is of the dialect of version 2 that this
// side does not speak. Both begin with properties: RDMA2_CONNPROP of the round-trip dialect would
// be a Middle here, but ends with a set of bits; the working group's would be RDMA2_REQPROP there.
func (k *negotiator) otherDialect(m *inbound, size int) bool {
	switch h := &m.hdr; {
	case !k.server || !m.v2 || k.negotiated.Load().version != 0 || !k.cfg.offers(wire.Version1):
		return false
	case k.workingGroup():
		return h.Procedure == wire.PropMiddle && h.Size < size && !k.gotMiddle || h.Procedure == wire.Optional
	default:
		return h.Procedure == wire.ReqProp && !h.Alias
	}
}
