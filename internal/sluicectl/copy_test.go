package sluicectl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/server"
)

// TestCopyTrees copies trees in both directions, and links inside them as links.
func TestCopyTrees(t *testing.T) {
	for _, u := range []string{"TCP", "RDMA"} {
		t.Run(u, func(t *testing.T) {
			e := newEnv(t)
			local := t.TempDir()
			t.Chdir(local)
			must(t, os.MkdirAll("src/sub/deep", 0o755))
			must(t, os.WriteFile("src/one", []byte("1"), 0o640))
			must(t, os.WriteFile("src/sub/two", []byte("22"), 0o600))
			must(t, os.Symlink("../one", "src/sub/link"))
			must(t, os.Symlink("/nowhere", "src/away"))
			must(t, os.Symlink("src", "named"))
			must(t, os.Chmod("src/sub/deep", 0o500))
			stamp := time.Date(2021, 2, 3, 4, 5, 6, 7, time.UTC)
			must(t, os.Chtimes("src/sub", stamp, stamp))
			must(t, os.Chtimes("src/one", stamp, stamp))
			want := listTree(t, "src")
			e.ok("cp", "-rp", "src", u+"/new")
			e.ok("cp", "-r", "named", u+"/")
			e.ok("cp", "-rp", u+"/new", "back")
			for _, dir := range []string{filepath.Join(e.dir, "new"), filepath.Join(e.dir, "named"), "back"} {
				if got := listTree(t, dir); got != want {
					t.Errorf("%s: %s, want %s", dir, got, want)
				}
			}
			for _, dir := range []string{filepath.Join(e.dir, "new"), "back"} {
				for _, f := range []string{"sub", "one"} {
					if info, err := os.Stat(filepath.Join(dir, f)); err != nil || !info.ModTime().Equal(stamp) {
						t.Errorf("%s/%s: %v, %v", dir, f, info.ModTime(), err)
					}
				}
				if info, err := os.Stat(filepath.Join(dir, "sub/deep")); err != nil || info.Mode().Perm() != 0o500 {
					t.Errorf("%s: %v, %v", dir, info.Mode(), err)
				}
			}
			// Several files, globs and other names.
			e.ok("cp", "src/one", "src/sub/two", u+"/named/sub")
			e.ok("cp", "src/one", u+"/uno")
			must(t, os.Mkdir("into", 0o755))
			e.ok("cp", u+"/u*", u+"/named/sub/[ot]*", "into")
			if got := listTree(t, "into"); got != "one=1 two=22 uno=1" {
				t.Errorf("%s", got)
			}
			e.noParts(t, "into", "back", "src")
		})
	}
}

// TestSync makes directories alike, and changes nothing twice.
func TestSync(t *testing.T) {
	e := newEnv(t)
	local := t.TempDir()
	t.Chdir(local)
	must(t, os.MkdirAll("a/sub", 0o755))
	for i := range 50 {
		must(t, os.WriteFile(fmt.Sprintf("a/sub/%d", i), []byte{byte(i)}, 0o644))
	}
	must(t, os.WriteFile("a/file", []byte("before"), 0o644))
	must(t, os.Symlink("file", "a/link"))
	same := func(dir string) {
		t.Helper()
		if got, want := listTree(t, dir), listTree(t, "a"); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	none := func(args ...string) {
		t.Helper()
		if got := e.ok(append([]string{"sync", "-n"}, args...)...); got != "" {
			t.Errorf("%q: %s", args, got)
		}
	}
	if got := e.ok("sync", "--dry-run", "a", "TCP/b"); strings.Count(got, "\n") != 54 || !strings.Contains(got, "make /b/sub\n") {
		t.Errorf("%s", got)
	}
	e.ok("sync", "a", "TCP/b")
	same(filepath.Join(e.dir, "b"))
	none("a", "RDMA/b")
	none("RDMA/b", "a")
	e.ok("sync", "RDMA/b", "c")
	same("c")
	none("TCP/b", "c")

	info, err := os.Stat("a/file")
	must(t, err)
	must(t, os.WriteFile("a/file", []byte("after!"), 0o644)) // of the same size
	must(t, os.Chtimes("a/file", info.ModTime(), info.ModTime()))
	none("a", "TCP/b")
	if got := e.ok("sync", "-n", "--checksum", "a", "TCP/b"); got != "copy /b/file\n" {
		t.Errorf("%q", got)
	}
	e.ok("sync", "--checksum", "a", "TCP/b")
	same(filepath.Join(e.dir, "b"))

	must(t, os.RemoveAll("a/sub/7"))
	must(t, os.WriteFile("a/file", []byte("later"), 0o644))
	e.write("b/sub/extra", []byte("x"), 0o644)
	must(t, os.MkdirAll(filepath.Join(e.dir, "b/old/er"), 0o755))
	e.ok("sync", "a", "TCP/b")
	if got := e.ok("sync", "-n", "--delete", "a", "TCP/b"); strings.Count(got, "remove /b/") != 3 {
		t.Errorf("%s", got)
	}
	e.ok("sync", "--delete", "a", "TCP/b")
	same(filepath.Join(e.dir, "b"))
	e.ok("sync", "--delete", "TCP/b", "c")
	same("c")
}

// TestResume: an interrupted copy goes on where it was, and trusts only whole sections.
func TestResume(t *testing.T) {
	e := newEnv(t)
	t.Chdir(t.TempDir())
	data := randomBytes(section + 20<<20)
	must(t, os.WriteFile("file", data, 0o644))
	interrupt := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		a := e.listen(&countingHandler{Handler: e.server, left: 75, hook: cancel})
		for i := range args {
			args[i] = strings.Replace(args[i], "URL", "nfs+tcp://"+a, 1)
		}
		if code := Run(ctx, "test", args, Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}); code != 1 {
			t.Fatalf("%q was not interrupted", args)
		}
	}
	parts := func(dir string) []string {
		found, err := filepath.Glob(filepath.Join(dir, ".sluicectl*.part"))
		must(t, err)
		return found
	}
	interrupt("cp", "--nfs", "3", "--resume", "file", "URL/")
	left := parts(e.dir)
	if len(left) != 1 {
		t.Fatalf("left: %q", left)
	}
	// The last section is damaged, the first one is not sent again.
	f, err := os.OpenFile(left[0], os.O_RDWR, 0)
	must(t, err)
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		info, err := f.Stat() // the server may still write
		must(t, err)
		if info.Size() > section {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("only %d bytes were written", info.Size())
		}
	}
	_, err = f.WriteAt(make([]byte, 1000), section)
	must(t, err)
	_, err = f.WriteAt([]byte("mark"), 0)
	must(t, err)
	must(t, f.Close())
	e.ok("cp", "--resume", "file", "TCP/")
	want := append([]byte("mark"), data[4:]...)
	if !bytes.Equal(e.read("file"), want) {
		t.Error("not continued")
	}
	// --checksum finds it, and copies again.
	code, _, errs := e.run("", "cp", "--checksum", "file", "TCP/")
	if code != 0 || !bytes.Equal(e.read("file"), data) {
		t.Errorf("exit %d, %s", code, errs)
	}
	interrupt("cp", "--nfs", "3", "--resume", "URL/file", "back")
	if left = parts("."); len(left) != 1 {
		t.Fatalf("left: %q", left)
	}
	e.ok("cp", "--resume", "--checksum", "TCP/file", "back")
	if got, err := os.ReadFile("back"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	e.noParts(t, ".")
}

// TestCopyErrors: failures are named, and the other files are copied.
func TestCopyErrors(t *testing.T) {
	e := newEnv(t)
	must(t, os.Chmod(e.dir, 0o755))
	t.Chdir(t.TempDir())
	must(t, os.WriteFile("file", []byte("x"), 0o644))
	must(t, os.WriteFile("other", []byte("y"), 0o644))
	must(t, os.Mkdir("dir", 0o755))
	e.write("remote", []byte("z"), 0o644)
	must(t, os.Mkdir(filepath.Join(e.dir, "tree"), 0o755))
	readOnly, nobody := e.export(server.Rule{ReadOnly: true, Squash: server.SquashNone}), e.export(server.Rule{Squash: server.SquashAll})
	for _, c := range []struct{ args, want string }{
		{"cp file other", "file and other: at least one of both must be a URL."},
		{"cp TCP/remote TCP/remote", "cannot copy /remote to /remote: it is the very file that is to be copied."},
		{"cp -r TCP/tree RDMA/tree/deep", "cannot copy /tree/deep: it would be copied into itself."},
		{"cp -r TCP/tree TCP/tree/deep/er", "cannot copy /tree/deep/er: it would be copied into itself."},
		{"cp none TCP/x", "cannot copy none: none: no such file or directory."},
		{"cp dir TCP/x", "cannot copy dir: it is a directory; -r copies it with all in it."},
		{"cp file TCP/no/x", "cannot copy to TCP/no/x: /no: no such file or directory (NFS3ERR_NOENT)."},
		{"cp file other TCP/x", "cannot copy to TCP/x: it is not a directory, and there are several files."},
		{"cp TCP/none .", "cannot copy TCP/none: /none: no such file or directory (NFS3ERR_NOENT)."},
		{"cp TCP/remote no/x", "there is no directory no."},
		{"cp -r TCP/ .", "cannot copy TCP/: the root of an export has no name: name a new directory for it."},
		{"cp --transfers 0 file TCP/", "--transfers is 0, must be 1 to 64."},
		{"cp file RO/", "cannot copy file to /file: read-only file system (NFS3ERR_ROFS)."},
		{"cp file NO/", "cannot copy file to /file: permission denied (NFS3ERR_ACCES)."},
		{"cp -r dir TCP/remote", "cannot make the directory /remote: it is a regular file."},
		{"sync file TCP/x", "cannot copy file: it is a regular file, not a directory."},
		{"cp file nfs+tcp://127.0.0.1:1/", "cannot connect to 127.0.0.1:1: nothing listens there (connection refused)."},
	} {
		if os.Geteuid() != 0 && strings.Contains(c.args, "NO/") {
			continue // only root becomes nobody
		}
		args := strings.NewReplacer("RO/", readOnly+"/", "NO/", nobody+"/").Replace(c.args)
		code, _, errs := e.run("", strings.Fields(args)...)
		errs = strings.NewReplacer(readOnly, "RO", nobody, "NO").Replace(errs)
		if code != 1 || !strings.HasSuffix(errs, c.want+"\n") {
			t.Errorf("%s: exit %d\n%q, must be\n%q", c.args, code, errs, c.want)
		}
	}
	if code, _, errs := e.run("", "cp", "none", "file", "TCP/"); code != 1 || !strings.Contains(errs, "1 of 2 failed") || string(e.read("file")) != "x" {
		t.Errorf("exit %d, %s", code, errs)
	}
	e.noParts(t, ".")
}
