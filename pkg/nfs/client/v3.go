package client

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// v3 implements Protocol by the procedures of RFC 1813.
type v3 struct {
	caller
	transferSizes
	mount oncrpc.Requester
}

func newV3(cfg Config) *v3 {
	c := &v3{caller: callerOf(cfg, nfs3.Version), mount: cfg.Mount}
	if c.mount == nil {
		c.mount = c.rq
	}
	return c
}

// fixedArgs bounds the arguments of all procedures without names and data: two handles of RENAME,
// or a handle and sattr3 of CREATE.
const fixedArgs = 256

// do makes a call and decodes its results into res. They stay valid until the caller frees the
// request. names is the number of bytes of inline names and paths in args.
func (c *v3) do(ctx context.Context, procedure uint32, args encoder, names int, res decoder) (*oncrpc.Request, error) {
	for p := (patience{onDelay: c.onDelay}); ; {
		r, err := c.newRequest(procedure, args, fixedArgs+names)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", nfs3.ProcedureName(procedure), err)
		}
		if err := finish(oncrpc.Do(ctx, c.rq, r), r, res); err != nil {
			r.Free()
			return nil, fmt.Errorf("%s: %w", nfs3.ProcedureName(procedure), err)
		}
		if d, _ := r.Results(); procedure == nfs3.ProcNull || !p.again(ctx, nfs3.Status(d.Uint32())) {
			return r, nil
		}
		r.Free()
	}
}

// failed returns the error of a status, nil for NFS3_OK.
func failed(procedure uint32, s nfs3.Status) error {
	if s == nfs3.OK {
		return nil
	}
	return fmt.Errorf("%s: %w", nfs3.ProcedureName(procedure), s)
}

func (c *v3) Null(ctx context.Context) error {
	r, err := c.do(ctx, nfs3.ProcNull, void{}, 0, void{})
	if err != nil {
		return err
	}
	r.Free()
	return nil
}

// Close does nothing: version 3 has no state.
func (c *v3) Close(context.Context) error { return nil }
