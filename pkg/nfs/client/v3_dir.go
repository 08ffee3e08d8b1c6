package client

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/xdr"
)

// ReadDirPlus calls READDIRPLUS. If the server does not have it, READDIR supplies names and ids
// only.
func (c *v3) ReadDirPlus(ctx context.Context, dir nfs3.Handle) iter.Seq2[DirEntry, error] {
	l := lister{c: c, dir: dir}
	return list(ctx, l.next)
}

// lister reads a directory, one result at a time.
type lister struct {
	c     *v3
	dir   nfs3.Handle
	plain bool // READDIR
}

func (l *lister) next(ctx context.Context, last *dirPart) (*dirPart, error) {
	size := l.c.dirReplySize()
	if !l.plain {
		// dircount bounds the names; half of the size is more than any server fills.
		args := nfs3.ReaddirPlusArgs{Dir: l.dir, Cookie: last.cookie, Verf: last.verf, DirCount: size / 2, MaxCount: size}
		part, err := l.call(ctx, nfs3.ProcReaddirPlus, &args)
		if !errors.Is(err, nfs3.ErrNotSupp) || last.cookie != 0 {
			return part, err
		}
		l.plain = true
	}
	return l.call(ctx, nfs3.ProcReaddir, &nfs3.ReaddirArgs{Dir: l.dir, Cookie: last.cookie, Verf: last.verf, Count: size})
}

func (l *lister) call(ctx context.Context, procedure uint32, args encoder) (*dirPart, error) {
	res := dirRes{plain: l.plain}
	r, err := l.c.do(ctx, procedure, args, 0, &res)
	if err != nil {
		return nil, err
	}
	r.Free()
	res.verf = res.head.Verf
	return &res.dirPart, failed(procedure, res.head.Status)
}

// dirRes is the whole result of READDIR or READDIRPLUS, copied out of the message.
type dirRes struct {
	dirPart
	plain bool
	head  nfs3.ReaddirRes
}

func (l *dirRes) Decode(d *xdr.Decoder) {
	if l.head.Decode(d); l.head.Status != nfs3.OK {
		return
	}
	var n nfs3.EntryPlus
	more := n.Decode
	if l.plain {
		more = n.Entry.Decode
	}
	for more(d) {
		l.cookie = n.Cookie
		l.entries = append(l.entries, DirEntry{string(n.Name), n.FileID, n.Attr, bytes.Clone(n.Handle.Handle)})
	}
	l.eof = d.Bool()
}
