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

// TestKeysReload replaces the keys in the file one after the other while exports of both kinds are
// served. An old handle is good until its key is gone.
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
	far := newEnv(t)
	far.start(far.yaml(exportYAML{name: "far"}))
	near := newEnv(t)
	g := near.start(fmt.Sprintf("handleKeys: {file: %s}\n", file) + near.yaml(
		exportYAML{name: "nfs", backend: inFrontOf(t, config.TCP, far.address("far", config.TCP))}, exportYAML{name: "volume"}))
	names := []string{"nfs", "volume"}
	clients, old := map[string]*testClient{}, map[string][]byte{}
	root := func(name string) []byte {
		t.Helper()
		h, err := clients[name].Mount(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	works := func() {
		t.Helper()
		for _, name := range names {
			clients[name].works() // with the handle of the first mount
		}
	}
	for _, name := range names {
		clients[name] = near.connect(name, config.TCP)
		old[name] = root(name)
	}

	write(2, 1)
	for _, name := range names {
		eventually(t, name+": the new key signs", func() bool { return !bytes.Equal(root(name), old[name]) })
	}
	works()

	write() // a file without a key
	eventually(t, "the bad file is reported", func() bool { return g.Status().Config.HandleKeysError != "" })
	works()
	write(2)
	for _, name := range names {
		eventually(t, name+": the old key is gone", func() bool {
			_, err := clients[name].GetAttr(t.Context(), old[name])
			return errors.Is(err, nfs3.ErrBadHandle)
		})
		if _, err := clients[name].GetAttr(t.Context(), root(name)); err != nil {
			t.Errorf("%s: a handle of the key that is left: %v", name, err)
		}
	}
	if e := g.Status().Config.HandleKeysError; e != "" {
		t.Error(e)
	}
}
