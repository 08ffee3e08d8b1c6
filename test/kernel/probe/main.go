// Probe runs in the guest the checks that a thousand processes would take too long for: it uses a
// mounted file system by system calls, and reports to the test outside in the protocol of
// testdata/lib.sh.
//
//	probe files [FLAGS] write|read DIR    writes or compares the files of package pattern
//	probe lengths write|read FILE         a file by calls of many lengths, see package pattern
//	probe names DIR                       names and attributes; leaves its files for comparison
//	probe users DIR                       permissions of users other than root; ACLs by version 3
//	probe xattrs DIR SAME                 extended attributes; SAME is DIR by another mount
//	probe churn DIR ROUNDS                makes, renames and removes names in a hurry
//	probe lock FILE [hold]                locks the whole file; with hold until it is killed
//
// In the environment, PREFIX goes before the names of checks, and LACKS lists the features that the
// server is known to lack.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 3 {
		usage()
	}
	switch dir := os.Args[2]; os.Args[1] {
	case "files":
		files(os.Args[2:])
	case "lengths":
		lengths(os.Args[2], os.Args[len(os.Args)-1])
	case "names":
		run("names", dir, nameChecks)
	case "users":
		run("users", dir, userChecks())
	case "xattrs":
		if len(os.Args) != 4 {
			usage()
		}
		run("xattrs", dir, xattrChecks(os.Args[3]))
	case "churn":
		churn(dir, os.Args[len(os.Args)-1])
	case "lock":
		lock(dir, len(os.Args) > 3)
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "probe files [FLAGS] write|read DIR | lengths write|read FILE | names DIR | users DIR | xattrs DIR SAME | churn DIR ROUNDS | lock FILE [hold]")
	os.Exit(2)
}

// check is one test. Its working directory is an empty directory of its own.
type check struct {
	name string
	try  func(*T)
}

// T reports a check's findings, like testing.T, but the first failure ends the check.
type T struct{}

type failure string

// run runs the checks one after the other, and reports each.
func run(group, dir string, checks []check) {
	runtime.LockOSThread() // users change this thread's identity
	for _, c := range checks {
		name := os.Getenv("PREFIX") + group + "/" + c.name
		fmt.Println("run", name)
		if f := try(filepath.Join(dir, c.name), c.try); f != "" {
			fmt.Println(f)
			fmt.Println("fail", name)
			continue
		}
		fmt.Println("pass", name)
	}
}

func try(dir string, f func(*T)) (why failure) {
	defer func() {
		r := recover()
		var ok bool
		if why, ok = r.(failure); !ok && r != nil {
			panic(r)
		}
	}()
	t := new(T)
	t.ok(os.MkdirAll(dir, 0o755))
	t.ok(os.Chdir(dir))
	f(t)
	return
}

// lacks reports whether the server is known to lack a feature.
func lacks(what string) bool { return slices.Contains(strings.Fields(os.Getenv("LACKS")), what) }

// fail ends the check. skip is the number of stack frames between the check and fail.
func (t *T) fail(skip int, format string, args ...any) {
	_, file, line, _ := runtime.Caller(skip + 1)
	panic(failure(fmt.Sprintf("%s:%d: ", filepath.Base(file), line) + fmt.Sprintf(format, args...)))
}

func (t *T) ok(err error) {
	if err != nil {
		t.fail(1, "%v", err)
	}
}

func (t *T) equal(what string, got, want any) {
	if got != want {
		t.fail(1, "%s is %v, must be %v", what, got, want)
	}
}

// refused expects an error.
func (t *T) refused(err error, want syscall.Errno) {
	if err == nil {
		t.fail(1, "was not refused; must be: %v", want)
	}
	if !errors.Is(err, want) {
		t.fail(1, "refused with %v; must be: %v", err, want)
	}
}

func (t *T) write(name, content string) {
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.fail(1, "%v", err)
	}
}

// holds compares a file with the server's contents, past the client's cache.
func (t *T) holds(name, want string) {
	got, err := fetch(name)
	if err != nil {
		t.fail(1, "%v", err)
	}
	if string(got) != want {
		t.fail(1, "%s has %d bytes %.60q, must have %d, %.60q", name, len(got), got, len(want), want)
	}
}

func fetch(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size()+1)
	n, err := f.ReadAt(b, 0)
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s, of %d bytes: %d read, and no end (%w)", name, info.Size(), n, err)
	}
	return b[:n], nil
}

// stat is lstat(2).
func (t *T) stat(name string) unix.Stat_t {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		t.fail(1, "lstat %q: %v", name, err)
	}
	return st
}

// names lists the working directory.
func (t *T) names() []string {
	d, err := os.Open(".")
	if err != nil {
		t.fail(1, "%v", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		t.fail(1, "%v", err)
	}
	return names
}
