package nfs3test

import (
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/xdr"
)

// status is OK in two of three results.
func status(t *rapid.T) nfs3.Status {
	if rapid.IntRange(0, 2).Draw(t, "ok") > 0 {
		return nfs3.OK
	}
	return rapid.SampledFrom([]nfs3.Status{nfs3.ErrPerm, nfs3.ErrNoEnt, nfs3.ErrStale, nfs3.ErrJukebox, nfs3.ErrNameTooLong}).Draw(t, "status")
}

func attr(t *rapid.T) nfs3.Attr {
	return nfs3.Attr{
		Type: fileType(t), Mode: u32(t), Nlink: u32(t), UID: u32(t), GID: u32(t), Size: u64(t), Used: u64(t),
		Rdev: nfs3.SpecData{Major: u32(t), Minor: u32(t)}, FSID: u64(t), FileID: u64(t),
		Atime: time(t), Mtime: time(t), Ctime: time(t),
	}
}

func postOpAttr(t *rapid.T) (p nfs3.PostOpAttr) {
	if p.Present = yes(t); p.Present {
		p.Attr = attr(t)
	}
	return p
}

func postOpFH(t *rapid.T) (p nfs3.PostOpFH) {
	if yes(t) {
		p.Handle = handle(t)
		if p.Handle == nil {
			p.Handle = nfs3.Handle{}
		}
	}
	return p
}

func wccData(t *rapid.T) (w nfs3.WccData) {
	if w.HasBefore = yes(t); w.HasBefore {
		w.Before = nfs3.WccAttr{Size: u64(t), Mtime: time(t), Ctime: time(t)}
	}
	w.After = postOpAttr(t)
	return w
}

func getAttrRes(t *rapid.T) nfs3.GetAttrRes {
	r := nfs3.GetAttrRes{Status: status(t)}
	if r.Status == nfs3.OK {
		r.Attr = attr(t)
	}
	return r
}

func wccRes(t *rapid.T) nfs3.WccRes { return nfs3.WccRes{Status: status(t), Wcc: wccData(t)} }

func lookupRes(t *rapid.T) nfs3.LookupRes {
	r := nfs3.LookupRes{Status: status(t), DirAttr: postOpAttr(t)}
	if r.Status == nfs3.OK {
		r.Object, r.Attr = handle(t), postOpAttr(t)
	}
	return r
}

func accessRes(t *rapid.T) nfs3.AccessRes {
	r := nfs3.AccessRes{Status: status(t), Attr: postOpAttr(t)}
	if r.Status == nfs3.OK {
		r.Access = u32(t)
	}
	return r
}

func readlinkRes(t *rapid.T) nfs3.ReadlinkRes {
	r := nfs3.ReadlinkRes{Status: status(t), Attr: postOpAttr(t)}
	if r.Status == nfs3.OK {
		r.Path, r.Length = pieces(t, text(t, 0, 300))
	}
	return r
}

func readRes(t *rapid.T) nfs3.ReadRes {
	r := nfs3.ReadRes{Status: status(t), Attr: postOpAttr(t)}
	if r.Status == nfs3.OK {
		data, n := pieces(t, opaque(t, 0, 300))
		r.Data, r.Count, r.EOF = data, uint32(n), yes(t)
	}
	return r
}

func writeRes(t *rapid.T) nfs3.WriteRes {
	r := nfs3.WriteRes{Status: status(t), Wcc: wccData(t)}
	if r.Status == nfs3.OK {
		r.Count, r.Committed, r.Verf = u32(t), stability(t), verifier(t)
	}
	return r
}

func commitRes(t *rapid.T) nfs3.CommitRes {
	r := nfs3.CommitRes{Status: status(t), Wcc: wccData(t)}
	if r.Status == nfs3.OK {
		r.Verf = verifier(t)
	}
	return r
}

func createRes(t *rapid.T) nfs3.CreateRes {
	r := nfs3.CreateRes{Status: status(t), Wcc: wccData(t)}
	if r.Status == nfs3.OK {
		r.Object, r.Attr = postOpFH(t), postOpAttr(t)
	}
	return r
}

func renameRes(t *rapid.T) nfs3.RenameRes {
	return nfs3.RenameRes{Status: status(t), FromWcc: wccData(t), ToWcc: wccData(t)}
}

func linkRes(t *rapid.T) nfs3.LinkRes {
	return nfs3.LinkRes{Status: status(t), Attr: postOpAttr(t), Wcc: wccData(t)}
}

func fsStatRes(t *rapid.T) nfs3.FSStatRes {
	r := nfs3.FSStatRes{Status: status(t), Attr: postOpAttr(t)}
	if r.Status == nfs3.OK {
		r.TotalBytes, r.FreeBytes, r.AvailBytes = u64(t), u64(t), u64(t)
		r.TotalFiles, r.FreeFiles, r.AvailFiles = u64(t), u64(t), u64(t)
		r.Invarsec = u32(t)
	}
	return r
}

func fsInfoRes(t *rapid.T) nfs3.FSInfoRes {
	r := nfs3.FSInfoRes{Status: status(t), Attr: postOpAttr(t)}
	if r.Status == nfs3.OK {
		r.RTMax, r.RTPref, r.RTMult = u32(t), u32(t), u32(t)
		r.WTMax, r.WTPref, r.WTMult = u32(t), u32(t), u32(t)
		r.DTPref, r.MaxFileSize, r.TimeDelta, r.Properties = u32(t), u64(t), time(t), u32(t)
	}
	return r
}

func pathConfRes(t *rapid.T) nfs3.PathConfRes {
	r := nfs3.PathConfRes{Status: status(t), Attr: postOpAttr(t)}
	if r.Status == nfs3.OK {
		r.LinkMax, r.NameMax = u32(t), u32(t)
		r.NoTrunc, r.ChownRestricted, r.CaseInsensitive, r.CasePreserving = yes(t), yes(t), yes(t), yes(t)
	}
	return r
}

// List is the whole result of READDIR or READDIRPLUS. Count and DirCount are its bounds.
type List struct {
	Head            nfs3.ReaddirRes
	Entries         []nfs3.EntryPlus
	EOF             bool
	Plus            bool
	Count, DirCount uint32
}

// Encode writes as many entries of l as the bounds allow, by a ListWriter.
func (l *List) Encode(e *xdr.Encoder) {
	if l.Head.Status != nfs3.OK {
		l.Head.Encode(e)
		return
	}
	head := l.Head
	var w nfs3.ListWriter
	w.Begin(e, &head, l.Count, l.DirCount)
	for i := range l.Entries {
		if l.Plus && !w.AddPlus(&l.Entries[i]) || !l.Plus && !w.Add(&l.Entries[i].Entry) {
			break
		}
	}
	_ = w.End(l.EOF)
}

// Decode reads l.
func (l *List) Decode(d *xdr.Decoder) {
	l.Entries, l.EOF = nil, false
	if l.Head.Decode(d); l.Head.Status != nfs3.OK {
		return
	}
	for {
		var n nfs3.EntryPlus
		if l.Plus && !n.Decode(d) || !l.Plus && !n.Entry.Decode(d) {
			break
		}
		l.Entries = append(l.Entries, n)
	}
	l.EOF = d.Bool()
}

// ReaddirRes is a List of READDIR.
type ReaddirRes struct{ List }

// ReaddirPlusRes is a List of READDIRPLUS.
type ReaddirPlusRes struct{ List }

// Decode reads l.
func (l *ReaddirPlusRes) Decode(d *xdr.Decoder) {
	l.Plus, l.Count, l.DirCount = true, nfs3.MaxData, nfs3.MaxData
	l.List.Decode(d)
}

// Decode reads l.
func (l *ReaddirRes) Decode(d *xdr.Decoder) {
	l.Count, l.DirCount = nfs3.MaxData, nfs3.MaxData
	l.List.Decode(d)
}

func readdirRes(t *rapid.T) ReaddirRes         { return ReaddirRes{list(t, false)} }
func readdirPlusRes(t *rapid.T) ReaddirPlusRes { return ReaddirPlusRes{list(t, true)} }

func list(t *rapid.T, plus bool) List {
	l := List{Head: nfs3.ReaddirRes{Status: status(t), Attr: postOpAttr(t)}, Plus: plus, Count: nfs3.MaxData, DirCount: nfs3.MaxData}
	if l.Head.Status != nfs3.OK {
		return l
	}
	l.Head.Verf, l.EOF = verifier(t), yes(t)
	for range rapid.IntRange(0, 12).Draw(t, "entries") {
		n := nfs3.EntryPlus{Entry: nfs3.Entry{FileID: u64(t), Name: name(t), Cookie: u64(t)}}
		if plus {
			n.Attr, n.Handle = postOpAttr(t), postOpFH(t)
		}
		l.Entries = append(l.Entries, n)
	}
	return l
}

func mountRes(t *rapid.T) nfs3.MountRes {
	r := nfs3.MountRes{Status: status(t)}
	if r.Status == nfs3.OK {
		r.Handle, r.Flavors = handle(t), rapid.SliceOfN(rapid.Uint32(), 0, nfs3.MaxFlavors).Draw(t, "flavors")
	}
	return r
}

func dumpRes(t *rapid.T) (r nfs3.DumpRes) {
	for range rapid.IntRange(0, 5).Draw(t, "mounts") {
		r.Mounts = append(r.Mounts, nfs3.MountEntry{Host: opaque(t, 0, 20), Dir: opaque(t, 0, 20)})
	}
	return r
}

func exportRes(t *rapid.T) (r nfs3.ExportRes) {
	for range rapid.IntRange(0, 5).Draw(t, "exports") {
		x := nfs3.Export{Dir: opaque(t, 0, 20)}
		for range rapid.IntRange(0, 3).Draw(t, "groups") {
			x.Groups = append(x.Groups, opaque(t, 0, 20))
		}
		r.Exports = append(r.Exports, x)
	}
	return r
}
