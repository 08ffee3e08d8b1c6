package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/server"
)

// makeTree makes a directory with more names than a batch, directories deeper than the bound, and
// links to a file and a directory beside it. It returns these two.
func makeTree(t *testing.T, root string) (file, dir string) {
	t.Helper()
	file, dir = filepath.Join(root, "beside"), filepath.Join(root, "besides")
	mustNot(t, os.WriteFile(file, []byte("keep"), 0o600))
	mustNot(t, os.MkdirAll(filepath.Join(dir, "keep"), 0o700))
	tree := filepath.Join(root, "tree")
	deep := filepath.Join(tree, strings.Repeat("d/", 70))
	mustNot(t, os.MkdirAll(deep, 0o700))
	for i := range 140 {
		mustNot(t, os.WriteFile(filepath.Join(tree, fmt.Sprint("f", i)), nil, 0o400))
	}
	for i := range 10 {
		mustNot(t, os.Mkdir(filepath.Join(tree, fmt.Sprint("e", i)), 0o700))
	}
	for _, d := range []string{tree, deep} {
		mustNot(t, os.Symlink(file, filepath.Join(d, "link")))
		mustNot(t, os.Symlink(dir, filepath.Join(d, "links")))
		mustNot(t, os.Symlink("../besides", filepath.Join(d, "relative")))
		mustNot(t, os.Symlink("/nowhere", filepath.Join(d, "dangling")))
		mustNot(t, unix.Mkfifo(filepath.Join(d, "fifo"), 0o600))
	}
	return file, dir
}

func TestRemoveAll(t *testing.T) {
	v := newVolume(t, &server.NFS4Config{})
	v.eachConn(func(t *testing.T, rq client.Conn, pool *bufpool.Pool) {
		for _, version := range []client.Version{client.V3, client.V42} {
			t.Run(version.String(), func(t *testing.T) {
				c, root := newClientOf(t, version, rq, pool)
				file, dir := makeTree(t, v.cfg.Root)
				mustNot(t, c.RemoveAll(ctx, root, "tree"))
				mustNot(t, c.RemoveAll(ctx, root, "tree")) // it is not there
				left, err := os.ReadDir(v.cfg.Root)
				mustNot(t, err)
				if len(left) != 2 {
					t.Errorf("left over: %v", left)
				}
				for _, kept := range []string{file, filepath.Join(dir, "keep")} {
					if _, err := os.Stat(kept); err != nil {
						t.Errorf("the target of a link: %v", err)
					}
				}
				mustNot(t, os.Symlink(dir, filepath.Join(v.cfg.Root, "tree")))
				mustNot(t, c.RemoveAll(ctx, root, "tree"))
				mustNot(t, c.RemoveAll(ctx, root, "beside"))
				if left, err := os.ReadDir(v.cfg.Root); err != nil || len(left) != 1 {
					t.Errorf("left over: %v, %v", left, err)
				}
				if _, err := os.Stat(filepath.Join(dir, "keep")); err != nil {
					t.Errorf("the target of a link: %v", err)
				}
				mustNot(t, os.RemoveAll(dir))
				mustNot(t, c.Close(ctx))
			})
		}
	})
}

// An interrupted removal goes on where it was.
func TestRemoveAllResumes(t *testing.T) {
	v := newVolume(t, &server.NFS4Config{})
	v.eachConn(func(t *testing.T, rq client.Conn, pool *bufpool.Pool) {
		c, root := newClientOf(t, client.V3, rq, pool)
		_, dir := makeTree(t, v.cfg.Root)
		tree := filepath.Join(v.cfg.Root, "tree")
		limited := &limitedCalls{Protocol: c.Protocol}
		c.Protocol = limited
		calls := 0
		for limited.left = 10; ; limited.left = 20 {
			err := c.RemoveAll(ctx, root, "tree")
			if err == nil {
				break
			}
			if !errors.Is(err, errNoMoreCalls) || !strings.HasPrefix(err.Error(), "remove tree/") {
				t.Fatal(err)
			}
			if _, err := os.Stat(tree); err != nil {
				t.Fatal(err)
			}
			if calls++; calls > 100 {
				t.Fatal("it does not go on")
			}
		}
		if calls < 4 {
			t.Errorf("interrupted %d times, must be several", calls)
		}
		if _, err := os.Stat(tree); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		mustNot(t, os.RemoveAll(dir))
		mustNot(t, os.Remove(filepath.Join(v.cfg.Root, "beside")))
	})
}

var errNoMoreCalls = errors.New("no more calls")

// limitedCalls lets a number of removals pass.
type limitedCalls struct {
	client.Protocol
	left int
}

func (l *limitedCalls) Rmdir(ctx context.Context, dir nfs3.Handle, name string) error {
	if l.left--; l.left < 0 {
		return errNoMoreCalls
	}
	return l.Protocol.Rmdir(ctx, dir, name)
}

// Another file system below is not entered.
func TestRemoveAllStays(t *testing.T) {
	eachTransport(t, func(t *testing.T, c *client.Client, _ *bufpool.Pool) {
		root, err := c.Mount(ctx, "/export")
		mustNot(t, err)
		dir, err := c.Mkdir(ctx, root, "tree", nfs3.SetAttrs{})
		mustNot(t, err)
		_, err = c.Mkdir(ctx, dir.Handle, "mounted", nfs3.SetAttrs{})
		mustNot(t, err)
		c.Protocol = mounted{c.Protocol}
		if err := c.RemoveAll(ctx, root, "tree"); !errors.Is(err, unix.EXDEV) || !strings.Contains(err.Error(), "tree/mounted") {
			t.Errorf("error %v, must name tree/mounted", err)
		}
		c.Protocol = c.Protocol.(mounted).Protocol
		if _, err := c.Lookup(ctx, dir.Handle, "mounted"); err != nil {
			t.Error(err)
		}
	})
}

// mounted has another file system at a directory named mounted.
type mounted struct{ client.Protocol }

func (m mounted) ReadDirPlus(ctx context.Context, dir nfs3.Handle) iter.Seq2[client.DirEntry, error] {
	return func(yield func(client.DirEntry, error) bool) {
		for e, err := range m.Protocol.ReadDirPlus(ctx, dir) {
			if e.Name == "mounted" {
				o, err := m.Lookup(ctx, dir, e.Name)
				if err != nil {
					yield(e, err)
					return
				}
				e.Handle = o.Handle
				if e.Attr.Attr, err = m.GetAttr(ctx, o.Handle); err != nil {
					yield(e, err)
					return
				}
				e.Attr.Present = true
				e.Attr.Attr.FSID++
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
