package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// withOpen runs f on an open file.
func (c *Client) withOpen(ctx context.Context, file nfs3.Handle, access uint32, f func(File) error) error {
	o, err := c.Open(ctx, file, access)
	if err != nil {
		return err
	}
	err = f(o)
	if e := o.Close(ctx); err == nil {
		err = e
	}
	return err
}

// Read reads up to len(b.B) bytes at offset into b by one READ, without a copy if the transport can
// place them there. It may return fewer; eof reports that the file ends there.
func (c *Client) Read(ctx context.Context, file nfs3.Handle, offset uint64, b *bufpool.Buf) (n int, eof bool, err error) {
	err = c.withOpen(ctx, file, ShareRead, func(f File) error {
		o, err := f.NewRead(b)
		if err != nil {
			return err
		}
		defer o.Free()
		o.SetRange(offset, len(b.B))
		o.Start()
		res, err := o.Await(ctx)
		if err != nil {
			return err
		}
		for _, s := range res.Data {
			if len(s) > 0 && &s[0] != &b.B[n] {
				copy(b.B[n:], s)
			}
			n += len(s)
		}
		eof = res.EOF
		return nil
	})
	return n, eof, err
}

// Write writes b.B at offset by one WRITE, directly from b, which must be of the client's pool. The
// result has the number of bytes written, their stability, and the verifier.
func (c *Client) Write(ctx context.Context, file nfs3.Handle, offset uint64, b *bufpool.Buf, stable nfs3.Stability) (res Result, err error) {
	err = c.withOpen(ctx, file, ShareWrite, func(f File) error {
		o, err := f.NewWrite(b, stable)
		if err != nil {
			return err
		}
		defer o.Free()
		o.SetRange(offset, len(b.B))
		o.Start()
		r, err := o.Await(ctx)
		if err == nil {
			res = *r
		}
		return err
	})
	return res, err
}

// ReadAt fills p from offset, by as many READs as it takes. Like an io.ReaderAt it returns io.EOF
// if the file ends before.
func (c *Client) ReadAt(ctx context.Context, file nfs3.Handle, p []byte, offset uint64) (int, error) {
	at := 0
	_, err := c.Download(ctx, file, offset, uint64(len(p)), func(data [][]byte) error {
		for _, s := range data {
			at += copy(p[at:], s)
		}
		return nil
	})
	if err == nil && at < len(p) {
		err = io.EOF
	}
	return at, err
}

// WriteAt writes p at offset, as Upload does.
func (c *Client) WriteAt(ctx context.Context, file nfs3.Handle, p []byte, offset uint64, stable nfs3.Stability) error {
	// src has the file's offsets.
	return c.Upload(ctx, file, shifted{bytes.NewReader(p), int64(offset)}, offset, uint64(len(p)), UploadOptions{Stable: stable})
}

type shifted struct {
	r  io.ReaderAt
	by int64
}

func (s shifted) ReadAt(p []byte, off int64) (int, error) { return s.r.ReadAt(p, off-s.by) }

func checkRange(offset, size uint64) error {
	if offset > math.MaxInt64 || size > math.MaxInt64-offset {
		return fmt.Errorf("%d bytes at offset %d end behind the largest offset, %d", size, offset, int64(math.MaxInt64))
	}
	return nil
}
