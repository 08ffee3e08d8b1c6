package gateway

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// TestHandleKeys: handles are signed alike by gateways with the same keys, and by one gateway after a restart.
func TestHandleKeys(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "keys")
	if err := os.WriteFile(file, []byte("# keys\n"+base64.StdEncoding.EncodeToString(make([]byte, sign.MinKey))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	gateway := func(keys, state string) *Gateway {
		c := config.Default()
		c.HandleKeys.File, c.StateDir = keys, state
		return &Gateway{log: slog.New(slog.NewTextHandler(&log, nil)), first: c}
	}
	x := config.Export{Name: "data", SignHandles: config.SignRequired}
	tagged := func(g *Gateway, x config.Export) string {
		t.Helper()
		s, err := g.signer(&x)
		if err != nil {
			t.Fatal(err)
		}
		return string(s.Append(nil, []byte("handle"), sign.Max3))
	}
	given, kept := gateway(file, state), gateway("", state)
	a, b := tagged(given, x), tagged(kept, x)
	if a == b || len(a) != len("handle")+sign.TagLen {
		t.Errorf("%x and %x under different keys", a, b)
	}
	if got := tagged(gateway(file, t.TempDir()), x); got != a {
		t.Errorf("%x, at another gateway with the same keys %x", a, got)
	}
	if got := tagged(gateway("", state), x); got != b {
		t.Errorf("%x, after a restart %x", b, got)
	}
	if !strings.Contains(log.String(), "handleKeys.file is not set") {
		t.Errorf("the log says nothing of the key that was made: %s", &log)
	}
	other := x
	other.UID = "another one"
	if got := tagged(given, other); got == a {
		t.Errorf("%x for two exports", a)
	}
	other.SignHandles = config.SignOff
	if got := tagged(gateway("/missing", "/missing"), other); !bytes.Equal([]byte(got), []byte("handle")) {
		t.Errorf("%x, want the handle as it is", got)
	}
	if _, err := gateway(filepath.Join(dir, "missing"), state).signer(&x); err == nil || !strings.HasPrefix(err.Error(), "handleKeys.file: ") {
		t.Error(err)
	}
}

// TestVolumesHaveTheGivenKeys: a volume's handles are signed with the file of keys, if there is one, and the state directory has no other.
func TestVolumesHaveTheGivenKeys(t *testing.T) {
	file, root := filepath.Join(t.TempDir(), "keys"), t.TempDir()
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(make([]byte, sign.MinKey))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, keys := range []string{file, ""} {
		c := config.Default()
		c.HandleKeys.File, c.StateDir = keys, t.TempDir()
		log := slog.New(slog.DiscardHandler)
		v, err := openVolume(&export{name: "data", log: log, gateway: &Gateway{log: log, first: c}}, &config.Export{Backend: config.Backend{Volume: &config.Volume{Path: root}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(c.StateDir, keyFile)); os.IsNotExist(err) != (keys != "") {
			t.Errorf("handleKeys.file %q: %s in the state directory: %v", keys, keyFile, err)
		}
	}
	c := config.Default()
	c.HandleKeys.File = filepath.Join(root, "missing")
	_, err := openVolume(&export{name: "data", gateway: &Gateway{first: c}}, &config.Export{Backend: config.Backend{Volume: &config.Volume{Path: root}}})
	if err == nil || !strings.HasPrefix(err.Error(), "handleKeys.file: ") {
		t.Error(err)
	}
}

// TestKeysReload: keys in the file are replaced one after the other while exports are served; a volume says that it needs a restart.
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
	c.works() // with the handle of before
	if !strings.Contains(notes(), "handleKeys.file has other keys now") {
		t.Errorf("the volume says nothing of it: %q", notes())
	}

	write() // that is no file of keys
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
	near.apply(near.yaml(exportYAML{name: "volume"}))
	if n := len(g.signers); n != 0 {
		t.Errorf("%d signers are kept", n)
	}
}

// TestRestartNeeded: what is only looked at when the process starts is named once it changes.
func TestRestartNeeded(t *testing.T) {
	a := config.Default()
	b := a
	if got := restartNeeded(&a, &b); len(got) != 0 {
		t.Errorf("%v, though nothing changed", got)
	}
	b.StateDir, b.HandleKeys.File, b.Log.Format, b.Log.Level = "/state", "/keys", "json", "debug"
	b.Memory.HugePages = true
	if got := strings.Join(restartNeeded(&a, &b), " "); got != "stateDir handleKeys log.format memory" {
		t.Error(got)
	}
}
