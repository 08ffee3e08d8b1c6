package sluicectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func (a *app) catCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cat URL",
		Short: "Write a file to standard output",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), args[0], 0, "read", func(ctx context.Context, s *session) error {
				o, err := s.regular(ctx)
				if err != nil {
					return err
				}
				return s.download(ctx, o, a.Out, nil)
			})
		},
	}
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
	n, err := s.Download(ctx, o.Handle, 0, o.Attr.Attr.Size, func(data [][]byte) error {
		for _, d := range data {
			if _, err := w.Write(d); err != nil {
				return err
			}
			if p != nil {
				p.add(int64(len(d)))
			}
		}
		return nil
	})
	if err == nil && uint64(n) < o.Attr.Attr.Size {
		err = fmt.Errorf("it ended after %d bytes and had %d before: somebody truncated it meanwhile", n, o.Attr.Attr.Size)
	}
	return err
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get URL [FILE]",
		Short: "Copy a file from the server",
		Long:  "Copy a file from the server to FILE, or to its name in the directory FILE, or in the current one. FILE appears only when all of it has come.",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), args[0], 0, "copy", func(ctx context.Context, s *session) error {
				local := "."
				if len(args) == 2 {
					local = args[1]
				}
				return s.get(ctx, local)
			})
		},
	}
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
	part := filepath.Join(filepath.Dir(local), fmt.Sprintf(".sluicectl.%08x.part", rand.Uint32()))
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(o.Attr.Attr.Mode&0o777)|0o200)
	if err != nil {
		return err
	}
	err = errors.Join(s.download(ctx, o, f, p), f.Close())
	if err == nil {
		err = os.Rename(part, local)
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return p.end(err)
}

// end ends the display, and returns err.
func (p *progress) end(err error) error {
	if err != nil {
		p.abort()
	} else {
		p.done()
	}
	return err
}

func (a *app) putCommand() *cobra.Command {
	var stability string
	c := &cobra.Command{
		Use:   "put FILE URL",
		Short: "Copy a file to the server",
		Long: "Copy FILE (- is standard input) to the server, replacing the target, or under its own name into a directory. " +
			"When the command succeeds, the server has committed all of it to stable storage.",
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			stable, err := parseStability(stability)
			if err != nil {
				return err
			}
			return a.with(c.Context(), args[1], 0, "copy to", func(ctx context.Context, s *session) error {
				return s.put(ctx, args[0], stable)
			})
		},
	}
	c.Flags().StringVar(&stability, "stability", "unstable", "how each WRITE is written: unstable (one COMMIT at the end), data_sync or file_sync")
	return c
}

func parseStability(v string) (nfs3.Stability, error) {
	switch v {
	case "unstable", "UNSTABLE":
		return nfs3.Unstable, nil
	case "data_sync", "DATA_SYNC":
		return nfs3.DataSync, nil
	case "file_sync", "FILE_SYNC":
		return nfs3.FileSync, nil
	}
	return 0, fmt.Errorf("--stability is %q, must be unstable, data_sync or file_sync", v)
}

func (s *session) put(ctx context.Context, local string, stable nfs3.Stability) error {
	in, size, mode := s.app.In, int64(-1), fs.FileMode(0o644)
	var file *os.File
	var info fs.FileInfo
	name := "" // of the file in a directory
	if local != "-" {
		f, err := os.Open(local)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err = f.Stat(); err != nil {
			return err
		}
		if info.IsDir() {
			return fmt.Errorf("%s is a directory; only files can be copied", local)
		}
		in, mode, name = f, info.Mode().Perm(), filepath.Base(local)
		if info.Mode().IsRegular() {
			file, size = f, info.Size()
		}
	} else if f, ok := in.(*os.File); ok {
		info, _ = f.Stat()
	}
	o, err := s.create(ctx, name, uint32(mode), info)
	if err != nil {
		return err
	}
	p := s.app.newProgress(cmp.Or(name, "standard input"), size)
	if file != nil {
		return p.end(s.Upload(ctx, o.Handle, file, 0, uint64(size), client.UploadOptions{Stable: stable, Progress: p.add}))
	}
	return p.end(s.putStream(ctx, o, in, stable, p))
}

// putStream writes from a source that cannot be read twice: block by block, so that a block can be
// written again if the server loses it.
func (s *session) putStream(ctx context.Context, o client.Object, in io.Reader, stable nfs3.Stability, p *progress) error {
	block := make([]byte, 16<<20)
	for at := uint64(0); ; {
		n, err := io.ReadFull(in, block)
		if n > 0 {
			if err := s.WriteAt(ctx, o.Handle, block[:n], at, stable); err != nil {
				return err
			}
			at += uint64(n)
			p.add(int64(n))
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// create makes the target an empty regular file, or an entry called name if the target is a
// directory. local is the file to be copied, nil if the source is no file.
func (s *session) create(ctx context.Context, name string, mode uint32, local fs.FileInfo) (client.Object, error) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	where, slash := s.target.path, s.target.hasSlash
	o, err := s.Walk(ctx, s.root, where, true)
	if err == nil && o.Attr.Attr.Type == nfs3.Dir {
		if name == "" {
			return o, errors.New("it is a directory, and standard input has no name")
		}
		where, slash = path.Join(where, name), false
		o, err = s.Walk(ctx, s.root, where, true)
	}
	switch {
	case err == nil && o.Attr.Attr.Type != nfs3.Reg:
		return o, fmt.Errorf("%s is a %s, not a regular file", where, typeName(o.Attr.Attr.Type))
	case err == nil && local != nil && isSame(local, &o.Attr.Attr):
		return o, errors.New("it is the very file that is to be copied")
	case err == nil: // perhaps behind a symbolic link
		return o, s.SetAttr(ctx, o.Handle, nfs3.SetAttrs{SetSize: true}, nil)
	case !errors.Is(err, fs.ErrNotExist):
		return o, err
	case slash:
		return o, fmt.Errorf("there is no directory %s", where)
	}
	dir, name, err := s.WalkParent(ctx, s.root, where)
	if err != nil {
		return o, err
	}
	return s.Create(ctx, dir.Handle, name, nfs3.Unchecked, nfs3.SetAttrs{SetMode: true, Mode: mode, SetSize: true}, nfs3.Verifier{})
}

// isSame reports whether a local file is the server's file, as where the exported directory, or a
// mount of it, is on this host. File system ids differ between them, so it compares times.
func isSame(local fs.FileInfo, a *nfs3.Attr) bool {
	st, ok := local.Sys().(*syscall.Stat_t)
	return ok && st.Ino == a.FileID && uint64(local.Size()) == a.Size && local.ModTime().Equal(a.Mtime.Time())
}
