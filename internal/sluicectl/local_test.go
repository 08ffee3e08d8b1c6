package sluicectl

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPutItself: a file of the exported directory that is copied to itself stays as it is.
// Otherwise it would be truncated before it is read.
func TestPutItself(t *testing.T) {
	e := newEnv(t)
	data := randomBytes(5000)
	e.write("file", data, 0o644)
	must(t, os.Symlink("file", filepath.Join(e.dir, "link")))
	must(t, os.Link(filepath.Join(e.dir, "file"), filepath.Join(e.dir, "other")))
	for _, u := range []string{"RDMA/file", "TCP/", "TCP/link", "TCP/other"} {
		code, _, errs := e.run("", "put", "DIR/file", u)
		if want := "sluicectl: cannot copy to " + u + ": it is the very file that is to be copied.\n"; code != 1 || errs != want {
			t.Errorf("exit %d, %q, want %q", code, errs, want)
		}
		if !bytes.Equal(e.read("file"), data) {
			t.Fatalf("%s: the file is not what it was", u)
		}
	}
	in, err := os.Open(filepath.Join(e.dir, "file"))
	must(t, err)
	defer in.Close()
	code := Run(context.Background(), "test", []string{"put", "-", "nfs+tcp://" + e.tcp + "/file"}, Streams{In: in, Out: io.Discard, Err: io.Discard})
	if code != 1 || !bytes.Equal(e.read("file"), data) {
		t.Errorf("from standard input: exit %d, or the file is not what it was", code)
	}
	// A different file of the same name is copied, also into a directory.
	same := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(same, data[:100], 0o644))
	e.ok("put", same, "TCP/")
	if !bytes.Equal(e.read("file"), data[:100]) {
		t.Error("another file was not copied")
	}
}

// TestNamesOfFiles: a file may be named -, and a name may be as long as file systems allow.
func TestNamesOfFiles(t *testing.T) {
	e := newEnv(t)
	t.Chdir(t.TempDir())
	long := strings.Repeat("n", 255)
	for _, name := range []string{"-", long} {
		must(t, os.WriteFile(name, []byte(name), 0o644))
		e.ok("put", "./"+name, "TCP/")
		must(t, os.Remove(name))
		e.ok("get", "TCP/"+name)
		if b, err := os.ReadFile(name); err != nil || string(b) != name {
			t.Errorf("%.10s: %q, %v", name, b, err)
		}
	}
}

// TestInterrupted: an interrupt ends a command that waits for its standard input.
func TestInterrupted(t *testing.T) {
	e := newEnv(t)
	errs, err := os.Create(filepath.Join(t.TempDir(), "errors"))
	must(t, err)
	defer errs.Close()
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	code := make(chan int)
	go func() {
		code <- run(ctx, "test", []string{"put", "-", "nfs+tcp://" + e.tcp + "/file"}, Streams{In: in, Out: io.Discard, Err: errs}, 0)
	}()
	_, err = out.Write([]byte("x")) // returns when it is being read
	must(t, err)
	cancel()
	if c := <-code; c != 1 {
		t.Errorf("exit %d", c)
	}
	if b, err := os.ReadFile(errs.Name()); err != nil || string(b) != "sluicectl: interrupted\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// full is a standard output that fails.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestOutputIsLost: a failed standard output is an error.
func TestOutputIsLost(t *testing.T) {
	e := newEnv(t)
	e.write("file", []byte("x"), 0o644)
	for _, args := range []string{"ls TCP/", "ls -l TCP/", "stat TCP/file", "cat TCP/file", "ping TCP/", "ping --json TCP/", "bench --count 1 --warmup 0s TCP/", "version"} {
		var errs strings.Builder
		code := Run(context.Background(), "test", strings.Fields(strings.ReplaceAll(args, "TCP", "nfs+tcp://"+e.tcp)), Streams{In: strings.NewReader(""), Out: full{}, Err: &errs})
		if code != 1 || !strings.Contains(errs.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%s: exit %d, %q", args, code, &errs)
		}
	}
}

// TestNamesAreQuoted: names from a server send no control sequences to a terminal, in errors and
// progress as in lists.
func TestNamesAreQuoted(t *testing.T) {
	e := newEnv(t)
	t.Chdir(t.TempDir())
	e.write("\x1b[2J", []byte("x"), 0o644)
	must(t, os.Symlink("no\x1b[2J", filepath.Join(e.dir, "link")))
	if _, _, errs := e.run("", "cat", "TCP/link"); errs != "sluicectl: cannot read TCP/link: /no\\x1b[2J: no such file or directory (NFS3ERR_NOENT).\n" {
		t.Errorf("%q", errs)
	}
	if code, _, errs := e.run("", "get", "TCP/%1b[2J"); code != 0 || !strings.HasPrefix(errs, "\\x1b[2J: 1 B in ") {
		t.Errorf("exit %d, %q", code, errs)
	}
}
