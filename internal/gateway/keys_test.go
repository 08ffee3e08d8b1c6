package gateway

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// TestKeysReload replaces keys one by one while exports are served. A volume reports that it needs
// a restart.
func TestKeysReload(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "keys")
	write := func(keys ...byte) {
		t.Helper()
		var b strings.Builder
		for _, k := range keys {
			b.WriteString(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{k}, sign.MinKey)) + "\n")
		}
		if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	far := newRig(t)
	far.start(far.yaml(exportYAML{name: "far"}))
	near := newRig(t)
	g := near.start(fmt.Sprintf("handleKeys: {file: %s}\n", file) + near.yaml(
		exportYAML{name: "nfs", backend: inFrontOf(t, config.TCP, far.address("far", config.TCP))}, exportYAML{name: "volume"}))
	c := near.connect("nfs", config.TCP)
	root := func() []byte {
		t.Helper()
		h, err := c.Mount(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	old := root()
	notes := func() string { return strings.Join(near.export("volume").Backend.Notes, "\n") }
	if strings.Contains(notes(), "handleKeys") {
		t.Error(notes())
	}

	write(2, 1)
	eventually(t, "the new key signs", func() bool { return !bytes.Equal(root(), old) })
	c.works() // with the old handle
	if !strings.Contains(notes(), "handleKeys.file has changed") {
		t.Errorf("the volume says nothing of it: %q", notes())
	}

	write() // an invalid file
	eventually(t, "the bad file is told", func() bool { return g.Status().Config.HandleKeysError != "" })
	c.works()
	write(2)
	eventually(t, "the old key is gone", func() bool {
		_, err := c.GetAttr(t.Context(), old)
		return errors.Is(err, nfs3.ErrBadHandle)
	})
	if e := g.Status().Config.HandleKeysError; e != "" {
		t.Error(e)
	}
}
