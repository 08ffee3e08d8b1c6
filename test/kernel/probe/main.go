// Probe does in the guest what a thousand processes would take too long for there: it uses a mounted file system by system
// calls, and tells the test outside what came of it, in the words of testdata/lib.sh.
//
//	probe files [FLAGS] write|read DIR    the files of package pattern: writes them, or reads and compares
//	probe lengths write|read FILE         a file by calls of many lengths, see package pattern
//	probe names DIR                       names and attributes; leaves behind what it made, for comparing with the server's view
//	probe users DIR                       what users other than root may do
//	probe xattrs DIR SAME                 extended attributes; SAME is DIR by another mount
//	probe churn DIR ROUNDS                makes, renames and removes names in a hurry
//
// In the environment, PREFIX goes before the names of checks, and LACKS names what the server is known not to have.
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
		run("users", dir, userChecks)
	case "xattrs":
		if len(os.Args) != 4 {
			usage()
		}
		run("xattrs", dir, xattrChecks(os.Args[3]))
	case "churn":
		churn(dir, os.Args[len(os.Args)-1])
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "probe files [FLAGS] write|read DIR | lengths write|read FILE | names DIR | users DIR | xattrs DIR SAME | churn DIR ROUNDS")
	os.Exit(2)
}

// check is one thing to try, in an empty folder which is its working directory.
type check struct {
	name string
	try  func(*T)
}

// T is what a check tells its findings: like testing.T, but the first failure ends it.
type T struct{}

type failure string

// run makes the checks one after the other, and reports each.
func run(group, dir string, checks []check) {
	runtime.LockOSThread() // users change the identity of this thread
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

// lacks tells whether the server is known not to have something.
func lacks(what string) bool { return slices.Contains(strings.Fields(os.Getenv("LACKS")), what) }

// fail ends the check; skip is how many functions lie between the check and it.
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

// refused wants an error.
func (t *T) refused(err error, want syscall.Errno) {
	if err == nil {
		t.fail(1, "was not refused; must be: %v", want)
	}
	if !errors.Is(err, want) {
		t.fail(1, "refused with %v; must be: %v", err, want)
	}
}

// write makes or replaces a file.
func (t *T) write(name, content string) {
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.fail(1, "%v", err)
	}
}

// holds compares a file with what the server has, past the client's cache.
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

// names returns what is in the working directory.
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
