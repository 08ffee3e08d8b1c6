package nfs4

import (
	"math/bits"
	"strconv"
	"time"

	"sluice.dev/sluice/pkg/xdr"
)

// Handle is a file handle of at most MaxHandle bytes, opaque to all but its server.
type Handle []byte

// Encode writes h.
func (h Handle) Encode(e *xdr.Encoder) { e.Opaque(h) }

// Decode makes h a view of the handle in d.
func (h *Handle) Decode(d *xdr.Decoder) { *h = d.Opaque(MaxHandle) }

// Verifier is a verifier4.
type Verifier [8]byte

// Encode writes v.
func (v *Verifier) Encode(e *xdr.Encoder) { e.Fixed(v[:]) }

// Decode reads v.
func (v *Verifier) Decode(d *xdr.Decoder) { copy(v[:], d.Fixed(len(v))) }

// SessionID is a sessionid4.
type SessionID [16]byte

// Encode writes s.
func (s *SessionID) Encode(e *xdr.Encoder) { e.Fixed(s[:]) }

// Decode reads s.
func (s *SessionID) Decode(d *xdr.Decoder) { copy(s[:], d.Fixed(len(s))) }

// StateID is a stateid4 (RFC 8881 section 8.2).
type StateID struct {
	Seq   uint32
	Other [12]byte
}

// Special stateids (RFC 8881 section 8.2.3).
var (
	AnonymousStateID = StateID{}
	BypassStateID    = StateID{Seq: ^uint32(0), Other: [12]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}}
	CurrentStateID   = StateID{Seq: 1}
	InvalidStateID   = StateID{Seq: ^uint32(0)}
)

// Encode writes s.
func (s *StateID) Encode(e *xdr.Encoder) {
	e.Uint32(s.Seq)
	e.Fixed(s.Other[:])
}

// Decode reads s.
func (s *StateID) Decode(d *xdr.Decoder) {
	s.Seq = d.Uint32()
	copy(s.Other[:], d.Fixed(len(s.Other)))
}

// Owner is a state_owner4: an open owner or a lock owner. Owner has at most MaxOpaque bytes.
type Owner struct {
	ClientID uint64
	Owner    []byte
}

// Encode writes o.
func (o *Owner) Encode(e *xdr.Encoder) {
	e.Uint64(o.ClientID)
	e.Opaque(o.Owner)
}

// Decode reads o.
func (o *Owner) Decode(d *xdr.Decoder) {
	o.ClientID = d.Uint64()
	o.Owner = d.Opaque(MaxOpaque)
}

// Time is an nfstime4: seconds since 1970 and nanoseconds.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Time converts t.
func (t Time) Time() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// Encode writes t.
func (t *Time) Encode(e *xdr.Encoder) {
	e.Uint64(uint64(t.Sec))
	e.Uint32(t.Nsec)
}

// Decode reads t. Nanoseconds above 999,999,999 pass: a server answers NFS4ERR_INVAL.
func (t *Time) Decode(d *xdr.Decoder) { t.Sec, t.Nsec = int64(d.Uint64()), d.Uint32() }

// Type is an nfs_ftype4.
type Type uint32

// File types.
const (
	Reg       Type = 1
	Dir       Type = 2
	Blk       Type = 3
	Chr       Type = 4
	Lnk       Type = 5
	Sock      Type = 6
	FIFO      Type = 7
	AttrDir   Type = 8
	NamedAttr Type = 9
)

var typeNames = [...]string{
	Reg: "NF4REG", Dir: "NF4DIR", Blk: "NF4BLK", Chr: "NF4CHR", Lnk: "NF4LNK", Sock: "NF4SOCK", FIFO: "NF4FIFO",
	AttrDir: "NF4ATTRDIR", NamedAttr: "NF4NAMEDATTR",
}

// String returns the name in RFC 8881, like "NF4REG".
func (t Type) String() string {
	if t >= Reg && t <= NamedAttr {
		return typeNames[t]
	}
	return "nfs_ftype4(" + strconv.FormatUint(uint64(t), 10) + ")"
}

// SpecData is a specdata4: the major and minor number of a device.
type SpecData struct{ Major, Minor uint32 }

// FSID is an fsid4.
type FSID struct{ Major, Minor uint64 }

// ChangeInfo is a change_info4: a directory's change attribute before and after an operation.
type ChangeInfo struct {
	Atomic        bool
	Before, After uint64
}

// Encode writes c.
func (c *ChangeInfo) Encode(e *xdr.Encoder) {
	e.Bool(c.Atomic)
	e.Uint64(c.Before)
	e.Uint64(c.After)
}

// Decode reads c.
func (c *ChangeInfo) Decode(d *xdr.Decoder) {
	c.Atomic = d.Bool()
	c.Before, c.After = d.Uint64(), d.Uint64()
}

// Bitmap is a bitmap4: bit n%32 of word n/32 stands for number n.
type Bitmap [3]uint32

// BitmapOf returns the bitmap of the given numbers.
func BitmapOf[N ~int | ~uint32](numbers ...N) (b Bitmap) {
	for _, n := range numbers {
		b[n/32] |= 1 << (n % 32)
	}
	return b
}

// Has reports whether n is in b.
func (b *Bitmap) Has(n uint32) bool { return n < 96 && b[n/32]>>(n%32)&1 != 0 }

// Add adds n to b.
func (b *Bitmap) Add(n uint32) { b[n/32] |= 1 << (n % 32) }

// Empty reports whether b has no numbers.
func (b *Bitmap) Empty() bool { return *b == Bitmap{} }

// And returns the numbers in both.
func (b Bitmap) And(c Bitmap) Bitmap { return Bitmap{b[0] & c[0], b[1] & c[1], b[2] & c[2]} }

// Minus returns the numbers in b that are not in c.
func (b Bitmap) Minus(c Bitmap) Bitmap { return Bitmap{b[0] &^ c[0], b[1] &^ c[1], b[2] &^ c[2]} }

// Or returns the numbers in either.
func (b Bitmap) Or(c Bitmap) Bitmap { return Bitmap{b[0] | c[0], b[1] | c[1], b[2] | c[2]} }

// Len returns how many numbers b has.
func (b *Bitmap) Len() int {
	return bits.OnesCount32(b[0]) + bits.OnesCount32(b[1]) + bits.OnesCount32(b[2])
}

func (b *Bitmap) words() int {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return n
}

// Encode writes b without trailing zero words.
func (b *Bitmap) Encode(e *xdr.Encoder) {
	n := b.words()
	e.Uint32(uint32(n))
	for _, w := range b[:n] {
		e.Uint32(w)
	}
}

// Decode reads b. more: the message has numbers beyond those that a Bitmap can hold.
func (b *Bitmap) Decode(d *xdr.Decoder) (more bool) {
	*b = Bitmap{}
	n := count(d, MaxBitmap, "words of a bitmap")
	for i := range n {
		if w := d.Uint32(); i < len(b) {
			b[i] = w
		} else if w != 0 {
			more = true
		}
	}
	return more
}

// count reads the count word of an array of at most limit elements, of four bytes or more each.
func count(d *xdr.Decoder, limit int, of string) int {
	n := d.Uint32()
	switch {
	case d.Err() != nil:
		return 0
	case n > uint32(limit):
		d.Fail("%d %s, at most %d are allowed", n, of, limit)
		return 0
	case int(n) > d.Left()/4:
		d.Fail("%d %s do not fit in %d bytes", n, of, d.Left())
		return 0
	}
	return int(n)
}

// enum reads an enumeration with the values 0 to last.
func enum(d *xdr.Decoder, last uint32, name string) uint32 {
	v := d.Uint32()
	if v > last {
		d.Fail("%s is %d, must be at most %d", name, v, last)
		return 0
	}
	return v
}
