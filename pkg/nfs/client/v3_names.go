package client

import (
	"bytes"
	"context"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/xdr"
)

// nameLen is the inline size of a name, besides fixedArgs.
func nameLen(name string) int { return 4 + xdr.Round(len(name)) }

func dirOp(dir nfs3.Handle, name string) nfs3.DirOpArgs {
	return nfs3.DirOpArgs{Dir: dir, Name: []byte(name)}
}

func (c *v3) Lookup(ctx context.Context, dir nfs3.Handle, name string) (Object, error) {
	if err := checkName(nfs3.ProcLookup, name); err != nil {
		return Object{}, err
	}
	args := dirOp(dir, name)
	var res nfs3.LookupRes
	r, err := c.do(ctx, nfs3.ProcLookup, &args, nameLen(name), &res)
	if err != nil {
		return Object{}, err
	}
	defer r.Free()
	return Object{bytes.Clone(res.Object), res.Attr}, failed(nfs3.ProcLookup, res.Status)
}

func (c *v3) Create(ctx context.Context, dir nfs3.Handle, name string, mode nfs3.CreateMode, attrs nfs3.SetAttrs, verf nfs3.Verifier) (Object, error) {
	return c.create(ctx, nfs3.ProcCreate, dir, name, &nfs3.CreateArgs{Where: dirOp(dir, name), Mode: mode, Attrs: attrs, Verf: verf})
}

func (c *v3) Mkdir(ctx context.Context, dir nfs3.Handle, name string, attrs nfs3.SetAttrs) (Object, error) {
	return c.create(ctx, nfs3.ProcMkdir, dir, name, &nfs3.MkdirArgs{Where: dirOp(dir, name), Attrs: attrs})
}

func (c *v3) Mknod(ctx context.Context, dir nfs3.Handle, name string, t nfs3.Type, attrs nfs3.SetAttrs, spec nfs3.SpecData) (Object, error) {
	return c.create(ctx, nfs3.ProcMknod, dir, name, &nfs3.MknodArgs{Where: dirOp(dir, name), Type: t, Attrs: attrs, Spec: spec})
}

func (c *v3) Symlink(ctx context.Context, dir nfs3.Handle, name, target string, attrs nfs3.SetAttrs) (Object, error) {
	b, err := linkText(c.pool, target)
	if err != nil {
		return Object{}, err
	}
	defer b.Release()
	args := nfs3.SymlinkArgs{Where: dirOp(dir, name), Attrs: attrs, Path: [][]byte{b.B}, Length: len(target)}
	return c.create(ctx, nfs3.ProcSymlink, dir, name, &args)
}

// create makes an object. If the server returns no handle, a LOOKUP follows.
func (c *v3) create(ctx context.Context, procedure uint32, dir nfs3.Handle, name string, args encoder) (Object, error) {
	if err := checkName(procedure, name); err != nil {
		return Object{}, err
	}
	var res nfs3.CreateRes
	r, err := c.do(ctx, procedure, args, nameLen(name), &res)
	if err != nil {
		return Object{}, err
	}
	o := Object{bytes.Clone(res.Object.Handle), res.Attr}
	r.Free()
	if err := failed(procedure, res.Status); err != nil || o.Handle != nil {
		return o, err
	}
	return c.Lookup(ctx, dir, name)
}

func (c *v3) Readlink(ctx context.Context, link nfs3.Handle) (string, error) {
	var res nfs3.ReadlinkRes
	r, err := c.do(ctx, nfs3.ProcReadlink, &nfs3.ReadlinkArgs{Object: link}, 0, &res)
	if err != nil {
		return "", err
	}
	defer r.Free()
	return string(bytes.Join(res.Path, nil)), failed(nfs3.ProcReadlink, res.Status)
}

func (c *v3) Remove(ctx context.Context, dir nfs3.Handle, name string) error {
	return c.remove(ctx, nfs3.ProcRemove, dir, name)
}

func (c *v3) Rmdir(ctx context.Context, dir nfs3.Handle, name string) error {
	return c.remove(ctx, nfs3.ProcRmdir, dir, name)
}

func (c *v3) remove(ctx context.Context, procedure uint32, dir nfs3.Handle, name string) error {
	if err := checkName(procedure, name); err != nil {
		return err
	}
	args := dirOp(dir, name)
	var res nfs3.WccRes
	r, err := c.do(ctx, procedure, &args, nameLen(name), &res)
	if err != nil {
		return err
	}
	r.Free()
	return failed(procedure, res.Status)
}

func (c *v3) Rename(ctx context.Context, fromDir nfs3.Handle, from string, toDir nfs3.Handle, to string) error {
	if err := checkName(nfs3.ProcRename, from, to); err != nil {
		return err
	}
	var res nfs3.RenameRes
	r, err := c.do(ctx, nfs3.ProcRename, &nfs3.RenameArgs{From: dirOp(fromDir, from), To: dirOp(toDir, to)}, nameLen(from)+nameLen(to), &res)
	if err != nil {
		return err
	}
	r.Free()
	return failed(nfs3.ProcRename, res.Status)
}

func (c *v3) Link(ctx context.Context, file, dir nfs3.Handle, name string) error {
	if err := checkName(nfs3.ProcLink, name); err != nil {
		return err
	}
	var res nfs3.LinkRes
	r, err := c.do(ctx, nfs3.ProcLink, &nfs3.LinkArgs{File: file, Link: dirOp(dir, name)}, nameLen(name), &res)
	if err != nil {
		return err
	}
	r.Free()
	return failed(nfs3.ProcLink, res.Status)
}
