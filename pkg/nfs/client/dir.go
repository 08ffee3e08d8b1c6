package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/xdr"
)

// DirEntry is an entry of a directory. A server may leave out Attr and Handle.
type DirEntry struct {
	Name   string
	FileID uint64
	Attr   nfs3.PostOpAttr
	Handle nfs3.Handle
}

// dirReplySize is the requested size of a result: FSINFO's preference, within bounds.
func (c *Client) dirReplySize() uint32 {
	const least, most = 8 << 10, 64 << 10
	return max(least, min(c.dtpref.Load(), most))
}

// ReadDirPlus lists a directory with attributes and handles. "." and ".." are included if the
// server has them. The list ends with the first error. If the server has no READDIRPLUS, READDIR
// supplies names and ids only.
func (c *Client) ReadDirPlus(ctx context.Context, dir nfs3.Handle) iter.Seq2[DirEntry, error] {
	return func(yield func(DirEntry, error) bool) {
		l := lister{c: c, dir: dir}
		for !l.eof {
			entries, err := l.next(ctx)
			if err != nil {
				yield(DirEntry{}, err)
				return
			}
			for _, n := range entries {
				if !yield(n, nil) {
					return
				}
			}
		}
	}
}

// lister reads a directory, one result at a time.
type lister struct {
	c      *Client
	dir    nfs3.Handle
	cookie uint64
	verf   nfs3.Verifier
	plain  bool // READDIR
	eof    bool
}

func (l *lister) next(ctx context.Context) ([]DirEntry, error) {
	if !l.plain {
		size := l.c.dirReplySize()
		// dircount bounds the names; half of the size is more than any server fills.
		args := nfs3.ReaddirPlusArgs{Dir: l.dir, Cookie: l.cookie, Verf: l.verf, DirCount: size / 2, MaxCount: size}
		entries, err := l.call(ctx, nfs3.ProcReaddirPlus, &args)
		if !errors.Is(err, nfs3.ErrNotSupp) || l.cookie != 0 {
			return entries, err
		}
		l.plain = true
	}
	return l.call(ctx, nfs3.ProcReaddir, &nfs3.ReaddirArgs{Dir: l.dir, Cookie: l.cookie, Verf: l.verf, Count: l.c.dirReplySize()})
}

func (l *lister) call(ctx context.Context, procedure uint32, args encoder) ([]DirEntry, error) {
	list := dirList{plain: l.plain}
	r, err := l.c.do(ctx, procedure, args, 0, &list)
	if err != nil {
		return nil, err
	}
	r.Free()
	if err := failed(procedure, list.head.Status); err != nil {
		return nil, err
	}
	if !list.eof && (len(list.entries) == 0 || list.cookie == l.cookie) {
		return nil, fmt.Errorf("%s: the server's list is stuck at cookie %d", nfs3.ProcedureName(procedure), l.cookie)
	}
	l.cookie, l.verf, l.eof = list.cookie, list.head.Verf, list.eof
	return list.entries, nil
}

// dirList is the whole result of READDIR or READDIRPLUS, copied out of the message.
type dirList struct {
	plain   bool
	head    nfs3.ReaddirRes
	entries []DirEntry
	cookie  uint64 // of the last entry
	eof     bool
}

func (l *dirList) Decode(d *xdr.Decoder) {
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
