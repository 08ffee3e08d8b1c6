package sluicectl

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nfs/server"
)

// listTree lists a directory on this host: each name with its contents, or the target of a link.
func listTree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		switch {
		case d.IsDir():
			fmt.Fprintf(&b, "%s/ ", rel)
		case d.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(name)
			fmt.Fprintf(&b, "%s->%s ", rel, to)
		default:
			data, err := os.ReadFile(name)
			must(t, err)
			fmt.Fprintf(&b, "%s=%.9s ", rel, data)
		}
		return nil
	}))
	return strings.TrimSpace(b.String())
}

// TestNames makes, moves, links and removes files.
func TestNames(t *testing.T) {
	for _, u := range []string{"TCP", "RDMA"} {
		t.Run(u, func(t *testing.T) {
			e := newEnv(t)
			for _, step := range []struct{ args, want string }{
				{"mkdir U/a U/b", "a/ b/"},
				{"mkdir -p -m 700 U/a/x/y U/a", "a/ a/x/ a/x/y/ b/"},
				{"put - U/a/file", "a/ a/file= a/x/ a/x/y/ b/"},
				{"mv U/a/file U/b/other", "a/ a/x/ a/x/y/ b/ b/other="},
				{"mv U/b/other U/a", "a/ a/other= a/x/ a/x/y/ b/"},
				{"ln U/a/other U/b/", "a/ a/other= a/x/ a/x/y/ b/ b/other="},
				{"ln -s ../a/other U/b/link", "a/ a/other= a/x/ a/x/y/ b/ b/link->../a/other b/other="},
				{"ln -s a/x U", "a/ a/other= a/x/ a/x/y/ b/ b/link->../a/other b/other= x->a/x"},
				{"mv U/b/o* U/b/l* U/a/x", "a/ a/other= a/x/ a/x/link->../a/other a/x/other= a/x/y/ b/ x->a/x"},
				{"rm U/x", "a/ a/other= a/x/ a/x/link->../a/other a/x/other= a/x/y/ b/"},
				{"rm -f U/none U/a/x/[l-n]*", "a/ a/other= a/x/ a/x/other= a/x/y/ b/"},
				{"rm -r U/a/ U/b", ""},
			} {
				e.ok(strings.Fields(strings.ReplaceAll(step.args, "U", u))...)
				if got := listTree(t, e.dir); got != step.want {
					t.Fatalf("%s: %s, want %s", step.args, got, step.want)
				}
			}
		})
	}
	e := newEnv(t)
	e.ok("mkdir", "-m", "2751", "TCP/mode")
	if info, err := os.Stat(filepath.Join(e.dir, "mode")); err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o751 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestRemoveTree removes many files, but nothing behind a link.
func TestRemoveTree(t *testing.T) {
	e := newEnv(t)
	e.write("stays", []byte("x"), 0o644)
	for i := range 5 {
		dir := fmt.Sprintf("tree/%d/deep", i)
		must(t, os.MkdirAll(filepath.Join(e.dir, dir), 0o755))
		for k := range 60 {
			e.write(fmt.Sprintf("%s/.%d", dir, k), nil, 0o644)
		}
		must(t, os.Symlink(e.dir, filepath.Join(e.dir, dir, "link")))
	}
	e.ok("rm", "-r", "RDMA/tree")
	if got := listTree(t, e.dir); got != "stays=x" {
		t.Errorf("left: %s", got)
	}
}

// TestNameErrors: the causes of failures are named, and the other files are done.
func TestNameErrors(t *testing.T) {
	e := newEnv(t)
	must(t, os.MkdirAll(filepath.Join(e.dir, "dir/sub"), 0o755))
	e.write("file", []byte("x"), 0o644)
	must(t, os.Chmod(e.dir, 0o755))
	other := newEnv(t)
	readOnly, nobody := e.export(server.Rule{ReadOnly: true, Squash: server.SquashNone}), e.export(server.Rule{Squash: server.SquashAll})
	before := listTree(t, e.dir)
	for _, c := range []struct{ args, want string }{
		{"rm TCP/none", "cannot remove TCP/none: /none: no such file or directory (NFS3ERR_NOENT)."},
		{"rm TCP/dir", "cannot remove TCP/dir: it is a directory; -r removes it with all in it."},
		{"rm -r TCP/", "cannot remove TCP/: it is the root of the export."},
		{"rm TCP/no*", "cannot remove TCP/no*: /no*: no such file or directory (NFS3ERR_NOENT)."},
		{"rm TCP/[n", "cannot remove TCP/[n: /[n: no such file or directory (NFS3ERR_NOENT)."},
		{"rm RO/file", "cannot remove RO/file: file: read-only file system (NFS3ERR_ROFS)."},
		{"rm NO/file", "cannot remove NO/file: file: permission denied (NFS3ERR_ACCES)."},
		{"mkdir TCP/no/dir", "cannot make TCP/no/dir: /no: no such file or directory (NFS3ERR_NOENT)."},
		{"mkdir TCP/dir", "cannot make TCP/dir: /dir: file exists."},
		{"mkdir -p TCP/file/dir", "cannot make TCP/file/dir: /file/dir: not a directory (NFS3ERR_NOTDIR)."},
		{"mkdir -m 9 TCP/x", `--mode is "9", must be an octal number up to 7777.`},
		{"mkdir RO/x", "cannot make RO/x: read-only file system (NFS3ERR_ROFS)."},
		{"mkdir NO/x", "cannot make NO/x: permission denied (NFS3ERR_ACCES)."},
		{"mv TCP/none TCP/x", "cannot move TCP/none to TCP/x: /none: no such file or directory (NFS3ERR_NOENT)."},
		{"mv TCP/file TCP/no/x", "cannot move to TCP/no/x: /no: no such file or directory (NFS3ERR_NOENT)."},
		{"mv TCP/file TCP/no/", "cannot move to TCP/no/: /no: no such file or directory (NFS3ERR_NOENT)."},
		{"mv TCP/file TCP/dir TCP/x", "cannot move several files to TCP/x: it is not a directory."},
		{"mv TCP/dir TCP/dir/sub", "cannot move TCP/dir to TCP/dir/sub: invalid argument (NFS3ERR_INVAL)."},
		{"mv RO/file RO/x", "cannot move RO/file to RO/x: read-only file system (NFS3ERR_ROFS)."},
		{"mv TCP/file OTHER/x", "cannot move TCP/file to OTHER/x: both must be of the same server and export; cp copies between others."},
		{"ln TCP/dir TCP/x", "cannot link TCP/dir to TCP/x: it is a directory; only symbolic links (-s) can name one."},
		{"ln TCP/file TCP/file", "cannot link TCP/file to TCP/file: file exists (NFS3ERR_EXIST)."},
		{"ln -s .. TCP/dir", `cannot make TCP/dir: ".." has no name for a link in a directory.`},
		{"du TCP/none", "cannot sum up TCP/none: /none: no such file or directory (NFS3ERR_NOENT)."},
		{"df nfs+tcp://127.0.0.1:1", "cannot connect to 127.0.0.1:1: nothing listens there (connection refused)."},
		{"rm TCP/x TCP/y", "cannot remove TCP/x: /x: no such file or directory (NFS3ERR_NOENT).\n" +
			"sluicectl: cannot remove TCP/y: /y: no such file or directory (NFS3ERR_NOENT).\nsluicectl: 2 of 2 failed."},
	} {
		if os.Geteuid() != 0 && strings.Contains(c.args, "NO/") {
			continue // only root becomes nobody
		}
		names := strings.NewReplacer("RO/", readOnly+"/", "NO/", nobody+"/", "OTHER/", "nfs+tcp://"+other.tcp+"/")
		code, out, errs := e.run("", strings.Fields(names.Replace(c.args))...)
		errs = strings.NewReplacer(readOnly, "RO", nobody, "NO", "nfs+tcp://"+other.tcp, "OTHER").Replace(errs)
		if want := "sluicectl: " + c.want + "\n"; code != 1 || strings.Trim(out, "[]\n") != "" || errs != want {
			t.Errorf("%s: exit %d, %q\n%q, must be\n%q", c.args, code, out, errs, want)
		}
	}
	if after := listTree(t, e.dir); after != before {
		t.Errorf("changed from %s to %s", before, after)
	}
	if code, _, errs := e.run("", "mkdir", "TCP/dir", "TCP/new"); code != 1 || !strings.Contains(errs, "sluicectl: 1 of 2 failed.\n") {
		t.Errorf("exit %d, %q", code, errs)
	}
	if _, err := os.Stat(filepath.Join(e.dir, "new")); err != nil {
		t.Error("the other directory was not made")
	}
}

// TestUsage sums up a tree with a file of two names and a sparse file.
func TestUsage(t *testing.T) {
	e := newEnv(t)
	must(t, os.MkdirAll(filepath.Join(e.dir, "top/a/b"), 0o755))
	e.write("top/a/b/two", make([]byte, 10_000), 0o644)
	must(t, os.Link(filepath.Join(e.dir, "top/a/b/two"), filepath.Join(e.dir, "top/again")))
	e.write("top/.sparse", nil, 0o644)
	must(t, os.Truncate(filepath.Join(e.dir, "top/.sparse"), 1<<20))
	decode := func(args ...string) map[string]directoryUsage {
		var list []directoryUsage
		must(t, json.Unmarshal([]byte(e.ok(args...)), &list))
		found := map[string]directoryUsage{}
		for _, d := range list {
			d.URL = strings.TrimPrefix(d.URL, "nfs+tcp://"+e.tcp)
			found[d.URL] = d
		}
		return found
	}
	var dirs uint64
	for _, d := range []string{"top", "top/a", "top/a/b"} {
		info, err := os.Stat(filepath.Join(e.dir, d))
		must(t, err)
		dirs += uint64(info.Size())
	}
	got := decode("du", "--json", "--apparent-size", "TCP/top")
	if x := got["TCP/top"]; len(got) != 1 || x.Files != 3 || x.Dirs != 3 || x.Bytes != dirs+10_000+1<<20 {
		t.Errorf("%+v", got)
	}
	got = decode("du", "--json", "-d", "1", "TCP/top")
	if x := got["TCP/top"]; len(got) != 2 || x.Bytes < 10_000 || x.Bytes > 1<<20 || got["TCP/top/a"].Files != 1 {
		t.Errorf("%+v", got)
	}
	if out := e.ok("du", "TCP/top/a/b/two", "TCP/top"); strings.Count(out, " files ") != 2 || !strings.Contains(out, " 3 files  TCP/top\n") {
		t.Errorf("%s", out)
	}
	var list []fileSystem
	must(t, json.Unmarshal([]byte(e.ok("df", "--json", "TCP/", "RDMA/top")), &list))
	if len(list) != 2 || list[0].Bytes == 0 || list[0].AvailableBytes > list[0].FreeBytes || list[0].Bytes != list[1].Bytes {
		t.Errorf("%+v", list)
	}
	if out := e.ok("df", "TCP/"); !strings.HasPrefix(out, "SIZE ") || !strings.Contains(out, "%  ") || !strings.HasSuffix(out, "  TCP/\n") {
		t.Errorf("%s", out)
	}
}

// TestListJSON: ls lists several directories, globs and JSON.
func TestListJSON(t *testing.T) {
	e := newEnv(t)
	must(t, os.MkdirAll(filepath.Join(e.dir, "d1"), 0o755))
	must(t, os.MkdirAll(filepath.Join(e.dir, "d2"), 0o755))
	e.write("d1/a b", []byte("12345"), 0o640)
	e.write("d1/*", nil, 0o640)
	must(t, os.Symlink("a b", filepath.Join(e.dir, "d2/link")))
	for args, want := range map[string]string{
		"ls TCP/d1 TCP/d2": "TCP/d1:\n*\na b\nTCP/d2:\nlink\n",
		"ls TCP/d*/a*":     "a b\n",
		"ls TCP/d1/*":      "*\na b\n",
		"ls TCP/d1/%2A":    "*\n",
	} {
		if got := e.ok(strings.Fields(args)...); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	var list []listEntry
	must(t, json.Unmarshal([]byte(e.ok("ls", "--json", "TCP/d1", "TCP/d2/link")), &list))
	if len(list) != 3 || list[1].Name != "a b" || list[1].URL != "TCP/d1/a%20b" || list[1].Size != 5 || list[1].Mode != "0640" || list[1].Type != "regular file" ||
		list[2].Target != "a b" || list[2].Type != "symbolic link" || list[0].Mtime.IsZero() {
		t.Errorf("%+v", list)
	}
	must(t, os.Mkdir(filepath.Join(e.dir, "empty"), 0o755))
	if out := e.ok("ls", "--json", "TCP/empty"); out != "[]\n" {
		t.Errorf("%q", out)
	}
}

// TestInfo prints the facts that the server reports.
func TestInfo(t *testing.T) {
	e := newEnv(t)
	for _, u := range []string{"TCP/", "RDMA/", "BOTH/"} {
		var r infoResult
		must(t, json.Unmarshal([]byte(e.ok("info", "--json", u)), &r))
		if len(r.NFS) != 2 || r.NFS[0] != 3 || r.NFS[1] < 3 || len(r.Mount) != 2 || r.Mount[1] != 3 || r.Limits.Read.Max != 1<<20 ||
			r.Limits.Name != 255 || !r.Properties.HardLinks || r.FileSystem.Bytes == 0 || len(r.Access) < 3 || r.Connection.URL == "" {
			t.Errorf("%s: %+v", u, r)
		}
		out := e.ok("info", u)
		for _, want := range []string{"  NFS  ", "  MOUNT  ", "  READ                 up to 1 MiB, preferably 1 MiB", "  names                of up to 255 bytes\n", "  hard links           yes\n", "  access               read, "} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	}
	_, _, errs := e.run("", "info", "ONLY/")
	if !strings.Contains(errs, "mountport") {
		t.Errorf("%q", errs)
	}
}
