package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// v4 implements Protocol by COMPOUNDs of version 4.2 (RFC 8881, RFC 7862).
type v4 struct {
	caller
	transferSizes
	session *session
}

func newV4(cfg Config) *v4 {
	c := &v4{caller: callerOf(cfg, nfs4.Version)}
	c.session = newSession(c.caller)
	return c
}

// do makes a COMPOUND of SEQUENCE and ops in the session, and passes its results to read. once is
// for calls that must not be executed twice. size bounds names and data in ops, in bytes.
func (c *v4) do(ctx context.Context, once bool, size int, read func(*results) error, ops ...operation) error {
	call := append(compound{sequence(once)}, ops...)
	for p := (patience{onDelay: c.onDelay}); ; {
		err := c.exchange(ctx, c.session, call, size, read)
		if err == nil || !p.again(ctx, err) {
			return named4(ops, err)
		}
	}
}

// named4 puts the name of the operation that matters in front of an error without one.
func named4(ops compound, err error) error {
	if err == nil || errors.As(err, new(*compoundError)) {
		return err
	}
	return fmt.Errorf("%s: %w", ops[min(1, len(ops)-1)].op, err)
}

// probeVersion asks by a COMPOUND without operations whether the server has version 4.2.
func probeVersion(ctx context.Context, c caller) (bool, error) {
	err := c.exchange(ctx, c.rq, nil, 0, func(r *results) error { return r.status.Err() })
	var rpc *oncrpc.StatusError
	switch {
	case errors.Is(err, nfs4.ErrMinorVersMismatch):
		return false, nil
	case errors.As(err, &rpc) && !rpc.Status.Denied:
		return false, nil // the program, or its version 4
	case errors.As(err, new(nfs4.Status)):
		return true, nil
	}
	return err == nil, err
}

// Null is a procedure, and no operation of a session.
func (c *v4) Null(ctx context.Context) error {
	o, err := c.NewNull()
	if err != nil {
		return err
	}
	defer o.Free()
	o.Start()
	o.Wait(ctx)
	_, err = o.Result()
	return err
}

func (c *v4) NewNull() (*Op, error) {
	r, err := c.newRequest(nfs4.ProcNull, void{}, 0)
	if err != nil {
		return nil, err
	}
	o := &Op{}
	o.init(&c.caller, c.rq, "NULL", r, func(*Op, *xdr.Decoder) error { return nil })
	return o, nil
}

// Mount looks up the path from the server's root. Version 4 has no MOUNT.
func (c *v4) Mount(ctx context.Context, path string) (nfs3.Handle, error) {
	root, err := c.root(ctx)
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' }) {
		o, err := c.Lookup(ctx, root, name)
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", path, err)
		}
		if o.Attr.Present && o.Attr.Attr.Type != nfs3.Dir {
			return nil, fmt.Errorf("mount %s: %w", path, nfs4.ErrNotDir)
		}
		root = o.Handle
	}
	_, err = c.FSInfo(ctx, root)
	return root, err
}

func (c *v4) root(ctx context.Context) (root nfs3.Handle, err error) {
	err = c.do(ctx, false, 0, func(r *results) error {
		if err := r.skip(nfs4.OpSequence, nfs4.OpPutRootFH); err != nil {
			return err
		}
		root, err = r.handle()
		return err
	}, operation{nfs4.OpPutRootFH, nil}, operation{nfs4.OpGetFH, nil})
	return root, err
}

// Unmount does nothing: the server has no list of mounts.
func (c *v4) Unmount(context.Context, string) error { return nil }

func (c *v4) Close(ctx context.Context) error { return c.session.close(ctx) }
