package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// pipeline keeps calls of one kind in flight, and yields them in the order of their starts.
type pipeline struct {
	limit int
	bufs  []*bufpool.Buf
	idle  []*Op
	queue []piece // oldest first
	make  func(*bufpool.Buf) (*Op, error)
}

// piece is a range of a file in transfer.
type piece struct {
	op     *Op
	offset uint64
	n      int
}

// op returns an unused Op with a buffer of size bytes.
func (p *pipeline) op(c *Client, size int) (*Op, error) {
	if n := len(p.idle); n > 0 {
		o := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return o, nil
	}
	b, err := c.pool.Get(size)
	if err != nil {
		return nil, err
	}
	o, err := p.make(b)
	if err != nil {
		b.Release()
		return nil, err
	}
	p.bufs = append(p.bufs, b)
	return o, nil
}

func (p *pipeline) full() bool { return len(p.queue) == p.limit }

func (p *pipeline) start(o *Op, offset uint64, n int) {
	o.SetRange(offset, n)
	o.Start()
	p.queue = append(p.queue, piece{o, offset, n})
}

// next takes the oldest call, which may be in flight. The caller returns its Op by done.
func (p *pipeline) next() piece {
	x := p.queue[0]
	p.queue = append(p.queue[:0], p.queue[1:]...)
	return x
}

func (p *pipeline) done(o *Op) { p.idle = append(p.idle, o) }

// close abandons the calls in flight and frees everything.
func (p *pipeline) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for len(p.queue) > 0 {
		o := p.next().op
		o.Wait(ctx)
		p.done(o)
	}
	for _, o := range p.idle {
		o.Free()
	}
	for _, b := range p.bufs {
		b.Release()
	}
}

// Download reads size bytes from offset by READs of ReadSize bytes, several at a time, and passes
// them to sink in order. The slices are valid until sink returns. It stops at the end of the file,
// and returns the number of bytes.
func (c *Client) Download(ctx context.Context, file nfs3.Handle, offset, size uint64, sink func(data [][]byte) error) (int64, error) {
	if err := checkRange(offset, size); err != nil {
		return 0, err
	}
	if size == 0 {
		return 0, nil
	}
	var total int64
	err := c.withOpen(ctx, file, ShareRead, func(f File) error {
		p := pipeline{limit: c.window, make: f.NewRead}
		defer p.close()
		return c.download(ctx, &p, offset, size, sink, &total)
	})
	return total, err
}

func (c *Client) download(ctx context.Context, p *pipeline, offset, size uint64, sink func(data [][]byte) error, total *int64) error {
	most := int(min(uint64(c.ReadSize()), size))
	for ask, end := offset, offset+size; ; {
		for ask < end && !p.full() {
			o, err := p.op(c, most)
			if errors.Is(err, bufpool.ErrExhausted) && len(p.queue) > 0 {
				break // continue with fewer
			} else if err != nil {
				return err
			}
			n := int(min(uint64(most), end-ask))
			p.start(o, ask, n)
			ask += uint64(n)
		}
		if len(p.queue) == 0 {
			return nil
		}
		x := p.next()
		eof, err := takeRead(ctx, x, sink, total)
		p.done(x.op)
		if err != nil || eof {
			return err
		}
	}
}

// takeRead passes on the data of a READ. After a short one it requests the rest.
func takeRead(ctx context.Context, x piece, sink func([][]byte) error, total *int64) (eof bool, err error) {
	for {
		res, err := x.op.Await(ctx)
		if err != nil {
			return false, err
		}
		if res.Count > 0 {
			if err := sink(res.Data); err != nil {
				return false, err
			}
		}
		*total += int64(res.Count)
		x.offset, x.n = x.offset+uint64(res.Count), x.n-res.Count
		switch {
		case res.EOF:
			return true, nil
		case x.n == 0:
			return false, nil
		case res.Count == 0:
			return false, fmt.Errorf("READ: the server returned no data at offset %d, and no end of file", x.offset)
		}
		x.op.SetRange(x.offset, x.n)
		x.op.Start()
	}
}

// UploadOptions configure Upload.
type UploadOptions struct {
	// Stable is the stability of each WRITE. With Unstable, a COMMIT follows the last.
	Stable nfs3.Stability
	// Progress gets the number of bytes that the server has taken; negative if some must be written
	// again. It may be nil.
	Progress func(n int64)
}

// maxRewrites bounds the passes after the server lost data.
const maxRewrites = 8

// Upload writes size bytes at offset by WRITEs of WriteSize bytes, several at a time. The offsets
// of src are the file's. Without an error, the server has committed all bytes when Upload returns:
// after a change of the verifier (the server restarted and may have lost uncommitted data) Upload
// reads them from src and writes them again.
func (c *Client) Upload(ctx context.Context, file nfs3.Handle, src io.ReaderAt, offset, size uint64, opts UploadOptions) error {
	if err := checkRange(offset, size); err != nil {
		return err
	}
	if size == 0 {
		return nil
	}
	if opts.Progress == nil {
		opts.Progress = func(int64) {}
	}
	return c.withOpen(ctx, file, ShareWrite, func(f File) error {
		u := upload{
			c: c, file: file, src: src, opts: opts,
			p: pipeline{limit: c.window, make: func(b *bufpool.Buf) (*Op, error) { return f.NewWrite(b, opts.Stable) }},
		}
		defer u.p.close()
		for range maxRewrites {
			safe, err := u.pass(ctx, offset, size)
			if safe || err != nil {
				return err
			}
			opts.Progress(-int64(size))
		}
		return fmt.Errorf("WRITE: %w", errKeepsLosing)
	})
}

var errKeepsLosing = fmt.Errorf("the server lost uncommitted data %d times in a row: its write verifier keeps changing", maxRewrites)

// unstable are the data of a pass that the server may lose.
type unstable struct {
	verf    nfs3.Verifier // of the first
	pending bool          // there are some
	lost    bool          // later ones had another verifier
}

func (u *unstable) add(verf nfs3.Verifier) {
	if !u.pending {
		u.verf, u.pending = verf, true
	}
	u.lost = u.lost || verf != u.verf
}

// commit makes COMMIT if it is needed, and reports whether the server has lost nothing.
func (u *unstable) commit(ctx context.Context, c *Client, file nfs3.Handle) (safe bool, err error) {
	if !u.pending {
		return true, nil
	}
	verf, err := c.Commit(ctx, file, 0, 0)
	return err == nil && !u.lost && verf == u.verf, err
}

type upload struct {
	c    *Client
	file nfs3.Handle
	src  io.ReaderAt
	opts UploadOptions
	p    pipeline
	unstable
}

// pass writes everything once, and reports whether all of it is committed.
func (u *upload) pass(ctx context.Context, offset, size uint64) (safe bool, err error) {
	u.unstable = unstable{}
	most := int(min(uint64(u.c.WriteSize()), size))
	for ask, end := offset, offset+size; ; {
		for ask < end && !u.p.full() {
			o, err := u.p.op(u.c, most)
			if errors.Is(err, bufpool.ErrExhausted) && len(u.p.queue) > 0 {
				break
			} else if err != nil {
				return false, err
			}
			n := int(min(uint64(most), end-ask))
			if err := readFull(u.src, o.buf.B[:n], int64(ask)); err != nil {
				u.p.done(o)
				return false, err
			}
			u.p.start(o, ask, n)
			ask += uint64(n)
		}
		if len(u.p.queue) == 0 {
			break
		}
		x := u.p.next()
		err := u.takeWrite(ctx, x)
		u.p.done(x.op)
		if err != nil {
			return false, err
		}
	}
	return u.commit(ctx, u.c, u.file)
}

// takeWrite handles the result of a WRITE. After a short one it sends the rest.
func (u *upload) takeWrite(ctx context.Context, x piece) error {
	for {
		res, err := x.op.Await(ctx)
		if err != nil {
			return err
		}
		if res.Committed == nfs3.Unstable || res.Committed < u.opts.Stable {
			u.add(res.Verf)
		}
		u.opts.Progress(int64(res.Count))
		if res.Count == x.n {
			return nil
		}
		x.offset, x.n = x.offset+uint64(res.Count), x.n-res.Count
		copy(x.op.buf.B, x.op.buf.B[res.Count:res.Count+x.n])
		x.op.SetRange(x.offset, x.n)
		x.op.Start()
	}
}

// readFull reads all of b. A shorter source is an error.
func readFull(src io.ReaderAt, b []byte, offset int64) error {
	n, err := src.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read the source at offset %d: %w", offset, err)
}
