package rpcrdma

import (
	"slices"
)

// retainedBytes bounds the memory of a connection's replies that are kept; the oldest ones are let go of, those that may be reported first, and so is one that is
// longer. The budget bounds it further for all connections together, beside what calls in flight hold: what waits for a report that hardly ever comes, or for a
// call that does not come again, must not hold up calls.
const retainedBytes = 8 << 20

// note keeps a reply that is about to be sent as a group.
func (k *retainedReplies) note(ic *inCall) {
	ic.posted = false
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	ic.holds.Add(1)
	ic.noted = true
	ic.next = nil
	if k.last == nil {
		k.first = ic
	} else {
		k.last.next = ic
	}
	k.last = ic
	k.count(ic, ic.Reply.Memory()+len(ic.head.B))
	old, _ := k.shed()
	k.mu.Unlock()
	letGoOf(old)
}

// count notes how many bytes the reply has that a call holds. The lock is held.
func (k *retainedReplies) count(ic *inCall, n int) {
	k.bytes += n - ic.size
	k.budget.Retain(int64(n - ic.size))
	ic.size = n
}

// forget notes that the memory of a reply is free.
func (k *retainedReplies) forget(ic *inCall) {
	k.mu.Lock()
	k.count(ic, 0)
	k.mu.Unlock()
}

// shed takes as many of the oldest replies that were sent out of their list as there are bytes too many, and returns how many are still too many then.
// The lock is held.
func (k *retainedReplies) shed() (old *inCall, over int) {
	over = k.bytes - int(min(retainedBytes, k.budget.Retainable(int64(k.bytes))))
	old = k.cut(func(ic *inCall) bool {
		if over <= 0 {
			return false
		}
		over -= ic.size
		return true
	})
	return old, over
}

// cut takes the oldest replies that were sent out of their list, up to the first one of which gone is not true. The lock is held.
func (k *retainedReplies) cut(gone func(*inCall) bool) (old *inCall) {
	end := &old
	for ic := k.first; ic != nil && gone(ic); ic = k.first {
		k.unlink(nil, ic)
		*end, end = ic, &ic.next
	}
	return old
}

// unlink takes a reply that was sent out of the list, where it stands behind prev.
func (k *retainedReplies) unlink(prev, ic *inCall) {
	if prev == nil {
		k.first = ic.next
	} else {
		prev.next = ic.next
	}
	if k.last == ic {
		k.last = prev
	}
	ic.next = nil
}

// letGoOf frees what cut returns. No lock is held.
func letGoOf(old *inCall) {
	for ic := old; ic != nil; {
		next := ic.next
		ic.next = nil
		ic.letGo()
		ic = next
	}
}

// left notes that all of a reply is on its way: what is answered from now on is answered behind it.
func (k *retainedReplies) left(ic *inCall) {
	k.mu.Lock()
	ic.posted, ic.before = true, k.given.Load()-uint64(ic.taken)
	k.mu.Unlock()
}

// arrived counts a call that takes credits, of which most were ever granted, and lets go of the replies that nobody can report any more.
func (k *retainedReplies) arrived(credits, most int) {
	k.taken += uint64(credits)
	k.mu.Lock()
	old := k.cut(func(ic *inCall) bool { return ic.posted && k.taken-ic.before > uint64(most) })
	k.mu.Unlock()
	letGoOf(old)
}

// reported returns the reply with an XID that was sent as a group, nil if it is not there. It
// belongs to the caller then. A report names no more than the XID. It is about the last call that
// had it: the requester reports a reply before it makes another call in its place.
func (k *retainedReplies) reported(xid uint32) *inCall {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found, before, prev *inCall
	for ic := k.first; ic != nil; prev, ic = ic, ic.next {
		if uint32(ic.hdr.XID) == xid {
			found, before = ic, prev
		}
	}
	if found != nil {
		k.unlink(before, found)
	}
	return found
}

// keep keeps the reply of a call that is about to be answered with an error. It returns false if there is no place for it.
func (k *retainedReplies) keep(ic *inCall) bool {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return false
	}
	ic.holds.Add(1)
	k.count(ic, ic.Reply.Memory())
	k.list = append(k.list, ic)
	sent, over := k.shed()
	n := 0
	for ; over > 0 && n < len(k.list); n++ {
		over -= k.list[n].size
	}
	old := k.drop(n)
	ok := len(k.list) > 0 // it is the last one
	k.mu.Unlock()
	letGoOf(sent)
	k.free(old)
	return ok
}

// free lets go of replies that drop has taken out. Their calls may still be being answered, but not with them. No lock is held.
func (k *retainedReplies) free(old []*inCall) {
	for _, ic := range old {
		ic.Reply.Release()
		k.forget(ic)
		ic.letGo()
	}
}

// drop takes the n oldest replies out of the list. The lock is held.
func (k *retainedReplies) drop(n int) []*inCall {
	old := slices.Clone(k.list[:n])
	k.list = slices.Delete(k.list, 0, n)
	k.n.Store(int32(len(k.list)))
	return old
}

// take returns the call out of the list that again is, nil if it is not there. It belongs to the
// caller then. Another call with the XID of again goes: who uses an XID anew does not ask for the
// old reply.
func (k *retainedReplies) take(again *inCall) *inCall {
	k.mu.Lock()
	i := slices.IndexFunc(k.list, func(ic *inCall) bool { return ic.hdr.XID == again.hdr.XID })
	if i < 0 {
		k.mu.Unlock()
		return nil
	}
	ic := k.list[i]
	k.list = slices.Delete(k.list, i, i+1)
	k.n.Store(int32(len(k.list)))
	k.mu.Unlock()
	if ic.identity == again.identity {
		return ic
	}
	k.free([]*inCall{ic})
	return nil
}

// bound drops the oldest replies so that n are left.
func (k *retainedReplies) bound(n int) {
	k.mu.Lock()
	old := k.drop(max(0, len(k.list)-max(0, n)))
	k.mu.Unlock()
	k.free(old)
}

// close drops all replies, and those to come.
func (k *retainedReplies) close() {
	k.mu.Lock()
	k.closed = true
	old := k.cut(func(*inCall) bool { return true })
	k.mu.Unlock()
	letGoOf(old)
	k.bound(0)
}

// again answers a call whose reply was kept. It returns false if there is none.
func (ic *inCall) again() bool {
	in := ic.in
	k := in.retained.take(ic)
	if k == nil {
		spare := in.receives.spare()
		if !in.server {
			spare = in.cfg.ReverseCredits // they are not counted apart
		}
		in.retained.bound(spare)
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
	ic.size, k.size = k.size, 0
	ic.state = stateServing
	ic.Respond(&ic.Call)
}
