package sluicectl

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func (a *app) putCommand() *cobra.Command {
	var stability string
	var o transferOptions
	c := a.onURL(&cobra.Command{
		Use:   "put FILE URL",
		Short: "Copy a file to the server",
		Long: "Copy FILE (- is standard input) to the server, replacing the target, or under its own name into a directory. " +
			"The target changes only when the server has committed all of FILE to stable storage: put writes a temporary file beside it " +
			"(.sluicectl.*.part) and renames that.",
		Args: exactly(2),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.stable, err = parseStability(stability); err != nil {
				return err
			}
			return a.with(c.Context(), args[1], "copy to", func(ctx context.Context, s *session) error {
				return s.put(ctx, args[0], o)
			})
		},
	})
	c.Flags().StringVar(&stability, "stability", "unstable", "how each WRITE is written: unstable (one COMMIT at the end), data_sync or file_sync")
	c.Flags().BoolVar(&o.inPlace, "inplace", false, "write into the target itself, which keeps its links and needs no write permission for its directory; an interrupted put leaves a part")
	complete(c, "stability", stabilities...)
	return c
}

var stabilities = []string{"unstable", "data_sync", "file_sync"}

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

// source is the file to copy.
type source struct {
	io.Reader
	name string      // its base name; "" for standard input
	info fs.FileInfo // of a file of this host

	at     io.ReaderAt // nil if it cannot be read twice
	size   uint64      // of at
	mtime  time.Time   // of at
	handle nfs3.Handle // of a file on the target's server
}

func newSource(f *os.File, info fs.FileInfo) source {
	return source{Reader: f, name: filepath.Base(f.Name()), info: info, at: f, size: uint64(info.Size()), mtime: info.ModTime()}
}

func (s *session) openSource(local string) (src source, closeFile func() error, err error) {
	closeFile = func() error { return nil }
	src.Reader = s.app.In
	f, ok := s.app.In.(*os.File)
	if local != "-" {
		if f, err = os.Open(local); err != nil {
			return src, closeFile, err
		}
		src.Reader, src.name, closeFile, ok = f, filepath.Base(local), f.Close, true
	}
	if !ok {
		return src, closeFile, nil
	}
	if src.info, err = f.Stat(); err == nil && src.info.IsDir() {
		err = fmt.Errorf("%s is a directory; only files can be copied", local)
	}
	if err == nil && src.name != "" && src.info.Mode().IsRegular() {
		src = newSource(f, src.info)
	}
	return src, closeFile, err
}

func (s *session) put(ctx context.Context, local string, o transferOptions) error {
	src, closeSource, err := s.openSource(local)
	defer func() { _ = closeSource() }()
	if err != nil {
		return err
	}
	to, err := s.destination(ctx, src)
	if err != nil {
		return err
	}
	size := int64(-1)
	if src.at != nil {
		size = int64(src.size)
	}
	p := s.app.newProgress(cmp.Or(src.name, "standard input"), size)
	if o.inPlace {
		return p.end(s.putInPlace(ctx, to, src, o, p))
	}
	return p.end(s.putBeside(ctx, to, src, o, p))
}

// destination is the place of a file on the server.
type destination struct {
	dir  nfs3.Handle
	name string
	mode uint32
	old  *client.Object // the file there, if there is one
}

// destination finds the place of the target, or of an entry in it if the target is a directory.
func (s *session) destination(ctx context.Context, src source) (to destination, err error) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	where, slash := s.target.path, s.target.hasSlash
	dir, name, old, err := s.Resolve(ctx, s.root, where)
	if err == nil {
		old, err = s.withAttr(ctx, old)
	}
	if err == nil && old.Attr.Attr.Type == nfs3.Dir {
		if src.name == "" {
			return to, errors.New("it is a directory, and standard input has no name")
		}
		where, slash = path.Join(where, src.name), false
		if dir, name, old, err = s.Resolve(ctx, s.root, where); err == nil {
			old, err = s.withAttr(ctx, old)
		}
	}
	to = destination{dir: dir.Handle, name: name, mode: 0o644}
	if src.name != "" {
		to.mode = uint32(src.info.Mode().Perm())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && slash:
		return to, fmt.Errorf("there is no directory %s", where)
	case errors.Is(err, fs.ErrNotExist) && name != "":
		return to, nil
	case err != nil:
		return to, err
	case old.Attr.Attr.Type != nfs3.Reg:
		return to, fmt.Errorf("%s is a %s, not a regular file", where, typeName(old.Attr.Attr.Type))
	case src.info != nil && isSame(src.info, &old.Attr.Attr):
		return to, errors.New("it is the very file that is to be copied")
	}
	to.old, to.mode = &old, old.Attr.Attr.Mode&0o7777
	return to, nil
}

// putInPlace writes into the target.
func (s *session) putInPlace(ctx context.Context, to destination, src source, o transferOptions, p *progress) error {
	if to.old != nil {
		if err := s.SetAttr(ctx, to.old.Handle, nfs3.SetAttrs{SetSize: true}, nil); err != nil {
			return err
		}
		return s.uploadFrom(ctx, *to.old, src, 0, o, p)
	}
	file, err := s.Create(ctx, to.dir, to.name, nfs3.Unchecked, nfs3.SetAttrs{SetMode: true, Mode: to.mode, SetSize: true}, nfs3.Verifier{})
	if err != nil {
		return err
	}
	return s.uploadFrom(ctx, file, src, 0, o, p)
}

// putBeside writes a temporary file, and renames it to the target when it is committed. Each call
// may be repeated: the server may go away at any time.
func (s *session) putBeside(ctx context.Context, to destination, src source, o transferOptions, p *progress) (err error) {
	part := o.partName(to.name, src.size, src.mtime)
	defer func() {
		// A CREATE that was given up may have succeeded.
		if err != nil && (!o.resume || errors.Is(err, errDiffers)) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = s.Remove(ctx, to.dir, part)
		}
	}()
	file, from, err := s.openPart(ctx, to, part, src.size, o.resume)
	if err != nil {
		return err
	}
	p.skip(int64(from))
	if err := s.uploadFrom(ctx, file, src, from, o, p); err != nil {
		return err
	}
	if o.verify && src.at != nil {
		same, err := s.same(ctx, file.Handle, src.size, src.at)
		if err == nil && !same {
			err = errDiffers
		}
		if err != nil {
			return err
		}
	}
	if err := s.finishPart(ctx, to, file.Handle, o.mtime); err != nil {
		return err
	}
	return s.replace(ctx, place{to.dir, part}, place{to.dir, to.name}, file.Handle)
}

// openPart makes the temporary file. With resume it may find that of an interrupted transfer, which
// is complete up to from.
func (s *session) openPart(ctx context.Context, to destination, part string, size uint64, resume bool) (file client.Object, from uint64, err error) {
	if resume {
		file, err = s.Lookup(ctx, to.dir, part)
		if err == nil {
			file, err = s.withAttr(ctx, file)
		}
		if err == nil && file.Attr.Attr.Type == nfs3.Reg && file.Attr.Attr.Size <= size {
			return file, resumeAt(file.Attr.Attr.Size), nil
		}
		if err == nil {
			err = s.Remove(ctx, to.dir, part)
		}
		if missingIsFine(err) != nil {
			return file, 0, err
		}
	}
	var verf nfs3.Verifier
	binary.BigEndian.PutUint64(verf[:], rand.Uint64())
	file, err = s.Create(ctx, to.dir, part, nfs3.Exclusive, nfs3.SetAttrs{SetMode: true, Mode: 0o600}, verf)
	if errors.Is(err, fs.ErrPermission) {
		return file, 0, fmt.Errorf("no file can be made in its directory (%w); --inplace writes into an existing target", err)
	}
	if err == nil {
		// The server may have kept verf in the times.
		err = s.SetAttr(ctx, file.Handle, nfs3.SetAttrs{
			SetMode: true, Mode: to.mode&0o777 | 0o600, AtimeHow: nfs3.SetToServerTime, MtimeHow: nfs3.SetToServerTime,
		}, nil)
	}
	return file, 0, err
}

// uploadFrom writes the source from an offset on. The server copies a file of its own if it can.
func (s *session) uploadFrom(ctx context.Context, o client.Object, src source, from uint64, opts transferOptions, p *progress) error {
	if src.at == nil {
		return s.putStream(ctx, o, src, opts.stable, p)
	}
	return opts.sections(from, src.size, func(offset, n uint64) error {
		written := time.Now()
		progress := func(n int64) {
			if n < 0 {
				s.app.note("the server has restarted, and may have lost data that were not stable yet: %s are written again", byteSize(-n))
			}
			written = time.Now()
			p.add(n)
		}
		err := errors.ErrUnsupported
		if src.handle != nil {
			err = s.CopyRange(ctx, src.handle, o.Handle, offset, n, progress)
		}
		if errors.Is(err, errors.ErrUnsupported) {
			src.handle = nil
			err = s.Upload(ctx, o.Handle, src.at, offset, n, client.UploadOptions{Stable: opts.stable, Progress: progress})
		}
		p.committed(time.Since(written)) // no WRITE follows the last
		return err
	})
}

// finishPart sets the attributes that the target had or shall have. Only some servers, and few
// users, may give a file away: it then belongs to its writer.
func (s *session) finishPart(ctx context.Context, to destination, part nfs3.Handle, mtime *time.Time) error {
	if to.old != nil {
		old := &to.old.Attr.Attr
		now, err := s.GetAttr(ctx, part)
		if err != nil {
			return err
		}
		if now.UID != old.UID {
			_ = s.SetAttr(ctx, part, nfs3.SetAttrs{SetUID: true, UID: old.UID}, nil)
		}
		if now.GID != old.GID {
			_ = s.SetAttr(ctx, part, nfs3.SetAttrs{SetGID: true, GID: old.GID}, nil)
		}
	}
	return s.SetAttr(ctx, part, withTime(nfs3.SetAttrs{SetMode: true, Mode: to.mode}, mtime), nil)
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

// isSame reports whether a local file is the server's file, as where the exported directory, or a
// mount of it, is on this host. File system ids differ between them, so it compares times.
func isSame(local fs.FileInfo, a *nfs3.Attr) bool {
	st, ok := local.Sys().(*syscall.Stat_t)
	return ok && st.Ino == a.FileID && uint64(local.Size()) == a.Size && local.ModTime().Equal(a.Mtime.Time())
}
