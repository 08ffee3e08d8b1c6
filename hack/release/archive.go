package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// archive returns a compressed tar archive of files, of 1970. Those named programs can be executed.
func archive(files map[string][]byte, programs ...string) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode := int64(0o644)
		if slices.Contains(programs, name) {
			mode = 0o755
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(files[name])), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// readTree returns the files below a folder, by their paths after a prefix.
func readTree(dir, prefix string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[prefix+name], err = os.ReadFile(filepath.Join(dir, name))
		return err
	})
	return files, err
}

// sums writes the checksums of all files, for sha256sum -c.
func (r *release) sums() error {
	files, err := readTree(r.out, "")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	r.made("SHA256SUMS")
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), out.Bytes(), 0o644)
}
