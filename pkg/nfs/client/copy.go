package client

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// maxCopy bounds the bytes of one COPY, and so the time of its answer.
const maxCopy = 16 << 20

// CopyRange copies size bytes at offset from one file to the same place in another, within the
// server. Without an error, the server has committed all of them, as for [Client.Upload]. progress
// is as in UploadOptions. The error is errors.ErrUnsupported with version 3, and where the server
// cannot copy between these files.
func (c *Client) CopyRange(ctx context.Context, from, to nfs3.Handle, offset, size uint64, progress func(n int64)) error {
	if err := checkRange(offset, size); err != nil {
		return err
	}
	if size == 0 {
		return nil
	}
	if progress == nil {
		progress = func(int64) {}
	}
	return c.withOpen(ctx, from, ShareRead, func(src File) error {
		return c.withOpen(ctx, to, ShareWrite, func(dst File) error {
			for range maxRewrites {
				safe, err := c.copyPass(ctx, src, dst, to, offset, size, progress)
				if safe || err != nil {
					return err
				}
				progress(-int64(size))
			}
			return fmt.Errorf("COPY: %w", errKeepsLosing)
		})
	})
}

// copyPass copies everything once, and reports whether all of it is committed.
func (c *Client) copyPass(ctx context.Context, src, dst File, to nfs3.Handle, offset, size uint64, progress func(n int64)) (safe bool, err error) {
	var u unstable
	for at, end := offset, offset+size; at < end; {
		res, err := c.Copy(ctx, src, at, dst, at, min(maxCopy, end-at))
		if err != nil {
			return false, err
		}
		if res.Count == 0 {
			return false, fmt.Errorf("COPY: the server copied nothing at offset %d", at)
		}
		if res.Committed == nfs3.Unstable {
			u.add(res.Verf)
		}
		progress(int64(res.Count))
		at += res.Count
	}
	return u.commit(ctx, c, to)
}
