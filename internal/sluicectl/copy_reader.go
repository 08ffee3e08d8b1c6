package sluicectl

import (
	"context"
	"errors"
	"io"
)

// remoteReader is a file of a server for one reader, ahead of whom it reads. Each jump begins anew.
type remoteReader struct {
	ctx  context.Context
	s    *session
	file node

	data  *io.PipeReader // nil at first
	next  int64          // offset of data
	ended chan struct{}  // the end of reading ahead
}

// ReadAt implements [io.ReaderAt].
func (r *remoteReader) ReadAt(b []byte, offset int64) (int, error) {
	if uint64(offset) >= r.file.size {
		return 0, io.EOF
	}
	if r.data == nil || offset != r.next {
		_ = r.Close()
		r.start(offset)
	}
	n, err := io.ReadFull(r.data, b)
	r.next += int64(n)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

func (r *remoteReader) start(offset int64) {
	data, w := io.Pipe()
	r.data, r.next, r.ended = data, offset, make(chan struct{})
	go func() {
		defer close(r.ended)
		_, err := r.s.Download(r.ctx, r.file.handle, uint64(offset), r.file.size-uint64(offset), func(data [][]byte) error {
			for _, d := range data {
				if _, err := w.Write(d); err != nil {
					return err
				}
			}
			return nil
		})
		_ = w.CloseWithError(err) // EOF for nil
	}()
}

// Close ends reading ahead.
func (r *remoteReader) Close() error {
	if r.data != nil {
		_ = r.data.Close()
		<-r.ended
	}
	return nil
}
