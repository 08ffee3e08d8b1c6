package rpcrdma

import (
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// The size of receives is the property that changes, where all of a receive is one segment (draft -05 section 6.2.1). Groups of transmissions may be
// under way meanwhile: one that has begun is laid out, and its receives are posted.
//
//   - It gets smaller when the peer wishes that, who sends no longer messages from its wish on.
//   - It gets greater, up to what was configured, when the peer wishes that. From then on greater receives are posted; but the queue is first
//     in, first out, so the peer is told only when no smaller one is left in it. Its wish is rejected, and RDMA2_UPDPROP follows in time.

// size is how long messages may be as far as the peer knows. The loop is held.
func (k *negotiator) size() int {
	if k.shrunk > 0 {
		return k.shrunk
	}
	return k.receiveSize()
}

// resize grants the wish for receives of another size, or prepares what is wished. It returns whether the size is so now.
func (k *negotiator) resize(v *wire.Property) bool {
	if v.ID != wire.ReceiveBufferSize || !k.resizable() || !k.sentProps {
		return false
	}
	want := wire.DefaultReceiveSize
	if n, ok := v.Uint32(); ok {
		want = int(n)
	}
	n := min(want, k.receiveSize())
	if now := k.size(); n < now {
		k.shrunk, k.growing = n, 0
		k.receives.settle(k.receiveSegments(), 0)
		k.negotiated.Store(k.negotiatedV2())
	} else if n > now {
		k.growing = n
		k.receives.settle(k.receiveSegments(), 0)
	}
	return k.size() == want
}

// resizable reports whether receives of this side may change. Shared ones are for all connections, and of the default size.
func (k *negotiator) resizable() bool {
	return !k.cfg.has(SendBasedPlacement) && k.cfg.layout == nil && !k.receives.queue.shared
}

// grow tells the peer that receives have become greater, once all of them have.
func (k *negotiator) grow() {
	if k.growing == 0 || k.receives.queue.smaller(k.growing) {
		return
	}
	var now wire.Properties
	now.SetUint32(wire.ReceiveBufferSize, uint32(k.growing))
	group := wire.XID(k.out.NextXID())
	if !k.fenced(func(dst []byte, credits wire.Credits) []byte {
		return wire.AppendProperties(dst, group, credits, wire.Call, wire.UpdProp, &now, false)
	}) {
		return // it is tried again with the next message
	}
	k.shrunk, k.growing = k.growing, 0
	k.negotiated.Store(k.negotiatedV2())
}

// fenced sends a message that has no answer, and a wish for nothing, which has: then the peer's receive for the message is free again. It
// returns false if another answer is awaited.
func (k *negotiator) fenced(build func(dst []byte, credits wire.Credits) []byte) bool {
	xid := wire.XID(k.out.NextXID())
	credits := k.askedNow()
	err := k.send(xid, func(dst []byte) []byte {
		return build(dst, credits)
	}, func(dst []byte) []byte {
		return wire.AppendProperties(dst, xid, credits, wire.Call, wire.ReqProp, new(wire.Properties), false)
	})
	return err == nil
}

// askedNow is the value of credits for messages that are about no call: what a client requests, or a server has granted.
func (k *negotiator) askedNow() wire.Credits {
	if k.server {
		k.receives.mu.Lock()
		defer k.receives.mu.Unlock()
		return wire.Credits(max(1, k.receives.granted))
	}
	k.out.mu.Lock()
	defer k.out.mu.Unlock()
	return wire.Credits(k.out.asked())
}

// respProp takes the answer to a message that asks for nothing; see fenced.
func (k *negotiator) respProp(ic *inCall) {
	if !k.answered(ic.hdr.XID) {
		ic.drop(UnknownXID, "RDMA2_RESPROP to nothing that was asked")
		return
	}
	ic.recycle()
}
