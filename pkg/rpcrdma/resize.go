package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// The size of receives is the property that changes, where all of a receive is one segment (draft -05 section 6.2.1). Groups of transmissions may be
// under way meanwhile: one that has begun is laid out, and its receives are posted.
//
//   - It gets smaller when the peer wishes that, who sends no longer messages from its wish on.
//   - It gets greater, up to what was configured, when the peer wishes that. From then on greater receives are posted; but the queue is first
//     in, first out, so the peer is told only when no smaller one is left in it. Its wish is rejected, and RDMA2_UPDPROP follows in time.

// wishFor is an RDMA2_REQPROP of ours: for receives of size bytes. Nothing longer is sent until it is answered.
type wishFor struct {
	size     int
	set      []wire.Property
	sent     bool          // the answer that is awaited is its own, not that to a message before
	answered chan struct{} // closed then
	err      error
}

// size is how long messages may be as far as the peer knows. The loop is held.
func (k *control) size() int {
	if k.shrunk > 0 {
		return k.shrunk
	}
	return k.c.receiveSize()
}

// resize grants the wish for receives of another size, or prepares what is wished. It returns whether the size is so now.
func (k *control) resize(v *wire.Property) bool {
	c := k.c
	if v.ID != wire.ReceiveBufferSize || !c.resizable() || !k.told {
		return false
	}
	want := wire.DefaultReceiveSize
	if n, ok := v.Uint32(); ok {
		want = int(n)
	}
	n := min(want, c.receiveSize())
	if now := k.size(); n < now {
		k.shrunk, k.growing = n, 0
		c.receives.settle(c.layout(), 0)
		c.terms.Store(c.terms2())
	} else if n > now {
		k.growing = n
		c.receives.settle(c.layout(), 0)
	}
	return k.size() == want
}

// resizable reports whether receives of this side may change. Shared ones are for all connections, and of the default size.
func (c *Conn) resizable() bool {
	return !c.cfg.has(SendBasedPlacement) && c.cfg.layout == nil && !c.receives.queue.shared
}

// grow tells the peer that receives have become greater, once all of them have.
func (k *control) grow() {
	c := k.c
	if k.growing == 0 || c.receives.queue.smaller(k.growing) {
		return
	}
	var now wire.Properties
	now.SetUint32(wire.ReceiveBufferSize, uint32(k.growing))
	group := wire.XID(c.out.NextXID())
	if !k.fenced(func(dst []byte, credits wire.Credits) []byte {
		return wire.AppendProperties(dst, group, credits, wire.Call, wire.UpdProp, &now, false)
	}) {
		return // it is tried again with the next message
	}
	k.shrunk, k.growing = k.growing, 0
	c.terms.Store(c.terms2())
}

// fenced sends a message that has no answer, and a wish for nothing, which has: then the peer's receive for the message is free again. It
// returns false if another answer is awaited.
func (k *control) fenced(build func(dst []byte, credits wire.Credits) []byte) bool {
	c := k.c
	xid := wire.XID(c.out.NextXID())
	credits := c.askedNow()
	err := k.send(xid, func(dst []byte) []byte {
		return build(dst, credits)
	}, func(dst []byte) []byte {
		return wire.AppendProperties(dst, xid, credits, wire.Call, wire.ReqProp, new(wire.Properties), false)
	})
	return err == nil
}

// askedNow is the value of credits for messages that are about no call: what a client requests, or a server has granted.
func (c *Conn) askedNow() wire.Credits {
	if c.server {
		c.receives.mu.Lock()
		defer c.receives.mu.Unlock()
		return wire.Credits(max(1, c.receives.granted))
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return wire.Credits(c.out.asked())
}

// AskReceiveSize asks the peer, in version 2, to receive messages of at most size bytes, 1024 at
// least, from now on, and waits for its answer. It returns what the peer receives then. A peer that
// has to get rid of smaller receives first may tell of greater ones later. When ctx ends first and
// the peer has been asked, its answer is taken as ever when it comes; until then nothing else can
// be asked. A peer that leaves it unanswered for 30 s has its connection ended.
func (cl *Client) AskReceiveSize(ctx context.Context, size int) (int, error) {
	return cl.conn.control.ask(ctx, size)
}

func (k *control) ask(ctx context.Context, size int) (int, error) {
	c := k.c
	var p wire.Properties
	p.SetUint32(wire.ReceiveBufferSize, uint32(max(0, size)))
	if err := p.Set[0].Check(); err != nil {
		return 0, fmt.Errorf("rpcrdma: ask for another size of receives: %w", err)
	}
	w := &wishFor{size: size, set: p.Set, answered: make(chan struct{})}
	c.loop.Lock()
	if !k.given || k.mutable>>wire.ReceiveBufferSize&1 == 0 || k.wish != nil {
		c.loop.Unlock()
		return 0, errors.New("rpcrdma: the peer's receives do not change, or another wish is outstanding")
	}
	k.wish = w
	t := c.terms2()
	t.users = new(atomic.Int32)
	k.past = append(slices.DeleteFunc(k.past, (*terms).unused), c.terms.Swap(t))
	c.loop.Unlock()
	if err := k.sendWish(ctx, w); err != nil {
		return 0, err
	}
	select {
	case <-w.answered:
		return c.terms.Load().peer.ReceiveSize, w.err
	case <-c.done:
		return 0, &LostError{c.err}
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// sendWish sends a wish behind all messages that were made by the terms before it, and may be longer than it says. One that is given up leaves terms in
// the past for the next one to wait for.
func (k *control) sendWish(ctx context.Context, w *wishFor) (err error) {
	c := k.c
	for err == nil && slices.ContainsFunc(k.past, (*terms).used) {
		select {
		case <-k.quiet:
		case <-c.done:
			err = &LostError{c.err}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.loop.Lock()
	defer c.loop.Unlock()
	if err == nil {
		xid, credits := wire.XID(c.out.NextXID()), c.askedNow()
		err = k.send(xid, func(dst []byte) []byte {
			return wire.AppendProperties(dst, xid, credits, wire.Call, wire.ReqProp, &wire.Properties{Set: w.set}, false)
		})
	}
	if w.sent = err == nil; w.sent {
		k.past = nil
	} else {
		k.wish = nil
		c.terms.Store(c.terms2())
	}
	return err
}

// respProp takes the answer to a wish of ours.
func (k *control) respProp(ic *inCall) {
	if !k.answered(ic.hdr.XID) {
		k.c.drop(ic, UnknownXID, "RDMA2_RESPROP to nothing that was asked")
		return
	}
	if w := k.wish; w != nil && w.sent {
		k.wish = nil
		for i := range w.set {
			if now, ok := ic.hdr.Props.Outcome(w.set, i); ok {
				w.err = k.values.Set([]wire.Property{now})
			}
		}
		k.c.terms.Store(k.c.terms2())
		close(w.answered)
	}
	ic.recycle()
}
