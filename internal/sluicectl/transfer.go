package sluicectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func (a *app) catCommand() *cobra.Command {
	return a.onURL(&cobra.Command{
		Use:   "cat URL",
		Short: "Write a file to standard output",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), args[0], "read", func(ctx context.Context, s *session) error {
				o, err := s.regular(ctx)
				if err != nil {
					return err
				}
				p := a.newProgress(s.target.base(), int64(o.Attr.Attr.Size))
				p.quiet = a.isTerminal() // the file itself is seen there
				defer p.clear()
				return s.download(ctx, o, a.Out, p)
			})
		},
	})
}

// regular finds the target, which must be a regular file.
func (s *session) regular(ctx context.Context) (client.Object, error) {
	o, err := s.walk(ctx, s.target.path, true)
	if err == nil && o.Attr.Attr.Type != nfs3.Reg {
		err = fmt.Errorf("it is a %s, not a regular file", typeName(o.Attr.Attr.Type))
	}
	return o, err
}

// download copies a file to w.
func (s *session) download(ctx context.Context, o client.Object, w io.Writer, p *progress) error {
	return s.downloadPart(ctx, o, 0, o.Attr.Attr.Size, w, p)
}

// downloadPart copies n bytes of a file to w.
func (s *session) downloadPart(ctx context.Context, o client.Object, offset, n uint64, w io.Writer, p *progress) error {
	got, err := s.Download(ctx, o.Handle, offset, n, func(data [][]byte) error {
		for _, d := range data {
			if _, err := w.Write(d); err != nil {
				return err
			}
			p.add(int64(len(d)))
		}
		return nil
	})
	if err == nil && uint64(got) < n {
		err = fmt.Errorf("it ended after %d bytes and had %d before: somebody truncated it meanwhile", offset+uint64(got), o.Attr.Attr.Size)
	}
	return err
}

func (a *app) getCommand() *cobra.Command {
	return a.onURL(&cobra.Command{
		Use:   "get URL [FILE]",
		Short: "Copy a file from the server",
		Long:  "Copy a file from the server to FILE, or to its name in the directory FILE, or in the current one. FILE appears only when all of it has come.",
		Args:  between(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), args[0], "copy", func(ctx context.Context, s *session) error {
				local := "."
				if len(args) == 2 {
					local = args[1]
				}
				return s.get(ctx, local)
			})
		},
	})
}

func (s *session) get(ctx context.Context, local string) error {
	o, err := s.regular(ctx)
	if err != nil {
		return err
	}
	info, err := os.Stat(local)
	if err == nil && info.IsDir() {
		local = filepath.Join(local, s.target.base())
		info, err = os.Stat(local)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p := s.app.newProgress(filepath.Base(local), int64(o.Attr.Attr.Size))
	if err == nil && !info.Mode().IsRegular() { // a pipe or device: nothing to put in its place
		f, err := os.OpenFile(local, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		err = errors.Join(s.download(ctx, o, f, p), f.Close())
		return p.end(err)
	}
	dir := filepath.Dir(local)
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no directory %s", printable(dir))
	} else if err != nil {
		return err
	}
	defer root.Close()
	return p.end(s.fetch(ctx, o, root, filepath.Base(local), transferOptions{}, p))
}

// fetch copies a file to name below root. It appears only when all of it has come.
func (s *session) fetch(ctx context.Context, o client.Object, root *os.Root, name string, opts transferOptions, p *progress) error {
	a := &o.Attr.Attr
	part := filepath.Join(filepath.Dir(name), opts.partName(filepath.Base(name), a.Size, a.Mtime.Time()))
	flags := os.O_RDWR | os.O_CREATE
	if !opts.resume {
		flags |= os.O_EXCL
	}
	f, err := root.OpenFile(part, flags, fs.FileMode(a.Mode&0o777)|0o600)
	if err != nil {
		return err
	}
	remove := func() {
		if !opts.resume {
			_ = root.Remove(part)
		}
	}
	// An interrupted command may end before its READs are cancelled.
	kept := context.AfterFunc(ctx, remove)
	err = errors.Join(s.fetchPart(ctx, o, f, opts, p), f.Close())
	if err == nil && opts.mtime != nil {
		err = root.Chtimes(part, time.Time{}, *opts.mtime)
	}
	if kept() && err == nil {
		err = root.Rename(part, name)
	}
	if errors.Is(err, errDiffers) {
		_ = root.Remove(part)
	} else if err != nil {
		remove()
	}
	return cmp.Or(err, context.Cause(ctx))
}

// fetchPart completes a temporary file.
func (s *session) fetchPart(ctx context.Context, o client.Object, f *os.File, opts transferOptions, p *progress) error {
	size := o.Attr.Attr.Size
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var from uint64
	if n := uint64(info.Size()); n <= size {
		from = resumeAt(n)
	}
	if err := f.Truncate(int64(from)); err != nil {
		return err
	}
	p.skip(int64(from))
	err = opts.sections(from, size, func(offset, n uint64) error {
		if err := s.downloadPart(ctx, o, offset, n, io.NewOffsetWriter(f, int64(offset)), p); err != nil || !opts.resume {
			return err
		}
		return f.Sync()
	})
	if err == nil && opts.verify {
		var same bool
		if same, err = s.same(ctx, o.Handle, size, f); err == nil && !same {
			err = errDiffers
		}
	}
	if err != nil {
		return err
	}
	return f.Chmod(info.Mode().Perm() & fs.FileMode(o.Attr.Attr.Mode&0o777)) // as umask left it
}
