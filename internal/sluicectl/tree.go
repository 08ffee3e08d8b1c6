package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"sluice.dev/sluice/pkg/nfs/client"
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
	info   fs.FileInfo // on this host
}

// tree is one side of a copy: files of this host, or of a server. Names never lead out of it, and
// symbolic links are not followed.
type tree interface {
	lookup(ctx context.Context, dir node, name string) (node, error)
	list(ctx context.Context, dir node) ([]node, error)
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
		mtime: info.ModTime(), info: info,
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

// remoteTree is a directory of a server.
type remoteTree struct {
	s    *session
	step time.Duration
}

func (s *session) newTree(ctx context.Context) (remoteTree, error) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	r, err := s.FSInfo(ctx, s.root)
	return remoteTree{s, time.Duration(r.TimeDelta.Sec)*time.Second + time.Duration(r.TimeDelta.Nsec)}, err
}

func remoteNode(where, name string, o client.Object) node {
	a := &o.Attr.Attr
	return node{name: name, path: where, kind: a.Type, mode: a.Mode & 0o777, size: a.Size, mtime: a.Mtime.Time(), handle: o.Handle}
}

func (t remoteTree) lookup(ctx context.Context, dir node, name string) (node, error) {
	ctx, cancel := t.s.patience(ctx)
	defer cancel()
	o, err := t.s.Lookup(ctx, dir.handle, name)
	if err == nil {
		o, err = t.s.withAttr(ctx, o)
	}
	if err != nil {
		return node{}, &fs.PathError{Op: "lookup", Path: path.Join(dir.path, name), Err: err}
	}
	return remoteNode(path.Join(dir.path, name), name, o), nil
}

func (t remoteTree) list(ctx context.Context, dir node) (nodes []node, err error) {
	entries, err := t.s.entries(ctx, dir.handle, true)
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: dir.path, Err: err}
	}
	for _, e := range entries {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		if e.Name == "" || strings.ContainsAny(e.Name, "/\x00") {
			return nil, fmt.Errorf("the server lists a file named %q in %s", e.Name, printable(dir.path))
		}
		err := t.s.complete(ctx, dir.handle, true, &e)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		nodes = append(nodes, remoteNode(path.Join(dir.path, e.Name), e.Name, client.Object{Handle: e.Handle, Attr: e.Attr}))
	}
	return nodes, nil
}

func (t remoteTree) mkdir(ctx context.Context, dir node, name string) (node, error) {
	ctx, cancel := t.s.patience(ctx)
	defer cancel()
	_, err := t.s.Mkdir(ctx, dir.handle, name, nfs3.SetAttrs{SetMode: true, Mode: 0o700})
	// A repeated MKDIR finds the directory of the first.
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return node{}, &fs.PathError{Op: "mkdir", Path: path.Join(dir.path, name), Err: err}
	}
	return t.lookup(ctx, dir, name)
}

func (t remoteTree) remove(ctx context.Context, dir, n node) error {
	return t.s.remove(ctx, dir.handle, client.DirEntry{Name: n.name, Handle: n.handle, Attr: nfs3.PostOpAttr{Present: true, Attr: nfs3.Attr{Type: n.kind}}}, nil)
}

func (t remoteTree) readlink(ctx context.Context, n node) (string, error) {
	ctx, cancel := t.s.patience(ctx)
	defer cancel()
	return t.s.Readlink(ctx, n.handle)
}

func (t remoteTree) symlink(ctx context.Context, dir node, name, text string) error {
	ctx, cancel := t.s.patience(ctx)
	defer cancel()
	_, err := t.s.Symlink(ctx, dir.handle, name, text, nfs3.SetAttrs{SetMode: true, Mode: 0o777})
	return err
}

func (t remoteTree) keep(ctx context.Context, n node, mode uint32, mtime *time.Time) error {
	ctx, cancel := t.s.patience(ctx)
	defer cancel()
	return t.s.SetAttr(ctx, n.handle, withTime(nfs3.SetAttrs{SetMode: true, Mode: mode}, mtime), nil)
}

func (t remoteTree) granularity() time.Duration { return t.step }

// withTime also sets the time of modification, unless it is nil or not one of NFS.
func withTime(a nfs3.SetAttrs, mtime *time.Time) nfs3.SetAttrs {
	if mtime != nil && mtime.Unix() >= 0 && mtime.Unix() <= 1<<32-1 {
		a.MtimeHow, a.Mtime = nfs3.SetToClientTime, nfs3.Time{Sec: uint32(mtime.Unix()), Nsec: uint32(mtime.Nanosecond())}
	}
	return a
}
