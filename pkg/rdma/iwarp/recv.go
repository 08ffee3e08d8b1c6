package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/internal/blocking"
	"sluice.dev/sluice/pkg/rdma"
)

const (
	// bufferLen holds many small FPDUs, and at least one of the largest beside a read's bytes.
	bufferLen = 256 << 10
	// directMin is the ULPDU above which the payload is read straight to its place.
	directMin = 16 << 10
	// tailLen is the longest part of such a read beyond the segment.
	tailLen = 1 << 10
	// smallRun is the number of small FPDUs after which no large one is expected. Until then a read
	// brings at most tailLen, so that little of a large payload has to be copied.
	smallRun = 16
	// maxCompletions bounds a batch.
	maxCompletions = 256
)

// receiveBuffers are shared by the connections. A connection has one only while something has been
// read and not handled, or is about to be read. So an idle one has none, and many that each have a
// few bytes now and then use the same few, which stay in the cache.
var receiveBuffers = sync.Pool{New: func() any { return new([bufferLen]byte) }}

// receiver parses FPDUs. It belongs to Serve's goroutine.
type receiver struct {
	lent *[bufferLen]byte // of receiveBuffers, or nil
	buf  []byte           // lent[:]
	r, w int              // buf[r:w] has been read and not handled
	got  bool             // whether an FPDU has arrived
	// small counts the FPDUs since the last large one, up to smallRun.
	small int

	seg   segment
	place [][]byte // where the segment's payload goes
	at    int      // place[at:] is still to be filled

	// The message that is being received on queue 0.
	msg struct {
		active bool
		op     opcode
		stag   uint32
		recv   rdma.Receive
		room   uint64
		scatter
	}
	sendMSN, readMSN uint32 // expected next

	// The Read whose response is being received.
	resp struct {
		active bool
		pendingRead
		scatter
	}

	completions []rdma.Completion
	// deferredWork: the handler posted less than one answer for each completion since the last
	// read, so it may have woken a goroutine that does the rest.
	deferredWork bool

	// One read: its buffers, its result, and its system calls.
	into  []unix.Iovec
	n     int
	errno syscall.Errno
	calls uint64
	limit int // of bytes to read into buf, if all of that is free; otherwise 0
	hdr   unix.Msghdr
}

// segment is the DDP segment being placed.
type segment struct {
	op   opcode
	last bool
	n    int    // bytes of payload
	stag uint32 // of an RDMA Write, which goes to offset to
	to   uint64

	// While a large segment is read to its place.
	active bool
	header [untaggedLen]byte
	ulpdu  int
	left   int
	sum    uint32
}

// scatter is a position in a list of segments.
type scatter struct {
	done     uint64 // bytes before it
	seg, off int
}

// next appends to place the memory for the next n bytes of list, and advances.
func (s *scatter) next(place, list [][]byte, n int) [][]byte {
	s.done += uint64(n)
	for n > 0 {
		p := list[s.seg][s.off:]
		if len(p) <= n {
			s.seg, s.off = s.seg+1, 0
		} else {
			p = p[:n]
			s.off += n
		}
		if len(p) > 0 {
			place = append(place, p)
			n -= len(p)
		}
	}
	return place
}

func (rx *receiver) init() {
	rx.sendMSN, rx.readMSN = 1, 1
	rx.small = smallRun
}

// prepare fills in rx.into for a read into a free buffer.
func (rx *receiver) prepare() {
	if rx.limit == 0 {
		return
	}
	if rx.lent == nil {
		rx.lent = receiveBuffers.Get().(*[bufferLen]byte)
		rx.buf = rx.lent[:]
	}
	rx.into = append(rx.into[:0], blocking.Iovec(rx.buf[:rx.limit]))
}

// giveBack gives up the buffer, which is empty.
func (rx *receiver) giveBack() {
	if rx.lent != nil {
		clear(rx.into) // it would keep the buffer alive
		receiveBuffers.Put(rx.lent)
		rx.lent, rx.buf = nil, nil
	}
}

// recv makes one system call.
func (rx *receiver) recv(fd uintptr) {
	rx.prepare()
	rx.n, rx.errno = blocking.Recvmsg(fd, &rx.hdr, rx.into, 0)
	rx.calls++
	if rx.errno == syscall.EAGAIN && rx.limit > 0 {
		rx.giveBack()
	}
}

func (rx *receiver) free() {
	rx.giveBack()
	rx.place, rx.into = nil, nil
}

// trim frees the lists, between messages.
func (rx *receiver) trim() {
	if rx.between() {
		rx.place, rx.into, rx.completions, rx.hdr = nil, nil, nil, unix.Msghdr{}
	}
}

// between reports whether everything received was whole FPDUs.
func (rx *receiver) between() bool { return rx.r == rx.w && !rx.seg.active }

// read waits for more of the stream. It returns io.EOF at its end.
func (rx *receiver) read(e *endpoint) error {
	if rx.r == rx.w {
		rx.r, rx.w = 0, 0
	} else if rx.r > 0 && len(rx.buf)-rx.w < len(rx.buf)/2 {
		rx.w = copy(rx.buf, rx.buf[rx.r:rx.w])
		rx.r = 0
	}
	clear(rx.into)
	rx.into, rx.limit = rx.into[:0], 0
	direct := rx.seg.active && rx.seg.left > 0
	if direct {
		if s := &rx.seg; s.op == opWrite { // the STag may have been invalidated or redirected
			p, err := e.stags.place(s.stag, s.to+uint64(s.n-s.left), s.left)
			if err != nil {
				return rx.largeError(err)
			}
			rx.place[rx.at] = p
		}
		pieces := rx.place[rx.at:]
		for _, p := range pieces[:min(len(pieces), maxIovec)] {
			rx.into = append(rx.into, blocking.Iovec(p))
		}
		if len(pieces) < maxIovec { // the tail comes after all of them
			rx.into = append(rx.into, blocking.Iovec(rx.buf[:tailLen]))
		}
	} else {
		space := bufferLen - rx.w
		if rx.small < smallRun {
			space = min(space, tailLen)
		}
		if rx.w == 0 {
			rx.limit = space
		} else {
			rx.into = append(rx.into, blocking.Iovec(rx.buf[rx.w:][:space]))
		}
	}
	err := e.sock.read(rx)
	e.stats.readCalls.Add(rx.calls)
	rx.calls = 0
	switch {
	case errors.Is(err, errInterrupted):
		return err
	case err != nil:
		return fmt.Errorf("iwarp: receiving: %w", err)
	case rx.n == 0:
		return io.EOF
	}
	if !direct {
		rx.w += rx.n
		return nil
	}
	rx.w = rx.n - rx.placed(e, rx.n)
	return nil
}

// placed accounts for up to n bytes that were read into place, and returns how many of them it
// took.
func (rx *receiver) placed(e *endpoint, n int) (took int) {
	for rx.at < len(rx.place) && n > 0 {
		p := rx.place[rx.at]
		k := min(len(p), n)
		if e.crc {
			rx.seg.sum = crc32.Update(rx.seg.sum, castagnoli, p[:k])
		}
		if k == len(p) {
			rx.at++
		} else {
			rx.place[rx.at] = p[k:]
		}
		took += k
		n -= k
	}
	rx.seg.left -= took
	return took
}

// parse handles the buffer. On an error, everything before it has been handled.
func (rx *receiver) parse(e *endpoint) error {
	for {
		if rx.seg.active {
			if rx.seg.left > 0 {
				return nil
			}
			whole, err := rx.endLarge(e)
			if !whole || err != nil {
				return err
			}
			continue
		}
		b := rx.buf[rx.r:rx.w]
		if len(b) < fpduLengthLen {
			return nil
		}
		n := int(binary.BigEndian.Uint16(b))
		if total := fpduLen(n); len(b) >= total {
			if e.crc {
				if err := checkCRC(b[:total]); err != nil {
					return err
				}
			}
			if err := rx.whole(e, b[fpduLengthLen:fpduLengthLen+n]); err != nil {
				return err
			}
			rx.r += total
			rx.note(n)
			rx.begun(e)
			continue
		}
		if n <= directMin || len(b) < fpduLengthLen+untaggedLen {
			return nil
		}
		if op := opcode(b[fpduLengthLen+1] & 15); op == opReadRequest || op >= opTerminate {
			return nil // small messages usually; their size is judged when they are whole
		}
		if err := rx.beginLarge(e, n); err != nil {
			return err
		}
		if rx.seg.left > 0 {
			return nil
		}
	}
}

// note records the sizes of FPDUs.
func (rx *receiver) note(ulpdu int) {
	switch {
	case ulpdu > directMin:
		rx.small = 0
	case rx.small < smallRun:
		rx.small++
	}
}

// begun notes the arrival of an FPDU: a responder may send from then on.
func (rx *receiver) begun(e *endpoint) {
	if rx.got {
		return
	}
	rx.got = true
	e.mu.Lock()
	e.awaitingFirstFPDU = false
	e.mu.Unlock()
}

// whole handles a ULPDU that is in the buffer.
func (rx *receiver) whole(e *endpoint, b []byte) error {
	if len(b) < taggedLen || len(b) < headerLen(b[0]) {
		return codeFPDUStart.errorf("ULPDU of %d bytes, too few for its header", len(b))
	}
	payload := b[headerLen(b[0]):]
	rx.place = rx.place[:0]
	err := rx.locate(e, b, len(payload))
	if err == nil {
		switch rx.seg.op {
		case opReadRequest:
			err = rx.readRequested(e, b)
		case opTerminate:
			return receivedTerminate(payload)
		default:
			for _, p := range rx.place {
				payload = payload[copy(p, payload):]
			}
			e.stats.copiedIn.Add(uint64(rx.seg.n))
			err = rx.commit(e)
		}
	}
	if err != nil {
		err = about(err, clone(b[:headerLen(b[0])]), len(b), nil)
	}
	return err
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }

// beginLarge starts to place a segment that is not in the buffer as a whole.
func (rx *receiver) beginLarge(e *endpoint, n int) error {
	b := rx.buf[rx.r:rx.w]
	header := fpduLengthLen + headerLen(b[fpduLengthLen])
	s := &rx.seg
	s.ulpdu = n
	rx.note(n)
	copy(s.header[:], b[fpduLengthLen:])
	rx.place, rx.at = rx.place[:0], 0
	if err := rx.locate(e, b[fpduLengthLen:], n-(header-fpduLengthLen)); err != nil {
		return rx.largeError(err)
	}
	s.active, s.left, s.sum = true, s.n, 0
	if e.crc {
		s.sum = crc32.Update(0, castagnoli, b[:header])
	}
	b = b[header:]
	b = b[:min(len(b), s.n)]
	rx.r += header + len(b)
	e.stats.copiedIn.Add(uint64(len(b)))
	rest := b
	for _, p := range rx.place {
		rest = rest[copy(p, rest):]
	}
	rx.placed(e, len(b))
	return nil
}

// endLarge verifies and completes a segment whose payload is in its place. It returns false if
// padding and CRC have not arrived.
func (rx *receiver) endLarge(e *endpoint) (bool, error) {
	s := &rx.seg
	b := rx.buf[rx.r:rx.w]
	pad := fpduPad(s.ulpdu)
	if len(b) < pad+fpduCRCLen {
		return false, nil
	}
	if e.crc {
		if err := matchCRC(crc32.Update(s.sum, castagnoli, b[:pad]), b[pad:]); err != nil {
			return true, err
		}
	}
	rx.r += pad + fpduCRCLen
	s.active = false
	if err := rx.commit(e); err != nil {
		return true, rx.largeError(err)
	}
	rx.begun(e)
	return true, nil
}

// largeError adds the segment's header to the error.
func (rx *receiver) largeError(err error) error {
	return about(err, clone(rx.seg.header[:headerLen(rx.seg.header[0])]), rx.seg.ulpdu, nil)
}
