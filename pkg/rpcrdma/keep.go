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
	sent   []*inCall // likewise, replies that were sent as groups
	closed bool
}

// maxSent is how many of the latest replies that went as groups are kept, in case that the peer reports them. Their bulk memory counts
// no longer in the budget.
const maxSent = 2

// note keeps a reply that is about to be sent.
func (k *kept) note(ic *inCall) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	var old *inCall
	if len(k.sent) == maxSent {
		old = k.sent[0]
		k.sent = append(k.sent[:0], k.sent[1:]...)
	}
	ic.holds.Add(1)
	ic.noted = true
	k.sent = append(k.sent, ic)
	k.mu.Unlock()
	if old != nil {
		old.letGo()
	}
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

// take returns the call with an XID out of one of the lists, nil if it is not there. It belongs to the caller then.
func (k *kept) take(list *[]*inCall, xid uint32) *inCall {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, ic := range *list {
		if uint32(ic.hdr.XID) == xid {
			*list = append((*list)[:i], (*list)[i+1:]...)
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
	sent := k.sent
	k.sent = nil
	k.mu.Unlock()
	for _, ic := range sent {
		ic.letGo()
	}
	k.bound(0)
}

// again answers a call whose reply was kept. It returns false if there is none.
func (ic *inCall) again() bool {
	in := &ic.c.in
	k := in.kept.take(&in.kept.list, uint32(ic.hdr.XID))
	if k == nil {
		spare := in.c.receives.spare()
		if !in.c.server {
			spare = in.c.cfg.BackCredits // they are not counted apart
		}
		in.kept.bound(spare)
		return false
	}
	ic.answerFrom(k)
	return true
}

// answerFrom answers a call, or a report about its reply, with the reply that was kept with k.
func (ic *inCall) answerFrom(k *inCall) {
	ic.source = k
	ic.XID, ic.Program, ic.Version, ic.Procedure, ic.Status = k.XID, k.Program, k.Version, k.Procedure, k.Status
	ic.Plan, k.Plan = k.Plan, ic.Plan
	ic.Reply, k.Reply = k.Reply, ic.Reply
	ic.state = serving
	ic.Respond(&ic.Call)
}
