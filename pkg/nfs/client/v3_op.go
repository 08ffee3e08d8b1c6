package client

import (
	"context"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/xdr"
)

func (c *v3) NewNull() (*Op, error) {
	return c.newOp(nfs3.ProcNull, void{}, 0, func(*Op, *xdr.Decoder) error { return nil })
}

func (c *v3) NewGetAttr(file nfs3.Handle) (*Op, error) {
	return c.newOp(nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: file}, 0, func(o *Op, d *xdr.Decoder) error {
		var res nfs3.GetAttrRes
		res.Decode(d)
		o.res.Attr = res.Attr
		return res.Status.Err()
	})
}

func (c *v3) NewSetAttr(file nfs3.Handle, attrs nfs3.SetAttrs) (*Op, error) {
	return c.newOp(nfs3.ProcSetAttr, &nfs3.SetAttrArgs{Object: file, New: attrs}, 0, statusV3)
}

func (c *v3) NewRename(fromDir nfs3.Handle, from string, toDir nfs3.Handle, to string) (*Op, error) {
	if err := checkName(nfs3.ProcRename, from, to); err != nil {
		return nil, err
	}
	args := nfs3.RenameArgs{From: dirOp(fromDir, from), To: dirOp(toDir, to)}
	return c.newOp(nfs3.ProcRename, &args, nameLen(from)+nameLen(to), statusV3)
}

func (c *v3) NewCreate(dir nfs3.Handle, name string, attrs nfs3.SetAttrs) (*Op, error) {
	return c.newNamed(nfs3.ProcCreate, dir, name, &nfs3.CreateArgs{Where: dirOp(dir, name), Mode: nfs3.Guarded, Attrs: attrs})
}

func (c *v3) NewRemove(dir nfs3.Handle, name string) (*Op, error) {
	args := dirOp(dir, name)
	return c.newNamed(nfs3.ProcRemove, dir, name, &args)
}

// newNamed makes a call whose arguments begin with a directory and a name.
func (c *v3) newNamed(procedure uint32, dir nfs3.Handle, name string, args encoder) (*Op, error) {
	if err := checkName(procedure, name); err != nil {
		return nil, err
	}
	o, err := c.newOp(procedure, args, nameLen(name), statusV3)
	if err != nil {
		return nil, err
	}
	o.nameAt, o.nameLen = o.r.ArgsAt+4+xdr.Round(len(dir))+4, len(name)
	return o, nil
}

func (c *v3) NewOpenRead(nfs3.Handle, *bufpool.Buf) (*Op, error) {
	return nil, fmt.Errorf("OPEN: %w by version 3", errors.ErrUnsupported)
}

func (c *v3) NewCreateWrite(nfs3.Handle, string, nfs3.SetAttrs, *bufpool.Buf, nfs3.Stability) (*Op, error) {
	return nil, fmt.Errorf("OPEN: %w by version 3", errors.ErrUnsupported)
}

// statusV3 is the decode of an Op for results of which nobody needs more than the status.
func statusV3(_ *Op, d *xdr.Decoder) error { return nfs3.Status(d.Uint32()).Err() }

// newOp makes a call. names is the number of bytes of names in args.
func (c *v3) newOp(procedure uint32, args encoder, names int, decode func(*Op, *xdr.Decoder) error) (*Op, error) {
	o := &Op{}
	if err := c.initOp(o, procedure, args, names, decode); err != nil {
		return nil, err
	}
	return o, nil
}

func (c *v3) initOp(o *Op, procedure uint32, args encoder, names int, decode func(*Op, *xdr.Decoder) error) error {
	r, err := c.newRequest(procedure, args, fixedArgs+names)
	if err != nil {
		return fmt.Errorf("%s: %w", nfs3.ProcedureName(procedure), err)
	}
	o.init(&c.caller, c.rq, nfs3.ProcedureName(procedure), r, decode)
	return nil
}

// Copy implements Protocol.
func (*v3) Copy(context.Context, File, uint64, File, uint64, uint64) (CopyResult, error) {
	return CopyResult{}, fmt.Errorf("COPY: %w by version 3", errors.ErrUnsupported)
}

// Open makes no call.
func (c *v3) Open(_ context.Context, file nfs3.Handle, _ uint32) (File, error) {
	return &v3File{c, file}, nil
}

type v3File struct {
	c      *v3
	handle nfs3.Handle
}

func (f *v3File) Close(context.Context) error { return nil }

func (f *v3File) NewRead(b *bufpool.Buf) (*Op, error) {
	o := &Op{}
	if err := o.setBuf(b); err != nil {
		return nil, fmt.Errorf("READ: %w", err)
	}
	err := f.c.initOp(o, nfs3.ProcRead, &nfs3.ReadArgs{File: f.handle, Count: uint32(len(b.B))}, 0, func(o *Op, d *xdr.Decoder) error {
		res := nfs3.ReadRes{Data: o.res.Data}
		if res.Decode(d); res.Status != nfs3.OK {
			return res.Status
		}
		return o.setRead(int(res.Count), res.EOF, res.Data)
	})
	if err != nil {
		return nil, err
	}
	o.offsetAt = o.r.ArgsAt + 4 + xdr.Round(len(f.handle))
	o.countsAt[0] = o.offsetAt + 8
	o.r.Plan.Results[0].Memory = o.mem[:]
	return o, nil
}

func (f *v3File) NewWrite(b *bufpool.Buf, stable nfs3.Stability) (*Op, error) {
	o := &Op{}
	if err := o.setBuf(b); err != nil {
		return nil, fmt.Errorf("WRITE: %w", err)
	}
	args := nfs3.WriteArgs{File: f.handle, Count: uint32(len(b.B)), Stable: stable, Data: o.mem[:]}
	err := f.c.initOp(o, nfs3.ProcWrite, &args, 0, func(o *Op, d *xdr.Decoder) error {
		var res nfs3.WriteRes
		if res.Decode(d); res.Status != nfs3.OK {
			return res.Status
		}
		return o.setWrite(res.Count, res.Committed, res.Verf)
	})
	if err != nil {
		return nil, err
	}
	o.offsetAt = o.r.ArgsAt + 4 + xdr.Round(len(f.handle))
	o.countsAt = [2]int{o.offsetAt + 8, o.offsetAt + 16} // of the arguments, and of the data
	return o, nil
}

func (c *v3) Commit(ctx context.Context, file nfs3.Handle, offset uint64, count uint32) (nfs3.Verifier, error) {
	var res nfs3.CommitRes
	r, err := c.do(ctx, nfs3.ProcCommit, &nfs3.CommitArgs{File: file, Offset: offset, Count: count}, 0, &res)
	if err != nil {
		return nfs3.Verifier{}, err
	}
	r.Free()
	return res.Verf, failed(nfs3.ProcCommit, res.Status)
}
