package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestMovedDirectoryGoesStale moves a directory out of the export while a client uses it in every
// way that finds it or a child by name. All handles go stale within Recheck.
func TestMovedDirectoryGoesStale(t *testing.T) {
	for _, indexOnly := range []bool{false, true} {
		t.Run(map[bool]string{false: "kernel", true: "index"}[indexOnly], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				top := t.TempDir()
				dir, outside := filepath.Join(top, "export"), filepath.Join(top, "outside")
				must(t, os.MkdirAll(filepath.Join(dir, "moved/child/leaf"), 0o755))
				must(t, os.Mkdir(outside, 0o755))
				write(t, filepath.Join(dir, "moved/child/file"), "content")
				fs := reopened(t, dir, Options{IndexOnly: indexOnly})
				defer shut(t, fs)
				names := map[string][]string{"moved": {".", "child", "child/.."}, "moved/child": {".", "file", "leaf", "leaf/.."},
					"moved/child/file": nil, "moved/child/leaf": {"."}}
				handles := map[string][]byte{}
				for path := range names {
					handles[path] = handleOf(t, fs, path)
				}
				must(t, os.Rename(filepath.Join(dir, "moved"), filepath.Join(outside, "moved")))
				var w Wcc
				for start := time.Now(); time.Since(start) <= 2*fs.opt.Recheck; time.Sleep(2 * time.Millisecond) {
					late := time.Since(start) > fs.opt.Recheck
					for path, h := range handles {
						n, err := fs.Resolve(h)
						if err != nil {
							continue
						}
						if late {
							t.Fatalf("%s is usable %v after it was moved out, Recheck is %v", path, time.Since(start), fs.opt.Recheck)
						}
						for _, name := range names[path] {
							at := n
							at.refs.Add(1)
							for part := range strings.SplitSeq(name, "/") {
								next, err := fs.Lookup(at, nameOf(t, part), root)
								at.Release()
								if at = next; err != nil {
									break
								}
							}
							if at != nil {
								at.Release()
							}
						}
						if n.IsDir() {
							if made, err := fs.Create(n, nameOf(t, "new"), Shared, [8]byte{}, &Attrs{}, root, &w); err == nil {
								made.Release()
							}
						}
						n.Release()
					}
				}
				for path, h := range handles {
					_, err := fs.Resolve(h)
					for errors.Is(err, unix.EAGAIN) {
						_, err = fs.Resolve(h)
					}
					wantErr(t, path+" at the end", err, unix.ESTALE)
				}
			})
		})
	}
}

// deepen makes a chain of directories, one at a time like a client, and returns their paths.
func deepen(t *testing.T, fs *FS, levels int, name string) (paths []string) {
	t.Helper()
	var w Wcc
	at := walk(t, fs, ".")
	for range levels {
		next, err := fs.Mkdir(at, nameOf(t, name), &Attrs{SetMode: true, Mode: 0o755}, root, &w)
		must(t, err)
		at.Release()
		at = next
		paths = append(paths, strings.Repeat(name+"/", len(paths))+name)
	}
	made, err := fs.Create(at, nameOf(t, "file"), Guarded, [8]byte{}, &Attrs{}, root, &w)
	must(t, err)
	var wr Write
	_, err = wr.Do(made, [][]byte{[]byte("content")}, 7, 0, root)
	must(t, err)
	made.Release()
	at.Release()
	return append(paths, strings.Repeat(name+"/", levels)+"file")
}

// TestLongPaths has objects with paths beyond the 4,096 bytes of PATH_MAX. They work like others,
// without searches.
func TestLongPaths(t *testing.T) {
	nosync := func(int, SyncKind) error { return nil }
	for _, shape := range []struct {
		levels int
		name   string
	}{{30, strings.Repeat("n", 200)}, {18, strings.Repeat("m", 255)}, {700, "levels"}} {
		t.Run(fmt.Sprintf("%dx%d", shape.levels, len(shape.name)), func(t *testing.T) {
			modes(t, func(t *testing.T, o Options) {
				if o.IndexOnly && shape.levels > 100 {
					o.Recheck = time.Minute // by names alone, the way down is long
				}
				o.Sync = nosync
				top := t.TempDir()
				dir := filepath.Join(top, "export")
				must(t, os.Mkdir(dir, 0o755))
				fs := reopened(t, dir, o)
				t.Cleanup(func() { removeDeep(t, dir) })
				paths := deepen(t, fs, shape.levels, shape.name)
				// All but the last; of that a few.
				var handles [][]byte
				n := walk(t, fs, ".")
				for i := range paths {
					part := shape.name
					if i == shape.levels {
						part = "file"
					}
					next, err := fs.Lookup(n, nameOf(t, part), root)
					if err != nil {
						t.Fatalf("level %d: %v", i, err)
					}
					n.Release()
					if n = next; i >= shape.levels-4 || i%(1+shape.levels/30) == 0 {
						handles = append(handles, append([]byte(nil), n.Handle().Bytes()...))
					}
				}
				n.Release()
				check := func(when string) {
					t.Helper()
					for i, h := range handles {
						n, err := fs.Resolve(h)
						if err != nil {
							t.Fatalf("%s: handle %d of %d: %v; %d searches", when, i, len(handles), err, fs.Searches())
						}
						n.Release()
					}
					if got, err := read(t, fs, handles[len(handles)-1]); got != "content" || err != nil {
						t.Errorf("%s: the file is %q, %v", when, got, err)
					}
				}
				check("as they were made")
				forget(fs)
				check("when nothing is held open")
				if k := fs.Searches(); k != 0 {
					t.Errorf("%d searches of the whole directory", k)
				}
				shut(t, fs)

				fs = reopened(t, dir, o)
				defer func() { shut(t, fs) }()
				for i, h := range handles {
					n, err := resolve(fs, h)
					if err != nil {
						t.Fatalf("after a restart: handle %d: %v", i, err)
					}
					n.Release()
				}

				if o.Recheck > 1 {
					return
				}
				// Moved out they are stale; they come back with the directory.
				first := filepath.Join(dir, shape.name)
				must(t, os.Rename(first, filepath.Join(top, "elsewhere")))
				for i, h := range handles {
					_, err := resolve(fs, h)
					wantErr(t, fmt.Sprint("moved out: handle ", i), err, unix.ESTALE)
				}
				must(t, os.Rename(filepath.Join(top, "elsewhere"), first))
				if o.IndexOnly {
					return // the failed searches hold for a while
				}
				for i, h := range handles[:len(handles)-1] {
					n, err := fs.Resolve(h)
					if err != nil {
						t.Fatalf("moved back: handle %d: %v", i, err)
					}
					n.Release()
				}
			})
		})
	}
}

// removeDeep removes a chain of directories; os.RemoveAll has an open file for each level.
func removeDeep(t *testing.T, dir string) {
	t.Helper()
	for round := 0; ; round++ {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		f := os.NewFile(uintptr(fd), dir)
		names, err := f.Readdirnames(-1)
		must(t, err)
		if len(names) == 0 {
			f.Close()
			return
		}
		for _, name := range names {
			// A directory's content moves up by one level, which shortens the chain.
			sub, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
			if err != nil {
				must(t, unix.Unlinkat(fd, name, 0))
				continue
			}
			inner := os.NewFile(uintptr(sub), name)
			below, err := inner.Readdirnames(-1)
			must(t, err)
			for i, b := range below {
				must(t, unix.Renameat(sub, b, fd, fmt.Sprint("up-", round, "-", i)))
			}
			inner.Close()
			must(t, unix.Unlinkat(fd, name, unix.AT_REMOVEDIR))
		}
		f.Close()
	}
}

func TestNothingOutside(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		top := t.TempDir()
		dir := filepath.Join(top, "export")
		must(t, os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o755))
		write(t, filepath.Join(top, "secret"), "secret")
		write(t, filepath.Join(dir, "sub/deep/file"), "")
		write(t, filepath.Join(dir, "moved"), "")
		write(t, filepath.Join(dir, "linked"), "")
		for name, target := range map[string]string{"up": "..", "rootlink": "/", "abs": filepath.Join(top, "secret"), "rel": "../secret"} {
			must(t, os.Symlink(target, filepath.Join(dir, name)))
		}
		fs := open(t, dir, o)
		for _, name := range []string{"up", "rootlink", "abs", "rel"} {
			n := walk(t, fs, name)
			if n.Kind() != unix.S_IFLNK {
				t.Errorf("%s was followed", name)
			}
			_, err := fs.Lookup(n, nameOf(t, "secret"), root)
			wantErr(t, "lookup in "+name, err, unix.ENOTDIR)
			_, err = fs.Read(n, make([]byte, 10), 0)
			wantErr(t, "read "+name, err, unix.EINVAL)
			n.Release()
		}
		up := walk(t, fs, "..")
		if up != fs.Root() {
			t.Error(".. of the root is not the root")
		}
		up.Release()
		up = walk(t, fs, "sub/deep/../../..")
		if up != fs.Root() {
			t.Error("many .. do not end at the root")
		}
		up.Release()

		outside := filepath.Join(top, "outside")
		must(t, os.Mkdir(outside, 0o755))
		for _, cached := range []bool{true, false} {
			handles := map[string][]byte{"moved": handleOf(t, fs, "moved"), "sub": handleOf(t, fs, "sub"),
				"sub/deep": handleOf(t, fs, "sub/deep"), "sub/deep/file": handleOf(t, fs, "sub/deep/file")}
			deep := walk(t, fs, "sub/deep")
			if !cached {
				forget(fs)
			}
			must(t, os.Rename(filepath.Join(dir, "sub"), filepath.Join(outside, "sub")))
			must(t, os.Rename(filepath.Join(dir, "moved"), filepath.Join(outside, "moved")))
			if _, err := fs.Lookup(deep, nameOf(t, ".."), root); err == nil {
				t.Error(".. of a directory that was moved out leads outside")
			}
			deep.Release()
			for what, h := range handles {
				n, err := resolve(fs, h)
				if err == nil {
					n.Release()
				}
				wantErr(t, fmt.Sprint(what, " moved out, cached ", cached), err, unix.ESTALE)
			}
			must(t, os.Rename(filepath.Join(outside, "sub"), filepath.Join(dir, "sub")))
			must(t, os.Rename(filepath.Join(outside, "moved"), filepath.Join(dir, "moved")))
			clear(fs.locator.missing) // it would hold for a while
			for what, h := range handles {
				n, err := resolve(fs, h)
				if err != nil {
					t.Errorf("%s moved back: %v", what, err)
					continue
				}
				n.Release()
			}
		}
		// A file with a name inside and one outside is inside, until the one inside goes.
		must(t, os.Link(filepath.Join(dir, "linked"), filepath.Join(outside, "linked")))
		h := handleOf(t, fs, "linked")
		for _, cached := range []bool{true, false} {
			if !cached {
				forget(fs)
			}
			if _, err := read(t, fs, h); err != nil {
				t.Errorf("linked outside too, cached %v: %v", cached, err)
			}
		}
		must(t, os.Remove(filepath.Join(dir, "linked")))
		for _, cached := range []bool{true, false} {
			if !cached {
				forget(fs)
			}
			_, err := read(t, fs, h)
			wantErr(t, fmt.Sprint("linked only outside, cached ", cached), err, unix.ESTALE)
		}
	})
}
