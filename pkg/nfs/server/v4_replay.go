package server

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// In a persistent session, an operation that must not run twice calls intend right before its
// effect. So a retry after a restart has a record of the operation, or the operation had no effect.
// The retry gets the recorded reply. Without one, the operation is judged by its target: if it had
// its effect, the COMPOUND goes on behind it, with operations that change nothing. If not, the
// operation returns NFS4ERR_DELAY, so that the client sends it again in a new session.
//
// WRITE, COPY, CLONE, ALLOCATE, DEALLOCATE and SETATTR of anything but the size leave no record: a
// repetition does the same. Neither do operations on opens and locks, which end with the process.

// intent is the record of a request, in memory.
type intent struct {
	slotRecord
	record int32
	buf    recordBuf
	now    target // the target at present, for a retry
}

var intents = sync.Pool{New: func() any { return new(intent) }}

// intend records that the operation is about to change t. In a retry it compares t with the record.
func (c *compound) intend(t *target) nfs4.Status {
	j := c.s.v4.journal
	if c.dead {
		c.intent.now = *t
		return nfs4.OK
	}
	if j == nil || c.session == nil {
		return nfs4.OK
	}
	in := c.intent
	if in == nil {
		in = intents.Get().(*intent)
		call := c.slot.Call()
		in.slotRecord = slotRecord{session: call.Session, slot: call.Slot, sequence: call.Sequence}
		if !j.use(in) {
			intents.Put(in)
			return nfs4.OK
		}
		in.request = c.requestSum()
		c.intent = in
	}
	in.target, in.index, in.begun = *t, c.index, coarseNow().UnixNano()
	in.offset = uint32(c.argsAt - c.operations)
	in.cur, in.saved = handleOf(c.cur), handleOf(c.saved)
	in.answered, in.kept = false, false
	// The results behind the number and the status of SEQUENCE, without those of this operation.
	prefix := c.e.Bytes()[c.results()+resultHead : len(c.e.Bytes())-resultHead]
	if in.kept = len(prefix) <= v4MaxPrefix && c.items == 0; !in.kept {
		prefix = nil
	}
	in.prefix = prefix
	if err := j.begin(in); err != nil {
		return nfs4.ErrIO
	}
	c.s.cfg.intended()
	return nfs4.OK
}

// results is where the results begin in the reply.
func (c *compound) results() int { return c.started + 12 + xdr.Round(len(c.head.Tag)) }

func handleOf(n *vfs.Node) []byte {
	if n == nil {
		return nil
	}
	return n.Handle().Bytes()
}

// intendName is intend for the object of a name.
func (c *compound) intendName(dir *vfs.Node, name *vfs.Name) nfs4.Status {
	if !c.recording() {
		return nfs4.OK
	}
	t := c.identify(dir, name)
	return c.intend(&t)
}

// intendNew is intend for a name that the operation makes. An object that has it already stays.
func (c *compound) intendNew(dir *vfs.Node, name *vfs.Name) nfs4.Status {
	if !c.recording() {
		return nfs4.OK
	}
	t := c.identify(dir, name)
	if !c.dead && t.state == present {
		t = target{}
	}
	c.wcc.Made = c.recordMade
	return c.intend(&t)
}

// intendNode is intend for an object with attributes in st.
func (c *compound) intendNode(n *vfs.Node, st *vfs.Stat) nfs4.Status {
	if !c.recording() {
		return nfs4.OK
	}
	var t target
	t.set(n.Handle(), st)
	return c.intend(&t)
}

// recording reports whether the session is persistent.
func (c *compound) recording() bool { return c.dead || c.s.v4.journal != nil && c.session != nil }

func (c *compound) identify(dir *vfs.Node, name *vfs.Name) (t target) {
	var h vfs.Handle
	var st vfs.Stat
	switch err := c.s.fs.Identify(dir, name, &h, &st); {
	case err == nil:
		t.set(&h, &st)
	case errors.Is(err, unix.ENOENT):
		t.state = absent
	}
	return t
}

// recordMade records the operation's new object.
func (c *compound) recordMade(n *vfs.Node) {
	if c.intent == nil || c.dead {
		return
	}
	c.s.cfg.making()
	t := target{state: created}
	t.n = uint8(copy(t.handle[:], n.Handle().Bytes()))
	c.s.v4.journal.made(c.intent, &t)
}

// maxSummed bounds the bytes of a call that requestSum covers.
const maxSummed = 4096

// requestSum identifies the request and its sender, whatever process asks.
func (c *compound) requestSum() [sha256.Size]byte {
	p := c.principal()
	le := binary.LittleEndian
	b := le.AppendUint32(nil, c.head.Minor)
	for _, v := range [...]uint32{c.head.Count, p.Flavor, p.UID, p.GID} {
		b = le.AppendUint32(b, v)
	}
	c.eachHashed(maxSummed, func(piece []byte) { b = append(b, piece...) })
	return sha256.Sum256(b)
}

// recordReply records the reply before it is sent.
func (c *compound) recordReply() {
	in := c.intent
	if !c.call.Status.OK() {
		return
	}
	in.reply = c.flatten()
	in.kept = len(in.reply) <= v4MaxReply
	c.s.v4.journal.end(in)
	c.s.cfg.answered()
}

func (c *compound) endIntent() {
	c.s.v4.journal.release(c.intent.session, c.intent.slot)
	c.intent.slotRecord = slotRecord{}
	intents.Put(c.intent)
	c.intent, c.dead = nil, false
}

// resume is SEQUENCE of a session that is not there: if an earlier process had it, a retry goes on.
func (c *compound) resume(a *nfs4.SequenceArgs) nfs4.Status {
	j := c.s.v4.journal
	if !j.dead(a.Session) {
		return nfs4.ErrBadSession
	}
	if !c.mayWait {
		return wait
	}
	in := intents.Get().(*intent)
	if st := j.claim(a.Session, a.Slot, a.Sequence, in); st != nfs4.OK {
		intents.Put(in)
		return st
	}
	c.intent, c.dead = in, true
	switch {
	case in.request != c.requestSum():
		c.endIntent()
		return nfs4.ErrSeqFalseRetry
	case in.answered && in.kept:
		c.retry = append(c.retry[:0], in.reply...)
		c.cached = true
		c.head.Count = min(c.head.Count, 2)
		c.endIntent()
		return nfs4.OK
	case in.answered || len(in.prefix) < sequenceLen || in.index >= c.head.Count:
		c.uncached = true
		c.head.Count = min(c.head.Count, 2)
		res := nfs4.SequenceRes{Session: a.Session, Sequence: a.Sequence, Slot: a.Slot, HighestSlot: a.Slot, TargetHighestSlot: a.Slot}
		res.Encode(c.e)
		c.endIntent()
		return nfs4.OK
	}
	if st := c.resumeAt(in); st != nfs4.OK {
		c.endIntent()
		return st
	}
	return nfs4.OK
}

// resumeAt restores the COMPOUND before the operation of the record.
func (c *compound) resumeAt(in *intent) nfs4.Status {
	for _, k := range [...]struct {
		handle []byte
		n      **vfs.Node
	}{{in.cur, &c.cur}, {in.saved, &c.saved}} {
		if len(k.handle) == 0 {
			continue
		}
		n, err := c.s.fs.Resolve(k.handle)
		if err != nil { // SEQUENCE has no status for it, and nothing more of the COMPOUND can run
			return nfs4.ErrDeadsession
		}
		*k.n = n
	}
	c.d.Skip(int(in.offset))
	if c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if !c.need(len(in.prefix)) {
		return nfs4.ErrDelay
	}
	copy(c.e.Grow(len(in.prefix)), in.prefix)
	c.index = in.index - 1
	return nfs4.OK
}

// The judgement of a retry.

// removedBefore reports whether the name has lost the recorded object.
func (c *compound) removedBefore() bool {
	in := c.intent
	return in.target.state == present && in.now.state != unrecorded && !in.now.is(&in.target)
}

// renamedBefore reports whether the recorded object has moved to the other name.
func (c *compound) renamedBefore(dir *vfs.Node, name *vfs.Name) bool {
	if !c.removedBefore() {
		return false
	}
	to := c.identify(dir, name)
	return to.is(&c.intent.target)
}

// linkedBefore reports whether the new name leads to the file.
func (c *compound) linkedBefore(file *vfs.Node) bool {
	in := c.intent
	return in.target.state == absent && in.now.state == present && vfs.SameObject(in.now.handle[:in.now.n], handleOf(file))
}

// changedBefore reports whether the file to truncate was replaced or changed.
func (c *compound) changedBefore() bool {
	in := c.intent
	return in.target.state == present && in.now.state == present && (!in.now.is(&in.target) || in.now.ctime != in.target.ctime)
}

// madeBefore returns the object that the operation made, under any name, and syncs it; nil if there
// is none.
func (c *compound) madeBefore(dir *vfs.Node) *vfs.Node {
	in := c.intent
	var n *vfs.Node
	var err error
	switch {
	case in.target.state == created:
		n, err = c.s.fs.Resolve(in.target.handle[:in.target.n])
	case in.target.state == absent && in.now.state == present:
		if n, err = c.s.fs.Resolve(in.now.handle[:in.now.n]); err == nil && !c.mine(n) {
			n.Release()
			return nil
		}
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	if errors.Join(n.Sync(false), dir.Sync(false)) != nil {
		n.Release()
		return nil
	}
	return n
}

// mine reports whether an object is the operation's, although the process died between the effect
// and its record: it is no other operation's, and the caller has made it after the record of the
// operation and before the next process.
func (c *compound) mine(n *vfs.Node) bool {
	in := c.intent
	var st vfs.Stat
	birth, ok := n.Birth()
	if !ok || n.Stat(&st) != nil || c.s.info.Identities && st.Uid != c.cred.UID {
		return false
	}
	return birth.Nano() >= in.begun && c.s.v4.journal.attribute(handleOf(n), birth.Nano(), in.session, in.slot)
}

// changeBefore is the change of a directory that an earlier process made.
func changeBefore(dir *vfs.Node) nfs4.ChangeInfo {
	var st vfs.Stat
	if dir.Stat(&st) != nil {
		return nfs4.ChangeInfo{}
	}
	change := dir.Change(&st)
	return nfs4.ChangeInfo{Before: change - 1, After: change}
}

// oldStateID is the stateid of an open that ended with the earlier process. The client reclaims the
// open.
func (c *compound) oldStateID() nfs4.StateID {
	id := nfs4.StateID{Seq: 1}
	copy(id.Other[:], c.intent.session[:8]) // has the boot of that process
	binary.BigEndian.PutUint32(id.Other[8:], c.intent.sequence)
	return id
}
