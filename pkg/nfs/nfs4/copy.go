package nfs4

import "sluice.dev/sluice/pkg/xdr"

// RangeArgs are the arguments of operations with a range of a file.
type RangeArgs struct {
	StateID StateID
	Offset  uint64
	Length  uint64
}

// Encode writes a.
func (a *RangeArgs) Encode(e *xdr.Encoder) {
	a.StateID.Encode(e)
	e.Uint64(a.Offset)
	e.Uint64(a.Length)
}

// Decode reads a.
func (a *RangeArgs) Decode(d *xdr.Decoder) {
	a.StateID.Decode(d)
	a.Offset, a.Length = d.Uint64(), d.Uint64()
}

// Arguments with a range of a file.
type (
	// AllocateArgs are the arguments of ALLOCATE (RFC 7862 section 15.1).
	AllocateArgs = RangeArgs
	// DeallocateArgs are the arguments of DEALLOCATE (RFC 7862 section 15.4).
	DeallocateArgs = RangeArgs
)

// IOAdviseArgs are the arguments of IO_ADVISE (RFC 7862 section 15.5).
type IOAdviseArgs struct {
	StateID StateID
	Offset  uint64
	Length  uint64
	Hints   Bitmap
}

// Encode writes a.
func (a *IOAdviseArgs) Encode(e *xdr.Encoder) {
	a.StateID.Encode(e)
	e.Uint64(a.Offset)
	e.Uint64(a.Length)
	a.Hints.Encode(e)
}

// Decode reads a.
func (a *IOAdviseArgs) Decode(d *xdr.Decoder) {
	a.StateID.Decode(d)
	a.Offset, a.Length = d.Uint64(), d.Uint64()
	a.Hints.Decode(d)
}

// IOAdviseRes is the result of IO_ADVISE.
type IOAdviseRes struct{ Hints Bitmap }

// Encode writes r.
func (r *IOAdviseRes) Encode(e *xdr.Encoder) { r.Hints.Encode(e) }

// Decode reads r.
func (r *IOAdviseRes) Decode(d *xdr.Decoder) { r.Hints.Decode(d) }

// CopyArgs are the arguments of COPY (RFC 7862 section 15.2). Sources is the number of source
// servers: 0 for a copy within the server. Their addresses are read and dropped.
type CopyArgs struct {
	SrcStateID, DstStateID StateID
	SrcOffset, DstOffset   uint64
	Count                  uint64
	Consecutive            bool
	Synchronous            bool
	Sources                int
}

// Encode writes a, with empty names as Sources.
func (a *CopyArgs) Encode(e *xdr.Encoder) {
	a.SrcStateID.Encode(e)
	a.DstStateID.Encode(e)
	e.Uint64(a.SrcOffset)
	e.Uint64(a.DstOffset)
	e.Uint64(a.Count)
	e.Bool(a.Consecutive)
	e.Bool(a.Synchronous)
	e.Uint32(uint32(a.Sources))
	for range a.Sources {
		e.Uint32(netlocName)
		e.Uint32(0)
	}
}

// Kinds of netloc4.
const (
	netlocName    = 1
	netlocURL     = 2
	netlocNetAddr = 3
)

// Decode reads a.
func (a *CopyArgs) Decode(d *xdr.Decoder) {
	a.SrcStateID.Decode(d)
	a.DstStateID.Decode(d)
	a.SrcOffset, a.DstOffset, a.Count = d.Uint64(), d.Uint64(), d.Uint64()
	a.Consecutive, a.Synchronous = d.Bool(), d.Bool()
	a.Sources = count(d, MaxSources, "source servers")
	for range a.Sources {
		switch kind := d.Uint32(); kind {
		case netlocName, netlocURL:
			d.Opaque(MaxPath)
		case netlocNetAddr:
			d.Opaque(MaxOpaque)
			d.Opaque(MaxOpaque)
		default:
			d.Fail("netloc_type4 is %d, must be 1 to 3", kind)
		}
	}
}

// WriteResponse is a write_response4. HasCallback: the operation goes on, and CB_OFFLOAD with the
// stateid reports its end.
type WriteResponse struct {
	HasCallback bool
	Callback    StateID
	Count       uint64
	Committed   Stability
	Verf        Verifier
}

func (w *WriteResponse) encode(e *xdr.Encoder) {
	e.Bool(w.HasCallback) // a count of 0 or 1
	if w.HasCallback {
		w.Callback.Encode(e)
	}
	e.Uint64(w.Count)
	e.Uint32(uint32(w.Committed))
	w.Verf.Encode(e)
}

func (w *WriteResponse) decode(d *xdr.Decoder) {
	*w = WriteResponse{}
	if w.HasCallback = count(d, 1, "callback stateids") == 1; w.HasCallback {
		w.Callback.Decode(d)
	}
	w.Count = d.Uint64()
	w.Committed.decode(d)
	w.Verf.Decode(d)
}

// CopyRequirements is a copy_requirements4: the result of COPY after its WriteResponse, and the
// whole result with NFS4ERR_OFFLOAD_NO_REQS.
type CopyRequirements struct{ Consecutive, Synchronous bool }

// Encode writes r.
func (r *CopyRequirements) Encode(e *xdr.Encoder) {
	e.Bool(r.Consecutive)
	e.Bool(r.Synchronous)
}

// Decode reads r.
func (r *CopyRequirements) Decode(d *xdr.Decoder) { r.Consecutive, r.Synchronous = d.Bool(), d.Bool() }

// CopyRes is the result of COPY.
type CopyRes struct {
	Response     WriteResponse
	Requirements CopyRequirements
}

// Encode writes r.
func (r *CopyRes) Encode(e *xdr.Encoder) {
	r.Response.encode(e)
	r.Requirements.Encode(e)
}

// Decode reads r.
func (r *CopyRes) Decode(d *xdr.Decoder) {
	r.Response.decode(d)
	r.Requirements.Decode(d)
}

// OffloadStatusRes is the result of OFFLOAD_STATUS. Status is that of a complete copy.
type OffloadStatusRes struct {
	Count    uint64
	Complete bool
	Status   Status
}

// Encode writes r.
func (r *OffloadStatusRes) Encode(e *xdr.Encoder) {
	e.Uint64(r.Count)
	e.Bool(r.Complete) // a count of 0 or 1
	if r.Complete {
		e.Uint32(uint32(r.Status))
	}
}

// Decode reads r.
func (r *OffloadStatusRes) Decode(d *xdr.Decoder) {
	*r = OffloadStatusRes{Count: d.Uint64()}
	if r.Complete = count(d, 1, "statuses of an offload") == 1; r.Complete {
		r.Status = Status(d.Uint32())
	}
}

// CloneArgs are the arguments of CLONE (RFC 7862 section 15.13).
type CloneArgs struct {
	SrcStateID, DstStateID StateID
	SrcOffset, DstOffset   uint64
	Count                  uint64
}

// Encode writes a.
func (a *CloneArgs) Encode(e *xdr.Encoder) {
	a.SrcStateID.Encode(e)
	a.DstStateID.Encode(e)
	e.Uint64(a.SrcOffset)
	e.Uint64(a.DstOffset)
	e.Uint64(a.Count)
}

// Decode reads a.
func (a *CloneArgs) Decode(d *xdr.Decoder) {
	a.SrcStateID.Decode(d)
	a.DstStateID.Decode(d)
	a.SrcOffset, a.DstOffset, a.Count = d.Uint64(), d.Uint64(), d.Uint64()
}

// Content is a data_content4.
type Content uint32

// Contents of a range.
const (
	ContentData Content = 0
	ContentHole Content = 1
)

// SeekArgs are the arguments of SEEK (RFC 7862 section 15.11).
type SeekArgs struct {
	StateID StateID
	Offset  uint64
	What    Content
}

// Encode writes a.
func (a *SeekArgs) Encode(e *xdr.Encoder) {
	a.StateID.Encode(e)
	e.Uint64(a.Offset)
	e.Uint32(uint32(a.What))
}

// Decode reads a. Any content passes: a server answers NFS4ERR_UNION_NOTSUPP.
func (a *SeekArgs) Decode(d *xdr.Decoder) {
	a.StateID.Decode(d)
	a.Offset = d.Uint64()
	a.What = Content(d.Uint32())
}

// SeekRes is the result of SEEK.
type SeekRes struct {
	EOF    bool
	Offset uint64
}

// Encode writes r.
func (r *SeekRes) Encode(e *xdr.Encoder) {
	e.Bool(r.EOF)
	e.Uint64(r.Offset)
}

// Decode reads r.
func (r *SeekRes) Decode(d *xdr.Decoder) { r.EOF, r.Offset = d.Bool(), d.Uint64() }

// Segment is a read_plus_content: Data at Offset, or a hole of Length bytes.
type Segment struct {
	Content Content
	Offset  uint64
	Length  uint64
	Data    []byte
}

// Encode writes s, with Data inline: they are not eligible (RFC 8267).
func (s *Segment) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(s.Content))
	e.Uint64(s.Offset)
	if s.Content == ContentHole {
		e.Uint64(s.Length)
	} else {
		e.Opaque(s.Data)
	}
}

// Decode reads s.
func (s *Segment) Decode(d *xdr.Decoder) {
	*s = Segment{Content: Content(enum(d, uint32(ContentHole), "data_content4")), Offset: d.Uint64()}
	if s.Content == ContentHole {
		s.Length = d.Uint64()
	} else {
		s.Data = d.Opaque(MaxData)
		s.Length = uint64(len(s.Data))
	}
}

// ReadPlusRes is the result of READ_PLUS.
type ReadPlusRes struct {
	EOF      bool
	Segments []Segment
}

// Encode writes r.
func (r *ReadPlusRes) Encode(e *xdr.Encoder) {
	e.Bool(r.EOF)
	e.Uint32(uint32(len(r.Segments)))
	for i := range r.Segments {
		r.Segments[i].Encode(e)
	}
}

// Decode reads r.
func (r *ReadPlusRes) Decode(d *xdr.Decoder) {
	r.EOF, r.Segments = d.Bool(), r.Segments[:0]
	for range count(d, MaxContents, "segments") {
		r.Segments = append(r.Segments, Segment{})
		r.Segments[len(r.Segments)-1].Decode(d)
	}
}
