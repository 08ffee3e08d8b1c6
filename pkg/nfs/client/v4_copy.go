package client

import (
	"context"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// Copy makes a synchronous COPY (RFC 7862 section 15.2). It opens the files anew when the server
// has lost them.
func (c *v4) Copy(ctx context.Context, from File, fromOffset uint64, to File, toOffset, count uint64) (CopyResult, error) {
	src, dst := from.(*v4File), to.(*v4File)
	for revivals := 0; ; revivals++ {
		args := &nfs4.CopyArgs{
			SrcStateID: src.current(), DstStateID: dst.current(), SrcOffset: fromOffset, DstOffset: toOffset, Count: count,
			Consecutive: true, Synchronous: true,
		}
		res, err := c.copy(ctx, src.handle, dst.handle, args)
		if revivals == maxRevivals || !isLostState(err) || !src.revive(ctx, args.SrcStateID, err) || !dst.revive(ctx, args.DstStateID, err) {
			return res, err
		}
	}
}

func (c *v4) copy(ctx context.Context, from, to nfs3.Handle, args *nfs4.CopyArgs) (CopyResult, error) {
	var res nfs4.CopyRes
	err := c.do(ctx, false, 0, func(r *results) error {
		if err := r.skip(nfs4.OpSequence, nfs4.OpPutFH, nfs4.OpSaveFH, nfs4.OpPutFH); err != nil {
			return err
		}
		return r.get(nfs4.OpCopy, &res)
	}, putFH(from), operation{nfs4.OpSaveFH, nil}, putFH(to), operation{nfs4.OpCopy, args})
	w := &res.Response
	switch {
	case errors.Is(err, nfs4.ErrNotSupp), errors.Is(err, nfs4.ErrOffloadNoReqs), errors.Is(err, nfs4.ErrOffloadDenied), errors.Is(err, nfs4.ErrXDev):
		return CopyResult{}, fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	case err != nil:
		return CopyResult{}, err
	case w.HasCallback:
		return CopyResult{}, errors.New("COPY: the server answers that it copies later, which was not allowed")
	case args.Count > 0 && w.Count > args.Count:
		return CopyResult{}, fmt.Errorf("COPY: the server copied %d of %d bytes", w.Count, args.Count)
	}
	return CopyResult{Count: w.Count, Committed: nfs3.Stability(w.Committed), Verf: nfs3.Verifier(w.Verf)}, nil
}
