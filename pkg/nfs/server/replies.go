package server

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"slices"
	"sync"

	"sluice.dev/sluice/pkg/oncrpc"
)

// ReplyCacheLimits bound the duplicate request cache (RFC 1813 section 4.5). Each client has its
// own replies, and loses the oldest first, so no client evicts another one's. When the whole cache
// is full, it evicts the client that was silent for longest.
type ReplyCacheLimits struct {
	// PerClient is the number of replies for each client address; 0 means 1024. It should be twice
	// a client's outstanding calls.
	PerClient int
	// Bytes bounds the whole cache; 0 means 32 MiB.
	Bytes int64
}

// replyKey identifies a retransmission: without the port, which changes when a client reconnects.
type replyKey struct {
	client                           [16]byte
	xid, program, version, procedure uint32
	flavor, uid, gid, groups         uint32
	args                             uint32 // checksum of the first 256 bytes
}

const (
	sumOver   = 256
	entrySize = 256 // the size of an entry without its reply
)

// cachedReply is a non-repeatable call, and its reply when there is one.
type cachedReply struct {
	key     replyKey
	reply   []byte
	done    bool
	waiting *op // retransmissions before the reply

	// slot is the call's slot in the journal, or noSlot.
	slot     int32
	sequence uint64
	recorded bool // the journal has the call without its reply
	// interrupted: an earlier process started the call and was killed before the answer. target is
	// the object that the call was about to change.
	interrupted bool
	target      target

	chain        *cachedReply // in its bucket
	client       *replyClient
	older, newer *cachedReply // of the same client
}

// replyClient is a client with its replies.
type replyClient struct {
	addr           netip.Addr
	oldest, newest *cachedReply
	count          int
	older, newer   *replyClient // by their last calls
}

type replyCache struct {
	limits ReplyCacheLimits

	mu             sync.Mutex
	buckets        []*cachedReply
	clients        map[netip.Addr]*replyClient
	oldest, newest *replyClient
	count          int
	bytes          int64
	replays        uint64

	journal  *journal // nil: replies are in memory alone
	free     []int32  // free slots of the journal
	sequence uint64
}

func (r *replyCache) init(l ReplyCacheLimits) {
	if l.PerClient <= 0 {
		l.PerClient = 1024
	}
	if l.Bytes <= 0 {
		l.Bytes = 32 << 20
	}
	r.limits = l
	size := 64
	for int64(size) < l.Bytes/(4*entrySize) && size < 1<<16 {
		size *= 2
	}
	r.buckets = make([]*cachedReply, size)
	r.clients = map[netip.Addr]*replyClient{}
}

func (r *replyCache) stats() (count int, bytes int64, replays uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count, r.bytes, r.replays
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// keyOf makes the key of a call.
func keyOf(o *op) replyKey {
	c := o.call
	k := replyKey{
		client: c.Conn.Remote.Addr().Unmap().As16(),
		xid:    c.XID, program: c.Program, version: c.Version, procedure: c.Procedure,
		flavor: c.Cred.Flavor, uid: o.cred.UID, gid: o.cred.GID,
		args: sumArgs(c),
	}
	for _, g := range o.cred.Groups {
		k.groups = (k.groups ^ g) * 16777619 // FNV
	}
	return k
}

// sumArgs returns a checksum over the first bytes of the arguments, items included.
func sumArgs(c *oncrpc.Call) (sum uint32) {
	left := sumOver
	add := func(b []byte) {
		b = b[:min(left, len(b))]
		left -= len(b)
		sum = crc32.Update(sum, castagnoli, b)
	}
	skip, pos, item := c.ArgsAt, 0, 0
	for _, b := range c.Stream {
		k := min(skip, len(b))
		b, skip, pos = b[k:], skip-k, pos+k
		for item < len(c.Items) && c.Items[item].Position <= pos+len(b) && left > 0 {
			it := &c.Items[item]
			k := max(0, it.Position-pos)
			add(b[:k])
			for _, d := range it.Data {
				add(d)
			}
			// After the item the stream continues at a position that counts its data.
			b = b[k:]
			pos = it.Position + (it.Length+3)&^3
			item++
		}
		add(b)
		pos += len(b)
		if left == 0 {
			break
		}
	}
	return sum
}

func (r *replyCache) bucket(k *replyKey) **cachedReply {
	h := uint64(k.xid)*0x9e3779b97f4a7c15 ^ uint64(k.args)*0xc2b2ae3d27d4eb4f ^ binary.LittleEndian.Uint64(k.client[8:])
	return &r.buckets[(h>>32^h)&uint64(len(r.buckets)-1)]
}

// enter returns true, with an entry, if the call is new and must run. It answers a call that ran
// before. Retransmissions of a running call are answered with it, since its own connection may be
// gone.
func (r *replyCache) enter(o *op) bool {
	k := keyOf(o)
	r.mu.Lock()
	b := r.bucket(&k)
	for e := *b; e != nil; e = e.chain {
		if e.key != k {
			continue
		}
		if e.interrupted {
			e.interrupted = false
			o.cached, o.repeated = e, true
			r.mu.Unlock()
			return true
		}
		r.replays++
		if e.done {
			buf := append([]byte(nil), e.reply...)
			r.mu.Unlock()
			o.end()
			replay(o.call, buf)
			return false
		}
		o.end()
		o.next, e.waiting = e.waiting, o
		r.mu.Unlock()
		return false
	}
	addr := o.call.Conn.Remote.Addr().Unmap()
	o.cached = r.add(addr, &k, procedures[k.procedure].journaled)
	r.mu.Unlock()
	return true
}

// add enters a call before it runs.
func (r *replyCache) add(addr netip.Addr, k *replyKey, journaled bool) *cachedReply {
	client := r.touch(addr)
	e := r.fresh(client)
	e.key = *k
	b := r.bucket(k)
	e.chain, *b = *b, e
	if e.slot = noSlot; journaled && r.journal != nil {
		e.slot = r.takeSlot(client)
		r.sequence++
		e.sequence = r.sequence
	}
	return e
}

// takeSlot returns a slot of the journal: a free one, or one of c or of the client that was silent
// for longest. Running calls keep theirs. noSlot: all of them run.
func (r *replyCache) takeSlot(c *replyClient) int32 {
	for len(r.free) == 0 && r.evict(c) {
	}
	for e := c.oldest; e != nil && len(r.free) == 0; {
		next := e.newer
		if e.slot != noSlot && e.idle() {
			r.remove(e)
		}
		e = next
	}
	if len(r.free) == 0 {
		return noSlot
	}
	slot := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	return slot
}

// restore enters the journal's records.
func (r *replyCache) restore(j *journal, records []saved) {
	r.journal = j
	slices.SortFunc(records, func(a, b saved) int { return cmp.Compare(a.sequence, b.sequence) })
	used := make([]bool, journalSlots)
	for i := range records {
		used[records[i].slot] = true
	}
	for slot := range int32(journalSlots) {
		if !used[slot] {
			r.free = append(r.free, slot)
		}
	}
	for i := range records {
		s := &records[i]
		r.sequence = s.sequence
		for e := *r.bucket(&s.key); e != nil; e = e.chain {
			if e.key == s.key { // evicted, and sent again
				r.remove(e)
				break
			}
		}
		e := r.add(netip.AddrFrom16(s.key.client).Unmap(), &s.key, false)
		e.slot, e.sequence, e.recorded = s.slot, s.sequence, true
		if s.reply != nil {
			r.bytes += int64(cap(s.reply) - cap(e.reply))
			e.reply, e.done = s.reply, true
		} else {
			e.interrupted, e.target = true, s.target
		}
	}
}

// touch returns the client, and moves it to the front.
func (r *replyCache) touch(addr netip.Addr) *replyClient {
	c := r.clients[addr]
	switch c {
	case nil:
		c = &replyClient{addr: addr}
		r.clients[addr] = c
	case r.newest:
		return c
	default:
		r.unlinkClient(c)
	}
	c.older = r.newest
	if r.newest != nil {
		r.newest.newer = c
	} else {
		r.oldest = c
	}
	r.newest = c
	return c
}

func (r *replyCache) unlinkClient(c *replyClient) {
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		r.oldest = c.newer
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		r.newest = c.older
	}
	c.older, c.newer = nil, nil
}

// fresh returns an entry for a client: a new one, or its oldest that is done. It never takes a
// running call's.
func (r *replyCache) fresh(c *replyClient) *cachedReply {
	for r.bytes+entrySize > r.limits.Bytes && r.evict(c) {
	}
	var e *cachedReply
	if c.count >= r.limits.PerClient || r.bytes+entrySize > r.limits.Bytes {
		e = c.oldestDone()
	}
	if e != nil {
		r.remove(e)
		*e = cachedReply{reply: e.reply[:0]}
	} else {
		e = &cachedReply{}
	}
	e.client = c
	e.older = c.newest
	if c.newest != nil {
		c.newest.newer = e
	} else {
		c.oldest = e
	}
	c.newest = e
	c.count++
	r.count++
	r.bytes += entrySize + int64(cap(e.reply))
	return e
}

func (c *replyClient) oldestDone() *cachedReply {
	for e := c.oldest; e != nil; e = e.newer {
		if e.idle() {
			return e
		}
	}
	return nil
}

// idle reports whether the call does not run, so that the entry may be evicted.
func (e *cachedReply) idle() bool { return e.done || e.interrupted }

// evict removes the replies of the client that was silent for longest, other than keep. It returns
// whether that made room.
func (r *replyCache) evict(keep *replyClient) bool {
	for c := r.oldest; c != nil; c = c.newer {
		if c == keep {
			continue
		}
		before := r.bytes
		for e := c.oldest; e != nil; {
			next := e.newer
			if e.idle() {
				r.remove(e)
			}
			e = next
		}
		if c.count == 0 {
			r.unlinkClient(c)
			delete(r.clients, c.addr)
		}
		if r.bytes < before {
			return true
		}
	}
	return false
}

// remove unlinks an entry everywhere.
func (r *replyCache) remove(e *cachedReply) {
	for p := r.bucket(&e.key); *p != nil; p = &(*p).chain {
		if *p == e {
			*p = e.chain
			break
		}
	}
	c := e.client
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		c.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		c.newest = e.older
	}
	e.chain, e.older, e.newer = nil, nil, nil
	if e.slot != noSlot {
		r.free = append(r.free, e.slot)
		e.slot = noSlot
	}
	c.count--
	r.count--
	r.bytes -= entrySize + int64(cap(e.reply))
}

// finish keeps a call's reply, and answers the retransmissions that wait for it.
func (r *replyCache) finish(e *cachedReply, c *oncrpc.Call, b *slotBuf) {
	if e.slot != noSlot {
		r.journal.end(e, c.Reply.Stream, b)
	}
	r.mu.Lock()
	before := cap(e.reply)
	e.reply = e.reply[:0]
	for _, b := range c.Reply.Stream {
		e.reply = append(e.reply, b...)
	}
	r.bytes += int64(cap(e.reply) - before)
	e.done = true
	w := e.waiting
	e.waiting = nil
	var buf []byte
	if w != nil {
		buf = append(buf, e.reply...)
	}
	r.mu.Unlock()
	for w != nil {
		call := w.call
		w, w.next = w.next, nil
		replay(call, buf)
	}
}

// forget removes a call that was not answered with results, so that a retransmission runs, and its
// client if that has no other. It drops the retransmissions that wait: their connections are
// closed, and the client sends the call again.
func (r *replyCache) forget(e *cachedReply) {
	r.mu.Lock()
	if e.recorded { // it may have taken effect
		e.interrupted = true
	} else {
		r.remove(e)
	}
	if c := e.client; c.count == 0 {
		r.unlinkClient(c)
		delete(r.clients, c.addr)
	}
	w := e.waiting
	e.waiting = nil
	r.mu.Unlock()
	for w != nil {
		call := w.call
		w, w.next = w.next, nil
		call.Drop()
	}
}

// replay answers a call with a kept reply. The XID is the same.
func replay(c *oncrpc.Call, reply []byte) {
	e, err := c.BeginReply(len(reply))
	if err != nil {
		c.Drop()
		return
	}
	copy(e.Grow(len(reply)-oncrpc.MinReplyLen), reply[oncrpc.MinReplyLen:])
	c.Respond()
}
