package nfs3

import "sluice.dev/sluice/pkg/xdr"

// ReaddirArgs are the arguments of READDIR (RFC 1813 section 3.3.16). Count bounds the result's
// size in bytes.
type ReaddirArgs struct {
	Dir    Handle
	Cookie uint64
	Verf   Verifier
	Count  uint32
}

// Encode writes a.
func (a *ReaddirArgs) Encode(e *xdr.Encoder) {
	a.Dir.Encode(e)
	e.Uint64(a.Cookie)
	a.Verf.Encode(e)
	e.Uint32(a.Count)
}

// Decode reads a.
func (a *ReaddirArgs) Decode(d *xdr.Decoder) {
	a.Dir.Decode(d)
	a.Cookie = d.Uint64()
	a.Verf.Decode(d)
	a.Count = d.Uint32()
}

// ReaddirPlusArgs are the arguments of READDIRPLUS (RFC 1813 section 3.3.17). MaxCount bounds the
// result's size in bytes, DirCount that of its ids, names and cookies alone.
type ReaddirPlusArgs struct {
	Dir                Handle
	Cookie             uint64
	Verf               Verifier
	DirCount, MaxCount uint32
}

// Encode writes a.
func (a *ReaddirPlusArgs) Encode(e *xdr.Encoder) {
	a.Dir.Encode(e)
	e.Uint64(a.Cookie)
	a.Verf.Encode(e)
	e.Uint32(a.DirCount)
	e.Uint32(a.MaxCount)
}

// Decode reads a.
func (a *ReaddirPlusArgs) Decode(d *xdr.Decoder) {
	a.Dir.Decode(d)
	a.Cookie = d.Uint64()
	a.Verf.Decode(d)
	a.DirCount, a.MaxCount = d.Uint32(), d.Uint32()
}

// ReaddirRes is the head of the result of READDIR and READDIRPLUS, and all of it if Status is not
// OK. A server writes a whole result by ListWriter. A client calls Decode, then Entry.Decode or
// EntryPlus.Decode until that returns false, then reads the boolean eof.
type ReaddirRes struct {
	Status Status
	Attr   PostOpAttr // the directory's
	Verf   Verifier
}

// Encode writes r.
func (r *ReaddirRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
	if r.Status == OK {
		r.Verf.Encode(e)
	}
}

// Decode reads r.
func (r *ReaddirRes) Decode(d *xdr.Decoder) {
	*r = ReaddirRes{Status: Status(d.Uint32())}
	r.Attr.Decode(d)
	if r.Status == OK {
		r.Verf.Decode(d)
	}
}

// Entry is an entry3.
type Entry struct {
	FileID uint64
	Name   []byte
	Cookie uint64
}

// Decode reads the next entry. It returns false after the last, or if d failed.
func (n *Entry) Decode(d *xdr.Decoder) bool {
	if !d.Bool() {
		return false
	}
	n.FileID = d.Uint64()
	n.Name = d.Opaque(MaxPath)
	n.Cookie = d.Uint64()
	return d.Err() == nil
}

// EntryPlus is an entryplus3.
type EntryPlus struct {
	Entry
	Attr   PostOpAttr
	Handle PostOpFH
}

// Decode reads the next entry. It returns false after the last, or if d failed.
func (n *EntryPlus) Decode(d *xdr.Decoder) bool {
	if !n.Entry.Decode(d) {
		return false
	}
	n.Attr.Decode(d)
	n.Handle.Decode(d)
	return d.Err() == nil
}

// ListWriter writes the result of a READDIR or READDIRPLUS entry by entry, within the bounds that
// its caller set:
//
//	w.Begin(e, &head, count, dircount)
//	for … && w.Add(&entry) { … }   // or AddPlus
//	status = w.End(eof)
type ListWriter struct {
	e        *xdr.Encoder
	head     *ReaddirRes
	start    xdr.Mark
	left     int // bytes left for entries
	dirLeft  int
	entries  int
	rejected bool
}

// listTail is the size of End's output: the end of the list, and eof.
const listTail = 8

// Begin writes the head of a successful result; head stays in use until End. count is READDIR's
// count or READDIRPLUS's maxcount: the largest result without its status. dirCount is
// READDIRPLUS's; for READDIR repeat count. Counts above MaxData count as MaxData.
func (w *ListWriter) Begin(e *xdr.Encoder, head *ReaddirRes, count, dirCount uint32) {
	*w = ListWriter{e: e, head: head, start: e.Mark(), dirLeft: int(min(dirCount, MaxData))}
	head.Status = OK
	at := e.Pos() + 4
	head.Encode(e)
	w.left = min(int(min(count, MaxData))-(e.Pos()-at), e.Room()) - listTail
}

// Add writes an entry of READDIR. If it exceeds a bound, Add writes nothing and returns false: the
// entry starts the next result.
func (w *ListWriter) Add(n *Entry) bool {
	size := 4 + n.size()
	if !w.fits(size, n.size()) {
		return false
	}
	n.encode(w.e)
	return true
}

// AddPlus is Add for READDIRPLUS.
func (w *ListWriter) AddPlus(n *EntryPlus) bool {
	size := 4 + n.size() + 8
	if n.Attr.Present {
		size += AttrLen
	}
	if n.Handle.Handle != nil {
		size += 4 + xdr.Round(len(n.Handle.Handle))
	}
	if !w.fits(size, n.size()) {
		return false
	}
	n.encode(w.e)
	n.Attr.Encode(w.e)
	n.Handle.Encode(w.e)
	return true
}

// fits takes an entry from the bounds. dirCount does not bind the first entry, since a result
// without entries makes no progress.
func (w *ListWriter) fits(size, dirSize int) bool {
	if w.rejected || size > w.left || (dirSize > w.dirLeft && w.entries > 0) {
		w.rejected = true
		return false
	}
	w.left -= size
	w.dirLeft -= dirSize
	w.entries++
	return true
}

// Len returns the number of entries written.
func (w *ListWriter) Len() int { return w.entries }

// End finishes the result and returns its status. eof: no entry follows. If there are entries and
// not even the first fitted, the result becomes NFS3ERR_TOOSMALL.
func (w *ListWriter) End(eof bool) Status {
	if w.left < 0 || (w.rejected && w.entries == 0) {
		w.e.Truncate(w.start)
		w.head.Status = ErrTooSmall
		w.head.Encode(w.e)
		return ErrTooSmall
	}
	w.e.Bool(false)
	w.e.Bool(eof && !w.rejected)
	return OK
}

// size is the encoded size of the entry without the boolean before it, as dircount counts it.
func (n *Entry) size() int { return 8 + 4 + xdr.Round(len(n.Name)) + 8 }

func (n *Entry) encode(e *xdr.Encoder) {
	e.Bool(true)
	e.Uint64(n.FileID)
	e.Opaque(n.Name)
	e.Uint64(n.Cookie)
}
