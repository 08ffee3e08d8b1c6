package client

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// maxLinks bounds the symbolic links of a path, as in Linux.
const maxLinks = 40

// Walk finds the object of a slash-separated path below root. It follows symbolic links, the last
// one only with follow; ".." and absolute targets never lead above root. The object has its
// attributes. Errors are *fs.PathError with the failed part of the path.
func (c *Client) Walk(ctx context.Context, root nfs3.Handle, path string, follow bool) (Object, error) {
	w := walker{c: c, stack: []step{{Object: Object{Handle: root}}}}
	if err := w.walk(ctx, path, follow); err != nil {
		return Object{}, err
	}
	o := w.top()
	if !o.Attr.Present {
		attr, err := c.GetAttr(ctx, o.Handle)
		if err != nil {
			return Object{}, &fs.PathError{Op: "walk", Path: path, Err: err}
		}
		o.Attr = nfs3.PostOpAttr{Present: true, Attr: attr}
	}
	return o.Object, nil
}

// WalkParent returns the directory of a path's last element, and that element's name.
func (c *Client) WalkParent(ctx context.Context, root nfs3.Handle, path string) (dir Object, name string, err error) {
	trimmed := strings.TrimRight(path, "/")
	at := strings.LastIndexByte(trimmed, '/')
	name = trimmed[at+1:]
	if name == "" || name == "." || name == ".." {
		return Object{}, "", &fs.PathError{Op: "walk", Path: path, Err: unix.EINVAL}
	}
	dir, err = c.Walk(ctx, root, trimmed[:at+1], true)
	return dir, name, err
}

// Resolve finds the entry of a path below root as Walk does with follow, and returns it with its
// directory and name there. If only the entry itself is missing, the error is fs.ErrNotExist, and
// dir and name say where it would be. The root has neither directory nor name.
func (c *Client) Resolve(ctx context.Context, root nfs3.Handle, path string) (dir Object, name string, o Object, err error) {
	w := walker{c: c, stack: []step{{Object: Object{Handle: root}}}}
	err = w.walk(ctx, path, true)
	if err != nil && !w.missing {
		return Object{}, "", Object{}, err
	}
	if n := len(w.stack); n > 1 {
		dir, name = w.stack[n-2].Object, w.stack[n-1].name
	}
	return dir, name, w.top().Object, err
}

// walker keeps the way from the root to its position, so that ".." needs no call.
type walker struct {
	c       *Client
	stack   []step
	links   int
	missing bool // after an error: only the entry at the top does not exist
}

type step struct {
	Object
	name string
}

func (w *walker) top() *step { return &w.stack[len(w.stack)-1] }

// path returns the walker's position.
func (w *walker) path() string {
	var b strings.Builder
	for _, s := range w.stack[1:] {
		b.WriteString("/" + s.name)
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

func (w *walker) walk(ctx context.Context, path string, follow bool) error {
	if strings.HasPrefix(path, "/") {
		w.stack = w.stack[:1]
	}
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for i, name := range names {
		switch name {
		case ".":
			continue
		case "..":
			w.stack = w.stack[:max(1, len(w.stack)-1)]
			continue
		}
		o, err := w.c.Lookup(ctx, w.top().Handle, name)
		w.stack = append(w.stack, step{o, name})
		last := i == len(names)-1 && !strings.HasSuffix(path, "/")
		if err != nil {
			w.missing = last && errors.Is(err, fs.ErrNotExist)
			return &fs.PathError{Op: "walk", Path: w.path(), Err: err}
		}
		if last && !follow {
			return nil
		}
		if err := w.followLink(ctx); err != nil {
			w.missing = w.missing && last
			return err
		}
	}
	return nil
}

// followLink moves to the target if the walker is at a symbolic link.
func (w *walker) followLink(ctx context.Context) error {
	link := w.top()
	fail := func(err error) error { return &fs.PathError{Op: "walk", Path: w.path(), Err: err} }
	if !link.Attr.Present {
		attr, err := w.c.GetAttr(ctx, link.Handle)
		if err != nil {
			return fail(err)
		}
		link.Attr = nfs3.PostOpAttr{Present: true, Attr: attr}
	}
	if link.Attr.Attr.Type != nfs3.Lnk {
		return nil
	}
	if w.links++; w.links > maxLinks {
		return fail(unix.ELOOP)
	}
	target, err := w.c.Readlink(ctx, link.Handle)
	if err != nil {
		return fail(err)
	}
	if target == "" {
		return fail(unix.ENOENT)
	}
	w.stack = w.stack[:len(w.stack)-1]
	return w.walk(ctx, target, true)
}
