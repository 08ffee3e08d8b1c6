package client

import (
	"context"
	"fmt"
	"iter"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// DirEntry is an entry of a directory. A server may leave out Attr and Handle.
type DirEntry struct {
	Name   string
	FileID uint64
	Attr   nfs3.PostOpAttr
	Handle nfs3.Handle
}

// dirPart is a part of a directory's list.
type dirPart struct {
	entries []DirEntry
	cookie  uint64 // of the last entry
	verf    nfs3.Verifier
	eof     bool
}

// list reads a directory part by part. next gets the previous one, at first an empty one.
func list(ctx context.Context, next func(context.Context, *dirPart) (*dirPart, error)) iter.Seq2[DirEntry, error] {
	return func(yield func(DirEntry, error) bool) {
		for last := (&dirPart{}); !last.eof; {
			part, err := next(ctx, last)
			if err == nil && !part.eof && (len(part.entries) == 0 || part.cookie == last.cookie) {
				err = fmt.Errorf("READDIR: the server's list is stuck at cookie %d", last.cookie)
			}
			if err != nil {
				yield(DirEntry{}, err)
				return
			}
			for _, n := range part.entries {
				if !yield(n, nil) {
					return
				}
			}
			last = part
		}
	}
}
