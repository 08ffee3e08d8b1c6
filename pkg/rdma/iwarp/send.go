package iwarp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/internal/blocking"
	"sluice.dev/sluice/pkg/rdma"
)

const (
	arenaLen = 66 << 10 // more than the largest FPDU
	maxIovec = 1024     // IOV_MAX
	// copyMax is the largest payload that is copied into the arena rather than referred to.
	copyMax = 512
	// batchCRC and batchPlain bound one write. With CRC the bytes should still be in the cache
	// after the CRC was computed.
	batchCRC   = 256 << 10
	batchPlain = 1 << 20
	// gatherMax is the number of bytes that wait for the end of a batch of completions.
	gatherMax = 128 << 10
	// markedFPDU bounds FPDUs with markers, which are built in the arena.
	markedFPDU = 8 << 10
	// chunkUnit is the unit of segments' sizes, so that the peer's copies are aligned.
	chunkUnit = 4 << 10
)

// arenas are shared by the connections, like receiveBuffers: one has an arena only while it sends.
var arenas = sync.Pool{New: func() any { return new([arenaLen]byte) }}

// message is the message being sent.
type message struct {
	active   bool
	op       opcode
	stag     uint32 // sink, or STag to invalidate
	to       uint64 // of a tagged message: offset of the next segment
	msn, mo  uint32 // of an untagged one
	left     int
	chunk    int // payload of a segment
	local    [][]byte
	seg, off int // cursor in local
	id       uint64
	signaled bool
	answer   answer // of a Read Response
}

// sender builds FPDUs and writes them. It belongs to the holder of the endpoint's writer lock, but
// for the fields under mu.
type sender struct {
	crc, markers bool
	maxULPDU     int
	batch        int
	cur          message
	sendMSN      uint32
	readMSN      uint32
	answersTurn  bool
	terminated   bool // under mu: the Terminate has been built
	mark         marker

	// The current write: iov[next:] has left bytes to go.
	iov   []unix.Iovec
	next  int
	left  int
	arena []byte
	lent  *[arenaLen]byte // of arenas: the memory of arena, or nil
	// arena[:done] is in iov, arena[:counted] in left.
	done, counted int
	// one is the gather list of a Read Response's segment.
	one [1][]byte
	// unmarked is the FPDU while markers are inserted.
	unmarked []byte
	// Completed by the write.
	ids      []uint64
	retired  int
	pinned   []pin // in the order of the stream; those before released are gone
	released int
	total    int // bytes of the write
	freed    []revocation

	// busy is held during the system call and the unpinning after it.
	busy  sync.Mutex
	hdr   unix.Msghdr
	errno syscall.Errno
}

func (t *sender) init(e *endpoint, maxULPDU int) {
	t.crc, t.markers, t.maxULPDU = e.crc, e.markers, maxULPDU
	t.batch = batchPlain
	if t.crc {
		t.batch = batchCRC
	}
	if t.markers {
		t.maxULPDU = min(maxULPDU, markedFPDU)
	}
	t.sendMSN, t.readMSN = 1, 1
}

// maxFPDU converts the setting to the largest ULPDU.
func (e *endpoint) maxFPDU(setting int) (int, error) {
	switch setting {
	case FPDULargest:
		return maxULPDU, nil
	case FPDUSegment:
		var mss int
		var err error
		e.sock.control(func(fd uintptr) { mss, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
		if err != nil {
			return 0, fmt.Errorf("iwarp: asking for the TCP segment size: %w", err)
		}
		return mulpdu(mss, e.markers), nil
	}
	return min(setting, maxULPDU+fpduLengthLen+fpduCRCLen) - fpduLengthLen - fpduCRCLen - 3, nil
}

// mulpdu is the largest ULPDU whose FPDU fits a TCP segment (RFC 5044 section 4.5).
func mulpdu(emss int, markers bool) int {
	n := emss - (fpduLengthLen + fpduCRCLen + emss%4)
	if markers {
		n -= 4 * ((emss + markerInterval - 1) / markerInterval)
	}
	return max(128, min(n, maxULPDU))
}

// chunkSize splits a message of n bytes in segments of similar size.
func (t *sender) chunkSize(n, header int) int {
	most := t.maxULPDU - header
	if n <= most || most < 2*chunkUnit {
		return most
	}
	most &^= chunkUnit - 1
	count := (n + most - 1) / most
	return min(most, (n/count+chunkUnit)&^(chunkUnit-1))
}

// flush sends until the queue is empty or the socket is full; then the writer continues. The caller
// has the writer lock, and loses it.
func (e *endpoint) flush(wait bool) {
	t := &e.tx
	for {
		if t.left == 0 {
			if t.fill(e); t.left == 0 {
				e.mu.Lock()
				if e.canSendLocked() {
					e.mu.Unlock()
					continue
				}
				t.giveBack()
				e.releaseTokenLocked()
				e.mu.Unlock()
				return
			}
		}
		err := e.sock.write(e, wait)
		if err != nil {
			e.sendFailed(err)
			return
		}
		if t.left > 0 {
			if !wait {
				e.leaveToWriter()
				return
			}
			continue
		}
		e.retire()
	}
}

// releaseTokenLocked gives the writer lock back. The caller holds mu.
func (e *endpoint) releaseTokenLocked() {
	e.flushing = false
	if e.done {
		e.changed.Broadcast()
	}
}

// sendFailed ends sending, and gives the writer lock back.
func (e *endpoint) sendFailed(err error) {
	e.mu.Lock()
	e.unwritable = true
	if e.broken == nil {
		e.broken = err
	}
	e.releaseTokenLocked()
	wake := e.wantWakeLocked()
	e.mu.Unlock()
	if wake {
		e.sock.interrupt()
	}
}

// write makes one system call.
func (t *sender) write(e *endpoint, fd uintptr) {
	t.busy.Lock()
	defer t.busy.Unlock()
	n, errno := blocking.Sendmsg(fd, &t.hdr, t.iov[t.next:])
	e.stats.writeCalls.Add(1)
	t.errno = errno
	if errno != 0 {
		return
	}
	t.left -= n
	t.unpin(e)
	for n > 0 {
		v := &t.iov[t.next]
		if n < int(v.Len) {
			*v = blocking.Iovec(unsafe.Slice(v.Base, v.Len)[n:])
			return
		}
		n -= int(v.Len)
		t.next++
	}
}

// pin is memory of a Read Response's segment, and the end of its FPDU in the write.
type pin struct {
	region *region
	end    int
}

// unpin releases the memory of the written segments, even in the middle of a write: the peer may
// have the whole response, and invalidate, while later segments still wait.
func (t *sender) unpin(e *endpoint) {
	for t.released < len(t.pinned) && t.pinned[t.released].end <= t.total-t.left {
		t.freed = e.stags.unpin(t.pinned[t.released].region, t.freed)
		t.pinned[t.released].region = nil
		t.released++
	}
}

// retire reports the completions of a finished write.
func (e *endpoint) retire() {
	t := &e.tx
	wake, terminated := false, false
	if t.retired > 0 || len(t.freed) > 0 || e.failed.Load() {
		e.mu.Lock()
		e.sendFree += t.retired
		if len(t.freed) > 0 {
			e.revoked = append(e.revoked, t.freed...)
			wake = e.wantWakeLocked()
		}
		terminated = t.terminated
		e.mu.Unlock()
		t.retired, t.freed = 0, t.freed[:0]
	}
	if wake {
		e.sock.interrupt()
	}
	if len(t.ids) > 0 && e.h != nil {
		e.h.Sent(t.ids)
	}
	t.ids = t.ids[:0]
	if terminated {
		e.sock.closeWrite()
	}
}

// fill builds FPDUs of queued work, for one write.
func (t *sender) fill(e *endpoint) {
	if t.lent == nil {
		t.lent = arenas.Get().(*[arenaLen]byte)
		t.arena = t.lent[:0]
	}
	clear(t.iov) // it would keep the last arena alive
	t.arena, t.done, t.counted, t.iov, t.next = t.arena[:0], 0, 0, t.iov[:0], 0
	t.pinned, t.released = t.pinned[:0], 0
	for t.left < t.batch {
		if e.failed.Load() {
			t.cur.active = false
			t.buildTerminate(e)
			break
		}
		if !t.cur.active && !t.pick(e) {
			break
		}
		if t.cur.active && !t.segment(e) {
			break
		}
	}
	t.flushArena()
	t.total = t.left
}

// flushArena adds the new bytes of the arena to the write.
func (t *sender) flushArena() {
	if n := len(t.arena) - t.done; n > 0 {
		t.iov = append(t.iov, blocking.Iovec(t.arena[t.done:]))
		t.done = len(t.arena)
	}
}

// pick starts the next message, if there is one. Read Requests are built at once.
func (t *sender) pick(e *endpoint) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.awaitingFirstFPDU || e.failed.Load() {
		return false
	}
	if e.answers.len() > 0 && (t.answersTurn || e.sq.len() == 0) {
		t.answersTurn = false
		a := e.answers.pop()
		t.cur = message{active: true, op: opReadResponse, stag: a.sinkSTag, to: a.sinkTO, left: int(a.size), answer: a,
			chunk: t.chunkSize(int(a.size), taggedLen)}
		return true
	}
	t.answersTurn = true
	if e.reads.sendable(e.ord) && t.room(readRequestLen, 1) {
		return t.requestRead(e)
	}
	for e.sq.len() > 0 {
		if e.sq.at(0).Op == rdma.Read {
			w := e.sq.pop()
			e.reads.add(&w)
			if e.reads.sendable(e.ord) && t.room(readRequestLen, 1) {
				return t.requestRead(e)
			}
			continue
		}
		w := e.sq.pop()
		t.cur = message{active: true, local: w.Local, left: int(length(w.Local)), id: w.ID, signaled: w.Signaled}
		m := &t.cur
		if w.Op == rdma.Write {
			m.op, m.stag, m.to = opWrite, w.Remote.Handle, w.Remote.Offset
			m.chunk = t.chunkSize(m.left, taggedLen)
			e.stats.writes.Add(1)
			return true
		}
		m.op, m.msn = opSend, t.sendMSN
		if w.Op == rdma.SendWithInvalidate {
			m.op, m.stag = opSendInv, w.Invalidate
		}
		m.chunk = t.chunkSize(m.left, untaggedLen)
		t.sendMSN++
		e.stats.sends.Add(1)
		return true
	}
	return false
}

// requestRead makes the message of a Read Request, and encodes its payload.
func (t *sender) requestRead(e *endpoint) bool {
	p := e.reads.next()
	r := readRequest{sinkSTag: p.stag, sinkTO: p.to, size: p.size, sourceSTag: p.remote.Handle, sourceTO: p.remote.Offset}
	start := len(t.arena)
	h := untaggedHeader{last: true, op: opReadRequest, qn: queueRead, msn: t.readMSN}
	t.readMSN++
	t.arena = binary.BigEndian.AppendUint16(t.arena, untaggedLen+readRequestLen)
	t.arena = r.append(h.append(t.arena))
	t.endFPDU(start, start, 0)
	e.stats.reads.Add(1)
	return true
}

// room reports whether a segment of n bytes in so many pieces fits the write.
func (t *sender) room(n, pieces int) bool {
	copied := min(n, pieces*copyMax)
	if t.markers {
		copied = n + n/markerInterval*4
	}
	return arenaLen-len(t.arena) >= copied+64 && maxIovec-len(t.iov) >= 2*min(pieces, n/copyMax+1)+2
}

// segment builds the FPDU of the message's next segment. It returns false if the write is full.
func (t *sender) segment(e *endpoint) bool {
	m := &t.cur
	n := min(m.left, m.chunk)
	pieces := max(1, len(m.local)-m.seg)
	if !t.room(n, pieces) {
		return false
	}
	if m.op == opReadResponse && !t.answerMemory(e, n) {
		return true // to end with a Terminate
	}
	last := n == m.left
	start := len(t.arena)
	if m.op.tagged() {
		t.arena = binary.BigEndian.AppendUint16(t.arena, uint16(taggedLen+n))
		t.arena = taggedHeader{last, m.op, m.stag, m.to}.append(t.arena)
	} else {
		t.arena = binary.BigEndian.AppendUint16(t.arena, uint16(untaggedLen+n))
		t.arena = untaggedHeader{last, m.op, m.stag, queueSend, m.msn, m.mo}.append(t.arena)
	}
	summed, sum := start, uint32(0)
	for rest := n; rest > 0; {
		p := m.local[m.seg][m.off:]
		if len(p) <= rest {
			m.seg, m.off = m.seg+1, 0
		} else {
			p = p[:rest]
			m.off += rest
		}
		rest -= len(p)
		if len(p) <= copyMax || t.markers {
			t.arena = append(t.arena, p...)
			continue
		}
		if t.crc {
			sum = crc32.Update(sum, castagnoli, t.arena[summed:])
			sum = crc32.Update(sum, castagnoli, p)
		}
		t.flushArena()
		summed = t.done
		t.iov = append(t.iov, blocking.Iovec(p))
		t.left += len(p)
	}
	t.endFPDU(start, summed, sum)
	if m.op == opReadResponse && n > 0 {
		t.pinned[len(t.pinned)-1].end = t.left
	}
	e.stats.bytesOut.Add(uint64(n))
	m.left -= n
	m.to += uint64(n)
	m.mo += uint32(n)
	if last {
		t.finishMessage(e)
	}
	return true
}

// finishMessage adds the message's completion to the write.
func (t *sender) finishMessage(e *endpoint) {
	m := &t.cur
	m.active, m.local = false, nil
	if m.op == opReadResponse {
		// Before the write: the peer may send its next request as soon as it has the last byte.
		e.inFlight.Add(-1)
		e.stats.remoteReads.Add(1)
		return
	}
	t.retired++
	if m.signaled {
		t.ids = append(t.ids, m.id)
	}
}

// answerMemory finds the memory of the next segment of a Read Response. It may have been
// invalidated meanwhile.
func (t *sender) answerMemory(e *endpoint, n int) bool {
	m := &t.cur
	m.seg, m.off = 0, 0
	if n == 0 {
		return true // an empty one is not validated (RFC 5040 section 5.2.1)
	}
	sent := uint64(m.answer.size) - uint64(m.left)
	r, mem, err := e.stags.pin(m.answer.sourceSTag, m.answer.sourceTO+sent, n)
	if err != nil {
		e.fail(about(err, m.answer.header(), untaggedLen+readRequestLen, m.answer.remaining(sent)))
		return false
	}
	t.pinned = append(t.pinned, pin{region: r})
	t.one[0] = mem
	m.local = t.one[:]
	return true
}

// endFPDU closes the FPDU that starts at arena[start]; sum is the CRC of the bytes before
// arena[summed:].
func (t *sender) endFPDU(start, summed int, sum uint32) {
	t.arena = t.closeFPDU(t.arena, start, summed, sum)
	t.left += len(t.arena) - t.counted
	t.counted = len(t.arena)
}

// closeFPDU pads the FPDU at the end of b and adds its CRC, and the markers if the peer wants them.
func (t *sender) closeFPDU(b []byte, start, summed int, sum uint32) []byte {
	b = append(b, zeros[:fpduPad(int(binary.BigEndian.Uint16(b[start:])))]...)
	if t.markers {
		t.unmarked = append(t.unmarked[:0], b[start:]...)
		t.mark.begin()
		b = t.mark.append(b[:start], t.unmarked)
		return t.mark.end(b, t.crc)
	}
	if t.crc {
		sum = crc32.Update(sum, castagnoli, b[summed:])
	}
	return binary.LittleEndian.AppendUint32(b, sum)
}

// buildTerminate builds the last FPDU, once.
func (t *sender) buildTerminate(e *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.terminated {
		return
	}
	t.terminated = true
	t.arena = t.appendTerminate(t.arena, e.term)
	t.left += len(t.arena) - t.counted
	t.counted = len(t.arena)
}

// appendTerminate adds the FPDU of a Terminate to b.
func (t *sender) appendTerminate(b, payload []byte) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, uint16(untaggedLen+len(payload)))
	b = untaggedHeader{last: true, op: opTerminate, qn: queueTerminate, msn: 1}.append(b)
	b = append(b, payload...)
	return t.closeFPDU(b, start, start, 0)
}

// giveBack gives up the arena. Nothing may refer to it.
func (t *sender) giveBack() {
	if t.lent != nil {
		arenas.Put(t.lent)
		t.lent, t.arena = nil, nil
	}
}

// trim frees the lists, between messages. The caller holds mu, and nobody has the writer lock.
func (t *sender) trim() {
	if t.left == 0 && !t.cur.active {
		t.iov, t.next, t.ids, t.pinned, t.released, t.freed, t.unmarked, t.hdr = nil, 0, nil, nil, 0, nil, nil, unix.Msghdr{}
	}
}

func (t *sender) free() {
	t.arena, t.lent, t.iov, t.ids, t.pinned, t.freed, t.unmarked, t.cur, t.one[0] = nil, nil, nil, nil, nil, nil, nil, message{}, nil
}
