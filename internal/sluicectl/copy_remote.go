package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

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
	return node{name: name, path: where, kind: a.Type, mode: a.Mode & 0o777, size: a.Size, mtime: a.Mtime.Time(), handle: o.Handle, fsid: a.FSID, fileID: a.FileID}
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
	entries, err := t.s.entries(ctx, dir.handle, true, nil)
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

func (t remoteTree) open(ctx context.Context, n node) (src source, closeSource func() error, err error) {
	r := &remoteReader{ctx: ctx, s: t.s, file: n}
	return source{name: n.name, at: r, size: n.size, mtime: n.mtime}, r.Close, nil
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

// objectOf returns a node of a server as an object.
func objectOf(n node) client.Object {
	a := nfs3.Attr{Type: n.kind, Mode: n.mode, Size: n.size}
	if n.mtime.Unix() > 0 {
		a.Mtime = nfs3.Time{Sec: uint32(n.mtime.Unix()), Nsec: uint32(n.mtime.Nanosecond())}
	}
	return client.Object{Handle: n.handle, Attr: nfs3.PostOpAttr{Present: true, Attr: a}}
}

// withTime also sets the time of modification, unless it is nil or not one of NFS.
func withTime(a nfs3.SetAttrs, mtime *time.Time) nfs3.SetAttrs {
	if mtime != nil && mtime.Unix() >= 0 && mtime.Unix() <= 1<<32-1 {
		a.MtimeHow, a.Mtime = nfs3.SetToClientTime, nfs3.Time{Sec: uint32(mtime.Unix()), Nsec: uint32(mtime.Nanosecond())}
	}
	return a
}
