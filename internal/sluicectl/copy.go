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
)

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
