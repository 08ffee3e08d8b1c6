package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/kernel/pattern"
)

// xattrChecks test extended attributes (RFC 8276). Each check also has its directory by another
// mount, in other.
func xattrChecks(other string) []check {
	there := func(t *T) string {
		dir, err := os.Getwd()
		t.ok(err)
		return filepath.Join(other, filepath.Base(dir))
	}
	return []check{
		{"values", func(t *T) { xattrValues(t, there(t)) }},
		{"names", func(t *T) { xattrNames(t, there(t)) }},
		{"replaced", xattrReplaced},
	}
}

// xattrLengths are around 4 KiB, the usual inline threshold, and around Linux's limit.
func xattrLengths() []int {
	lengths := []int{0, 1, 2, 3, 4, 5, 70, 1000, 65535, 65536}
	for n := 3700; n < 4110; n += 7 {
		lengths = append(lengths, n)
	}
	return append(lengths, 8192, 20001)
}

func xattr(t *T, file, name string) []byte {
	b := make([]byte, 1<<16)
	n, err := unix.Getxattr(file, name, b)
	if err != nil {
		t.fail(1, "getxattr %s of %s: %v", name, file, err)
	}
	return b[:n]
}

// xattrValues sets values here and reads them there, and the other way round.
func xattrValues(t *T, there string) {
	const name = "user.value"
	for i, n := range xattrLengths() {
		f := fmt.Sprint(n)
		t.write(f, "")
		value := pattern.File{Length: n}.Data(0)
		setter, reader := f, filepath.Join(there, f)
		if i%2 == 1 {
			setter, reader = reader, setter
		}
		t.ok(unix.Setxattr(setter, name, value, 0))
		if d := pattern.Differ(xattr(t, reader, name), value); d != "" {
			t.fail(0, "the value of %d bytes %s", n, d)
		}
		if d := pattern.Differ(xattr(t, setter, name), value); d != "" {
			t.fail(0, "to who set it, the value of %d bytes %s", n, d)
		}
	}
}

// xattrNames makes a list of names longer than any inline message.
func xattrNames(t *T, there string) {
	t.write("f", "")
	var want []string
	for i := range 60 {
		name := fmt.Sprintf("user.%03d%s", i, strings.Repeat("n", 4*i))
		t.ok(unix.Setxattr("f", name, []byte(name), unix.XATTR_CREATE))
		want = append(want, name)
	}
	for _, f := range []string{"f", filepath.Join(there, "f")} {
		b := make([]byte, 1<<16)
		n, err := unix.Listxattr(f, b)
		t.ok(err)
		var got []string
		for name := range bytes.SplitSeq(bytes.TrimSuffix(b[:n], []byte{0}), []byte{0}) {
			if bytes.HasPrefix(name, []byte("user.")) {
				got = append(got, string(name))
			}
		}
		slices.Sort(got)
		t.equal("the list of names", fmt.Sprint(got), fmt.Sprint(want))
	}
}

func xattrReplaced(t *T) {
	t.write("f", "")
	t.refused(unix.Setxattr("f", "user.a", []byte("one"), unix.XATTR_REPLACE), unix.ENODATA)
	t.ok(unix.Setxattr("f", "user.a", []byte("one"), unix.XATTR_CREATE))
	t.refused(unix.Setxattr("f", "user.a", []byte("two"), unix.XATTR_CREATE), unix.EEXIST)
	t.ok(unix.Setxattr("f", "user.a", []byte("two"), unix.XATTR_REPLACE))
	t.equal("the value", string(xattr(t, "f", "user.a")), "two")
	t.ok(unix.Removexattr("f", "user.a"))
	_, err := unix.Getxattr("f", "user.a", nil)
	t.refused(err, unix.ENODATA)
	t.refused(unix.Removexattr("f", "user.a"), unix.ENODATA)
}
