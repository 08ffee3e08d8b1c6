package rpcrdma

import (
	"fmt"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// wgConnProp takes properties of the peer in the working group's dialect. The last message of them
// is answered with ours, if these were not sent.
func (k *negotiator) wgConnProp(ic *inCall) {
	last := ic.hdr.Procedure == wire.ConnProp
	if k.gotProps || k.server && !k.gotMiddle && k.negotiated.Load().version != 0 {
		ic.refuse(wire.InvalidContinuation, BadHeader, "properties after RDMA2_CONNPROP_FINAL, or after a call")
		return
	}
	v := k.wgValues
	if err := v.Set(ic.hdr.Props.Set); err != nil {
		if k.isAnswer(ic.hdr.XID) || k.firstAnswered() {
			k.refusal = fmt.Errorf("rpcrdma: the server's properties: %w", err)
		}
		ic.refuse(wire.InvalidProperty, BadHeader, "%v", err)
		return
	}
	k.wgValues, k.gotMiddle = v, true
	if k.negotiated.Load().version == 0 && !last {
		k.adopt(k.negotiatedWG()) // so that the next one gets a credit
	}
	if !last {
		ic.recycle()
		return
	}
	if check := k.cfg.HostAuth.Check; check != nil {
		if err := check(v.HostAuth); err != nil {
			k.refusal = fmt.Errorf("rpcrdma: the peer's host is not authenticated: %w", err)
			k.fail(k.refusal)
			ic.recycle()
			return
		}
	}
	k.gotProps = true
	if k.isAnswer(ic.hdr.XID) || k.firstAnswered() {
		k.takeGrant(&ic.inbound)
	}
	answer := !k.sentProps
	k.sentProps = true
	if t := k.negotiatedWG(); k.negotiated.Load().version == 0 {
		k.adopt(t)
	} else {
		k.negotiated.Store(t)
	}
	k.out.learnSegments(k.negotiated.Load())
	if !answer {
		ic.recycle()
		return
	}
	_, head, err := ic.answerHead()
	if err != nil {
		ic.failUnanswered(err)
		return
	}
	ic.answerWith(wire.AppendConnProp(head, ic.hdr.XID, 0, k.wgProperties(), false))
	k.openCalls()
}

// learnSegments bounds the segments of a chunk by the peer's property.
func (out *requester) learnSegments(t *negotiated) {
	lim := *out.peerLimits.Load()
	if t.segments < lim.SegmentsPerChunk {
		lim.SegmentsPerChunk, lim.lowered = max(t.segments, 1), true
	}
	if t.segments == 0 {
		lim.ReadChunks, lim.WriteChunks = 0, 0
	}
	lim.ReadSegments = min(lim.ReadSegments, max(t.segments, 1))
	out.peerLimits.Store(&lim)
}

// refuseDialect sends a client of another dialect of version 2 to version 1, on this connection.
func (k *negotiator) refuseDialect(ic *inCall) {
	k.headerLimits.Version2 = false
	ic.state = stateServing
	ic.sendError(wire.Fault2{Code: wire.ErrVers})
}
