package oncrpc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
)

// ErrRecord is the error of a connection whose peer broke the rules of record marking or sent what is no RPC message.
var ErrRecord = errors.New("oncrpc: bad record")

const (
	lastFragment = 1 << 31
	// smallRecord bounds, in bytes, the records that are received into the common buffer. Larger ones, and those of several
	// fragments, get memory of their own.
	smallRecord = 16 << 10
	// tailRead is how much is read behind the end of a large record: enough for the next header, and little to copy if the next is large too.
	tailRead = 4 << 10
	// piece is the least memory that a large record of several fragments takes at a time.
	piece = 64 << 10
	// maxFragments bounds the fragments of a record.
	maxFragments = 4096
	// firstPart is how much of a large call arrives before it takes memory of the budget, all that it needs at once. Until then it has memory
	// beside the budget, since a peer that only announces a record must not hold anything that others wait for.
	firstPart = 64 << 10
	// headLen is what has to be known of a large record before it gets memory: XID and message type.
	headLen = 8
)

// reader cuts the byte stream of a connection into records (RFC 5531 section 11). It does no I/O: space says where
// the next bytes belong, filled how many came, and next what they are.
//
// Records that lie in the common buffer as a whole are handed out as views of it; each owns the buffer together with
// the others and the reader. Of a large record only what was read along with its beginning is copied, the rest is read straight into
// its own memory.
type reader struct {
	pool  *bufpool.Pool
	size  int // of the common buffer
	limit int // of a record

	buf  *bufpool.Buf // the common buffer; what has been read and not been used is buf.B[r:w]
	r, w int
	want int  // bytes from r on that have to lie together for next to go on
	tail bool // the last record was large: read no more than tailRead ahead

	// The record under way.
	left      int  // bytes missing of the current fragment
	last      bool // it is the last one
	total     int  // length of all its fragments so far, the current one included
	fragments int
	began     bool // rec is being put together
	begun     bool // its memory may exceed smallRecord, up to firstPart
	admitted  bool // its memory may exceed firstPart
	skipping  bool
	rec       Message // owns the record's memory as far as it is there
	dst       []byte  // room in the memory that rec took last
	direct    int     // how much of it space has given out
}

// event is what reader.next found.
type event int

const (
	// needBytes: read more.
	needBytes event = iota
	// whole: a record is complete.
	whole
	// large: a record is under way that wants memory of its own. r.head tells what it is, r.length how long. begin, admit or skip follows. After
	// begin, large comes once more, when the first part or all of the record is there, and admit follows.
	large
)

func newReader(pool *bufpool.Pool, size, limit int) *reader {
	return &reader{pool: pool, size: max(size, 2*smallRecord), limit: limit}
}

// release gives back all memory.
func (r *reader) release() {
	r.rec.Release()
	if r.buf != nil {
		r.buf.Release()
		r.buf = nil
	}
	r.r, r.w, r.dst = 0, 0, nil
}

// idle reports whether the stream stands between two records.
func (r *reader) idle() bool {
	return r.r == r.w && r.left == 0 && r.fragments == 0
}

// rest gives the common buffer back if there is nothing in it, so that a connection on which nothing happens has none. One with views is
// kept: what comes next goes behind them, or each call in flight might pin a buffer of its own.
func (r *reader) rest() {
	if r.buf != nil && r.r == r.w && !r.buf.Shared() {
		r.buf.Release()
		r.buf, r.r, r.w = nil, 0, 0
	}
}

// space returns where the next bytes read go: a first, then b. It follows a next that returned needBytes, and may be asked again.
func (r *reader) space() (a, b []byte, err error) {
	ahead := r.size
	switch {
	case r.began:
		ahead = tailRead
		a = r.dst[:min(len(r.dst), r.left)]
	case r.tail:
		ahead = max(tailRead, r.want)
	}
	if err := r.makeRoom(); err != nil {
		return nil, nil, err
	}
	r.direct = len(a)
	b = r.buf.B[r.w:]
	return a, b[:min(len(b), ahead)], nil
}

// makeRoom makes sure that what is wanted can lie together in the common buffer, and tailRead bytes behind it.
func (r *reader) makeRoom() error {
	if r.buf != nil {
		enough := r.size-r.r >= r.want+tailRead
		if !r.buf.Shared() && (r.r == r.w || !enough) {
			r.r, r.w = 0, copy(r.buf.B, r.buf.B[r.r:r.w])
			return nil
		}
		if enough {
			return nil
		}
	}
	buf, err := r.pool.Get(r.size)
	if err != nil {
		return err
	}
	if r.buf != nil {
		r.r, r.w = 0, copy(buf.B, r.buf.B[r.r:r.w])
		r.buf.Release()
	}
	r.buf = buf
	return nil
}

// filled takes note of n bytes that were read to where space said.
func (r *reader) filled(n int) {
	k := min(n, r.direct)
	r.dst = r.dst[k:]
	if !r.skipping {
		r.extend(k)
	}
	r.left -= k
	r.w += n - k
}

// extend adds k bytes, which were put to where rec's last slice ends, to that slice.
func (r *reader) extend(k int) {
	if k > 0 {
		s := &r.rec.Stream[len(r.rec.Stream)-1]
		*s = (*s)[:len(*s)+k]
	}
}

// next goes on as far as what has been read allows. With whole, m has the record; m must have been empty.
// With copyOut, records get memory of their own even if they lie in the common buffer.
func (r *reader) next(m *Message, copyOut bool) (event, error) {
	for {
		have := r.w - r.r
		switch {
		case r.left == 0 && r.last && r.skipping:
			r.reset()
		case r.left == 0 && r.last && r.wants():
			return large, nil
		case r.left == 0 && r.last:
			r.tail = r.total > smallRecord
			*m, r.rec = r.rec, *m
			r.reset()
			return whole, nil
		case r.left == 0:
			if r.want = 4; have < r.want {
				return needBytes, nil
			}
			if err := r.mark(binary.BigEndian.Uint32(r.buf.B[r.r:])); err != nil {
				return needBytes, err
			}
			r.r += 4
		case r.skipping:
			r.take(min(have, r.left))
			if r.left > 0 {
				r.want = 0
				return needBytes, nil
			}
		case r.began:
			if ev, err := r.assemble(have); ev == large || err != nil {
				return ev, err
			}
			if r.left > 0 {
				r.want = 0
				return needBytes, nil
			}
		case !r.last || r.begun || r.admitted: // the first of several fragments, or a large one
			r.began = true
		case r.left <= smallRecord && have < r.left:
			r.want = r.left
			return needBytes, nil
		case have >= r.left && (r.left <= smallRecord || !copyOut):
			return whole, r.view(m, copyOut)
		default:
			if r.want = headLen; have < r.want {
				return needBytes, nil
			}
			return large, nil
		}
	}
}

// mark reads a record mark.
func (r *reader) mark(v uint32) error {
	n := int(v &^ lastFragment)
	r.last = v&lastFragment != 0
	r.fragments++
	if n > r.limit-r.total {
		return fmt.Errorf("%w: a fragment of %d bytes makes it %d bytes long, the limit is %d", ErrRecord, n, r.total+n, r.limit)
	}
	if r.fragments > maxFragments {
		return fmt.Errorf("%w: it has more than %d fragments", ErrRecord, maxFragments)
	}
	r.left = n
	r.total += n
	return nil
}

// assemble moves up to have bytes of the current fragment into rec's own memory, and gives it more when it is full.
func (r *reader) assemble(have int) (event, error) {
	for r.left > 0 {
		if r.wants() {
			return large, nil
		}
		if len(r.dst) == 0 {
			if err := r.grow(); err != nil {
				return needBytes, err
			}
		}
		k := min(have, r.left, len(r.dst))
		if k == 0 {
			break
		}
		r.extend(copy(r.dst[:k], r.buf.B[r.r:]))
		r.dst = r.dst[k:]
		r.take(k)
		have -= k
	}
	return needBytes, nil
}

// wants reports whether it has to be asked before the record gets more memory, or is handed out.
func (r *reader) wants() bool {
	switch {
	case r.admitted || r.total <= smallRecord:
		return false
	case r.begun:
		return r.complete() || r.total-r.left >= firstPart
	}
	return r.total-r.left >= headLen
}

// complete reports whether all of the record is there.
func (r *reader) complete() bool { return r.left == 0 && r.last }

// take moves on by k bytes of the current fragment.
func (r *reader) take(k int) {
	r.r += k
	r.left -= k
}

// grow gives rec memory for what is left of the fragment, or for as much of it as a buffer holds; and for more if fragments follow.
func (r *reader) grow() error {
	n, done := r.left, r.total-r.left
	if !r.last {
		n = max(n, min(piece, r.limit-done))
	}
	switch {
	case r.admitted:
	case r.begun:
		n = min(n, firstPart-done)
	default:
		n = smallRecord
	}
	buf, err := r.pool.Get(min(n, bufpool.MaxSize))
	if err != nil {
		return err
	}
	r.rec.Own(buf)
	r.rec.Stream = append(r.rec.Stream, buf.B[:0])
	r.dst = buf.B
	return nil
}

// head returns XID and message type of the record for which next returned large.
func (r *reader) head() (xid, kind uint32) {
	var b [headLen]byte
	n := 0
	for _, s := range r.rec.Stream {
		n += copy(b[n:], s)
	}
	if n < headLen {
		copy(b[n:], r.buf.B[r.r:r.w])
	}
	return binary.BigEndian.Uint32(b[:]), binary.BigEndian.Uint32(b[4:])
}

// length returns the length of the large record: its own if that is known, otherwise the longest it can get.
func (r *reader) length() int {
	if r.last {
		return r.total
	}
	return r.limit
}

// begin lets the large record have memory for its first part.
func (r *reader) begin() { r.begun = true }

// admit lets the large record have all its memory.
func (r *reader) admit() { r.admitted = true }

// skip passes over the large record without taking memory for it.
func (r *reader) skip() {
	r.rec.Release()
	r.dst = nil
	r.began, r.skipping = false, true
}

// view hands out a record that lies in the common buffer as a whole.
func (r *reader) view(m *Message, copyOut bool) error {
	b := r.buf.B[r.r : r.r+r.left : r.r+r.left]
	if copyOut {
		buf, err := r.pool.Get(len(b))
		if err != nil {
			return err
		}
		copy(buf.B, b)
		m.Own(buf)
		b = buf.B
	} else {
		m.Own(r.buf.Retain())
	}
	m.Stream = append(m.Stream, b)
	r.take(len(b))
	r.tail = len(b) > smallRecord
	r.reset()
	return nil
}

// reset prepares for the next record.
func (r *reader) reset() {
	r.left, r.total, r.fragments, r.want = 0, 0, 0, 0
	r.last, r.began, r.begun, r.admitted, r.skipping = false, false, false, false, false
	r.dst = nil
}
