package binding

import (
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// nfs3Binding is the binding of NFS version 3 (RFC 8267 section 4). Eligible arguments are the data
// of WRITE and the path of SYMLINK; eligible results are the data of READ and the path of READLINK.
type nfs3Binding struct{}

// listSlack is the part of a READDIR or READDIRPLUS reply beyond its count: the status, and the
// fields around the list. Servers, Linux included, hold only the list against the count.
const listSlack = 4 + nfs3.PostOpAttrLen + 8 + 8

// maxReply3 bounds the results of each procedure, in bytes after the RPC header. Where a count in
// the arguments bounds a result, the entry is the remainder.
var maxReply3 = [nfs3.Procedures]int{
	nfs3.ProcNull:        0,
	nfs3.ProcGetAttr:     4 + nfs3.AttrLen,
	nfs3.ProcSetAttr:     4 + nfs3.WccDataLen,
	nfs3.ProcLookup:      4 + nfs3.HandleLen + 2*nfs3.PostOpAttrLen,
	nfs3.ProcAccess:      4 + nfs3.PostOpAttrLen + 4,
	nfs3.ProcReadlink:    4 + nfs3.PostOpAttrLen + 4 + nfs3.MaxPath,
	nfs3.ProcRead:        4 + nfs3.PostOpAttrLen + 4 + 4 + 4,
	nfs3.ProcWrite:       4 + nfs3.WccDataLen + 4 + 4 + 8,
	nfs3.ProcCreate:      maxCreate,
	nfs3.ProcMkdir:       maxCreate,
	nfs3.ProcSymlink:     maxCreate,
	nfs3.ProcMknod:       maxCreate,
	nfs3.ProcRemove:      4 + nfs3.WccDataLen,
	nfs3.ProcRmdir:       4 + nfs3.WccDataLen,
	nfs3.ProcRename:      4 + 2*nfs3.WccDataLen,
	nfs3.ProcLink:        4 + nfs3.PostOpAttrLen + nfs3.WccDataLen,
	nfs3.ProcReaddir:     listSlack,
	nfs3.ProcReaddirPlus: listSlack,
	nfs3.ProcFSStat:      4 + nfs3.PostOpAttrLen + 6*8 + 4,
	nfs3.ProcFSInfo:      4 + nfs3.PostOpAttrLen + 7*4 + 8 + 8 + 4,
	nfs3.ProcPathConf:    4 + nfs3.PostOpAttrLen + 6*4,
	nfs3.ProcCommit:      4 + nfs3.WccDataLen + 8,
}

const maxCreate = 4 + nfs3.PostOpFHLen + nfs3.PostOpAttrLen + nfs3.WccDataLen

// Plan implements oncrpc.Binding. An unknown procedure gets an empty reply plan: the answer is
// PROC_UNAVAIL.
func (nfs3Binding) Plan(p *oncrpc.Plan, args []oncrpc.Argument, procedure uint32, d *xdr.Decoder) ([]oncrpc.Argument, error) {
	p.Results = p.Results[:0]
	p.MaxReply, p.Estimated = 0, false
	if procedure >= nfs3.Procedures {
		return args, nil
	}
	begin := d.Pos()
	result := -1 // length of the eligible result
	count := 0   // bound from the arguments
	switch procedure {
	case nfs3.ProcRead:
		var a nfs3.ReadArgs
		a.Decode(d)
		result = int(min(a.Count, nfs3.MaxData))
		count = xdr.Round(result)
	case nfs3.ProcReadlink:
		var a nfs3.ReadlinkArgs
		a.Decode(d)
		result = nfs3.MaxPath
	case nfs3.ProcWrite:
		var file nfs3.Handle
		file.Decode(d)
		d.Skip(8 + 4 + 4) // offset, count, stable
		args = append(args, argument(d, nfs3.MaxData))
	case nfs3.ProcSymlink:
		var where nfs3.DirOpArgs
		where.Decode(d)
		var attrs nfs3.SetAttrs
		attrs.Decode(d)
		args = append(args, argument(d, nfs3.MaxPath))
	case nfs3.ProcReaddir:
		var a nfs3.ReaddirArgs
		a.Decode(d)
		count = xdr.Round(int(min(a.Count, nfs3.MaxData)))
	case nfs3.ProcReaddirPlus:
		var a nfs3.ReaddirPlusArgs
		a.Decode(d)
		count = xdr.Round(int(min(a.MaxCount, nfs3.MaxData)))
	}
	if err := d.Err(); err != nil {
		return args, err
	}
	p.MaxReply = maxReply3[procedure] + count
	if result >= 0 {
		p.Results = append(p.Results, oncrpc.Result{Max: result, Begin: begin, End: d.Pos()})
	}
	return args, nil
}

func argument(d *xdr.Decoder, limit int) oncrpc.Argument {
	at, n, _ := bulk(d, limit)
	return oncrpc.Argument{Position: at, Length: n}
}

// bulk skips a counted opaque, which may be an item. A method of the nfs3 structs would make the
// list of slices escape.
func bulk(d *xdr.Decoder, limit int) (at, n int, taken bool) {
	at = d.Pos() + 4
	var scratch [8][]byte
	_, n, taken = d.Bulk(limit, scratch[:0])
	return at, n, taken
}

// Results implements oncrpc.Binding.
func (nfs3Binding) Results(found []oncrpc.Found, p *oncrpc.Plan, placed []int, procedure uint32, d *xdr.Decoder) ([]oncrpc.Found, error) {
	if procedure != nfs3.ProcRead && procedure != nfs3.ProcReadlink {
		return found, nil
	}
	if len(p.Results) != 1 {
		d.Fail("%s has one eligible result, %d are planned", nfs3.ProcedureName(procedure), len(p.Results))
		return found, d.Err()
	}
	was := 0
	if len(placed) > 0 {
		was = placed[0]
	}
	var attr nfs3.PostOpAttr
	status := nfs3.Status(d.Uint32())
	attr.Decode(d)
	f := oncrpc.Found{State: oncrpc.Absent}
	if status == nfs3.OK {
		f = result(d, procedure, p.Results[0].Max, was)
	}
	if was > 0 && f.State != oncrpc.Placed {
		d.Fail("%d bytes were placed for a reply of %s that has no data", was, nfs3.ProcedureName(procedure))
	}
	if err := d.Err(); err != nil {
		return found, err
	}
	return append(found, f), nil
}

// result reads the rest of a successful result of at most limit bytes. The transport placed was
// bytes.
func result(d *xdr.Decoder, procedure uint32, limit, was int) oncrpc.Found {
	if procedure == nfs3.ProcRead {
		d.Skip(8) // count, eof
	}
	if was == 0 {
		at, n, taken := bulk(d, limit)
		switch {
		case n == 0:
			return oncrpc.Found{State: oncrpc.Absent}
		case taken:
			return oncrpc.Found{State: oncrpc.Placed, Position: at, Length: n}
		}
		return oncrpc.Found{State: oncrpc.Inline, Position: at, Length: n}
	}
	n := int(d.Uint32())
	if n > limit || (was != n && was != xdr.Round(n)) {
		d.Fail("%d bytes were placed where the reply says %d, and at most %d were asked for", was, n, limit)
	}
	if n == 0 {
		return oncrpc.Found{State: oncrpc.Absent}
	}
	return oncrpc.Found{State: oncrpc.Placed, Position: d.Pos(), Length: n}
}
