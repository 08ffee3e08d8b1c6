package client

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/xdr"
)

// handle reads the result of GETFH.
func (r *results) handle() (nfs3.Handle, error) {
	var res nfs4.GetFHRes
	err := r.get(nfs4.OpGetFH, &res)
	return nfs3.Handle(bytes.Clone(res.Object)), err
}

// postOp reads the result of GETATTR behind an operation that succeeded. Without it the attributes
// are missing.
func (r *results) postOp() (nfs3.PostOpAttr, error) {
	var a v4Attrs
	err := r.get(nfs4.OpGetAttr, &a)
	if errors.As(err, new(*compoundError)) {
		return nfs3.PostOpAttr{}, nil
	}
	return nfs3.PostOpAttr{Present: err == nil, Attr: a.attr}, err
}

// object reads the results of GETFH and GETATTR.
func (r *results) object() (o Object, err error) {
	if o.Handle, err = r.handle(); err == nil {
		o.Attr, err = r.postOp()
	}
	return o, err
}

func (c *v4) Lookup(ctx context.Context, dir nfs3.Handle, name string) (o Object, err error) {
	if err := checkName(nfs3.ProcLookup, name); err != nil {
		return o, err
	}
	err = c.do(ctx, false, nameLen(name), func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		if err := r.skip(nfs4.OpLookup); err != nil {
			return err
		}
		o, err = r.object()
		return err
	}, putFH(dir), named(nfs4.OpLookup, name), operation{nfs4.OpGetFH, nil}, getAttr(fileAttrs))
	return o, err
}

// Create opens the file and closes it. The exclusive mode is EXCLUSIVE4_1.
func (c *v4) Create(ctx context.Context, dir nfs3.Handle, name string, mode nfs3.CreateMode, attrs nfs3.SetAttrs, verf nfs3.Verifier) (o Object, err error) {
	if err := checkName(nfs3.ProcCreate, name); err != nil {
		return o, err
	}
	err = c.do(ctx, true, nameLen(name), func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		if err := r.get(nfs4.OpOpen, new(nfs4.OpenRes)); err != nil {
			return err
		}
		if o.Handle, err = r.handle(); err != nil {
			return err
		}
		if err := r.get(nfs4.OpClose, new(nfs4.CloseRes)); err != nil {
			return err
		}
		o.Attr, err = r.postOp()
		return err
	}, append(c.createOps(dir, name, mode, attrs, verf), getAttr(fileAttrs))...)
	return o, err
}

// createOps make a file and close it. CLOSE uses the current stateid, OPEN's.
func (c *v4) createOps(dir nfs3.Handle, name string, mode nfs3.CreateMode, attrs nfs3.SetAttrs, verf nfs3.Verifier) compound {
	args := c.session.openArgs(ShareWrite)
	args.Create, args.Claim, args.Name = true, nfs4.ClaimNull, []byte(name)
	args.Attrs = encodeAttrs(&attrs)
	switch mode {
	case nfs3.Guarded:
		args.Mode = nfs4.Guarded
	case nfs3.Exclusive:
		args.Mode, args.Verifier = nfs4.Exclusive1, nfs4.Verifier(verf)
	}
	return compound{
		putFH(dir), {nfs4.OpOpen, args}, {nfs4.OpGetFH, nil},
		{nfs4.OpClose, &nfs4.CloseArgs{StateID: nfs4.CurrentStateID}},
	}
}

func (c *v4) Mkdir(ctx context.Context, dir nfs3.Handle, name string, attrs nfs3.SetAttrs) (Object, error) {
	return c.create(ctx, nfs3.ProcMkdir, dir, name, nfs4.CreateArgs{Type: nfs4.Dir}, attrs)
}

func (c *v4) Mknod(ctx context.Context, dir nfs3.Handle, name string, t nfs3.Type, attrs nfs3.SetAttrs, spec nfs3.SpecData) (Object, error) {
	args := nfs4.CreateArgs{Type: nfs4.Type(t), Device: nfs4.SpecData(spec)}
	return c.create(ctx, nfs3.ProcMknod, dir, name, args, attrs)
}

func (c *v4) Symlink(ctx context.Context, dir nfs3.Handle, name, target string, attrs nfs3.SetAttrs) (Object, error) {
	b, err := linkText(c.pool, target)
	if err != nil {
		return Object{}, err
	}
	defer b.Release()
	args := nfs4.CreateArgs{Type: nfs4.Lnk, Link: [][]byte{b.B}, LinkLength: len(target)}
	return c.create(ctx, nfs3.ProcSymlink, dir, name, args, attrs)
}

// create makes an object that is no regular file.
func (c *v4) create(ctx context.Context, procedure uint32, dir nfs3.Handle, name string, args nfs4.CreateArgs, attrs nfs3.SetAttrs) (o Object, err error) {
	if err := checkName(procedure, name); err != nil {
		return o, err
	}
	args.Name, args.Attrs = []byte(name), encodeAttrs(&attrs)
	err = c.do(ctx, true, nameLen(name), func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		if err := r.get(nfs4.OpCreate, new(nfs4.CreateRes)); err != nil {
			return err
		}
		o, err = r.object()
		return err
	}, putFH(dir), operation{nfs4.OpCreate, &args}, operation{nfs4.OpGetFH, nil}, getAttr(fileAttrs))
	return o, err
}

func (c *v4) Readlink(ctx context.Context, link nfs3.Handle) (target string, err error) {
	err = c.do(ctx, false, 0, func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		var res nfs4.ReadlinkRes
		err := r.get(nfs4.OpReadlink, &res)
		target = string(bytes.Join(res.Link, nil))
		return err
	}, putFH(link), operation{nfs4.OpReadlink, nil})
	return target, err
}

// isDirectory are the attributes that VERIFY and NVERIFY compare.
var isDirectory = nfs4.Attrs{Mask: nfs4.BitmapOf(nfs4.AttrType), Values: []byte{0, 0, 0, byte(nfs4.Dir)}}

func (c *v4) Remove(ctx context.Context, dir nfs3.Handle, name string) error {
	err := c.remove(ctx, nfs3.ProcRemove, dir, name, operation{nfs4.OpNVerify, &nfs4.NVerifyArgs{Attrs: isDirectory}})
	if errors.Is(err, nfs4.ErrSame) {
		return failed(nfs3.ProcRemove, nfs3.ErrIsDir)
	}
	return err
}

func (c *v4) Rmdir(ctx context.Context, dir nfs3.Handle, name string) error {
	err := c.remove(ctx, nfs3.ProcRmdir, dir, name, operation{nfs4.OpVerify, &nfs4.VerifyArgs{Attrs: isDirectory}})
	if errors.Is(err, nfs4.ErrNotSame) {
		return failed(nfs3.ProcRmdir, nfs3.ErrNotDir)
	}
	return err
}

// remove removes a name if check lets it: the REMOVE of version 4 takes files and directories.
func (c *v4) remove(ctx context.Context, procedure uint32, dir nfs3.Handle, name string, check operation) error {
	if err := checkName(procedure, name); err != nil {
		return err
	}
	return c.do(ctx, true, 2*nameLen(name), func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		if err := r.skip(nfs4.OpLookup, check.op, nfs4.OpPutFH); err != nil {
			return err
		}
		return r.next(nfs4.OpRemove)
	}, putFH(dir), named(nfs4.OpLookup, name), check, putFH(dir), named(nfs4.OpRemove, name))
}

func (c *v4) Rename(ctx context.Context, fromDir nfs3.Handle, from string, toDir nfs3.Handle, to string) error {
	if err := checkName(nfs3.ProcRename, from, to); err != nil {
		return err
	}
	return c.do(ctx, true, nameLen(from)+nameLen(to), readRename, renameOps(fromDir, from, toDir, to)...)
}

func renameOps(fromDir nfs3.Handle, from string, toDir nfs3.Handle, to string) compound {
	args := &nfs4.RenameArgs{OldName: []byte(from), NewName: []byte(to)}
	return compound{putFH(fromDir), {nfs4.OpSaveFH, nil}, putFH(toDir), {nfs4.OpRename, args}}
}

func readRename(r *results) error {
	if err := r.opened(); err != nil {
		return err
	}
	return r.skip(nfs4.OpSaveFH, nfs4.OpPutFH, nfs4.OpRename)
}

func (c *v4) Link(ctx context.Context, file, dir nfs3.Handle, name string) error {
	if err := checkName(nfs3.ProcLink, name); err != nil {
		return err
	}
	return c.do(ctx, true, nameLen(name), func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		return r.skip(nfs4.OpSaveFH, nfs4.OpPutFH, nfs4.OpLink)
	}, putFH(file), operation{nfs4.OpSaveFH, nil}, putFH(dir), named(nfs4.OpLink, name))
}

func (c *v4) ReadDirPlus(ctx context.Context, dir nfs3.Handle) iter.Seq2[DirEntry, error] {
	return list(ctx, func(ctx context.Context, last *dirPart) (*dirPart, error) {
		size := c.dirReplySize()
		args := nfs4.ReaddirArgs{
			Cookie: last.cookie, Verf: nfs4.Verifier(last.verf), DirCount: size / 2, MaxCount: size, Request: entryAttrs,
		}
		var part dirPart
		err := c.do(ctx, false, 0, func(r *results) error {
			if err := r.opened(); err != nil {
				return err
			}
			part = dirPart{}
			return r.get(nfs4.OpReaddir, v4List{&part})
		}, putFH(dir), operation{nfs4.OpReaddir, &args})
		return &part, err
	})
}

// v4List decodes the result of READDIR.
type v4List struct{ *dirPart }

func (l v4List) Decode(d *xdr.Decoder) {
	(*nfs4.Verifier)(&l.verf).Decode(d)
	var n nfs4.Entry
	var a v4Attrs
	for n.Decode(d) {
		l.cookie = n.Cookie
		if err := a.set(&n.Attrs); err != nil {
			d.Fail("attributes of an entry: %v", err)
			return
		}
		e := DirEntry{Name: string(n.Name), FileID: a.attr.FileID, Handle: bytes.Clone(a.handle)}
		if a.has.Has(nfs4.AttrType) {
			e.Attr = nfs3.PostOpAttr{Present: true, Attr: a.attr}
		}
		l.entries = append(l.entries, e)
	}
	l.eof = d.Bool()
}
