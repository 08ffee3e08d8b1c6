package server

import (
	"math"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// dtpref is the preferred size of a READDIR: the largest, as in the Linux server. Linux's client
// starts smaller and grows. It asks for attributes only in the first part of a list, and looks up
// the names of other parts one by one.
const dtpref = nfs3.MaxData

func fsstat(o *op) {
	e := o.begin(4 + nfs3.PostOpAttrLen + 6*8 + 4)
	if e == nil {
		return
	}
	var a nfs3.FSStatArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.FSStatRes
	n, st := o.resolve(a.Object)
	if r.Status = st; st == nfs3.OK {
		n.Release()
		o.s.post(&o.stat, &r.Attr)
		u, err := o.s.fs.Usage()
		r.Status = status(err)
		r.TotalBytes, r.FreeBytes, r.AvailBytes = u.TotalBytes, u.FreeBytes, u.AvailBytes
		r.TotalFiles, r.FreeFiles, r.AvailFiles = u.TotalFiles, u.FreeFiles, u.FreeFiles
	}
	r.Encode(e)
	o.respond()
}

func fsinfo(o *op) {
	e := o.begin(4 + nfs3.PostOpAttrLen + 7*4 + 8 + 8 + 4)
	if e == nil {
		return
	}
	var a nfs3.FSInfoArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.FSInfoRes
	n, st := o.resolve(a.Object)
	if r.Status = st; st == nfs3.OK {
		n.Release()
		o.s.post(&o.stat, &r.Attr)
		t := o.s.fs.Capabilities()
		block := max(512, min(t.BlockSize, nfs3.MaxData))
		r.RTMax, r.RTPref, r.RTMult = nfs3.MaxData, nfs3.MaxData, block
		r.WTMax, r.WTPref, r.WTMult = nfs3.MaxData, nfs3.MaxData, block
		r.DTPref = dtpref
		r.MaxFileSize = t.MaxFileSize
		r.TimeDelta = nfs3.Time{Sec: t.TimeGranularity / 1e9, Nsec: t.TimeGranularity % 1e9}
		r.Properties = nfs3.FSFLink | nfs3.FSFSymlink | nfs3.FSFHomogeneous | nfs3.FSFCanSetTime
		if t.NoLinks {
			r.Properties &^= nfs3.FSFLink
		}
		if t.NoSymbolicLinks {
			r.Properties &^= nfs3.FSFSymlink
		}
	}
	r.Encode(e)
	o.respond()
}

func pathconf(o *op) {
	e := o.begin(4 + nfs3.PostOpAttrLen + 6*4)
	if e == nil {
		return
	}
	var a nfs3.PathConfArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.PathConfRes
	n, st := o.resolve(a.Object)
	if r.Status = st; st == nfs3.OK {
		n.Release()
		o.s.post(&o.stat, &r.Attr)
		t := o.s.fs.Capabilities()
		r.LinkMax, r.NameMax = t.MaxLinks, min(t.MaxName, math.MaxUint8)
		r.NoTrunc, r.ChownRestricted = true, true
		r.CaseInsensitive, r.CasePreserving = t.CaseInsensitive, true
	}
	r.Encode(e)
	o.respond()
}
