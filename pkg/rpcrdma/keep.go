package rpcrdma

import (
	"sync"
	"sync/atomic"
)

// kept are replies of version 2 that did not fit what their calls offered. The call has been executed and was answered REPLY_RESOURCE
// or WRITE_RESOURCE; when it comes again, with more room, it gets that reply, since it must not be executed twice.
//
// A requester keeps the credit of such a call for sending it again. So calls that are executing and kept replies are together no more than
// the credits; where they are, the oldest reply's credit has been used otherwise, and nobody will ask for it.
type kept struct {
	n atomic.Int32 // how many there are, to look without the lock

	mu     sync.Mutex
	list   []*inCall // oldest first; they are held
	closed bool
}

// keep keeps the reply of a call that is about to be answered with an error.
func (k *kept) keep(ic *inCall) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		ic.holds.Add(1)
		k.list = append(k.list, ic)
		k.n.Store(int32(len(k.list)))
	}
}

// take returns the call with an XID, nil if its reply is not kept. It belongs to the caller then.
func (k *kept) take(xid uint32) *inCall {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, ic := range k.list {
		if uint32(ic.hdr.XID) == xid {
			k.list = append(k.list[:i], k.list[i+1:]...)
			k.n.Store(int32(len(k.list)))
			return ic
		}
	}
	return nil
}

// bound drops the oldest replies so that n are left.
func (k *kept) bound(n int) {
	k.mu.Lock()
	over := max(0, len(k.list)-max(0, n))
	old := append([]*inCall(nil), k.list[:over]...)
	k.list = append(k.list[:0], k.list[over:]...)
	k.n.Store(int32(len(k.list)))
	k.mu.Unlock()
	for _, ic := range old {
		ic.letGo()
	}
}

// close drops all replies, and those to come.
func (k *kept) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.bound(0)
}

// again answers a call whose reply was kept. It returns false if there is none.
func (ic *inCall) again() bool {
	in := &ic.c.in
	k := in.kept.take(uint32(ic.hdr.XID))
	if k == nil {
		in.kept.bound(in.c.receives.spare())
		return false
	}
	ic.source = k
	ic.XID, ic.Program, ic.Version, ic.Procedure, ic.Status = k.XID, k.Program, k.Version, k.Procedure, k.Status
	ic.Plan, k.Plan = k.Plan, ic.Plan
	ic.Reply, k.Reply = k.Reply, ic.Reply
	ic.state = serving
	ic.Respond(&ic.Call)
	return true
}
