package rpcrdma

import (
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// The size of receives may change, where a receive is one segment (draft -05 section 6.2.1). A
// group under way is laid out already, and its receives are posted.
//
//   - It shrinks when the peer requests that. The peer sends no longer messages from its request
//     on.
//   - It grows, up to the configured size, when the peer requests that. Larger receives are posted
//     from then on. The queue is first in, first out, so the peer learns the size only when no
//     smaller receive is left. Its request is rejected, and RDMA2_UPDPROP follows.

// ownReceiveSize is the longest message that the peer may send. recvMu is held.
func (k *negotiator) ownReceiveSize() int {
	if k.shrunk > 0 {
		return k.shrunk
	}
	return k.receiveSize()
}

// resize grants or prepares receives of another size. It returns whether the size is so now.
func (k *negotiator) resize(v *wire.Property) bool {
	if v.ID != wire.ReceiveBufferSize || !k.resizable() || !k.sentProps {
		return false
	}
	want := wire.DefaultReceiveSize
	if n, ok := v.Uint32(); ok {
		want = int(n)
	}
	n := min(want, k.receiveSize())
	if now := k.ownReceiveSize(); n < now {
		k.shrunk, k.growing = n, 0
		k.receives.setStructure(k.receiveSegments(), 0)
		k.negotiated.Store(k.negotiatedV2())
	} else if n > now {
		k.growing = n
		k.receives.setStructure(k.receiveSegments(), 0)
	}
	return k.ownReceiveSize() == want
}

// resizable reports whether receives of this side may change. Shared ones serve all connections and
// may not.
func (k *negotiator) resizable() bool {
	return !k.cfg.has(SendBasedPlacement) && k.cfg.layout == nil && !k.receives.queue.shared
}

// grow announces larger receives once no smaller one is posted.
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

// fenced sends a message without an answer, and an empty request, which has one: then the peer's
// receive for the message is free again. It returns false if another answer is awaited.
func (k *negotiator) fenced(build func(dst []byte, credits wire.Credits) []byte) bool {
	xid := wire.XID(k.out.NextXID())
	credits := k.askedNow()
	err := k.sendControl(xid, func(dst []byte) []byte {
		return build(dst, credits)
	}, func(dst []byte) []byte {
		return wire.AppendProperties(dst, xid, credits, wire.Call, wire.ReqProp, new(wire.Properties), false)
	})
	return err == nil
}

// askedNow is the value of credits in messages about no call: the client's request, or the server's
// grant.
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

// respProp takes the answer to the empty request of fenced.
func (k *negotiator) respProp(ic *inCall) {
	if !k.isAnswer(ic.hdr.XID) {
		ic.drop(UnknownXID, "RDMA2_RESPROP to nothing that was asked")
		return
	}
	ic.recycle()
}
