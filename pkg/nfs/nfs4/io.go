package nfs4

import "sluice.dev/sluice/pkg/xdr"

// ReadArgs are the arguments of READ (RFC 8881 section 18.22) and READ_PLUS (RFC 7862 section
// 15.10).
type ReadArgs struct {
	StateID StateID
	Offset  uint64
	Count   uint32
}

// ReadPlusArgs are the arguments of READ_PLUS.
type ReadPlusArgs = ReadArgs

// Encode writes a.
func (a *ReadArgs) Encode(e *xdr.Encoder) {
	a.StateID.Encode(e)
	e.Uint64(a.Offset)
	e.Uint32(a.Count)
}

// Decode reads a.
func (a *ReadArgs) Decode(d *xdr.Decoder) {
	a.StateID.Decode(d)
	a.Offset, a.Count = d.Uint64(), d.Uint32()
}

// ReadRes is the result of READ. Data hold Length bytes, at most MaxData.
type ReadRes struct {
	EOF    bool
	Data   [][]byte
	Length int
	// Taken is set by Decode if the data were an item of the message.
	Taken bool
}

// Encode writes r. The data become an item; the message needs them while it is in use.
func (r *ReadRes) Encode(e *xdr.Encoder) {
	e.Bool(r.EOF)
	e.Bulk(r.Data, r.Length)
}

// Decode reads r. Data are views of the message's memory, in a reused slice.
func (r *ReadRes) Decode(d *xdr.Decoder) {
	r.EOF = d.Bool()
	r.Data, r.Length, r.Taken = d.Bulk(MaxData, r.Data[:0])
}

// Stability is a stable_how4: the stability of a WRITE, requested or achieved.
type Stability uint32

// Stabilities.
const (
	Unstable Stability = 0
	DataSync Stability = 1
	FileSync Stability = 2
)

func (s *Stability) decode(d *xdr.Decoder) { *s = Stability(enum(d, uint32(FileSync), "stable_how4")) }

// WriteArgs are the arguments of WRITE (RFC 8881 section 18.32). Data hold Length bytes, at most
// MaxData.
type WriteArgs struct {
	StateID StateID
	Offset  uint64
	Stable  Stability
	Data    [][]byte
	Length  int
	// Taken is set by Decode if the data were an item of the message.
	Taken bool
}

// Encode writes a. The data become an item; the message needs them while it is in use.
func (a *WriteArgs) Encode(e *xdr.Encoder) {
	a.StateID.Encode(e)
	e.Uint64(a.Offset)
	e.Uint32(uint32(a.Stable))
	e.Bulk(a.Data, a.Length)
}

// Decode reads a. Data are views of the message's memory, in a reused slice.
func (a *WriteArgs) Decode(d *xdr.Decoder) {
	a.StateID.Decode(d)
	a.Offset = d.Uint64()
	a.Stable.decode(d)
	a.Data, a.Length, a.Taken = d.Bulk(MaxData, a.Data[:0])
}

// WriteRes is the result of WRITE.
type WriteRes struct {
	Count     uint32
	Committed Stability
	Verf      Verifier
}

// Encode writes r.
func (r *WriteRes) Encode(e *xdr.Encoder) {
	e.Uint32(r.Count)
	e.Uint32(uint32(r.Committed))
	r.Verf.Encode(e)
}

// Decode reads r.
func (r *WriteRes) Decode(d *xdr.Decoder) {
	r.Count = d.Uint32()
	r.Committed.decode(d)
	r.Verf.Decode(d)
}

// CommitArgs are the arguments of COMMIT (RFC 8881 section 18.3). Count 0 means up to the end of
// the file.
type CommitArgs struct {
	Offset uint64
	Count  uint32
}

// Encode writes a.
func (a *CommitArgs) Encode(e *xdr.Encoder) {
	e.Uint64(a.Offset)
	e.Uint32(a.Count)
}

// Decode reads a.
func (a *CommitArgs) Decode(d *xdr.Decoder) { a.Offset, a.Count = d.Uint64(), d.Uint32() }

// CommitRes is the result of COMMIT.
type CommitRes struct{ Verf Verifier }

// Encode writes r.
func (r *CommitRes) Encode(e *xdr.Encoder) { r.Verf.Encode(e) }

// Decode reads r.
func (r *CommitRes) Decode(d *xdr.Decoder) { r.Verf.Decode(d) }
