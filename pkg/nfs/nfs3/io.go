package nfs3

import (
	"strconv"

	"sluice.dev/sluice/pkg/xdr"
)

// ReadArgs are the arguments of READ (RFC 1813 section 3.3.6). Count is in bytes.
type ReadArgs struct {
	File   Handle
	Offset uint64
	Count  uint32
}

// Encode writes a.
func (a *ReadArgs) Encode(e *xdr.Encoder) {
	a.File.Encode(e)
	e.Uint64(a.Offset)
	e.Uint32(a.Count)
}

// Decode reads a.
func (a *ReadArgs) Decode(d *xdr.Decoder) {
	a.File.Decode(d)
	a.Offset, a.Count = d.Uint64(), d.Uint32()
}

// ReadRes is the result of READ. Data hold Count bytes, at most MaxData.
type ReadRes struct {
	Status Status
	Attr   PostOpAttr
	Count  uint32
	EOF    bool
	Data   [][]byte
	// Taken is set by Decode if the data were an item of the message.
	Taken bool
}

// Encode writes r. The data become an item; the message needs them while it is in use.
func (r *ReadRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
	if r.Status == OK {
		e.Uint32(r.Count)
		e.Bool(r.EOF)
		e.Bulk(r.Data, int(r.Count))
	}
}

// Decode reads r. Data are views of the message's memory, in a reused slice. A count that differs
// from the data's length is a failure.
func (r *ReadRes) Decode(d *xdr.Decoder) {
	*r = ReadRes{Status: Status(d.Uint32()), Data: r.Data[:0]}
	r.Attr.Decode(d)
	if r.Status != OK {
		return
	}
	r.Count, r.EOF = d.Uint32(), d.Bool()
	var n int
	if r.Data, n, r.Taken = d.Bulk(MaxData, r.Data); uint32(n) != r.Count && d.Err() == nil {
		d.Fail("READ says it has %d bytes, its data are %d", r.Count, n)
	}
}

// Stability is a stable_how: the stability of a WRITE, requested or achieved.
type Stability uint32

// Stabilities.
const (
	Unstable Stability = 0
	DataSync Stability = 1
	FileSync Stability = 2
)

// String returns the name in RFC 1813.
func (s Stability) String() string {
	switch s {
	case Unstable:
		return "UNSTABLE"
	case DataSync:
		return "DATA_SYNC"
	case FileSync:
		return "FILE_SYNC"
	}
	return "stable_how(" + strconv.FormatUint(uint64(s), 10) + ")"
}

func (s *Stability) decode(d *xdr.Decoder) {
	if *s = Stability(d.Uint32()); *s > FileSync {
		d.Fail("stable_how is %d, must be 0 to 2", uint32(*s))
	}
}

// WriteArgs are the arguments of WRITE (RFC 1813 section 3.3.7). Data hold Count bytes, at most
// MaxData.
type WriteArgs struct {
	File   Handle
	Offset uint64
	Count  uint32
	Stable Stability
	Data   [][]byte
	// Taken is set by Decode if the data were an item of the message.
	Taken bool
}

// Encode writes a. The data become an item; the message needs them while it is in use.
func (a *WriteArgs) Encode(e *xdr.Encoder) {
	a.File.Encode(e)
	e.Uint64(a.Offset)
	e.Uint32(a.Count)
	e.Uint32(uint32(a.Stable))
	e.Bulk(a.Data, int(a.Count))
}

// Decode reads a. Data are views of the message's memory, in a reused slice. A count that differs
// from the data's length is a failure, as with other servers.
func (a *WriteArgs) Decode(d *xdr.Decoder) {
	a.File.Decode(d)
	a.Offset, a.Count = d.Uint64(), d.Uint32()
	a.Stable.decode(d)
	var n int
	if a.Data, n, a.Taken = d.Bulk(MaxData, a.Data[:0]); uint32(n) != a.Count && d.Err() == nil {
		d.Fail("WRITE says it has %d bytes, its data are %d", a.Count, n)
	}
}

// WriteRes is the result of WRITE. Wcc is present with every status.
type WriteRes struct {
	Status    Status
	Wcc       WccData
	Count     uint32
	Committed Stability
	Verf      Verifier
}

// Encode writes r.
func (r *WriteRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Wcc.Encode(e)
	if r.Status == OK {
		e.Uint32(r.Count)
		e.Uint32(uint32(r.Committed))
		r.Verf.Encode(e)
	}
}

// Decode reads r.
func (r *WriteRes) Decode(d *xdr.Decoder) {
	*r = WriteRes{Status: Status(d.Uint32())}
	r.Wcc.Decode(d)
	if r.Status == OK {
		r.Count = d.Uint32()
		r.Committed.decode(d)
		r.Verf.Decode(d)
	}
}

// CommitArgs are the arguments of COMMIT (RFC 1813 section 3.3.21). Count 0 means up to the end of
// the file.
type CommitArgs struct {
	File   Handle
	Offset uint64
	Count  uint32
}

// Encode writes a.
func (a *CommitArgs) Encode(e *xdr.Encoder) { (*ReadArgs)(a).Encode(e) }

// Decode reads a.
func (a *CommitArgs) Decode(d *xdr.Decoder) { (*ReadArgs)(a).Decode(d) }

// CommitRes is the result of COMMIT. Wcc is present with every status.
type CommitRes struct {
	Status Status
	Wcc    WccData
	Verf   Verifier
}

// Encode writes r.
func (r *CommitRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Wcc.Encode(e)
	if r.Status == OK {
		r.Verf.Encode(e)
	}
}

// Decode reads r.
func (r *CommitRes) Decode(d *xdr.Decoder) {
	*r = CommitRes{Status: Status(d.Uint32())}
	r.Wcc.Decode(d)
	if r.Status == OK {
		r.Verf.Decode(d)
	}
}
