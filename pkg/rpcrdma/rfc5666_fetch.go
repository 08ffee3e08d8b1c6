package rpcrdma

import (
	"fmt"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// fetchedReply is a reply with a Read list (RFC 5666 sections 3.8 and 5.1): its data are at the
// server, and are read before the reply is complete. Then RDMA_DONE lets the server free them. The
// call keeps its credit until then, since RDMA_DONE needs one.
//
//	call → reply with a Read list → RDMA Reads → RDMA_DONE → done
type fetchedReply struct {
	chunks []argChunk
	bufs   []*bufpool.Buf
	memory [][]byte
	lists  [][]byte
	work   sendBatch
	head   *bufpool.Buf // zeros, and RDMA_DONE
	done   [1][]byte
	reads  int // RDMA Reads that have not completed
	timer  *time.Timer
}

// omitsChunks reports whether a call offers no memory for its reply, so that the server exposes it.
// A server that cannot do that answers ERR_CHUNK, after it has executed the call. It is executed
// once more. So ReadRead is for programs in which a call with a long reply changes nothing, such as
// version 3 of NFS.
func (o *outCall) omitsChunks() bool {
	o.build.omitted = o.out.rfc5666.reads() && o.build.dialect == wire.V1
	return o.build.omitted
}

// fetches reports whether replies of this side's calls may have a Read list.
func (l *link) fetches() bool { return !l.server && l.cfg.RFC5666&ReadRead != 0 }

// reads reports whether calls from here offer no memory for long replies.
func (s *rfc5666) reads() bool { return s != nil && s.readRead.Load() }

// fetch plans the RDMA Reads for a reply with a Read list. The reply's header is checked otherwise.
func (o *outCall) fetch(m *inbound) error {
	out, h, pool := o.out, &m.hdr, o.out.cfg.Pool
	f := new(fetchedReply)
	total, end := 0, 0
	most := max(o.req.Plan.MaxReply, out.cfg.MaxBulk)
	for i := 0; i < len(h.Reads); {
		ch := argChunk{position: int(h.Reads[i].Position), first: i}
		for ; i < len(h.Reads) && int(h.Reads[i].Position) == ch.position; i++ {
			if n := h.Reads[i].Length; uint64(n) > uint64(most-total) {
				return &ReplyError{fmt.Sprintf("its Read list has more than %d bytes", most)}
			}
			ch.length += int(h.Reads[i].Length)
			total += int(h.Reads[i].Length)
		}
		ch.n = i - ch.first
		long := ch.position == 0
		switch {
		case ch.length == 0:
			return &ReplyError{"it has an empty Read chunk"}
		case long != (h.Procedure == wire.NoMsg) || long && len(h.Reads) > ch.n:
			return &ReplyError{fmt.Sprintf("%v with a Read chunk at position %d", h.Procedure, ch.position)}
		case ch.position < end:
			return &ReplyError{"its Read chunks overlap"}
		}
		end = ch.position + xdr.Round(ch.length)
		f.chunks = append(f.chunks, ch)
	}
	if err := f.newHead(pool); err != nil {
		return err
	}
	for left := total; left > 0; {
		b, err := pool.Get(min(left, bufpool.MaxSize))
		if err != nil {
			f.release()
			return err
		}
		f.bufs, f.memory = append(f.bufs, b), append(f.memory, b.B[:min(left, len(b.B))])
		left -= len(f.memory[len(f.memory)-1])
	}
	p := split.Of(f.memory)
	for i := range f.chunks {
		ch := &f.chunks[i]
		for k := range ch.n {
			s := h.Reads[ch.first+k].Segment
			pieces, _ := p.Take(nil, int(s.Length))
			ch.data = append(ch.data, pieces...)
			for _, b := range pieces {
				f.lists = append(f.lists, b)
				f.work.wrs = append(f.work.wrs, rdma.WorkRequest{
					ID: idFetch | uint64(o.id), Op: rdma.Read, Remote: rdma.Remote{Handle: uint32(s.Handle), Offset: s.Offset},
				})
				s.Offset += uint64(len(b))
			}
		}
	}
	for i := range f.work.wrs {
		f.work.wrs[i].Local = f.lists[i : i+1 : i+1]
	}
	f.reads = len(f.work.wrs)
	o.fetched = f
	return nil
}

func (f *fetchedReply) newHead(pool *bufpool.Pool) (err error) {
	if f.head, err = pool.Get(headAt + wire.FixedSize); err == nil {
		clear(f.head.B)
	}
	return err
}

// beginFetch posts the RDMA Reads of a reply. Nobody wants the data of a call that was cancelled,
// but its memory at the server. recvMu is held.
func (o *outCall) beginFetch() {
	f := o.fetched
	if f.reads == 0 {
		o.sendDone()
		return
	}
	f.timer = time.AfterFunc(readTimeout, func() { o.out.fail(ErrReadTimeout) })
	o.out.work.post(&f.work)
}

// fetchRead handles the completion of an RDMA Read. recvMu is held.
func (out *requester) fetchRead(id uint32) {
	out.mu.Lock()
	o := out.calls[id]
	o.fetched.reads--
	last := o.fetched.reads == 0
	out.mu.Unlock()
	if last {
		o.fetched.timer.Stop()
		o.sendDone()
	}
}

// sendDone sends RDMA_DONE with the credit of the call. recvMu is held.
func (o *outCall) sendDone() {
	out, f := o.out, o.fetched
	out.mu.Lock()
	asked := out.asked()
	out.mu.Unlock()
	f.done[0] = wire.AppendFixed(f.head.B[headAt:headAt], wire.XID(o.xid), wire.Version1, wire.Credits(asked), wire.Done)
	f.work.wrs = append(f.work.wrs[:0], rdma.WorkRequest{ID: idDone | uint64(o.id), Op: rdma.Send, Signaled: true, Local: f.done[:]})
	out.freed += o.credits
	out.work.post(&f.work)
}

// fetchLocked prepares the RDMA Reads of a reply. It returns whether beginFetch follows.
func (o *outCall) fetchLocked(m *inbound) bool {
	if o.fetched == nil && (o.err != nil || o.req == nil) && len(m.hdr.Reads) > 0 && o.out.fetches() {
		f := new(fetchedReply)
		if err := f.newHead(o.out.cfg.Pool); err == nil {
			o.fetched = f
		}
	}
	o.fetching = o.fetched != nil
	if o.fetching {
		o.out.freed -= o.credits // RDMA_DONE needs them
	}
	return o.fetching
}

// doneSent handles the completion of RDMA_DONE.
func (out *requester) doneSent(id uint32) {
	out.mu.Lock()
	o := out.calls[id]
	o.fetching = false
	next := o.nextLocked()
	out.mu.Unlock()
	o.do(next)
	out.work.completed(1)
}

// join makes one stream of a reply and its data, all of them inline.
func (f *fetchedReply) join(m *oncrpc.Message) error {
	if f.chunks[0].position == 0 {
		m.Stream = append(m.Stream[:0], f.memory...)
	} else {
		for i := range f.chunks {
			ch := &f.chunks[i]
			m.Items = append(m.Items, xdr.Item{Position: ch.position, Length: ch.length, Data: ch.data})
		}
		var w split.Splitter
		w.Reset(m, f.head.B[:headAt])
		stream, ok := w.Rest(nil)
		if !ok {
			return &ReplyError{"a Read chunk is beyond the end of the reply"}
		}
		m.Items, m.Stream = m.Items[:0], append(m.Stream[:0], stream...)
	}
	for _, b := range append(f.bufs, f.head) {
		m.Own(b)
	}
	f.bufs, f.head = nil, nil
	return nil
}

// release frees the memory of a reply that was not joined.
func (f *fetchedReply) release() {
	if f == nil {
		return
	}
	if f.timer != nil {
		f.timer.Stop()
	}
	f.bufs = releaseAll(f.bufs)
	if f.head != nil {
		f.head.Release()
		f.head = nil
	}
}
