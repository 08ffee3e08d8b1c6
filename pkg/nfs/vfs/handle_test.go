package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHandlesSurviveRestart(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
		write(t, filepath.Join(dir, "a/b/file"), "content")
		must(t, os.Symlink("file", filepath.Join(dir, "a/b/link")))
		fs := reopened(t, dir, o)
		file, sub, link := handleOf(t, fs, "a/b/file"), handleOf(t, fs, "a/b"), handleOf(t, fs, "a/b/link")
		rootHandle := slices.Clone(fs.Root().Handle().Bytes())
		shut(t, fs)

		// Renamed while it was not served.
		must(t, os.Rename(filepath.Join(dir, "a/b/file"), filepath.Join(dir, "elsewhere")))
		fs = open(t, dir, o)
		if !bytes.Equal(rootHandle, fs.Root().Handle().Bytes()) {
			t.Error("the root has another handle")
		}
		if got, err := read(t, fs, file); got != "content" || err != nil {
			t.Errorf("file: %q, %v", got, err)
		}
		for what, h := range map[string][]byte{"directory": sub, "link": link} {
			n, err := resolve(fs, h)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			n.Release()
		}
		if again := handleOf(t, fs, "elsewhere"); !bytes.Equal(again, file) {
			t.Error("a renamed file has another handle")
		}
	})
}

func TestHandlesWithoutTimesOfBirth(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	write(t, filepath.Join(dir, "sub/file"), "content")
	o := Options{IndexOnly: true, Recheck: 1, noBirth: true}
	fs := reopened(t, dir, o)
	file := handleOf(t, fs, "sub/file")
	rootHandle := slices.Clone(fs.Root().Handle().Bytes())
	forget(fs)
	if got, err := read(t, fs, file); got != "content" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{".", "sub/.."} {
		if got := handleOf(t, fs, path); !bytes.Equal(got, rootHandle) {
			t.Errorf("%s is not the root", path)
		}
	}
	shut(t, fs)
	fs = open(t, dir, o)
	_, err := read(t, fs, file)
	wantErr(t, "a handle from before the restart", err, unix.ESTALE)
	n, err := resolve(fs, rootHandle)
	must(t, err)
	if n != fs.Root() {
		t.Error("the root's handle leads elsewhere after a restart")
	}
	n.Release()
	if got := handleOf(t, fs, "sub/file"); bytes.Equal(got, file) {
		t.Error("a handle is the same after a restart, though the file could be another one")
	}
}

func TestHandlesAreSigned(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "file"), "")
		fs := open(t, dir, o)
		good := handleOf(t, fs, "file")
		bad := map[string][]byte{"empty": {}, "nil": nil, "zeros": make([]byte, 64), "short": good[:len(good)-1],
			"long": append(slices.Clone(good), 0), "too long": append(slices.Clone(good), make([]byte, 64)...), "no tag": good[:len(good)-tagLen]}
		for i := range good {
			b := slices.Clone(good)
			b[i] ^= 0x10
			bad[fmt.Sprintf("byte %d changed", i)] = b
		}
		foreignKey := reopened(t, dir, Options{Key: []byte("another key of file handles"), IndexOnly: o.IndexOnly})
		bad["of another key"] = handleOf(t, foreignKey, "file")
		shut(t, foreignKey)
		foreignScope := reopened(t, dir, Options{Scope: "another", IndexOnly: o.IndexOnly})
		bad["of another scope"] = handleOf(t, foreignScope, "file")
		shut(t, foreignScope)
		for _, cached := range []bool{true, false} {
			for what, h := range bad {
				n, err := resolve(fs, h)
				if n != nil || !errors.Is(err, ErrBadHandle) {
					t.Errorf("%s (cached: %v): %v, %v, want ErrBadHandle", what, cached, n, err)
				}
			}
			forget(fs)
		}
		if _, err := read(t, fs, good); err != nil {
			t.Errorf("the handle itself: %v", err)
		}
		newer := reopened(t, dir, Options{Key: []byte("another key of file handles"), OlderKeys: [][]byte{testKey}, IndexOnly: o.IndexOnly})
		for _, cached := range []bool{false, true} {
			if _, err := read(t, newer, good); err != nil {
				t.Errorf("of an older key (cached: %v): %v", cached, err)
			}
		}
		if newer.fsid != fs.fsid || bytes.Equal(handleOf(t, newer, "file"), good) {
			t.Errorf("with a newer key: fsid %x, was %x; handle %x", newer.fsid, fs.fsid, handleOf(t, newer, "file"))
		}
		shut(t, newer)
	})
}
