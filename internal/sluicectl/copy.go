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

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/client"
)

const maxTransfers = 64

func (a *app) cpCommand() *cobra.Command {
	o := &copyOptions{}
	c := a.onURL(&cobra.Command{
		Use:   "cp {FILE|URL}... {FILE|URL}",
		Short: "Copy files and directories to a server, from one, or between servers",
		Long: "Copy files under their names into a directory, or one to another name. At least one of source and target is a\n" +
			"URL. A target changes only when all of its new contents are stable. Symbolic links in directories are copied as\n" +
			"links. Within an export of version 4.2 the server copies, if it can; otherwise data between servers pass through\n" +
			"this host.",
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
		Use:   "sync {DIR|URL} {DIR|URL}",
		Short: "Make a directory like another; one of them, or both, on a server",
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

func (a *app) copyAll(ctx context.Context, args []string, o *copyOptions) error {
	if o.transfers < 1 || o.transfers > maxTransfers {
		return fmt.Errorf("--transfers is %d, must be 1 to %d", o.transfers, maxTransfers)
	}
	to, from := args[len(args)-1], args[:len(args)-1]
	for _, arg := range from {
		if !isURL(arg) && !isURL(to) {
			return fmt.Errorf("%s and %s: at least one of both must be a URL", arg, to)
		}
	}
	open := a.newSessions()
	defer open.close()
	run := a.newCopying(o, args[0])
	defer run.close()
	at, err := run.target(ctx, open, to)
	if err != nil {
		return err
	}
	var sources []copySource
	for _, arg := range from {
		if isURL(arg) {
			sources = append(sources, run.remoteSources(ctx, open, arg)...)
		} else if x, err := run.localSource(ctx, arg); err != nil {
			run.failed(cannot(err, "copy %s", printable(arg)))
		} else {
			sources = append(sources, x)
		}
	}
	if at.name != "" && max(len(from), len(sources)) > 1 {
		return cannot(errors.New("it is not a directory, and there are several files"), "copy to %s", printable(to))
	}
	for _, x := range sources {
		if err := run.start(ctx, x, at); err != nil {
			run.failed(cannot(err, "copy %s", printable(x.arg)))
		}
	}
	return run.end(ctx, at.tree)
}

func isURL(arg string) bool { return strings.Contains(arg, "://") }

// copyTarget is the place for copies.
type copyTarget struct {
	tree
	dir  node
	name string // "" stands for the sources' names
}

// target finds the place that the last argument names.
func (c *copying) target(ctx context.Context, open *sessions, arg string) (copyTarget, error) {
	if !isURL(arg) {
		return c.localTarget(arg)
	}
	t, err := parseTarget(arg)
	if err != nil {
		return copyTarget{}, err
	}
	s, err := open.at(ctx, t)
	if err != nil {
		return copyTarget{}, err
	}
	tree, err := s.newTree(ctx)
	if err != nil {
		return copyTarget{}, cannot(err, "copy to %s", t)
	}
	dir, name, err := s.newName(ctx)
	if err != nil {
		return copyTarget{}, cannot(err, "copy to %s", t)
	}
	at := copyTarget{tree, node{path: t.path, handle: dir}, name}
	if name != "" {
		at.dir.path = path.Dir(t.path)
	}
	return at, nil
}

func (c *copying) localTarget(arg string) (copyTarget, error) {
	dir, name := arg, ""
	info, err := os.Stat(arg)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(arg, "/"), err == nil && !info.IsDir():
		dir, name = filepath.Dir(arg), filepath.Base(arg)
	case err != nil:
		return copyTarget{}, cannot(err, "copy to %s", printable(arg))
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return copyTarget{}, fmt.Errorf("there is no directory %s", printable(dir))
	} else if err != nil {
		return copyTarget{}, err
	}
	c.roots = append(c.roots, root)
	return copyTarget{localTree{root}, node{path: "."}, name}, nil
}

// copySource is a file to copy.
type copySource struct {
	tree
	arg  string
	file node
	base string // its name in the target's directory
}

// localSource finds a file of this host, or the file that a symbolic link names.
func (c *copying) localSource(ctx context.Context, arg string) (x copySource, err error) {
	real, err := filepath.EvalSymlinks(arg)
	if err != nil {
		return x, err
	}
	abs, err := filepath.Abs(arg)
	if err != nil {
		return x, err
	}
	root, err := os.OpenRoot(filepath.Dir(real))
	if err != nil {
		return x, err
	}
	c.roots = append(c.roots, root)
	x = copySource{tree: localTree{root}, arg: arg, base: filepath.Base(abs)}
	x.file, err = x.lookup(ctx, node{path: "."}, filepath.Base(real))
	return x, err
}

// remoteSources finds the files that a URL names.
func (c *copying) remoteSources(ctx context.Context, open *sessions, arg string) (all []copySource) {
	found, err := open.expand(ctx, arg)
	if err != nil {
		c.failed(err)
	}
	for _, s := range found {
		x := copySource{arg: s.target.url, base: s.target.base()}
		tree, err := s.newTree(ctx)
		if err == nil {
			var o client.Object
			o, err = s.walk(ctx, s.target.path, true)
			x.tree, x.file = tree, remoteNode(s.target.path, x.base, o)
		}
		if err != nil {
			c.failed(cannot(err, "copy %s", s.target))
			continue
		}
		all = append(all, x)
	}
	return all
}
