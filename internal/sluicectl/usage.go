package sluicectl

import (
	"context"
	"fmt"
	"path"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// duOptions are the flags of du.
type duOptions struct {
	depth    int
	apparent bool
	json     bool
}

// directoryUsage is the usage of a file, or of a directory with all in it; a line of du.
type directoryUsage struct {
	URL   string `json:"url"`
	Bytes uint64 `json:"bytes"`
	Files uint64 `json:"files"` // without directories
	Dirs  uint64 `json:"directories"`
}

func (a *app) duCommand() *cobra.Command {
	var o duOptions
	c := a.onURL(&cobra.Command{
		Use:   "du URL...",
		Short: "Sum up the space of directories with all in them",
		Long:  "Sum up the space that directories use, with all in them. A file with several names counts once.",
		Args:  between(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			p := a.newCounter("found", "files", -1)
			found := []directoryUsage{}
			err := a.each(c.Context(), args, "sum up", func(ctx context.Context, s *session) error {
				list, err := s.usage(ctx, o, p)
				found = append(found, list...)
				return err
			})
			_ = p.end(err)
			if o.json {
				if e := a.printJSON(found); err == nil {
					err = e
				}
				return err
			}
			w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
			for _, d := range found {
				fmt.Fprintf(w, "%s\t%d files\t  %s\n", byteSize(int64(d.Bytes)), d.Files, d.URL)
			}
			if e := w.Flush(); err == nil {
				err = e
			}
			return err
		},
	})
	c.Flags().IntVarP(&o.depth, "depth", "d", 0, "also print directories this many levels below")
	c.Flags().BoolVar(&o.apparent, "apparent-size", false, "sum up the sizes instead of the space used, which differs for sparse and small files")
	c.Flags().BoolVar(&o.json, "json", false, "print a JSON array")
	return c
}

// summer sums up a tree.
type summer struct {
	s       *session
	o       duOptions
	p       *progress
	reading chan struct{} // bounds the directories that are read at once

	mu   sync.Mutex
	seen map[uint64]bool // files with several names
}

// usage returns the usage of the directories down to o.depth, and of the target last.
func (s *session) usage(ctx context.Context, o duOptions, p *progress) ([]directoryUsage, error) {
	t, err := s.walk(ctx, s.target.path, s.target.hasSlash)
	if err != nil {
		return nil, err
	}
	x := &summer{s: s, o: o, p: p, reading: make(chan struct{}, parallel), seen: map[uint64]bool{}}
	list, err := x.sum(ctx, s.target.path, client.DirEntry{Handle: t.Handle, Attr: t.Attr}, 0)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].URL = s.target.move(list[i].URL).url
	}
	return list, nil
}

// sum returns the usage of the printed directories below an entry, its own last. The URLs are
// paths.
func (x *summer) sum(ctx context.Context, where string, e client.DirEntry, level int) ([]directoryUsage, error) {
	own := directoryUsage{URL: where, Bytes: x.bytes(&e.Attr.Attr)}
	if e.Attr.Attr.Type != nfs3.Dir {
		own.Files = 1
		x.p.count(1)
		return []directoryUsage{own}, nil
	}
	own.Dirs = 1
	entries, err := x.read(ctx, e.Handle)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", printable(where), err)
	}
	below := make([][]directoryUsage, len(entries))
	dirs, ctx := errgroup.WithContext(ctx)
	for i, n := range entries {
		if n.Attr.Attr.Type == nfs3.Dir {
			dirs.Go(func() (err error) {
				below[i], err = x.sum(ctx, path.Join(where, n.Name), n, level+1)
				return err
			})
			continue
		}
		own.Bytes += x.bytes(&n.Attr.Attr)
		own.Files++
	}
	x.p.count(int64(own.Files))
	if err := dirs.Wait(); err != nil {
		return nil, err
	}
	var list []directoryUsage
	for _, b := range below {
		if len(b) == 0 {
			continue
		}
		last := &b[len(b)-1]
		own.Bytes, own.Files, own.Dirs = own.Bytes+last.Bytes, own.Files+last.Files, own.Dirs+last.Dirs
		if level < x.o.depth {
			list = append(list, b...)
		}
	}
	return append(list, own), nil
}

// read returns the entries of a directory with their attributes.
func (x *summer) read(ctx context.Context, dir nfs3.Handle) (entries []client.DirEntry, err error) {
	x.reading <- struct{}{}
	defer func() { <-x.reading }()
	all, err := x.s.entries(ctx, dir, true, nil)
	for i := range all {
		if all[i].Name == "." || all[i].Name == ".." {
			continue
		}
		if err == nil {
			err = x.s.complete(ctx, dir, true, &all[i])
		}
		entries = append(entries, all[i])
	}
	return entries, err
}

// bytes is the space of a file, 0 for another name of a file before.
func (x *summer) bytes(a *nfs3.Attr) uint64 {
	if a.Type != nfs3.Dir && a.Nlink > 1 {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.seen[a.FileID] {
			return 0
		}
		x.seen[a.FileID] = true
	}
	if x.o.apparent {
		return a.Size
	}
	return a.Used
}

// fileSystem is the usage of a file system; a line of df.
type fileSystem struct {
	URL            string `json:"url"`
	Bytes          uint64 `json:"bytes"`
	FreeBytes      uint64 `json:"free_bytes"`
	AvailableBytes uint64 `json:"available_bytes"` // to this user
	Files          uint64 `json:"files"`
	FreeFiles      uint64 `json:"free_files"`
	AvailableFiles uint64 `json:"available_files"`
}

func (a *app) dfCommand() *cobra.Command {
	var asJSON bool
	c := a.onURL(&cobra.Command{
		Use:   "df URL...",
		Short: "Print the free space of file systems",
		Args:  between(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			found := []fileSystem{}
			err := a.each(c.Context(), args, "look at", func(ctx context.Context, s *session) error {
				x, err := s.fileSystem(ctx)
				if err == nil {
					found = append(found, x)
				}
				return err
			})
			if asJSON {
				if e := a.printJSON(found); err == nil {
					err = e
				}
				return err
			}
			w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
			if len(found) > 0 {
				fmt.Fprintln(w, "SIZE\tUSED\tAVAILABLE\tUSE\tFILES\tFREE FILES\tURL")
			}
			for _, x := range found {
				used := x.Bytes - min(x.FreeBytes, x.Bytes)
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", byteSize(int64(x.Bytes)), byteSize(int64(used)), byteSize(int64(x.AvailableBytes)),
					percent(used, used+x.AvailableBytes), x.Files, x.FreeFiles, x.URL)
			}
			if e := w.Flush(); err == nil {
				err = e
			}
			return err
		},
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}

func (s *session) fileSystem(ctx context.Context) (fileSystem, error) {
	o, err := s.walk(ctx, s.target.path, true)
	if err != nil {
		return fileSystem{}, err
	}
	ctx, cancel := s.patience(ctx)
	defer cancel()
	r, err := s.FSStat(ctx, o.Handle)
	return fileSystem{
		URL: s.target.url, Bytes: r.TotalBytes, FreeBytes: r.FreeBytes, AvailableBytes: r.AvailBytes,
		Files: r.TotalFiles, FreeFiles: r.FreeFiles, AvailableFiles: r.AvailFiles,
	}, err
}

// percent rounds up, as df does.
func percent(part, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	p := float64(part) * 100 / float64(whole)
	n := int(p)
	if p > float64(n) {
		n++
	}
	return fmt.Sprintf("%d%%", n)
}
