package rpcrdma

import (
	"slices"
)

// retainedBytes bounds the memory of a connection's retained replies. The oldest ones go first,
// those that may be reported before the others; a longer reply is not retained. The budget bounds
// it further for all connections together, beside calls in flight: a reply for a report that hardly
// ever comes must not hold up calls.
const retainedBytes = 8 << 20

// retainForReport keeps a reply that is about to be sent as a group.
func (k *retainedReplies) retainForReport(ic *inCall) {
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
	k.countBytesLocked(ic, ic.Reply.Memory()+len(ic.head.B))
	old, _ := k.shedLocked()
	k.mu.Unlock()
	letGoOf(old)
}

// countBytesLocked counts n bytes for the retained reply of a call.
func (k *retainedReplies) countBytesLocked(ic *inCall, n int) {
	k.bytes += n - ic.size
	k.budget.Retain(int64(n - ic.size))
	ic.size = n
}

// forgetBytes counts the memory of a reply as free.
func (k *retainedReplies) forgetBytes(ic *inCall) {
	k.mu.Lock()
	k.countBytesLocked(ic, 0)
	k.mu.Unlock()
}

// shedLocked takes the oldest sent replies out of their list until the bytes are within the bound.
// It returns them, and the bytes still above the bound.
func (k *retainedReplies) shedLocked() (old *inCall, over int) {
	over = k.bytes - int(min(retainedBytes, k.budget.Retainable(int64(k.bytes))))
	old = k.takeOldestLocked(func(ic *inCall) bool {
		if over <= 0 {
			return false
		}
		over -= ic.size
		return true
	})
	return old, over
}

// takeOldestLocked takes the oldest sent replies out of their list, up to the first for which gone
// is false.
func (k *retainedReplies) takeOldestLocked(gone func(*inCall) bool) (old *inCall) {
	end := &old
	for ic := k.first; ic != nil && gone(ic); ic = k.first {
		k.unlinkLocked(nil, ic)
		*end, end = ic, &ic.next
	}
	return old
}

// unlinkLocked takes a sent reply, which is behind prev, out of the list.
func (k *retainedReplies) unlinkLocked(prev, ic *inCall) {
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

// letGoOf frees the replies that takeOldestLocked returned. No lock is held.
func letGoOf(old *inCall) {
	for ic := old; ic != nil; {
		next := ic.next
		ic.next = nil
		ic.letGo()
		ic = next
	}
}

// markSent marks a reply as posted: later answers are behind it.
func (k *retainedReplies) markSent(ic *inCall) {
	k.mu.Lock()
	ic.posted, ic.before = true, k.returned.Load()-uint64(ic.taken)
	k.mu.Unlock()
}

// countCall counts a call that takes credits, of which most were ever granted. It drops replies
// that nobody can report any more.
func (k *retainedReplies) countCall(credits, most int) {
	k.taken += uint64(credits)
	k.mu.Lock()
	old := k.takeOldestLocked(func(ic *inCall) bool { return ic.posted && k.taken-ic.before > uint64(most) })
	k.mu.Unlock()
	letGoOf(old)
}

// takeReported returns the group reply with an XID, nil if there is none. The caller owns it. A
// report names only the XID. It is about the last call with that XID: the requester reports a reply
// before it makes another call in its place.
func (k *retainedReplies) takeReported(xid uint32) *inCall {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found, before, prev *inCall
	for ic := k.first; ic != nil; prev, ic = ic, ic.next {
		if uint32(ic.hdr.XID) == xid {
			found, before = ic, prev
		}
	}
	if found != nil {
		k.unlinkLocked(before, found)
	}
	return found
}

// retainForRetry keeps the reply of a call that is about to be answered with an error. It returns
// false if there is no room.
func (k *retainedReplies) retainForRetry(ic *inCall) bool {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return false
	}
	ic.holds.Add(1)
	k.countBytesLocked(ic, ic.Reply.Memory())
	k.list = append(k.list, ic)
	sent, over := k.shedLocked()
	n := 0
	for ; over > 0 && n < len(k.list); n++ {
		over -= k.list[n].size
	}
	old := k.dropOldestLocked(n)
	ok := len(k.list) > 0 // it is the last one
	k.mu.Unlock()
	letGoOf(sent)
	k.discard(old)
	return ok
}

// discard frees replies that dropOldestLocked returned. Their calls may still be answered, but not
// with them. No lock is held.
func (k *retainedReplies) discard(old []*inCall) {
	for _, ic := range old {
		ic.Reply.Release()
		k.forgetBytes(ic)
		ic.letGo()
	}
}

func (k *retainedReplies) dropOldestLocked(n int) []*inCall {
	old := slices.Clone(k.list[:n])
	k.list = slices.Delete(k.list, 0, n)
	k.n.Store(int32(len(k.list)))
	return old
}

// takeForRetry returns the retained call that again repeats, nil if there is none. The caller owns
// it. Another call with the same XID is dropped: its requester does not ask for the old reply any
// more.
func (k *retainedReplies) takeForRetry(again *inCall) *inCall {
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
	k.discard([]*inCall{ic})
	return nil
}

// bound drops the oldest replies until n are left.
func (k *retainedReplies) bound(n int) {
	k.mu.Lock()
	old := k.dropOldestLocked(max(0, len(k.list)-max(0, n)))
	k.mu.Unlock()
	k.discard(old)
}

// close drops all replies, and those to come.
func (k *retainedReplies) close() {
	k.mu.Lock()
	k.closed = true
	old := k.takeOldestLocked(func(*inCall) bool { return true })
	k.mu.Unlock()
	letGoOf(old)
	k.bound(0)
}

// answerRetained answers a call whose reply was retained. It returns false if there is none.
func (ic *inCall) answerRetained() bool {
	in := ic.in
	k := in.retained.takeForRetry(ic)
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

// answerFrom answers a call, or a report, with the reply that k retained.
func (ic *inCall) answerFrom(k *inCall) {
	ic.source = k
	ic.XID, ic.Program, ic.Version, ic.Procedure, ic.Status = k.XID, k.Program, k.Version, k.Procedure, k.Status
	ic.Plan, k.Plan = k.Plan, ic.Plan
	ic.Reply, k.Reply = k.Reply, ic.Reply
	ic.size, k.size = k.size, 0
	ic.state = stateServing
	ic.Respond(&ic.Call)
}
