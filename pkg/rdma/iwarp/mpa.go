package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The keys that open MPA start-up frames (RFC 5044 section 7.1.1).
const (
	mpaRequestKey = "MPA ID Req Frame"
	mpaReplyKey   = "MPA ID Rep Frame"
)

const (
	mpaHeaderLen = 20
	// mpaMaxPrivate is the largest accepted private data field, the enhanced data included.
	mpaMaxPrivate = 512
	// mpaUnnegotiated is the depth with which a peer leaves the number of reads to the upper layer
	// (RFC 6581 section 9.1).
	mpaUnnegotiated = 0x3fff
	// maxReads is the largest depth of a read queue that fits the frame.
	maxReads = mpaUnnegotiated - 1
)

// errMPA is the root of all errors about start-up frames.
var errMPA = errors.New("iwarp: bad MPA frame")

// mpaFrame is a Request or a Reply of the MPA start-up (RFC 5044 section 7.1.1, RFC 6581 section
// 6).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                     key, 16 octets                            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|M|C|R|S| Res   |      Rev      |           PD_Length           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|A|B|           IRD             |C|D|           ORD             | if S
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                 private data of the upper layer               |
type mpaFrame struct {
	reply    bool
	markers  bool // M: the sender wants markers in received FPDUs
	crc      bool // C: the sender wants CRCs both ways
	rejected bool // R, replies only
	enhanced bool // S: the enhanced data are there
	revision uint8

	// The enhanced data.
	peerToPeer                 bool // A
	rtrSend, rtrWrite, rtrRead bool // B, C, D: the kinds of ready-to-receive indication
	ird, ord                   uint16
	private                    []byte
}

// parseMPA reads a frame from b. It returns io.ErrUnexpectedEOF while b, correct so far, is too
// short; n is then the length needed for the next try.
func parseMPA(b []byte, reply bool) (f mpaFrame, n int, err error) {
	key := mpaRequestKey
	if reply {
		key = mpaReplyKey
	}
	if got := string(b[:min(len(b), len(key))]); got != key[:len(got)] {
		return f, 0, fmt.Errorf("%w: key %q, want %q", errMPA, got, key)
	}
	if len(b) < mpaHeaderLen {
		return f, mpaHeaderLen, io.ErrUnexpectedEOF
	}
	flags := b[16]
	f = mpaFrame{
		reply:    reply,
		markers:  flags&0x80 != 0,
		crc:      flags&0x40 != 0,
		rejected: reply && flags&0x20 != 0,
		enhanced: flags&0x10 != 0,
		revision: b[17],
	}
	if f.revision < 1 || f.revision > 2 {
		return f, 0, fmt.Errorf("%w: revision %d, want 1 or 2", errMPA, f.revision)
	}
	if f.revision == 1 {
		f.enhanced = false // reserved in this revision, and not checked
	}
	size := int(binary.BigEndian.Uint16(b[18:]))
	if size > mpaMaxPrivate {
		return f, 0, fmt.Errorf("%w: private data of %d bytes, at most %d are allowed", errMPA, size, mpaMaxPrivate)
	}
	if f.enhanced && size < 4 {
		return f, 0, fmt.Errorf("%w: private data of %d bytes, the enhanced data alone take 4", errMPA, size)
	}
	n = mpaHeaderLen + size
	if len(b) < n {
		return f, n, io.ErrUnexpectedEOF
	}
	private := b[mpaHeaderLen:n]
	if f.enhanced {
		ird, ord := binary.BigEndian.Uint16(private), binary.BigEndian.Uint16(private[2:])
		private = private[4:]
		f.peerToPeer = ird&0x8000 != 0
		if f.peerToPeer {
			f.rtrSend, f.rtrWrite, f.rtrRead = ird&0x4000 != 0, ord&0x8000 != 0, ord&0x4000 != 0
		}
		f.ird, f.ord = ird&0x3fff, ord&0x3fff
	}
	f.private = private
	return f, n, nil
}

// append adds the frame to b.
func (f *mpaFrame) append(b []byte) []byte {
	key := mpaRequestKey
	if f.reply {
		key = mpaReplyKey
	}
	b = append(b, key...)
	var flags byte
	size := len(f.private)
	flags |= bit(f.markers, 0x80) | bit(f.crc, 0x40) | bit(f.rejected, 0x20)
	if f.enhanced {
		flags |= 0x10
		size += 4
	}
	b = append(b, flags, f.revision)
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	if f.enhanced {
		ird, ord := f.ird&0x3fff, f.ord&0x3fff
		if f.peerToPeer {
			ird |= 0x8000 | uint16(bit(f.rtrSend, 0x40))<<8
			ord |= uint16(bit(f.rtrWrite, 0x80)|bit(f.rtrRead, 0x40)) << 8
		}
		b = binary.BigEndian.AppendUint16(b, ird)
		b = binary.BigEndian.AppendUint16(b, ord)
	}
	return append(b, f.private...)
}

// bit is mask if set, else 0.
func bit(set bool, mask byte) byte {
	if set {
		return mask
	}
	return 0
}

// readMPA reads exactly one frame from r, and no byte more. The private data are a copy.
func readMPA(r io.Reader, reply bool) (mpaFrame, error) {
	buf := make([]byte, mpaHeaderLen, mpaHeaderLen+mpaMaxPrivate)
	// The key first, so that a peer of another protocol is recognized without waiting for more.
	if _, err := io.ReadFull(r, buf[:16]); err != nil {
		return mpaFrame{}, fmt.Errorf("iwarp: reading an MPA frame: %w", err)
	}
	if _, _, err := parseMPA(buf[:16], reply); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return mpaFrame{}, err
	}
	for have := 16; ; {
		if _, err := io.ReadFull(r, buf[have:]); err != nil {
			return mpaFrame{}, fmt.Errorf("iwarp: reading an MPA frame: %w", err)
		}
		f, n, err := parseMPA(buf, reply)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			return f, err
		}
		have, buf = len(buf), buf[:n]
	}
}
