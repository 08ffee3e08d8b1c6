package rpcrdma

import (
	"errors"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// ErrReadTimeout ends a connection whose peer does not answer RDMA Reads.
var ErrReadTimeout = errors.New("rpcrdma: the peer does not answer RDMA Reads")

// readTimeout bounds the time without progress of a connection's RDMA Reads: at least this long, at
// most twice. It does not matter whether others wait for the memory.
const readTimeout = 30 * time.Second

// begin counts a call that posts RDMA Reads.
func (l *readLook) begin(in *responder) {
	if l.calls++; l.running {
		return
	}
	l.running = true
	l.fetched, _ = in.Progress()
	if l.timer == nil {
		l.timer = time.AfterFunc(readTimeout, func() { l.look(in) })
	} else {
		l.timer.Reset(readTimeout)
	}
}

// look ends the connection if calls have waited in vain since the last look, or since begin.
func (l *readLook) look(in *responder) {
	in.recvMu.Lock()
	defer in.recvMu.Unlock()
	fetched, _ := in.Progress()
	switch {
	case l.calls == 0 || in.closed.Load():
		l.running = false
	case fetched == l.fetched:
		in.fail(ErrReadTimeout)
	default:
		l.fetched = fetched
		l.timer.Reset(readTimeout)
	}
}

func (l *readLook) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// fetch brings the Read chunks into pooled memory: one RDMA Read for each segment (RFC 8166 section
// 3.4.5).
func (ic *inCall) fetch() {
	if len(ic.chunks) == 0 {
		ic.handle()
		return
	}
	in := ic.in
	ic.work.wrs, ic.lists, ic.memory = ic.work.wrs[:0], ic.lists[:0], ic.memory[:0]
	for i := range ic.chunks {
		if err := ic.readChunk(&ic.chunks[i]); err != nil {
			in.protocolError(NoMemory, "%v", err)
			ic.state = stateServing
			ic.ReplyAccept(oncrpc.SystemErr)
			return
		}
	}
	ic.reads = len(ic.work.wrs)
	if ic.reads == 0 {
		ic.fetched()
		return
	}
	ic.state = stateReading
	ic.grant.AwaitPeer(bufpool.In)
	in.readLook.begin(in)
	in.work.post(&ic.work)
}

// readChunk adds the RDMA Reads of a chunk to ic.work.
func (ic *inCall) readChunk(ch *argChunk) error {
	at := len(ic.memory)
	for left := ch.length; left > 0; {
		buf, err := ic.in.cfg.Pool.Get(min(left, bufpool.MaxSize))
		if err != nil {
			return err
		}
		ic.Own(buf)
		left -= len(buf.B)
		ic.memory = append(ic.memory, buf.B)
	}
	ch.data = ic.memory[at:len(ic.memory):len(ic.memory)]
	k, used := 0, 0 // the buffer to fill, and the bytes of it that are taken
	left := ch.length
	for i := range ch.segments(&ic.hdr) {
		s := ch.segment(&ic.hdr, i)
		for s.Length > 0 && left > 0 {
			if used == len(ch.data[k]) {
				k, used = k+1, 0
			}
			n := min(int(s.Length), len(ch.data[k])-used, left)
			ic.lists = append(ic.lists, ch.data[k][used:used+n])
			last := len(ic.lists) - 1
			ic.work.wrs = append(ic.work.wrs, rdma.WorkRequest{
				ID: idRead | uint64(ic.id), Op: rdma.Read, Local: ic.lists[last : last+1 : last+1],
				Remote: rdma.Remote{Handle: uint32(s.Handle), Offset: s.Offset},
			})
			used += n
			left -= n
			s.Length -= uint32(n)
			s.Offset += uint64(n)
		}
	}
	return nil
}

func (in *responder) readDone(id uint32) {
	ic := (*in.table.Load())[id]
	if ic.reads--; ic.reads == 0 {
		ic.state = stateReceived
		ic.grant.PeerDone()
		in.readLook.calls--
		ic.fetched()
	}
}

// fetched puts the data into the call: a Position Zero Read chunk is its stream, others are its
// items.
func (ic *inCall) fetched() {
	for i := range ic.chunks {
		ch := &ic.chunks[i]
		switch {
		case ch.position == 0:
			ic.Stream = append(ic.Stream[:0], ch.data...)
			ic.in.cfg.Observer.Transferred(LongCall, ch.length)
		case ch.length > 0:
			ic.Items[ch.item].Data = ch.data
			ic.in.cfg.Observer.Transferred(ReadChunk, ch.length)
		}
	}
	if ic.hdr.Procedure == wire.NoMsg {
		if !ic.decode() {
			return
		}
		ic.grant.Shrink(ic.need())
	}
	ic.handle()
}

func (ch *argChunk) segments(h *wire.Header) int {
	if ch.source != nil {
		return len(h.Transmit.Segments(ch.source))
	}
	return ch.n
}

func (ch *argChunk) segment(h *wire.Header, i int) wire.Segment {
	if ch.source != nil {
		return h.Transmit.Segments(ch.source)[i]
	}
	return h.Reads[ch.first+i].Segment
}

// acquire takes all bulk memory of the call at once. A call that waits for it holds none.
func (ic *inCall) acquire() {
	n := ic.need()
	if n == 0 {
		ic.handle()
		return
	}
	ic.state = stateWaiting
	ok, err := ic.in.share.Acquire(&ic.grant, n, ic.onReady)
	switch {
	case err != nil:
		ic.state = stateReceived
		ic.refuse(wire.System, TooLarge, "%v", err)
	case ok:
		ic.state = stateReceived
		ic.fetch()
	}
}

// memoryReady hands a waiting call that got its memory to another goroutine; its caller may be busy
// with anything.
func (ic *inCall) memoryReady() {
	in := ic.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.readyLast == nil {
		in.ready = ic
	} else {
		in.readyLast.next = ic
	}
	in.readyLast = ic
	if !in.running {
		in.running = true
		go in.run()
	}
}

func (in *responder) runReady() {
	for {
		in.recvMu.Lock()
		in.mu.Lock()
		ic := in.ready
		if ic == nil {
			in.running = false
			in.mu.Unlock()
			in.recvMu.Unlock()
			return
		}
		if in.ready = ic.next; in.ready == nil {
			in.readyLast = nil
		}
		ic.next = nil
		in.mu.Unlock()
		ic.state = stateReceived
		if in.closed.Load() {
			ic.recycle()
			in.orphans.Done()
		} else {
			ic.fetch()
		}
		in.recvMu.Unlock()
	}
}
