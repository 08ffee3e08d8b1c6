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
	"sync"

	"golang.org/x/sync/errgroup"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// copyOptions are the flags of cp and sync.
type copyOptions struct {
	recursive bool
	preserve  bool // times
	resume    bool
	checksum  bool // compare contents
	transfers int
	// Of sync.
	sync, remove, dryRun bool
}

// copying is a run of cp or sync.
type copying struct {
	a     *app
	o     *copyOptions
	p     *progress
	files errgroup.Group
	roots []*os.Root // to close
	dirs  []finishedDir

	mu   sync.Mutex
	errs []error
	all  int
}

// copier copies one argument from one tree to another. At most one of them is of this host.
type copier struct {
	*copying
	from, to tree
	top      *node // the target's first directory
}

// finishedDir is a directory whose mode and time are set when all in it is copied.
type finishedDir struct{ from, to node }

func (a *app) newCopying(o *copyOptions, first string) *copying {
	c := &copying{a: a, o: o, p: a.newCounter(path.Base(strings.TrimRight(first, "/")), "files", 0)}
	c.files.SetLimit(o.transfers)
	return c
}

// start begins to copy a file. sync copies the contents of a directory.
func (c *copying) start(ctx context.Context, x copySource, to copyTarget) error {
	name := to.name
	switch {
	case x.file.kind == nfs3.Dir && !c.o.recursive:
		return errors.New("it is a directory; -r copies it with all in it")
	case x.file.kind != nfs3.Dir && c.o.sync:
		return fmt.Errorf("it is a %s, not a directory", typeName(x.file.kind))
	case name == "" && !c.o.sync:
		if name = x.base; name == "" {
			return errors.New("the root of an export has no name: name a new directory for it")
		}
	}
	each := &copier{copying: c, from: x.tree, to: to.tree}
	if name == "" {
		each.copyDir(ctx, x.file, to.dir)
	} else {
		each.copy(ctx, x.file, to.dir, name, each.find(ctx, to.dir, name))
	}
	return nil
}

// find returns the entry of a directory of the target, nil if there is none.
func (c *copier) find(ctx context.Context, dir node, name string) *node {
	if n, err := c.to.lookup(ctx, dir, name); err == nil {
		return &n
	}
	return nil
}

func (c *copying) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	c.errs = append(c.errs, err)
}

func (c *copying) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
}

// end waits for all files, and returns the failures.
func (c *copying) end(ctx context.Context, to tree) error {
	c.finishDirs(ctx, to)
	if ctx.Err() != nil {
		return c.p.end(context.Cause(ctx))
	}
	return c.p.end(c.a.summary(c.errs, c.all))
}

// close closes the directories of this host.
func (c *copying) close() {
	for _, r := range c.roots {
		_ = r.Close()
	}
}

// finishDirs waits for all files, and sets modes and times of directories, the deepest first.
func (c *copying) finishDirs(ctx context.Context, to tree) {
	_ = c.files.Wait()
	for i := len(c.dirs) - 1; i >= 0; i-- {
		d := c.dirs[i]
		mtime := &d.from.mtime
		if !c.o.preserve {
			mtime = nil
		}
		if err := to.keep(ctx, d.to, d.from.mode, mtime); err != nil {
			c.failed(cannot(err, "set the mode of %s", printable(d.to.path)))
		}
	}
}

// copy copies a node to name in dir, where old is.
func (c *copier) copy(ctx context.Context, from, dir node, name string, old *node) {
	if ctx.Err() != nil {
		return
	}
	target := path.Join(dir.path, name)
	switch from.kind {
	case nfs3.Dir:
		c.makeDir(ctx, from, dir, name, old)
	case nfs3.Reg:
		c.p.expect(int64(from.size))
		c.files.Go(func() error {
			if err := c.copyFile(ctx, from, dir, name, old); err != nil {
				c.failed(cannot(err, "copy %s to %s", printable(from.path), printable(target)))
			} else {
				c.succeeded()
			}
			c.p.count(1)
			return nil
		})
	case nfs3.Lnk:
		if err := c.copyLink(ctx, from, dir, name, old); err != nil {
			c.failed(cannot(err, "copy %s to %s", printable(from.path), printable(target)))
		}
	default:
		c.a.note("%s is a %s; it is not copied", printable(from.path), typeName(from.kind))
	}
}

// makeDir copies a directory. A new one has the mode of its source when all is copied.
func (c *copier) makeDir(ctx context.Context, from, dir node, name string, old *node) {
	to := old
	switch {
	case old != nil && old.kind != nfs3.Dir:
		c.failed(cannot(fmt.Errorf("it is a %s", typeName(old.kind)), "make the directory %s", printable(old.path)))
		return
	case old == nil && c.o.dryRun:
		c.changes("make", path.Join(dir.path, name))
		c.dryDir(ctx, from, path.Join(dir.path, name))
		return
	case old == nil:
		made, err := c.to.mkdir(ctx, dir, name)
		if err != nil {
			if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
				err = inner.Err
			}
			c.failed(cannot(err, "make the directory %s", printable(path.Join(dir.path, name))))
			return
		}
		to = &made
	}
	if (old == nil || c.o.sync) && !c.o.dryRun {
		c.dirs = append(c.dirs, finishedDir{from, *to})
	}
	c.copyDir(ctx, from, *to)
}

// dryDir prints the files of a directory that is to be made.
func (c *copier) dryDir(ctx context.Context, from node, to string) {
	nodes, err := c.from.list(ctx, from)
	if err != nil {
		c.failed(cannot(err, "list %s", printable(from.path)))
	}
	for _, n := range nodes {
		switch where := path.Join(to, n.name); n.kind {
		case nfs3.Dir:
			c.changes("make", where)
			c.dryDir(ctx, n, where)
		default:
			c.changes("copy", where)
		}
	}
}

func (c *copying) changes(verb, where string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.a.Out, verb, printable(where))
}

// isSame reports whether a node of the source is one of the target.
func (c *copier) isSame(from, to node) bool {
	a, ok := c.from.(remoteTree)
	b, both := c.to.(remoteTree)
	return ok && both && a.s.target.host() == b.s.target.host() && from.fsid == to.fsid && from.fileID == to.fileID
}

// copyDir copies the entries of a directory.
func (c *copier) copyDir(ctx context.Context, from, to node) {
	if c.top == nil {
		c.top = &to
	}
	nodes, err := c.from.list(ctx, from)
	if err != nil {
		c.failed(cannot(err, "list %s", printable(from.path)))
		return
	}
	there, err := c.to.list(ctx, to)
	if err != nil {
		c.failed(cannot(err, "list %s", printable(to.path)))
		return
	}
	old := map[string]*node{}
	for i := range there {
		old[there[i].name] = &there[i]
	}
	for _, n := range nodes {
		if isPart(n.name) {
			continue
		}
		if n.kind == nfs3.Dir && c.isSame(n, *c.top) {
			c.failed(cannot(errors.New("it would be copied into itself"), "copy %s", printable(n.path)))
			continue
		}
		c.copy(ctx, n, to, n.name, old[n.name])
		delete(old, n.name)
	}
	if !c.o.remove {
		return
	}
	for name, n := range old {
		if isPart(name) || ctx.Err() != nil {
			continue
		}
		if c.o.dryRun {
			c.changes("remove", n.path)
		} else if err := c.to.remove(ctx, to, *n); err != nil {
			c.failed(cannot(err, "remove %s", printable(n.path)))
		}
	}
}

// copyFile copies a regular file unless it is there already.
func (c *copier) copyFile(ctx context.Context, from, dir node, name string, old *node) error {
	if old != nil {
		if old.kind != nfs3.Reg {
			return fmt.Errorf("it is a %s", typeName(old.kind))
		}
		if there, err := c.isThere(ctx, from, *old); err != nil || there {
			c.p.skip(int64(from.size))
			return err
		}
	}
	if c.o.dryRun {
		c.changes("copy", path.Join(dir.path, name))
		return nil
	}
	o := transferOptions{resume: c.o.resume, verify: c.o.checksum}
	if c.o.preserve {
		o.mtime = &from.mtime
	}
	t, ok := c.to.(remoteTree)
	if !ok {
		root := c.to.(localTree).root
		return c.from.(remoteTree).s.fetch(ctx, objectOf(from), root, filepath.Join(dir.path, name), o, c.p)
	}
	src, closeSource, err := c.from.open(ctx, from)
	if err != nil {
		return err
	}
	defer func() { _ = closeSource() }()
	if f, ok := c.from.(remoteTree); ok && f.s.Client == t.s.Client {
		src.handle = from.handle
	}
	to := destination{dir: dir.handle, name: name, mode: from.mode}
	if old != nil {
		x, err := t.s.withAttr(ctx, client.Object{Handle: old.handle})
		if err != nil {
			return err
		}
		if c.isSame(from, *old) || src.info != nil && isSame(src.info, &x.Attr.Attr) {
			return errors.New("it is the very file that is to be copied")
		}
		to.old, to.mode = &x, x.Attr.Attr.Mode&0o7777
	}
	return t.s.putBeside(ctx, to, src, o, c.p)
}

// isThere reports whether a file needs no copy.
func (c *copier) isThere(ctx context.Context, from, old node) (bool, error) {
	switch {
	case from.size != old.size:
		return false, nil
	case c.o.checksum:
		return c.isAlike(ctx, from, old)
	case !c.o.sync:
		return false, nil
	}
	step := max(c.from.granularity(), c.to.granularity())
	return from.mtime.Sub(old.mtime).Abs() < max(step, 1), nil
}

// isAlike compares the contents of files of one size.
func (c *copier) isAlike(ctx context.Context, from, old node) (bool, error) {
	t, ok := c.from.(remoteTree)
	other := c.to
	if !ok {
		t, other = c.to.(remoteTree), c.from
		from, old = old, from
	}
	src, closeSource, err := other.open(ctx, old)
	if err != nil {
		return false, err
	}
	defer func() { _ = closeSource() }()
	return t.s.same(ctx, from.handle, from.size, src.at)
}

// copyLink copies a symbolic link, and replaces any file but a directory.
func (c *copier) copyLink(ctx context.Context, from, dir node, name string, old *node) error {
	text, err := c.from.readlink(ctx, from)
	if err != nil {
		return err
	}
	if old != nil {
		switch old.kind {
		case nfs3.Lnk:
			if there, err := c.to.readlink(ctx, *old); err == nil && there == text {
				return nil
			}
		case nfs3.Dir:
			return errors.New("it is a directory")
		}
	}
	if c.o.dryRun {
		c.changes("copy", path.Join(dir.path, name))
		return nil
	}
	if old != nil {
		if err := c.to.remove(ctx, dir, *old); err != nil {
			return err
		}
	}
	return c.to.symlink(ctx, dir, name, text)
}
