package server

import (
	"hash/maphash"
	"time"
	"unicode/utf8"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// compound is a COMPOUND in progress (RFC 8881 section 16.2). It stays with the oncrpc.Call as its
// Scratch, so the next call allocates nothing.
type compound struct {
	caller
	s    *Server
	call *oncrpc.Call
	task task
	d    *xdr.Decoder // stands at the operation's arguments
	e    *xdr.Encoder // stands behind the status of the operation's result

	head    nfs4.CompoundArgs
	begin   xdr.Mark // of the results
	started int      // the same in the reply's stream
	index   uint32   // of the present operation
	status  nfs4.Status
	limit   int // of the reply in bytes
	now     time.Time
	opBegin time.Time // of the present operation

	// slot is in use if session is not nil.
	slot    state.Slot
	session *state.Session
	client  *state.Client
	// cached: the call is a retry, and its reply is in retry; uncached: the reply is lost.
	cached, uncached bool

	// waitFor is the file whose delegations an operation waits for, while it returns wait.
	waitFor  state.FileID
	patience patience
	// query is a question to the holder of a delegation; ask is the same until it was sent.
	query, ask *holderQuery
	// bound is the session whose back channel the call has changed.
	bound nfs4.SessionID

	// operations is where the operations behind SEQUENCE begin, argsAt where the present one does.
	operations, argsAt int
	// intent is the record of an operation that must not run twice, of a persistent session. dead:
	// it is that of an earlier process, and the COMPOUND is its retry.
	intent *intent
	dead   bool
	// guarded: the COMPOUND has a VERIFY or NVERIFY so far.
	guarded bool

	retry  []byte   // memory for a cached reply
	pieces [][]byte // memory for a reply to cache

	// mayWait: a worker runs the COMPOUND. On the receive loop an operation returns wait in place
	// of blocking.
	mayWait bool

	cur, saved           *vfs.Node    // the filehandles, nil without
	curState, savedState nfs4.StateID // the current stateids; zero is none

	stat vfs.Stat
	stateScratch
	v4io
}

// wait is the status of an operation that would block on the receive loop. The operation has had no
// effect, and runs again on a worker.
const wait = ^nfs4.Status(0)

// operation is an operation of COMPOUND.
type operation struct {
	run func(*compound) nfs4.Status
	// fh and savedFH: it needs the current, and the saved filehandle.
	fh, savedFH bool
	// changes: clients with read-only access must not use it.
	changes bool
	// sessionless: it may stand alone, without SEQUENCE.
	sessionless bool
	// query: it changes nothing and needs no state.
	query bool
}

// startReply is the memory that a reply begins with. It grows by need.
const startReply = 1 << 10

// resultHead is the length of a result's number and status.
const resultHead = 8

var hashSeed = maphash.MakeSeed()

func (s *Server) compoundOf(call *oncrpc.Call) *compound {
	c, ok := call.Scratch.(*compound)
	if !ok {
		c = &compound{}
		c.task.run, c.task.drop = c.work, c.abandon
		call.Scratch = c
	}
	c.s, c.call, c.index, c.status, c.mayWait = s, call, 0, nfs4.OK, false
	c.cached, c.uncached, c.dead, c.guarded = false, false, false, false
	c.waitFor, c.patience = state.FileID{}, patience{}
	c.now = time.Now()
	c.opBegin = c.now
	return c
}

// serveNFS4 answers a call of version 4.
func (s *Server) serveNFS4(call *oncrpc.Call) {
	switch call.Procedure {
	case nfs4.ProcNull:
		call.ReplyAccept(oncrpc.Success)
		return
	case nfs4.ProcCompound:
	default:
		call.ReplyAccept(oncrpc.ProcUnavail)
		return
	}
	rule := s.rule(call.Conn.Remote.Addr())
	if rule == nil {
		call.ReplyDenied(oncrpc.AuthTooWeak)
		return
	}
	c := s.compoundOf(call)
	if stat := c.authenticate(s, call, rule); stat != oncrpc.AuthOK {
		call.ReplyDenied(stat)
		return
	}
	s.v4.callbacks.pool.CompareAndSwap(nil, call.Pool())
	c.d = call.Args()
	if c.head.Decode(c.d); c.d.Err() != nil {
		call.ReplyAccept(oncrpc.GarbageArgs)
		return
	}
	var err error
	if c.e, err = call.BeginReply(startReply + xdr.Round(len(c.head.Tag))); err != nil {
		s.log.Warn("call dropped: no memory for its reply", "error", err)
		call.Drop()
		return
	}
	c.limit = s.v4.maxResponse
	c.begin, c.started = c.e.Mark(), len(c.e.Bytes())
	head := nfs4.CompoundRes{Tag: c.head.Tag}
	head.Encode(c.e)
	switch {
	case c.head.Minor < 1 || c.head.Minor > 2:
		c.status = nfs4.ErrMinorVersMismatch
	case !utf8.Valid(c.head.Tag):
		c.status = nfs4.ErrInval
	}
	if c.status != nfs4.OK {
		c.head.Count = 0
	}
	c.proceed()
}

// work goes on with the operations, on a worker.
func (c *compound) work() {
	c.call.Reach(oncrpc.Working)
	c.proceed()
}

// proceed runs the operations from the present one on. It hands over to a worker if one would wait.
func (c *compound) proceed() {
	for c.status == nfs4.OK && c.index < c.head.Count {
		if !c.step() {
			c.mayWait = true
			if f := c.waitFor; f != (state.FileID{}) {
				v, ask := c.s.v4, c.ask
				c.waitFor, c.ask = state.FileID{}, nil
				v.settle()
				c.call.Reach(oncrpc.Queued)
				v.park(f, &c.task, c.patience.until) // c may go on elsewhere from here on
				if ask != nil {
					ask.send(v, f)
				}
				return
			}
			c.call.Reach(oncrpc.Queued)
			c.s.workers.submit(&c.task)
			return
		}
		c.index++
		if c.cached {
			c.answerCached()
			return
		}
	}
	c.respond()
}

// step runs an operation, and writes its result. On false it would wait.
func (c *compound) step() bool {
	before := *c.d
	c.argsAt = before.Pos()
	number := nfs4.Op(c.d.Uint32())
	st := c.admit(number)
	if number >= nfs4.Operations || !number.Known(c.head.Minor) {
		number = nfs4.OpIllegal
	}
	mark := c.e.Mark()
	c.e.Uint32(uint32(number))
	at := len(c.e.Bytes())
	c.e.Uint32(0)
	switch {
	case st == nfs4.OK:
		st = operations4[number].run(c)
	case number == nfs4.OpSetAttr:
		c.e.Uint32(0) // its result has a bitmap with every status
	}
	switch {
	case st == wait:
		*c.d = before
		c.e.Truncate(mark)
		return false
	case c.e.Overflow(): // an operation did not ask for enough room
		c.e.Truncate(mark)
		c.e.Uint32(uint32(number))
		c.e.Uint32(0)
		st = nfs4.ErrRepTooBig
	}
	c.e.PutUint32(at, uint32(st))
	c.status = st
	end := time.Now()
	c.s.v4.count(number, st, end.Sub(c.opBegin))
	c.opBegin = end
	return true
}

// admit returns the status of an operation that must not run: by its place, its needs or the size
// of its result.
func (c *compound) admit(number nfs4.Op) nfs4.Status {
	if !c.need(resultHead) {
		return nfs4.ErrRepTooBig
	}
	if c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if !number.Known(c.head.Minor) {
		return nfs4.ErrOpIllegal
	}
	op := &operations4[number]
	switch {
	case c.uncached:
		return nfs4.ErrRetryUncachedRep
	case number == nfs4.OpSequence:
		if c.index > 0 {
			return nfs4.ErrSequencePos
		}
	case c.index == 0 && !op.sessionless:
		return nfs4.ErrOpNotInSession
	case c.index == 0 && c.head.Count > 1 || c.index > 0 && number == nfs4.OpBindConnToSession:
		return nfs4.ErrNotOnlyOp
	}
	switch {
	case op.run == nil:
		return nfs4.ErrNotSupp
	case op.fh && c.cur == nil:
		return nfs4.ErrNoFileHandle
	case op.savedFH && c.saved == nil:
		return nfs4.ErrNoFileHandle
	case op.changes && c.readOnly:
		return nfs4.ErrROFS
	case c.dead && c.index > c.intent.index && !op.query:
		return nfs4.ErrDelay // in a new session
	}
	size, _ := schema.ResultSize(uint32(number))
	if !c.need(size) {
		return c.tooBig()
	}
	return nfs4.OK
}

// room returns how many bytes the reply may still take, data included.
func (c *compound) room() int { return c.limit - c.e.Pos() }

// need makes room for n more bytes of the reply's stream; false if it may not have them.
func (c *compound) need(n int) bool {
	switch {
	case n > c.room() && c.index > 0: // the result of SEQUENCE always fits
		return false
	case n <= c.e.Room():
		return true
	}
	return c.call.GrowReply(max(2*cap(c.e.Bytes()), len(c.e.Bytes())+n)) == nil
}

// tooBig is the status of an operation whose result does not fit.
func (c *compound) tooBig() nfs4.Status {
	if c.session != nil && c.slot.Cache() && c.limit < int(c.session.Fore().MaxResponseSize) {
		return nfs4.ErrRepTooBigToCache
	}
	return nfs4.ErrRepTooBig
}

// respond ends the COMPOUND.
func (c *compound) respond() {
	done := min(c.index, c.head.Count)
	c.e.PutUint32(c.started, uint32(c.status))
	c.e.PutUint32(c.started+8+xdr.Round(len(c.head.Tag)), done)
	c.finish()
}

// finish keeps the reply in the slot, and sends it.
func (c *compound) finish() {
	c.call.EndReply()
	c.s.v4.settle()
	if c.intent != nil {
		c.recordReply()
	}
	if c.session != nil {
		var reply []byte
		if c.slot.Cache() && c.call.Status.OK() {
			reply = c.flatten()
		}
		c.s.v4.state.Finish(&c.slot, reply, c.now)
		c.s.v4.settle()
	}
	bound, conn := c.bound, c.call.Conn
	c.end()
	v := c.s.v4
	c.call.Respond() // c may be in use by another call from here on
	if bound != (nfs4.SessionID{}) {
		v.callbacks.bound(bound, conn)
	}
}

// flatten returns the results behind the RPC header, as one slice.
func (c *compound) flatten() []byte {
	if len(c.call.Reply.Items) == 0 {
		return c.call.Reply.Stream[0][oncrpc.MinReplyLen:]
	}
	c.retry = c.retry[:0]
	c.pieces = c.call.Reply.Gather(c.pieces[:0])
	for _, b := range c.pieces {
		c.retry = append(c.retry, b...)
	}
	clear(c.pieces)
	return c.retry[oncrpc.MinReplyLen:]
}

// abandon ends the COMPOUND without a reply: the server closes.
func (c *compound) abandon() {
	if c.session != nil {
		c.s.v4.state.Finish(&c.slot, nil, c.now)
	}
	c.end()
	c.call.Drop()
}

func (c *compound) end() {
	for _, n := range [...]*vfs.Node{c.cur, c.saved} {
		if n != nil {
			n.Release()
		}
	}
	if c.intent != nil {
		c.endIntent()
	}
	c.cur, c.saved = nil, nil
	c.curState, c.savedState = nfs4.StateID{}, nfs4.StateID{}
	c.query, c.ask = nil, nil
	c.session, c.client, c.bound = nil, nil, nfs4.SessionID{}
	c.cred = vfs.Cred{}
	c.head.Tag = nil
	c.endState()
	c.endIO()
}

// sequence is SEQUENCE (RFC 8881 section 18.46).
func (c *compound) sequence() nfs4.Status {
	var a nfs4.SequenceArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	c.operations = c.d.Pos()
	q := state.Request{Ops: c.head.Count, Size: c.call.Len(), Reply: c.e.Pos() + sequenceLen, Hash: c.hash(), Conn: c.call.Conn}
	r, st := c.s.v4.state.Sequence(&a, &q, c.retry[:0], c.now)
	switch {
	case st == nfs4.ErrBadSession && c.s.v4.journal != nil:
		return c.resume(&a)
	case st != nfs4.OK:
		return st
	}
	if r.Replay { // RFC 8881 section 2.10.6.1.3
		c.cached, c.uncached = r.Cached, !r.Cached
		if r.Cached {
			c.retry = r.Reply
		}
		c.head.Count = min(c.head.Count, 2)
		r.Res.Encode(c.e)
		return nfs4.OK
	}
	c.slot = r.Slot
	c.session = r.Slot.Session
	c.client = c.session.Client()
	fore := c.session.Fore()
	c.limit = min(c.limit, int(fore.MaxResponseSize))
	if a.CacheThis {
		c.limit = min(c.limit, int(fore.MaxResponseSizeCached))
	}
	r.Res.Encode(c.e)
	return nfs4.OK
}

// sequenceLen is the length of SEQUENCE's result behind its status.
const sequenceLen = 16 + 5*4

// maxHashed bounds the bytes of a call that its hash covers.
const maxHashed = 256

// hash is a hash of the beginning of the operations behind SEQUENCE, without bulk data: a retry may
// carry those another way. A retry may also have another tag, and another highest slot.
func (c *compound) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	_ = h.WriteByte(byte(c.head.Minor))
	_ = h.WriteByte(byte(c.head.Count)) // more are refused
	c.eachHashed(maxHashed, func(b []byte) { _, _ = h.Write(b) })
	return h.Sum64()
}

// eachHashed passes at most left bytes of the operations behind SEQUENCE to f, in pieces.
func (c *compound) eachHashed(left int, f func([]byte)) {
	at := c.operations
	if len(c.call.Items) > 0 {
		left = min(left, c.call.Items[0].Position-at)
	}
	for _, b := range c.call.Stream {
		skip := min(at, len(b))
		at -= skip
		b = b[skip:]
		b = b[:min(len(b), left)]
		left -= len(b)
		f(b)
	}
}

// answerCached answers a retry with the cached reply.
func (c *compound) answerCached() {
	c.e.Truncate(c.begin)
	if len(c.retry) > c.e.Room() && c.call.GrowReply(c.started+len(c.retry)) != nil {
		c.abandon()
		return
	}
	copy(c.e.Grow(len(c.retry)), c.retry)
	c.end()
	c.call.Respond()
}
