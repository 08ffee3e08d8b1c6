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

// Read reads up to len(b.B) bytes at offset into b by one READ, without a copy if the transport can
// place them there. It may return fewer; eof reports that the file ends there.
func (c *Client) Read(ctx context.Context, file nfs3.Handle, offset uint64, b *bufpool.Buf) (n int, eof bool, err error) {
	o, err := c.NewRead(file, b)
	if err != nil {
		return 0, false, err
	}
	defer o.Free()
	o.SetRange(offset, len(b.B))
	o.Start()
	o.Wait(ctx)
	var res nfs3.ReadRes
	if err := o.readResult(ctx, &res, len(b.B)); err != nil {
		return 0, false, err
	}
	at := 0
	for _, s := range res.Data {
		if len(s) > 0 && &s[0] != &b.B[at] {
			copy(b.B[at:], s)
		}
		at += len(s)
	}
	return at, res.EOF, nil
}

// readResult is Result for a READ of n bytes, with its status as an error. It repeats the call
// after NFS3ERR_JUKEBOX.
func (o *Op) readResult(ctx context.Context, res *nfs3.ReadRes, n int) error {
	for p := (patience{}); ; o.Wait(ctx) {
		if err := o.Result(res); err != nil {
			return err
		}
		if res.Status == nfs3.OK && int(res.Count) > n {
			return fmt.Errorf("READ: the server returned %d of %d bytes", res.Count, n)
		}
		if !p.again(ctx, res.Status) {
			return failed(nfs3.ProcRead, res.Status)
		}
		o.Start()
	}
}

// Write writes b.B at offset by one WRITE, directly from b, which must be of the client's pool. The
// result has the number of bytes written, their stability, and the verifier.
func (c *Client) Write(ctx context.Context, file nfs3.Handle, offset uint64, b *bufpool.Buf, stable nfs3.Stability) (nfs3.WriteRes, error) {
	var res nfs3.WriteRes
	o, err := c.NewWrite(file, b, stable)
	if err != nil {
		return res, err
	}
	defer o.Free()
	o.SetRange(offset, len(b.B))
	o.Start()
	o.Wait(ctx)
	err = o.writeResult(ctx, &res, len(b.B))
	return res, err
}

// writeResult is Result for a WRITE of n bytes, with its status as an error. It repeats the call
// after NFS3ERR_JUKEBOX.
func (o *Op) writeResult(ctx context.Context, res *nfs3.WriteRes, n int) error {
	for p := (patience{}); ; o.Wait(ctx) {
		if err := o.Result(res); err != nil {
			return err
		}
		if res.Status == nfs3.OK && (res.Count == 0 || int(res.Count) > n) {
			return fmt.Errorf("WRITE: the server wrote %d of %d bytes", res.Count, n)
		}
		if !p.again(ctx, res.Status) {
			return failed(nfs3.ProcWrite, res.Status)
		}
		o.Start()
	}
}

// Commit makes count bytes at offset stable; 0 means up to the end. Data written under another
// verifier than the returned one must be written again.
func (c *Client) Commit(ctx context.Context, file nfs3.Handle, offset uint64, count uint32) (nfs3.Verifier, error) {
	var res nfs3.CommitRes
	r, err := c.do(ctx, nfs3.ProcCommit, &nfs3.CommitArgs{File: file, Offset: offset, Count: count}, 0, &res)
	if err != nil {
		return nfs3.Verifier{}, err
	}
	r.Free()
	return res.Verf, failed(nfs3.ProcCommit, res.Status)
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
