package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// Bounds of RemoveAll.
const (
	removeBatch    = 128 // names of a directory in memory
	removeParallel = 16  // calls in flight
	removeDepth    = 32  // directories below each other in memory
)

// RemoveAll removes a name of a directory, and all below if it is a directory itself. A missing
// name is no error. After an error the rest is still there, and another call goes on with it.
//
// It removes symbolic links and never follows them. It does not enter another file system, which is
// an error that wraps [unix.EXDEV]. Its memory has a bound: it moves directories from far below to
// the top, under names that begin with ".removing-", before it removes them.
func (c *Client) RemoveAll(ctx context.Context, dir nfs3.Handle, name string) error {
	o, err := c.Lookup(ctx, dir, name)
	o, err = c.withAttr(ctx, o, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	r := remover{c: c, top: o.Handle, fsid: o.Attr.Attr.FSID}
	return r.remove(ctx, dir, DirEntry{Name: name, Attr: o.Attr, Handle: o.Handle}, 0)
}

// withAttr completes the attributes of a found object.
func (c *Client) withAttr(ctx context.Context, o Object, err error) (Object, error) {
	if err == nil && !o.Attr.Present {
		o.Attr.Attr, err = c.GetAttr(ctx, o.Handle)
		o.Attr.Present = err == nil
	}
	return o, err
}

// remover removes one tree.
type remover struct {
	c    *Client
	top  nfs3.Handle
	fsid uint64
}

// remove removes an entry. Another client, or an earlier transmission of a call, may have removed
// it meanwhile.
func (r *remover) remove(ctx context.Context, dir nfs3.Handle, e DirEntry, depth int) error {
	err := r.try(ctx, dir, e, depth)
	var inner *fs.PathError
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &inner):
		return &fs.PathError{Op: "remove", Path: e.Name + "/" + inner.Path, Err: inner.Err}
	}
	return &fs.PathError{Op: "remove", Path: e.Name, Err: err}
}

func (r *remover) try(ctx context.Context, dir nfs3.Handle, e DirEntry, depth int) error {
	if !e.Attr.Present || e.Attr.Attr.Type == nfs3.Dir && e.Handle == nil {
		o, err := r.c.Lookup(ctx, dir, e.Name)
		if o, err = r.c.withAttr(ctx, o, err); err != nil {
			return err
		}
		e.Attr, e.Handle = o.Attr, o.Handle
	}
	switch {
	case e.Attr.Attr.Type != nfs3.Dir:
		return r.c.Remove(ctx, dir, e.Name)
	case e.Attr.Attr.FSID != r.fsid:
		return fmt.Errorf("another file system begins there: %w", unix.EXDEV)
	case depth == removeDepth:
		return r.c.Rename(ctx, dir, e.Name, r.top, fmt.Sprintf(".removing-%016x", rand.Uint64()))
	}
	for {
		all, err := r.batch(ctx, e.Handle)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return r.c.Rmdir(ctx, dir, e.Name)
		}
		if err := r.removeBatch(ctx, e.Handle, all, depth+1); err != nil {
			return err
		}
	}
}

// batch returns the first entries of a directory, none of an empty one.
func (r *remover) batch(ctx context.Context, dir nfs3.Handle) (all []DirEntry, err error) {
	for e, err := range r.c.ReadDirPlus(ctx, dir) {
		if err != nil {
			return nil, err
		}
		if e.Name == "." || e.Name == ".." {
			continue
		}
		if all = append(all, e); len(all) == removeBatch {
			break
		}
	}
	return all, nil
}

// removeBatch removes entries of a directory: directories one by one, the others several at once.
func (r *remover) removeBatch(ctx context.Context, dir nfs3.Handle, all []DirEntry, depth int) error {
	files, filesCtx := errgroup.WithContext(ctx)
	files.SetLimit(removeParallel)
	var dirs []DirEntry
	for _, e := range all {
		if !e.Attr.Present || e.Attr.Attr.Type == nfs3.Dir {
			dirs = append(dirs, e)
			continue
		}
		files.Go(func() error { return r.remove(filesCtx, dir, e, depth) })
	}
	if err := files.Wait(); err != nil {
		return err
	}
	for _, e := range dirs {
		if err := r.remove(ctx, dir, e, depth); err != nil {
			return err
		}
	}
	return nil
}
