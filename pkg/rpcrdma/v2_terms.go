package rpcrdma

import (
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// negotiatedV1 returns the values of version 1. They hold until the version is known: the first
// message may be of version 1.
func (k *negotiator) negotiatedV1(version int) *negotiated {
	own := k.privateData()
	return &negotiated{
		version:    version,
		dialect:    wire.V1,
		sendLimit:  min(own.SendSize, k.peer.ReceiveSize),
		recvLimit:  min(own.ReceiveSize, k.peer.SendSize),
		invalidate: own.RemoteInvalidation && k.peer.RemoteInvalidation,
		backward:   true,
	}
}

// negotiatedV2 returns the values of version 2, from the properties of the peer so far. recvMu is
// held.
func (k *negotiator) negotiatedV2() *negotiated {
	if k.workingGroup() {
		return k.negotiatedWG()
	}
	peer := &k.values
	t := &negotiated{
		version:    wire.Version2,
		dialect:    k.headerLimits.Dialect(),
		sendLimit:  min(k.privateData().SendSize, int(peer.ReceiveSize())),
		recvLimit:  k.ownReceiveSize(),
		invalidate: k.cfg.RemoteInvalidation,
		backward:   peer.Backward() != wire.BackwardNone,
		receive:    k.ownReceiveSize(),
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
			// a peer without properties may take XMTREQ nevertheless: the answer to the first one
			// decides
		} else {
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

// backGroups reports whether calls of the reverse direction, and their replies, may be groups: the
// client's BRS is 2. recvMu is held.
func (k *negotiator) backGroups() bool {
	if k.server {
		return k.values.Backward() == wire.BackwardGeneral
	}
	return k.cfg.ReverseCredits > 0 && k.sentProps
}

// adopt sets the version of the connection. recvMu is held.
func (k *negotiator) adopt(t *negotiated) {
	k.headerLimits.Version2, k.headerLimits.NoVersion1 = t.version == wire.Version2, t.version == wire.Version2
	k.negotiated.Store(t)
	if k.gate != nil {
		k.gate.active.Store(t.version == wire.Version2)
	}
	if k.server {
		k.receives.setStructure(k.receiveSegments(), spareReceives)
	} else {
		k.receives.setStructure(k.receiveSegments(), 0)
	}
}

// fixVersion settles the version by the first accepted message. RDMA2_CONNPROP does so itself, when
// its values are good.
func (k *negotiator) fixVersion(h *wire.Header) {
	switch {
	case h.Procedure == wire.Error || h.Version == wire.Version1 && h.Procedure == wire.Done:
	case h.Version == wire.Version1:
		k.adopt(k.negotiatedV1(wire.Version1))
	case (h.Procedure == wire.ConnProp || h.Procedure == wire.PropMiddle) && k.cfg.has(TransportProperties):
	default:
		if err := k.prepareGroups(); err != nil {
			k.fail(err)
		}
		k.adopt(k.negotiatedV2())
	}
}

// receiveSegments returns the lengths of the segments of a receive, for each of its buffers. A
// client has receives for bulk data from the start, a server after it has sent its properties.
func (k *negotiator) receiveSegments() [][]int {
	switch {
	case k.cfg.layout != nil:
		return [][]int{k.cfg.layout}
	case k.cfg.has(SendBasedPlacement) && k.headerLimits.Version2 && (!k.server || k.sentProps):
		return [][]int{{k.receiveSize()}, {k.cfg.Placement.ReceiveBuffer}}
	}
	return [][]int{{max(k.ownReceiveSize(), k.growing)}}
}

// layoutOf returns the structure of a side's receive buffers for the planner.
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
	if err != nil { // more segments than the planner takes
		return group.Plain(int(size))
	}
	return l
}
