package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func (a *app) mkdirCommand() *cobra.Command {
	var parents bool
	mode := "0755"
	c := a.onURL(&cobra.Command{
		Use:   "mkdir URL...",
		Short: "Make directories",
		Args:  between(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			bits, err := strconv.ParseUint(mode, 8, 32)
			if err != nil || bits > 0o7777 {
				return fmt.Errorf("--mode is %q, must be an octal number up to 7777", mode)
			}
			return a.each(c.Context(), args, "make", func(ctx context.Context, s *session) error {
				return s.makeDir(ctx, s.target.path, uint32(bits), parents)
			})
		},
	})
	c.Flags().BoolVarP(&parents, "parents", "p", false, "make missing parents too, and accept existing directories")
	c.Flags().StringVarP(&mode, "mode", "m", mode, "`MODE` of the directories, octal")
	return c
}

// makeDir makes a directory, and its parents on request.
func (s *session) makeDir(ctx context.Context, where string, mode uint32, parents bool) error {
	short, cancel := s.patience(ctx)
	defer cancel()
	dir, name, o, err := s.Resolve(short, s.root, where)
	switch {
	case err == nil:
		if o, err = s.withAttr(short, o); err != nil || parents && o.Attr.Attr.Type == nfs3.Dir {
			return err
		}
		return &fs.PathError{Op: "mkdir", Path: where, Err: unix.EEXIST}
	case name == "" && parents && errors.Is(err, fs.ErrNotExist):
		if err := s.makeDir(ctx, path.Dir(where), mode, true); err != nil {
			return err
		}
		return s.makeDir(ctx, where, mode, true)
	case name == "" || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	o, err = s.Mkdir(short, dir.Handle, name, nfs3.SetAttrs{SetMode: true, Mode: mode & 0o777})
	if parents && errors.Is(err, fs.ErrExist) {
		return nil // somebody made it meanwhile
	}
	if err == nil && mode > 0o777 { // MKDIR may leave these bits out
		err = s.SetAttr(short, o.Handle, nfs3.SetAttrs{SetMode: true, Mode: mode}, nil)
	}
	return err
}

func (a *app) rmCommand() *cobra.Command {
	var recursive, force bool
	c := a.onURL(&cobra.Command{
		Use:   "rm URL...",
		Short: "Remove files and directories",
		Args:  between(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			p := a.newCounter("removed", "files", -1)
			return p.end(a.each(c.Context(), args, "remove", func(ctx context.Context, s *session) error {
				err := s.removeTarget(ctx, recursive, p)
				if force && errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return err
			}))
		},
	})
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove directories with all in them")
	c.Flags().BoolVarP(&force, "force", "f", false, "accept missing files")
	return c
}

func (s *session) removeTarget(ctx context.Context, recursive bool, p *progress) error {
	dir, name, o, err := s.entry(ctx)
	switch {
	case err != nil:
		return err
	case o.Attr.Attr.Type == nfs3.Dir && !recursive:
		return errors.New("it is a directory; -r removes it with all in it")
	}
	return s.remove(ctx, dir, client.DirEntry{Name: name, Handle: o.Handle, Attr: o.Attr}, p)
}

// entry finds the target itself, which may be a symbolic link, and its directory.
func (s *session) entry(ctx context.Context) (dir nfs3.Handle, name string, o client.Object, err error) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	if s.target.path == "/" {
		return nil, "", o, errors.New("it is the root of the export")
	}
	d, name, err := s.WalkParent(ctx, s.root, s.target.path)
	if err != nil {
		return nil, "", o, err
	}
	if o, err = s.Lookup(ctx, d.Handle, name); err == nil {
		o, err = s.withAttr(ctx, o)
	}
	if err != nil {
		err = &fs.PathError{Op: "lookup", Path: s.target.path, Err: err}
	}
	return d.Handle, name, o, err
}

// parallel is the number of calls that commands on many files keep in flight.
const parallel = 16

// remove removes an entry, with all in it. A repeated REMOVE may find that the first one succeeded.
func (s *session) remove(ctx context.Context, dir nfs3.Handle, e client.DirEntry, p *progress) error {
	if err := s.complete(ctx, dir, true, &e); err != nil {
		return missingIsFine(err)
	}
	remove := s.Remove
	if e.Attr.Attr.Type == nfs3.Dir {
		if err := s.removeAll(ctx, e.Handle, p); err != nil {
			return err
		}
		remove = s.Rmdir
	}
	short, cancel := s.patience(ctx)
	defer cancel()
	if err := missingIsFine(remove(short, dir, e.Name)); err != nil {
		return &fs.PathError{Op: "remove", Path: e.Name, Err: err}
	}
	p.count(1)
	return nil
}

// removeAll empties a directory: its files first, several at once.
func (s *session) removeAll(ctx context.Context, dir nfs3.Handle, p *progress) error {
	entries, err := s.entries(ctx, dir, true, nil)
	if err != nil {
		return missingIsFine(err)
	}
	files, filesCtx := errgroup.WithContext(ctx)
	files.SetLimit(parallel)
	var dirs []client.DirEntry
	for _, e := range entries {
		switch {
		case e.Name == "." || e.Name == "..":
		case !e.Attr.Present || e.Attr.Attr.Type == nfs3.Dir:
			dirs = append(dirs, e)
		default:
			files.Go(func() error { return s.remove(filesCtx, dir, e, p) })
		}
	}
	if err := files.Wait(); err != nil {
		return err
	}
	for _, e := range dirs {
		if err := s.remove(ctx, dir, e, p); err != nil {
			return err
		}
	}
	return nil
}

func missingIsFine(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (a *app) mvCommand() *cobra.Command {
	return a.onURL(&cobra.Command{
		Use:   "mv URL... URL",
		Short: "Rename files, or move them into a directory of the same export",
		Args:  between(2, -1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.toEach(c.Context(), args, "move", (*session).renameTo)
		},
	})
}

// place is the new name of a file.
type place struct {
	dir  nfs3.Handle
	name string // "" stands for the old name
}

// toEach runs f for all targets of URLs but the last, with the place that the last URL means.
func (a *app) toEach(ctx context.Context, urls []string, verb string, f func(*session, context.Context, place) error) error {
	to, err := parseTarget(urls[len(urls)-1])
	if err != nil {
		return err
	}
	from := urls[:len(urls)-1]
	open := a.newSessions()
	defer open.close()
	s, err := open.at(ctx, to)
	if err != nil {
		return err
	}
	var at place
	if at.dir, at.name, err = s.newName(ctx); err != nil {
		return cannot(err, "%s to %s", verb, to)
	}
	var all []*session
	for _, u := range from {
		found, err := open.expand(ctx, u)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if len(all) > 1 && at.name != "" {
		return cannot(errors.New("it is not a directory"), "%s several files to %s", verb, to)
	}
	var errs []error
	for _, x := range all {
		to := at
		switch {
		case x.target.server() != s.target.server():
			err = errors.New("both must be of the same server and export; cp copies between others")
		case to.name == "" && x.target.path == "/":
			err = errors.New("it is the root of the export")
		default:
			if to.name == "" {
				to.name = x.target.base()
			}
			err = f(x, ctx, to)
		}
		if err != nil {
			errs = append(errs, cannot(err, "%s %s to %s", verb, x.target, s.target))
		}
	}
	return a.summary(errs, len(all))
}

// newName finds the directory of the target, and its name unless it is a directory itself.
func (s *session) newName(ctx context.Context) (dir nfs3.Handle, name string, err error) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	o, err := s.Walk(ctx, s.root, s.target.path, true)
	switch {
	case err == nil && o.Attr.Attr.Type == nfs3.Dir:
		return o.Handle, "", nil
	case err == nil && s.target.hasSlash:
		return nil, "", &fs.PathError{Op: "walk", Path: s.target.path, Err: unix.ENOTDIR}
	case err != nil && (!errors.Is(err, fs.ErrNotExist) || s.target.hasSlash):
		return nil, "", err
	}
	parent, name, err := s.WalkParent(ctx, s.root, s.target.path)
	return parent.Handle, name, err
}

func (s *session) renameTo(ctx context.Context, to place) error {
	dir, name, o, err := s.entry(ctx)
	if err != nil {
		return err
	}
	short, cancel := s.patience(ctx)
	defer cancel()
	return s.replace(short, place{dir, name}, to, o.Handle)
}

// replace renames a file. If a repeated RENAME finds no file, the first one may have succeeded.
func (s *session) replace(ctx context.Context, from, to place, file nfs3.Handle) error {
	err := s.Rename(ctx, from.dir, from.name, to.dir, to.name)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, e := s.GetAttr(ctx, file)
	if e != nil {
		return err
	}
	o, e := s.Lookup(ctx, to.dir, to.name)
	if e == nil {
		o, e = s.withAttr(ctx, o)
	}
	if e != nil || o.Attr.Attr.FileID != made.FileID {
		return err
	}
	return nil
}

func (a *app) lnCommand() *cobra.Command {
	var symbolic bool
	c := a.onURL(&cobra.Command{
		Use:   "ln {URL... | -s TARGET} URL",
		Short: "Make hard links, or a symbolic link",
		Long: "Give files a second name, which may be a directory for links of the same names. With -s, make a\n" +
			"symbolic link with the text TARGET instead.",
		Args: between(2, -1),
		RunE: func(c *cobra.Command, args []string) error {
			if !symbolic {
				return a.toEach(c.Context(), args, "link", (*session).linkTo)
			}
			if err := exactly(2)(c, args); err != nil {
				return err
			}
			return a.with(c.Context(), args[1], "make", func(ctx context.Context, s *session) error { return s.symlink(ctx, args[0]) })
		},
	})
	c.Flags().BoolVarP(&symbolic, "symbolic", "s", false, "make a symbolic link")
	return c
}

func (s *session) linkTo(ctx context.Context, to place) error {
	_, _, o, err := s.entry(ctx)
	if err != nil {
		return err
	}
	if o.Attr.Attr.Type == nfs3.Dir {
		return errors.New("it is a directory; only symbolic links (-s) can name one")
	}
	short, cancel := s.patience(ctx)
	defer cancel()
	return s.Link(short, o.Handle, to.dir, to.name)
}

func (s *session) symlink(ctx context.Context, text string) error {
	dir, name, err := s.newName(ctx)
	if err != nil {
		return err
	}
	if name == "" {
		if name = path.Base(strings.TrimRight(text, "/")); name == "." || name == ".." || name == "/" {
			return fmt.Errorf("%q has no name for a link in a directory", text)
		}
	}
	ctx, cancel := s.patience(ctx)
	defer cancel()
	_, err = s.Symlink(ctx, dir, name, text, nfs3.SetAttrs{SetMode: true, Mode: 0o777})
	return err
}
