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

	"github.com/spf13/cobra"
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

const maxTransfers = 64

func (a *app) cpCommand() *cobra.Command {
	o := &copyOptions{}
	c := a.onURL(&cobra.Command{
		Use:   "cp {FILE... URL | URL... FILE}",
		Short: "Copy files and directories to a server, or from one",
		Long: "Copy files to a server or from one, under their names into a directory, or one to another name.\n" +
			"A target changes only when all of its new contents are stable. Symbolic links in directories are copied as links.",
		Args: between(2, -1),
		RunE: func(c *cobra.Command, args []string) error { return a.copyAll(c.Context(), args, o) },
	})
	o.flags(c)
	c.Flags().BoolVarP(&o.recursive, "recursive", "r", false, "copy directories with all in them")
	c.Flags().BoolVarP(&o.preserve, "preserve", "p", false, "give copies the time of modification of their sources")
	return c
}

func (a *app) syncCommand() *cobra.Command {
	o := &copyOptions{recursive: true, preserve: true, sync: true}
	c := a.onURL(&cobra.Command{
		Use:   "sync {DIR URL | URL DIR}",
		Short: "Make a directory on a server like one of this host, or the reverse",
		Long: "Copy the files of the first directory to the second that are missing there, or differ in size or in time of\n" +
			"modification. The second is made if it is missing. Other files there stay, unless --delete removes them.",
		Args: exactly(2),
		RunE: func(c *cobra.Command, args []string) error { return a.copyAll(c.Context(), args, o) },
	})
	c.ValidArgsFunction = a.completeArgs(true)
	o.flags(c)
	c.Flags().BoolVar(&o.remove, "delete", false, "remove files of the second directory that the first has not")
	c.Flags().BoolVarP(&o.dryRun, "dry-run", "n", false, "only print the changes")
	return c
}

func (o *copyOptions) flags(c *cobra.Command) {
	c.Flags().BoolVar(&o.resume, "resume", false, "continue where an interrupted command ended, and leave incomplete files (.sluicectl.*.part) for that")
	c.Flags().BoolVar(&o.checksum, "checksum", false, "compare contents: leave targets that are like their sources, and read each copy back")
	c.Flags().IntVar(&o.transfers, "transfers", 4, "files to copy at once, 1 to 64")
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

// copier copies one argument from one tree to another. Exactly one of them is on a server.
type copier struct {
	*copying
	s        *session
	local    localTree
	from, to tree
}

// finishedDir is a directory whose mode and time are set when all in it is copied.
type finishedDir struct{ from, to node }

func (a *app) copyAll(ctx context.Context, args []string, o *copyOptions) error {
	if o.transfers < 1 || o.transfers > maxTransfers {
		return fmt.Errorf("--transfers is %d, must be 1 to %d", o.transfers, maxTransfers)
	}
	last := args[len(args)-1]
	for _, arg := range args[:len(args)-1] {
		if isURL(arg) == isURL(last) {
			return fmt.Errorf("%s and %s: exactly one of both must be a URL", arg, last)
		}
	}
	if isURL(last) {
		return a.copyUp(ctx, args[:len(args)-1], last, o)
	}
	return a.copyDown(ctx, args[:len(args)-1], last, o)
}

func isURL(arg string) bool { return strings.Contains(arg, "://") }

// copyUp copies files of this host to a server.
func (a *app) copyUp(ctx context.Context, files []string, rawURL string, o *copyOptions) error {
	return a.with(ctx, rawURL, "copy to", func(ctx context.Context, s *session) error {
		t, err := s.newTree(ctx)
		if err != nil {
			return err
		}
		dir, name, err := s.newName(ctx)
		if err != nil {
			return err
		}
		if name != "" && len(files) > 1 {
			return errors.New("it is not a directory, and there are several files")
		}
		to := node{path: path.Dir(s.target.path), handle: dir}
		if name == "" {
			to.path = s.target.path
		}
		run := a.newCopying(o, files[0])
		for _, f := range files {
			c := &copier{copying: run, s: s, to: t}
			if err := c.copyArg(ctx, f, to, name); err != nil {
				run.failed(cannot(err, "copy %s", printable(f)))
			}
		}
		return run.end(ctx, t)
	})
}

// copyArg copies a file that was named on the command line.
func (c *copier) copyArg(ctx context.Context, file string, to node, name string) error {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(real))
	if err != nil {
		return err
	}
	c.roots = append(c.roots, root)
	c.local = localTree{root}
	c.from = c.local
	from, err := c.from.lookup(ctx, node{path: "."}, filepath.Base(real))
	if err != nil {
		return err
	}
	if name == "" && !c.o.sync {
		name = filepath.Base(abs)
	}
	return c.start(ctx, from, to, name)
}

// copyDown copies files of servers to this host.
func (a *app) copyDown(ctx context.Context, urls []string, local string, o *copyOptions) error {
	dir, name := local, ""
	info, err := os.Stat(local)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(local, "/"), err == nil && !info.IsDir():
		dir, name = filepath.Dir(local), filepath.Base(local)
	case err != nil:
		return err
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no directory %s", printable(dir))
	} else if err != nil {
		return err
	}
	open := a.newSessions()
	defer open.close()
	run := a.newCopying(o, urls[0])
	run.roots = append(run.roots, root)
	for _, u := range urls {
		found, err := open.expand(ctx, u)
		if err != nil {
			run.failed(err)
			continue
		}
		if name != "" && len(urls)+len(found) > 2 {
			return errors.Join(fmt.Errorf("%s is not a directory, and there are several files", printable(local)), run.end(ctx, localTree{root}))
		}
		for _, s := range found {
			c := &copier{copying: run, s: s, local: localTree{root}, to: localTree{root}}
			if err := c.fetchArg(ctx, name); err != nil {
				run.failed(cannot(err, "copy %s", s.target))
			}
		}
	}
	return run.end(ctx, localTree{root})
}

// fetchArg copies a URL's file.
func (c *copier) fetchArg(ctx context.Context, name string) error {
	s := c.s
	t, err := s.newTree(ctx)
	if err != nil {
		return err
	}
	o, err := s.walk(ctx, s.target.path, true)
	if err != nil {
		return err
	}
	c.from = t
	if name == "" && !c.o.sync {
		if name = s.target.base(); name == "" {
			return errors.New("the root of an export has no name: name a new directory for it")
		}
	}
	return c.start(ctx, remoteNode(s.target.path, s.target.base(), o), node{path: "."}, name)
}

func (a *app) newCopying(o *copyOptions, first string) *copying {
	c := &copying{a: a, o: o, p: a.newCounter(path.Base(strings.TrimRight(first, "/")), "files", 0)}
	c.files.SetLimit(o.transfers)
	return c
}

// start begins to copy a named file into dir. sync copies the contents of a directory.
func (c *copier) start(ctx context.Context, from, dir node, name string) error {
	switch {
	case from.kind == nfs3.Dir && !c.o.recursive:
		return errors.New("it is a directory; -r copies it with all in it")
	case from.kind != nfs3.Dir && c.o.sync:
		return fmt.Errorf("it is a %s, not a directory", typeName(from.kind))
	case !c.o.sync:
		c.copy(ctx, from, dir, name, c.find(ctx, dir, name))
	case name == "" || name == ".":
		c.copyDir(ctx, from, dir)
	default:
		c.copy(ctx, from, dir, name, c.find(ctx, dir, name))
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
	for _, r := range c.roots {
		_ = r.Close()
	}
	if ctx.Err() != nil {
		return c.p.end(context.Cause(ctx))
	}
	return c.p.end(c.a.summary(c.errs, c.all))
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

// copyDir copies the entries of a directory.
func (c *copier) copyDir(ctx context.Context, from, to node) {
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
	if c.from != c.local {
		return c.s.fetch(ctx, objectOf(from), c.local.root, filepath.Join(dir.path, name), o, c.p)
	}
	f, err := c.local.root.Open(from.path)
	if err != nil {
		return err
	}
	defer f.Close()
	src := source{Reader: f, name: name, file: f}
	if src.info, err = f.Stat(); err != nil {
		return err
	}
	to := destination{dir: dir.handle, name: name, mode: from.mode}
	if old != nil {
		x, err := c.s.withAttr(ctx, client.Object{Handle: old.handle})
		if err != nil {
			return err
		}
		if isSame(src.info, &x.Attr.Attr) {
			return errors.New("it is the very file that is to be copied")
		}
		to.old, to.mode = &x, x.Attr.Attr.Mode&0o7777
	}
	return c.s.putBeside(ctx, to, src, o, c.p)
}

// isThere reports whether a file needs no copy.
func (c *copier) isThere(ctx context.Context, from, old node) (bool, error) {
	switch {
	case from.size != old.size:
		return false, nil
	case c.o.checksum:
		remote, local := from, old
		if c.from == c.local {
			remote, local = old, from
		}
		f, err := c.local.root.Open(local.path)
		if err != nil {
			return false, err
		}
		defer f.Close()
		return c.s.same(ctx, remote.handle, remote.size, f)
	case !c.o.sync:
		return false, nil
	}
	step := max(c.from.granularity(), c.to.granularity())
	return from.mtime.Sub(old.mtime).Abs() < max(step, 1), nil
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
