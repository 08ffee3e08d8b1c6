package images

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// tree is a layer's content: entries by their paths, which have no leading slash.
type tree struct {
	entries  map[string]*entry
	packages map[string]bool // Debian's, whose files it has
}

type entry struct {
	header tar.Header
	data   []byte
}

func newTree() *tree { return &tree{entries: map[string]*entry{}, packages: map[string]bool{}} }

// dir adds a directory and its parents.
func (t *tree) dir(name string, mode int64) {
	if parent := path.Dir(name); parent != "." && t.entries[parent] == nil {
		t.dir(parent, 0o755)
	}
	t.entries[name] = &entry{header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}}
}

func (t *tree) file(name string, mode int64, data []byte) {
	if parent := path.Dir(name); t.entries[parent] == nil {
		t.dir(parent, 0o755)
	}
	t.entries[name] = &entry{header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}, data: data}
}

// copy adds a file of this machine.
func (t *tree) copy(from, name string, mode int64) error {
	data, err := os.ReadFile(from)
	if err == nil {
		t.file(name, mode, data)
	}
	return err
}

// own gives an entry to a user and the group of that number.
func (t *tree) own(name string, id int) {
	t.entries[name].header.Uid, t.entries[name].header.Gid = id, id
}

// write writes the files to a folder.
func (t *tree) write(dir string) error {
	for name, e := range t.entries {
		if e.header.Typeflag != tar.TypeReg {
			continue
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, e.data, os.FileMode(e.header.Mode)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) layer() (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	// a directory sorts before its entries
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		h := e.header
		h.ModTime, h.Format = time.Unix(0, 0), tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
}
