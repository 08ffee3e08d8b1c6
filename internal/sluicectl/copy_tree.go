package sluicectl

import (
	"context"
	"strings"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// node is a file on one side of a copy.
type node struct {
	name   string
	path   string // on this host: from the root of its tree; on a server: for messages
	kind   nfs3.Type
	mode   uint32
	size   uint64
	mtime  time.Time
	handle nfs3.Handle // on a server
	fsid   uint64      // on a server
	fileID uint64      // on a server
}

// tree is one side of a copy: files of this host, or of a server. Names never lead out of it, and
// symbolic links are not followed.
type tree interface {
	lookup(ctx context.Context, dir node, name string) (node, error)
	list(ctx context.Context, dir node) ([]node, error)
	// open opens a regular file for reading.
	open(ctx context.Context, n node) (src source, closeSource func() error, err error)
	mkdir(ctx context.Context, dir node, name string) (node, error)
	// remove removes a node with all in it.
	remove(ctx context.Context, dir, n node) error
	readlink(ctx context.Context, n node) (string, error)
	symlink(ctx context.Context, dir node, name, text string) error
	// keep sets the mode of a directory, and its time unless that is nil.
	keep(ctx context.Context, n node, mode uint32, mtime *time.Time) error
	// granularity is that of times.
	granularity() time.Duration
}

// isPart reports whether a name is that of an incomplete file.
func isPart(name string) bool {
	return strings.HasPrefix(name, ".sluicectl.") && strings.HasSuffix(name, ".part")
}
