package sluicectl

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// localTree is a directory of this host.
type localTree struct{ root *os.Root }

func (t localTree) lookup(_ context.Context, dir node, name string) (node, error) {
	info, err := t.root.Lstat(filepath.Join(dir.path, name))
	if err != nil {
		return node{}, err
	}
	return localNode(filepath.Join(dir.path, name), name, info), nil
}

func localNode(where, name string, info fs.FileInfo) node {
	kinds := map[fs.FileMode]nfs3.Type{
		0: nfs3.Reg, fs.ModeDir: nfs3.Dir, fs.ModeSymlink: nfs3.Lnk, fs.ModeNamedPipe: nfs3.FIFO, fs.ModeSocket: nfs3.Sock,
		fs.ModeDevice: nfs3.Blk, fs.ModeDevice | fs.ModeCharDevice: nfs3.Chr,
	}
	return node{
		name: name, path: where, kind: kinds[info.Mode().Type()], mode: uint32(info.Mode().Perm()), size: uint64(info.Size()),
		mtime: info.ModTime(),
	}
}

func (t localTree) list(ctx context.Context, dir node) (nodes []node, err error) {
	entries, err := fs.ReadDir(t.root.FS(), filepath.ToSlash(dir.path))
	for _, e := range entries {
		n, err := t.lookup(ctx, dir, e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, err
}

func (t localTree) open(_ context.Context, n node) (src source, closeSource func() error, err error) {
	f, err := t.root.Open(n.path)
	if err != nil {
		return src, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return src, nil, errors.Join(err, f.Close())
	}
	return newSource(f, info), f.Close, nil
}

func (t localTree) mkdir(ctx context.Context, dir node, name string) (node, error) {
	if err := t.root.Mkdir(filepath.Join(dir.path, name), 0o700); err != nil {
		return node{}, err
	}
	return t.lookup(ctx, dir, name)
}

func (t localTree) remove(_ context.Context, _, n node) error { return t.root.RemoveAll(n.path) }

func (t localTree) readlink(_ context.Context, n node) (string, error) {
	return t.root.Readlink(n.path)
}

func (t localTree) symlink(_ context.Context, dir node, name, text string) error {
	return t.root.Symlink(text, filepath.Join(dir.path, name))
}

func (t localTree) keep(_ context.Context, n node, mode uint32, mtime *time.Time) error {
	err := t.root.Chmod(n.path, fs.FileMode(mode&0o777))
	if err == nil && mtime != nil {
		err = t.root.Chtimes(n.path, time.Time{}, *mtime)
	}
	return err
}

func (localTree) granularity() time.Duration { return time.Nanosecond }
