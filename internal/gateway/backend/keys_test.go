package backend

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// TestHandleKeys checks that gateways with equal keys, and a restarted gateway, sign handles alike.
func TestHandleKeys(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "keys")
	if err := os.WriteFile(file, []byte("# keys\n"+base64.StdEncoding.EncodeToString(make([]byte, sign.MinKey))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	gateway := func(file, state string) *Keys {
		return NewKeys(slog.New(slog.NewTextHandler(&log, nil)), file, state)
	}
	x := config.Export{Name: "data", SignHandles: config.SignRequired}
	tagged := func(k *Keys, x config.Export) string {
		t.Helper()
		s, err := k.signer(&x)
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

// TestVolumesHaveTheGivenKeys checks that a volume signs handles with handleKeys.file, and that the
// state directory has no key then.
func TestVolumesHaveTheGivenKeys(t *testing.T) {
	file, root := filepath.Join(t.TempDir(), "keys"), t.TempDir()
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(make([]byte, sign.MinKey))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, keys := range []string{file, ""} {
		state := t.TempDir()
		log := slog.New(slog.DiscardHandler)
		v, err := openVolume(&Env{Export: "data", Log: log, StateDir: state, Keys: NewKeys(log, keys, state)}, &config.Export{Backend: config.Backend{Volume: &config.Volume{Path: root}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(state, keyFile)); os.IsNotExist(err) != (keys != "") {
			t.Errorf("handleKeys.file %q: %s in the state directory: %v", keys, keyFile, err)
		}
	}
	keys := NewKeys(slog.New(slog.DiscardHandler), filepath.Join(root, "missing"), "")
	_, err := openVolume(&Env{Export: "data", Keys: keys}, &config.Export{Backend: config.Backend{Volume: &config.Volume{Path: root}}})
	if err == nil || !strings.HasPrefix(err.Error(), "handleKeys.file: ") {
		t.Error(err)
	}
}

// TestSignersReleased checks that a closed backend no longer follows the keys.
func TestSignersReleased(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	pool := bufpool.New(0)
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(make([]byte, sign.MinKey))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := NewKeys(log, file, "")
	s := config.DefaultNFSServer()
	s.Server, s.Path, s.Port = "127.0.0.1", "/", 1
	for _, backend := range []config.Backend{{NFS: &s}, {Volume: &config.Volume{Path: t.TempDir()}}} {
		x := &config.Export{Name: "data", Backend: backend}
		x.Complete()
		b, err := Open(Env{Export: "data", Log: log, Pool: pool, Keys: keys}, x)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(keys.users); n != 1 {
			t.Errorf("%d signers of one backend", n)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if n := len(keys.users); n != 0 {
			t.Errorf("%d signers are left", n)
		}
	}
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}
