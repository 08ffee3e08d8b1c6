package nfs3

import "sluice.dev/sluice/pkg/xdr"

// FSStatArgs are the arguments of FSSTAT (RFC 1813 section 3.3.18).
type FSStatArgs = HandleArgs

// FSInfoArgs are the arguments of FSINFO (RFC 1813 section 3.3.19).
type FSInfoArgs = HandleArgs

// PathConfArgs are the arguments of PATHCONF (RFC 1813 section 3.3.20).
type PathConfArgs = HandleArgs

// FSStatRes is the result of FSSTAT: a file system's usage. Attr is present with every status.
// Bytes and files are total, free, and available to the caller; Invarsec is for how many seconds
// they hold.
type FSStatRes struct {
	Status                            Status
	Attr                              PostOpAttr
	TotalBytes, FreeBytes, AvailBytes uint64
	TotalFiles, FreeFiles, AvailFiles uint64
	Invarsec                          uint32
}

// Encode writes r.
func (r *FSStatRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
	if r.Status != OK {
		return
	}
	for _, v := range [...]uint64{r.TotalBytes, r.FreeBytes, r.AvailBytes, r.TotalFiles, r.FreeFiles, r.AvailFiles} {
		e.Uint64(v)
	}
	e.Uint32(r.Invarsec)
}

// Decode reads r.
func (r *FSStatRes) Decode(d *xdr.Decoder) {
	*r = FSStatRes{Status: Status(d.Uint32())}
	r.Attr.Decode(d)
	if r.Status != OK {
		return
	}
	r.TotalBytes, r.FreeBytes, r.AvailBytes = d.Uint64(), d.Uint64(), d.Uint64()
	r.TotalFiles, r.FreeFiles, r.AvailFiles = d.Uint64(), d.Uint64(), d.Uint64()
	r.Invarsec = d.Uint32()
}

// Properties of a file system (RFC 1813 section 3.3.19).
const (
	FSFLink        = 0x01 // hard links
	FSFSymlink     = 0x02 // symbolic links
	FSFHomogeneous = 0x08 // PATHCONF is the same everywhere
	FSFCanSetTime  = 0x10 // times can be set
)

// FSInfoRes is the result of FSINFO: a file system's properties. Attr is present with every status.
// Sizes are in bytes.
type FSInfoRes struct {
	Status                Status
	Attr                  PostOpAttr
	RTMax, RTPref, RTMult uint32 // READ: largest, preferred, best multiple
	WTMax, WTPref, WTMult uint32 // WRITE
	DTPref                uint32 // READDIR: preferred
	MaxFileSize           uint64
	TimeDelta             Time // the granularity of times
	Properties            uint32
}

// Encode writes r.
func (r *FSInfoRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
	if r.Status != OK {
		return
	}
	for _, v := range [...]uint32{r.RTMax, r.RTPref, r.RTMult, r.WTMax, r.WTPref, r.WTMult, r.DTPref} {
		e.Uint32(v)
	}
	e.Uint64(r.MaxFileSize)
	r.TimeDelta.Encode(e)
	e.Uint32(r.Properties)
}

// Decode reads r.
func (r *FSInfoRes) Decode(d *xdr.Decoder) {
	*r = FSInfoRes{Status: Status(d.Uint32())}
	r.Attr.Decode(d)
	if r.Status != OK {
		return
	}
	r.RTMax, r.RTPref, r.RTMult = d.Uint32(), d.Uint32(), d.Uint32()
	r.WTMax, r.WTPref, r.WTMult = d.Uint32(), d.Uint32(), d.Uint32()
	r.DTPref = d.Uint32()
	r.MaxFileSize = d.Uint64()
	r.TimeDelta.Decode(d)
	r.Properties = d.Uint32()
}

// PathConfRes is the result of PATHCONF: a file system's rules for names. Attr is present with
// every status.
type PathConfRes struct {
	Status                          Status
	Attr                            PostOpAttr
	LinkMax, NameMax                uint32
	NoTrunc, ChownRestricted        bool
	CaseInsensitive, CasePreserving bool
}

// Encode writes r.
func (r *PathConfRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
	if r.Status != OK {
		return
	}
	e.Uint32(r.LinkMax)
	e.Uint32(r.NameMax)
	e.Bool(r.NoTrunc)
	e.Bool(r.ChownRestricted)
	e.Bool(r.CaseInsensitive)
	e.Bool(r.CasePreserving)
}

// Decode reads r.
func (r *PathConfRes) Decode(d *xdr.Decoder) {
	*r = PathConfRes{Status: Status(d.Uint32())}
	r.Attr.Decode(d)
	if r.Status != OK {
		return
	}
	r.LinkMax, r.NameMax = d.Uint32(), d.Uint32()
	r.NoTrunc, r.ChownRestricted = d.Bool(), d.Bool()
	r.CaseInsensitive, r.CasePreserving = d.Bool(), d.Bool()
}
