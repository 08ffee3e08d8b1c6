package rpcrdma

import (
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// negotiatedV1 is those of version 1. Before the version is settled they hold too: the first message may be of version 1.
func (k *negotiator) negotiatedV1(version int) *negotiated {
	own := k.privateData()
	return &negotiated{
		version:    version,
		sendLimit:  min(own.SendSize, k.peer.ReceiveSize),
		recvLimit:  min(own.ReceiveSize, k.peer.SendSize),
		invalidate: own.RemoteInvalidation && k.peer.RemoteInvalidation,
		backward:   true,
	}
}

// negotiatedV2 is those of version 2, with what is known of the peer's properties. The loop is held.
func (k *negotiator) negotiatedV2() *negotiated {
	peer := &k.values
	t := &negotiated{
		version:    wire.Version2,
		sendLimit:  min(k.privateData().SendSize, int(peer.ReceiveSize())),
		recvLimit:  k.size(),
		invalidate: k.cfg.RemoteInvalidation,
		backward:   peer.Backward() != wire.BackwardNone,
		receive:    k.size(),
		own:        propertiesOf(k.own()),
		peer:       propertiesOf(peer),
	}
	if k.gotPrivateData {
		t.recvLimit = min(t.recvLimit, k.peer.SendSize)
	}
	if k.gotProps {
		t.ext = TransportProperties
	}
	if k.grouped {
		t.layout = layoutOf(peer)
		t.place = k.cfg.has(SendBasedPlacement) && len(t.layout.Targets) > 0 && t.layout.Gaps() <= wire.MaxThreshold
		t.back = k.backGroups()
		if k.server {
			t.groups = t.back && peer.Support()&wire.AcceptsRequest != 0
		} else { // a peer that told nothing may take XMTREQ nevertheless: its answer to the first one will say
			t.groups = peer.Support()&wire.AcceptsRequest != 0 || !k.gotProps
		}
		t.callLimit, t.replyLimit, t.sendReplies = 1, 1, 1
		if peer.Support()&wire.AcceptsContinue != 0 && k.cfg.has(MessageContinuation) {
			t.ext |= MessageContinuation
			t.callLimit, t.replyLimit, t.sendReplies = k.cfg.callTransmissions(), k.cfg.replyTransmissions(), k.cfg.replyTransmissions()
			if t.groups {
				t.callLimit = min(t.callLimit, int(min(peer.RequestLimit(), maxTransmissions)))
				t.replyLimit = min(t.replyLimit, int(min(peer.ResponseLimit(), maxTransmissions)))
			}
		}
		if t.place {
			t.ext |= SendBasedPlacement
		}
	}
	return t
}

// backGroups reports whether calls of the reverse direction, and their replies, may be groups: BRS of the client is 2. The loop is held.
func (k *negotiator) backGroups() bool {
	if k.server {
		return k.values.Backward() == wire.BackwardGeneral
	}
	return k.cfg.ReverseCredits > 0 && k.sentProps
}

// adopt makes a version that of the connection. The loop is held.
func (k *negotiator) adopt(t *negotiated) {
	k.headerLimits.Version2, k.headerLimits.NoVersion1 = t.version == wire.Version2, t.version == wire.Version2
	k.negotiated.Store(t)
	if k.server {
		k.receives.settle(k.receiveSegments(), spareReceives)
	} else {
		k.receives.settle(k.receiveSegments(), 0)
	}
}

// fixVersion settles the version by the first message that is accepted. RDMA2_CONNPROP does so itself, when its values are good.
func (k *negotiator) fixVersion(h *wire.Header) {
	switch {
	case h.Procedure == wire.Error || h.Version == wire.Version1 && h.Procedure == wire.Done:
	case h.Version == wire.Version1:
		k.adopt(k.negotiatedV1(wire.Version1))
	case h.Procedure == wire.ConnProp && k.cfg.has(TransportProperties):
	default:
		if err := k.prepareGroups(); err != nil {
			k.fail(err)
		}
		k.adopt(k.negotiatedV2())
	}
}

// receiveSegments are the lengths of the segments of a receive, for each of its buffers. A client has receives for bulk data from the start; a
// server has them once it has told the client of them.
func (k *negotiator) receiveSegments() [][]int {
	switch {
	case k.cfg.layout != nil:
		return [][]int{k.cfg.layout}
	case k.cfg.has(SendBasedPlacement) && k.headerLimits.Version2 && (!k.server || k.sentProps):
		return [][]int{{k.receiveSize()}, {k.cfg.Placement.ReceiveBuffer}}
	}
	return [][]int{{max(k.size(), k.growing)}}
}

// layoutOf is the structure of a side's receive buffers as the planner needs it.
func layoutOf(v *wire.Values) *group.Layout {
	b, size := v.Structure(), v.ReceiveSize()
	if size < b.Length {
		return group.Plain(int(size))
	}
	var segs []group.Segment
	for _, s := range b.Segments() {
		segs = append(segs, group.Segment{Length: int(s.Length), Align: int(s.Align), Target: s.Flags&wire.Targetable != 0})
	}
	l, err := group.NewLayout(segs...)
	if err != nil { // more segments than it takes, of which none is known to be wrong
		return group.Plain(int(size))
	}
	return l
}
