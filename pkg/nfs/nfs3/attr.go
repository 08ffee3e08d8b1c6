package nfs3

import (
	"encoding/binary"
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

// Verifier is a cookieverf3, createverf3 or writeverf3.
type Verifier [8]byte

// Encode writes v.
func (v *Verifier) Encode(e *xdr.Encoder) { e.Fixed(v[:]) }

// Decode reads v.
func (v *Verifier) Decode(d *xdr.Decoder) { copy(v[:], d.Fixed(len(v))) }

// Type is an ftype3 (RFC 1813 section 2.6).
type Type uint32

// File types.
const (
	Reg  Type = 1
	Dir  Type = 2
	Blk  Type = 3
	Chr  Type = 4
	Lnk  Type = 5
	Sock Type = 6
	FIFO Type = 7
)

var typeNames = [...]string{1: "NF3REG", "NF3DIR", "NF3BLK", "NF3CHR", "NF3LNK", "NF3SOCK", "NF3FIFO"}

// String returns the name in RFC 1813, like "NF3REG".
func (t Type) String() string {
	if t >= Reg && t <= FIFO {
		return typeNames[t]
	}
	return "ftype3(" + strconv.FormatUint(uint64(t), 10) + ")"
}

func (t *Type) decode(d *xdr.Decoder) {
	*t = Type(d.Uint32())
	if (*t < Reg || *t > FIFO) && d.Err() == nil {
		d.Fail("file type is %d, must be 1 to 7", uint32(*t))
	}
}

// Time is an nfstime3: seconds and nanoseconds since 1970, both unsigned.
type Time struct{ Sec, Nsec uint32 }

// Time converts t.
func (t Time) Time() time.Time { return time.Unix(int64(t.Sec), int64(t.Nsec)) }

// Encode writes t.
func (t *Time) Encode(e *xdr.Encoder) {
	e.Uint32(t.Sec)
	e.Uint32(t.Nsec)
}

// Decode reads t. Nanoseconds above 999,999,999 pass: a server answers NFS3ERR_INVAL.
func (t *Time) Decode(d *xdr.Decoder) { t.Sec, t.Nsec = d.Uint32(), d.Uint32() }

// SpecData is a specdata3: the major and minor number of a device.
type SpecData struct{ Major, Minor uint32 }

// Encode writes s.
func (s *SpecData) Encode(e *xdr.Encoder) {
	e.Uint32(s.Major)
	e.Uint32(s.Minor)
}

// Decode reads s.
func (s *SpecData) Decode(d *xdr.Decoder) { s.Major, s.Minor = d.Uint32(), d.Uint32() }

// Attr is a fattr3: a file's attributes. Size and Used are bytes; Mode has the permission bits
// only.
type Attr struct {
	Type                Type
	Mode                uint32
	Nlink               uint32
	UID, GID            uint32
	Size, Used          uint64
	Rdev                SpecData
	FSID, FileID        uint64
	Atime, Mtime, Ctime Time
}

// Encode writes a.
func (a *Attr) Encode(e *xdr.Encoder) {
	b := e.Grow(AttrLen)
	if b == nil {
		return
	}
	_ = b[AttrLen-1]
	be := binary.BigEndian
	be.PutUint32(b[0:], uint32(a.Type))
	be.PutUint32(b[4:], a.Mode)
	be.PutUint32(b[8:], a.Nlink)
	be.PutUint32(b[12:], a.UID)
	be.PutUint32(b[16:], a.GID)
	be.PutUint64(b[20:], a.Size)
	be.PutUint64(b[28:], a.Used)
	be.PutUint32(b[36:], a.Rdev.Major)
	be.PutUint32(b[40:], a.Rdev.Minor)
	be.PutUint64(b[44:], a.FSID)
	be.PutUint64(b[52:], a.FileID)
	be.PutUint32(b[60:], a.Atime.Sec)
	be.PutUint32(b[64:], a.Atime.Nsec)
	be.PutUint32(b[68:], a.Mtime.Sec)
	be.PutUint32(b[72:], a.Mtime.Nsec)
	be.PutUint32(b[76:], a.Ctime.Sec)
	be.PutUint32(b[80:], a.Ctime.Nsec)
}

// Decode reads a.
func (a *Attr) Decode(d *xdr.Decoder) {
	a.Type.decode(d)
	a.Mode, a.Nlink, a.UID, a.GID = d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32()
	a.Size, a.Used = d.Uint64(), d.Uint64()
	a.Rdev.Decode(d)
	a.FSID, a.FileID = d.Uint64(), d.Uint64()
	a.Atime.Decode(d)
	a.Mtime.Decode(d)
	a.Ctime.Decode(d)
}

// PostOpAttr is a post_op_attr: attributes that a server may leave out.
type PostOpAttr struct {
	Present bool
	Attr    Attr
}

// Encode writes p.
func (p *PostOpAttr) Encode(e *xdr.Encoder) {
	e.Bool(p.Present)
	if p.Present {
		p.Attr.Encode(e)
	}
}

// Decode reads p.
func (p *PostOpAttr) Decode(d *xdr.Decoder) {
	if p.Present = d.Bool(); p.Present {
		p.Attr.Decode(d)
	} else {
		p.Attr = Attr{}
	}
}

// PostOpFH is a post_op_fh3: a handle that a server may leave out (nil).
type PostOpFH struct{ Handle Handle }

// Encode writes p.
func (p *PostOpFH) Encode(e *xdr.Encoder) {
	e.Bool(p.Handle != nil)
	if p.Handle != nil {
		p.Handle.Encode(e)
	}
}

// Decode reads p.
func (p *PostOpFH) Decode(d *xdr.Decoder) {
	p.Handle = nil
	if !d.Bool() {
		return
	}
	p.Handle.Decode(d)
	if p.Handle == nil && d.Err() == nil {
		p.Handle = Handle{}
	}
}

// WccAttr is a wcc_attr: the attributes that show a change of a file.
type WccAttr struct {
	Size         uint64
	Mtime, Ctime Time
}

// WccData is a wcc_data: weak cache consistency, a file's attributes before and after an operation
// (RFC 1813 section 2.6). The server may leave out either.
type WccData struct {
	HasBefore bool
	Before    WccAttr
	After     PostOpAttr
}

// Encode writes w.
func (w *WccData) Encode(e *xdr.Encoder) {
	e.Bool(w.HasBefore)
	if w.HasBefore {
		e.Uint64(w.Before.Size)
		w.Before.Mtime.Encode(e)
		w.Before.Ctime.Encode(e)
	}
	w.After.Encode(e)
}

// Decode reads w.
func (w *WccData) Decode(d *xdr.Decoder) {
	w.Before = WccAttr{}
	if w.HasBefore = d.Bool(); w.HasBefore {
		w.Before.Size = d.Uint64()
		w.Before.Mtime.Decode(d)
		w.Before.Ctime.Decode(d)
	}
	w.After.Decode(d)
}

// TimeHow is a time_how: the clock that sets a file's time.
type TimeHow uint32

// Clocks.
const (
	DontChange      TimeHow = 0
	SetToServerTime TimeHow = 1
	SetToClientTime TimeHow = 2
)

func (h *TimeHow) decode(d *xdr.Decoder) {
	if *h = TimeHow(d.Uint32()); *h > SetToClientTime {
		d.Fail("time_how is %d, must be 0 to 2", uint32(*h))
	}
}

// SetAttrs is a sattr3: the attributes to set.
type SetAttrs struct {
	SetMode, SetUID, SetGID, SetSize bool
	Mode, UID, GID                   uint32
	Size                             uint64
	AtimeHow, MtimeHow               TimeHow
	Atime, Mtime                     Time // for SetToClientTime
}

// Encode writes s.
func (s *SetAttrs) Encode(e *xdr.Encoder) {
	optional32(e, s.SetMode, s.Mode)
	optional32(e, s.SetUID, s.UID)
	optional32(e, s.SetGID, s.GID)
	e.Bool(s.SetSize)
	if s.SetSize {
		e.Uint64(s.Size)
	}
	optionalTime(e, s.AtimeHow, &s.Atime)
	optionalTime(e, s.MtimeHow, &s.Mtime)
}

func optional32(e *xdr.Encoder, set bool, v uint32) {
	e.Bool(set)
	if set {
		e.Uint32(v)
	}
}

func optionalTime(e *xdr.Encoder, how TimeHow, t *Time) {
	e.Uint32(uint32(how))
	if how == SetToClientTime {
		t.Encode(e)
	}
}

// Decode reads s.
func (s *SetAttrs) Decode(d *xdr.Decoder) {
	*s = SetAttrs{}
	if s.SetMode = d.Bool(); s.SetMode {
		s.Mode = d.Uint32()
	}
	if s.SetUID = d.Bool(); s.SetUID {
		s.UID = d.Uint32()
	}
	if s.SetGID = d.Bool(); s.SetGID {
		s.GID = d.Uint32()
	}
	if s.SetSize = d.Bool(); s.SetSize {
		s.Size = d.Uint64()
	}
	if s.AtimeHow.decode(d); s.AtimeHow == SetToClientTime {
		s.Atime.Decode(d)
	}
	if s.MtimeHow.decode(d); s.MtimeHow == SetToClientTime {
		s.Mtime.Decode(d)
	}
}

// HandleArgs are the arguments of procedures with a handle alone.
type HandleArgs struct{ Object Handle }

// Encode writes a.
func (a *HandleArgs) Encode(e *xdr.Encoder) { a.Object.Encode(e) }

// Decode reads a.
func (a *HandleArgs) Decode(d *xdr.Decoder) { a.Object.Decode(d) }

// GetAttrArgs are the arguments of GETATTR (RFC 1813 section 3.3.1).
type GetAttrArgs = HandleArgs

// GetAttrRes is the result of GETATTR.
type GetAttrRes struct {
	Status Status
	Attr   Attr
}

// Encode writes r.
func (r *GetAttrRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	if r.Status == OK {
		r.Attr.Encode(e)
	}
}

// Decode reads r.
func (r *GetAttrRes) Decode(d *xdr.Decoder) {
	*r = GetAttrRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Attr.Decode(d)
	}
}

// SetAttrArgs are the arguments of SETATTR (RFC 1813 section 3.3.2). With Guard, the server sets
// nothing unless the object's ctime is GuardCtime.
type SetAttrArgs struct {
	Object     Handle
	New        SetAttrs
	Guard      bool
	GuardCtime Time
}

// Encode writes a.
func (a *SetAttrArgs) Encode(e *xdr.Encoder) {
	a.Object.Encode(e)
	a.New.Encode(e)
	e.Bool(a.Guard)
	if a.Guard {
		a.GuardCtime.Encode(e)
	}
}

// Decode reads a.
func (a *SetAttrArgs) Decode(d *xdr.Decoder) {
	a.Object.Decode(d)
	a.New.Decode(d)
	a.GuardCtime = Time{}
	if a.Guard = d.Bool(); a.Guard {
		a.GuardCtime.Decode(d)
	}
}

// WccRes is the result of SETATTR, REMOVE and RMDIR. Wcc is present with every status.
type WccRes struct {
	Status Status
	Wcc    WccData
}

// Encode writes r.
func (r *WccRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Wcc.Encode(e)
}

// Decode reads r.
func (r *WccRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.Wcc.Decode(d)
}

// SetAttrRes is the result of SETATTR.
type SetAttrRes = WccRes
