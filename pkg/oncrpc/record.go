package oncrpc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
)

// ErrRecord is the cause of a connection's end after a violation of record marking, or after a
// message that is not RPC.
var ErrRecord = errors.New("oncrpc: bad record")

const (
	lastFragment = 1 << 31
	// smallRecord bounds, in bytes, the records received into the common buffer. Larger ones, and
	// those of several fragments, get memory of their own.
	smallRecord = 16 << 10
	// tailRead is the length read behind the end of a large record: enough for the next header, and
	// little to copy if the next is large too.
	tailRead = 4 << 10
	// piece is the smallest memory that a large record of several fragments takes at a time.
	piece = 64 << 10
	// maxFragments bounds the fragments of a record.
	maxFragments = 4096
	// firstPart is the length of a large call that arrives before it takes memory of the budget,
	// all that it needs at once. Until then its memory is outside of the budget: a peer that only
	// announces a record must not hold memory that others wait for.
	firstPart = 64 << 10
	// headLen is the length of the XID and message type, which decide on the memory of a large
	// record.
	headLen = 8
)

// reader cuts the byte stream of a connection into records (RFC 5531 section 11). It does no I/O:
// space returns the room for the next bytes, filled takes their number, and next parses them.
//
// A record that lies in the common buffer as a whole is returned as a view of it; each view owns
// the buffer together with the others and the reader. Of a large record only the beginning is
// copied, and the rest is read straight into its own memory.
type reader struct {
	pool  *bufpool.Pool
	size  int // of the common buffer
	limit int // of a record

	buf  *bufpool.Buf // the common buffer; buf.B[r:w] is read and unused
	r, w int
	want int  // bytes from r on that next needs contiguous
	tail bool // the last record was large: read no more than tailRead ahead

	// The current record.
	left      int  // bytes missing of the current fragment
	last      bool // it is the last one
	total     int  // length of all its fragments so far, the current one included
	fragments int
	began     bool // rec is being assembled
	begun     bool // its memory may exceed smallRecord, up to firstPart
	admitted  bool // its memory may exceed firstPart
	skipping  bool
	rec       Message // owns the record's memory as far as it exists
	dst       []byte  // room in rec's last memory
	direct    int     // bytes of it that space has given out
}

// event is the result of reader.next.
type event int

const (
	// needBytes: read more.
	needBytes event = iota
	// whole: a record is complete.
	whole
	// large: the current record needs memory of its own. r.head returns its beginning, r.length its
	// length. begin, admit or skip follows. After begin, large comes once more when the first part
	// or the whole record has arrived, and admit follows.
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

// rest gives the common buffer back if it is empty, so that an idle connection has none. A buffer
// with views is kept: the next bytes go behind them, or else each call in flight might pin a buffer
// of its own.
func (r *reader) rest() {
	if r.buf != nil && r.r == r.w && !r.buf.Shared() {
		r.buf.Release()
		r.buf, r.r, r.w = nil, 0, 0
	}
}

// space returns the room for the next bytes: a first, then b. It follows a next that returned
// needBytes, and may be called again.
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

// makeRoom makes the wanted bytes fit contiguously into the common buffer, with tailRead bytes
// behind them.
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

// filled records that n bytes were read into the room of space.
func (r *reader) filled(n int) {
	k := min(n, r.direct)
	r.dst = r.dst[k:]
	if !r.skipping {
		r.extend(k)
	}
	r.left -= k
	r.w += n - k
}

// extend adds k bytes, read behind rec's last slice, to that slice.
func (r *reader) extend(k int) {
	if k > 0 {
		s := &r.rec.Stream[len(r.rec.Stream)-1]
		*s = (*s)[:len(*s)+k]
	}
}

// next parses as far as the read bytes allow. With whole, m has the record; m must have been empty.
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

// assemble moves up to have bytes of the current fragment into rec's own memory, and grows it when
// it is full.
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

// wants reports whether next must return large before the record gets more memory, or is handed
// out.
func (r *reader) wants() bool {
	switch {
	case r.admitted || r.total <= smallRecord:
		return false
	case r.begun:
		return r.complete() || r.total-r.left >= firstPart
	}
	return r.total-r.left >= headLen
}

// complete reports whether the whole record has arrived.
func (r *reader) complete() bool { return r.left == 0 && r.last }

// take advances by k bytes of the current fragment.
func (r *reader) take(k int) {
	r.r += k
	r.left -= k
}

// grow gives rec memory for the rest of the fragment, up to a buffer's size, and for more if
// fragments follow.
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

// length returns the length of the large record, or the longest possible one while it is unknown.
func (r *reader) length() int {
	if r.last {
		return r.total
	}
	return r.limit
}

// begin gives the large record memory for its first part.
func (r *reader) begin() { r.begun = true }

// admit gives the large record all its memory.
func (r *reader) admit() { r.admitted = true }

// skip passes over the large record without memory for it.
func (r *reader) skip() {
	r.rec.Release()
	r.dst = nil
	r.began, r.skipping = false, true
}

// view returns a record that lies in the common buffer as a whole.
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
