package sluicectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func (a *app) lsCommand() *cobra.Command {
	var long, all bool
	c := a.onURL(&cobra.Command{
		Use:   "ls URL",
		Short: "List a directory",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), args[0], "list", func(ctx context.Context, s *session) error {
				return s.list(ctx, long, all)
			})
		},
	})
	c.Flags().BoolVarP(&long, "long", "l", false, "with type, mode, links, owner, size and time")
	c.Flags().BoolVarP(&all, "all", "a", false, "also names that begin with a dot")
	return c
}

// with runs f on a mounted target, and connects again when the connection ends. verb names the
// action in errors.
func (a *app) with(ctx context.Context, rawURL, verb string, f func(context.Context, *session) error) error {
	return a.mounted(ctx, rawURL, verb, true, f)
}

func (a *app) mounted(ctx context.Context, rawURL, verb string, reconnect bool, f func(context.Context, *session) error) error {
	t, err := parseTarget(rawURL)
	if err != nil {
		return err
	}
	s, err := a.mount(ctx, t, reconnect)
	if err != nil {
		return err
	}
	defer s.close()
	if err := f(ctx, s); err != nil {
		return cannot(err, "%s %s", verb, t)
	}
	return nil
}

func (s *session) list(ctx context.Context, long, all bool) error {
	o, err := s.walk(ctx, s.target.path, !long || s.target.hasSlash)
	if err != nil {
		return err
	}
	var entries []client.DirEntry
	dir := o.Attr.Attr.Type == nfs3.Dir
	if !dir {
		entries = []client.DirEntry{{Name: s.target.base(), Attr: o.Attr, Handle: o.Handle}}
	} else if entries, err = s.entries(ctx, o.Handle, all); err != nil {
		return err
	}
	if !long {
		for _, e := range entries {
			fmt.Fprintln(s.app.Out, printable(e.Name))
		}
		return nil
	}
	for i := range entries {
		if err := s.complete(ctx, o.Handle, dir, &entries[i]); err != nil {
			return err
		}
	}
	return s.printLong(ctx, entries)
}

// entries reads a directory, sorted by name.
func (s *session) entries(ctx context.Context, dir nfs3.Handle, all bool) (entries []client.DirEntry, err error) {
	ctx, answered, cancel := s.patienceEach(ctx)
	defer cancel()
	for e, err := range s.ReadDirPlus(ctx, dir) {
		if err != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		answered()
		if all || !strings.HasPrefix(e.Name, ".") {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b client.DirEntry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}

// complete requests the attributes that the server left out of an entry.
func (s *session) complete(ctx context.Context, dir nfs3.Handle, inDir bool, e *client.DirEntry) error {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	if inDir && e.Handle == nil {
		o, err := s.Lookup(ctx, dir, e.Name)
		if err != nil {
			return fmt.Errorf("%s: %w", printable(e.Name), err)
		}
		e.Handle = o.Handle
		if o.Attr.Present {
			e.Attr = o.Attr
		}
	}
	if !e.Attr.Present {
		attr, err := s.GetAttr(ctx, e.Handle)
		if err != nil {
			return fmt.Errorf("%s: %w", printable(e.Name), err)
		}
		e.Attr = nfs3.PostOpAttr{Present: true, Attr: attr}
	}
	return nil
}

func (s *session) printLong(ctx context.Context, entries []client.DirEntry) error {
	const columns = 4 // links, uid, gid, size
	rows := make([][columns]string, len(entries))
	var width [columns]int
	for i := range entries {
		a := &entries[i].Attr.Attr
		size := strconv.FormatUint(a.Size, 10)
		if a.Type == nfs3.Blk || a.Type == nfs3.Chr {
			size = fmt.Sprintf("%d,%d", a.Rdev.Major, a.Rdev.Minor)
		}
		rows[i] = [columns]string{fmt.Sprint(a.Nlink), fmt.Sprint(a.UID), fmt.Sprint(a.GID), size}
		for k, cell := range rows[i] {
			width[k] = max(width[k], len(cell))
		}
	}
	for i, e := range entries {
		a := &e.Attr.Attr
		name := printable(e.Name)
		if a.Type == nfs3.Lnk {
			target, err := s.Readlink(ctx, e.Handle)
			if err != nil {
				return fmt.Errorf("%s: %w", printable(e.Name), err)
			}
			name += " -> " + printable(target)
		}
		fmt.Fprint(s.app.Out, modeString(a))
		for k, cell := range rows[i] {
			fmt.Fprintf(s.app.Out, " %*s", width[k], cell)
		}
		fmt.Fprintf(s.app.Out, " %s %s\n", a.Mtime.Time().Format("2006-01-02 15:04"), name)
	}
	return nil
}

func (a *app) statCommand() *cobra.Command {
	return a.onURL(&cobra.Command{
		Use:   "stat URL",
		Short: "Print a file's attributes, and its file system's capabilities",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), args[0], "look at", func(ctx context.Context, s *session) error { return s.stat(ctx) })
		},
	})
}

func (s *session) stat(ctx context.Context) error {
	o, err := s.walk(ctx, s.target.path, s.target.hasSlash)
	if err != nil {
		return err
	}
	ctx, cancel := s.patience(ctx)
	defer cancel()
	at := &o.Attr.Attr
	line := func(name, format string, args ...any) {
		fmt.Fprintf(s.app.Out, "  %-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	stamp := func(t nfs3.Time) string { return t.Time().Format(time.RFC3339Nano) }
	fmt.Fprintf(s.app.Out, "%s: %s\n", s.target, typeName(at.Type))
	line("mode", "%s (%04o)", modeString(at), at.Mode)
	line("owner", "uid %d, gid %d", at.UID, at.GID)
	line("size", "%d bytes (%s), %d used", at.Size, byteSize(int64(at.Size)), at.Used)
	if at.Type == nfs3.Blk || at.Type == nfs3.Chr {
		line("device", "%d,%d", at.Rdev.Major, at.Rdev.Minor)
	}
	if at.Type == nfs3.Lnk {
		to, err := s.Readlink(ctx, o.Handle)
		if err != nil {
			return err
		}
		line("target", "%s", printable(to))
	}
	line("links", "%d", at.Nlink)
	line("file id", "%d on file system %#x", at.FileID, at.FSID)
	line("accessed", "%s", stamp(at.Atime))
	line("modified", "%s", stamp(at.Mtime))
	line("changed", "%s", stamp(at.Ctime))
	line("handle", "%x (%d bytes)", []byte(o.Handle), len(o.Handle))
	full, err := s.FSStat(ctx, o.Handle)
	if err != nil {
		return err
	}
	can, err := s.FSInfo(ctx, o.Handle)
	if err != nil {
		return err
	}
	line("file system", "%s of %s available, %d of %d files", byteSize(int64(full.AvailBytes)), byteSize(int64(full.TotalBytes)), full.AvailFiles, full.TotalFiles)
	line("transfers", "READ up to %s, WRITE up to %s", byteSize(int64(can.RTMax)), byteSize(int64(can.WTMax)))
	return nil
}
