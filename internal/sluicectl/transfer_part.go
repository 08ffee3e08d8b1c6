package sluicectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// transferOptions are those of copies in both directions.
type transferOptions struct {
	stable  nfs3.Stability // of WRITEs
	inPlace bool
	resume  bool       // continue an incomplete file, and leave one
	verify  bool       // read the copy back
	mtime   *time.Time // of the copy; nil: now
}

// partName returns the name of an incomplete file. With resume it is always the same for a source
// that has not changed.
func (o *transferOptions) partName(name string, size uint64, mtime time.Time) string {
	if !o.resume {
		return fmt.Sprintf(".sluicectl.%08x.part", rand.Uint32())
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%d\x00%d", name, size, mtime.UnixNano())
	return fmt.Sprintf(".sluicectl.%016x.part", h.Sum64())
}

// Units of transfers: each is stable before the next begins. A server that restarts loses one at
// most.
const (
	section      = 64 << 20 // with resume
	largeSection = 1 << 30  // otherwise
)

// resumeAt returns how much of an incomplete file of n bytes is complete for sure: all sections but
// the last, which may have holes.
func resumeAt(n uint64) uint64 {
	if n == 0 {
		return 0
	}
	return (n - 1) / section * section
}

// sections calls f for each section from an offset to size.
func (o *transferOptions) sections(from, size uint64, f func(offset, n uint64) error) error {
	step := uint64(largeSection)
	if o.resume {
		step = section
	}
	for from < size {
		n := min(step, size-from)
		if err := f(from, n); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// errDiffers means that a copy is not like its source.
var errDiffers = errors.New("the copy differs from its source, which somebody changed meanwhile, or which was damaged on the way")

// same reports whether a file of the server has the contents of a local one. Both have size bytes.
func (s *session) same(ctx context.Context, file nfs3.Handle, size uint64, local io.ReaderAt) (bool, error) {
	differs := errors.New("differs")
	var at int64
	var b []byte
	n, err := s.Download(ctx, file, 0, size, func(data [][]byte) error {
		for _, d := range data {
			b = append(b[:0], d...)
			if n, err := local.ReadAt(b, at); err != nil && (n < len(b) || !errors.Is(err, io.EOF)) {
				return err
			}
			if !bytes.Equal(b, d) {
				return differs
			}
			at += int64(len(d))
		}
		return nil
	})
	if errors.Is(err, differs) || errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil && uint64(n) == size, err
}
