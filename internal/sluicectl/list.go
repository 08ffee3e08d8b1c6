package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// listOptions are the flags of ls.
type listOptions struct {
	long, all, json bool
	many            bool // directories have headings
}

func (a *app) lsCommand() *cobra.Command {
	var o listOptions
	c := a.onURL(&cobra.Command{
		Use:   "ls URL...",
		Short: "List directories",
		Args:  between(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			o.many = len(args) > 1
			if !o.json {
				return a.each(c.Context(), args, "list", func(ctx context.Context, s *session) error { return s.list(ctx, o) })
			}
			found := []listEntry{}
			err := a.each(c.Context(), args, "list", func(ctx context.Context, s *session) error {
				entries, err := s.listJSON(ctx, o)
				found = append(found, entries...)
				return err
			})
			return errors.Join(err, a.printJSON(found))
		},
	})
	c.Flags().BoolVarP(&o.long, "long", "l", false, "with type, mode, links, owner, size and time")
	c.Flags().BoolVarP(&o.all, "all", "a", false, "also names that begin with a dot")
	c.Flags().BoolVar(&o.json, "json", false, "print a JSON array with all attributes")
	return c
}

// find returns the entries of the target, or the target as its only entry.
func (s *session) find(ctx context.Context, o listOptions) (dir nfs3.Handle, entries []client.DirEntry, err error) {
	t, err := s.walk(ctx, s.target.path, !o.long && !o.json || s.target.hasSlash)
	if err != nil {
		return nil, nil, err
	}
	if t.Attr.Attr.Type != nfs3.Dir {
		return nil, []client.DirEntry{{Name: s.target.base(), Attr: t.Attr, Handle: t.Handle}}, nil
	}
	p := s.app.newCounter("listed", "names", -1)
	entries, err = s.entries(ctx, t.Handle, o.all, p)
	return t.Handle, entries, p.end(err)
}

func (s *session) list(ctx context.Context, o listOptions) error {
	dir, entries, err := s.find(ctx, o)
	if err != nil {
		return err
	}
	if o.many && dir != nil {
		fmt.Fprintf(s.app.Out, "%s:\n", s.target)
	}
	if !o.long {
		for _, e := range entries {
			fmt.Fprintln(s.app.Out, printable(e.Name))
		}
		return nil
	}
	if err := s.completeAll(ctx, dir, entries); err != nil {
		return err
	}
	return s.printLong(ctx, entries)
}

// listEntry is an entry of ls as JSON.
type listEntry struct {
	URL    string    `json:"url"`
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	Mode   string    `json:"mode"` // octal
	Links  uint32    `json:"links"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Size   uint64    `json:"size"`
	Used   uint64    `json:"used"`
	FileID uint64    `json:"file_id"`
	Mtime  time.Time `json:"modified"`
	Ctime  time.Time `json:"changed"`
	Target string    `json:"target,omitempty"` // of a symbolic link
}

func (s *session) listJSON(ctx context.Context, o listOptions) (list []listEntry, err error) {
	dir, entries, err := s.find(ctx, o)
	if err == nil {
		err = s.completeAll(ctx, dir, entries)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		at := &e.Attr.Attr
		where := s.target.path
		if dir != nil {
			where = path.Join(where, e.Name)
		}
		x := listEntry{
			URL: s.target.move(where).url, Name: e.Name, Type: typeName(at.Type), Mode: fmt.Sprintf("%04o", at.Mode), Links: at.Nlink,
			UID: at.UID, GID: at.GID, Size: at.Size, Used: at.Used, FileID: at.FileID, Mtime: at.Mtime.Time(), Ctime: at.Ctime.Time(),
		}
		if at.Type == nfs3.Lnk {
			if x.Target, err = s.Readlink(ctx, e.Handle); err != nil {
				return nil, err
			}
		}
		list = append(list, x)
	}
	return list, nil
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
