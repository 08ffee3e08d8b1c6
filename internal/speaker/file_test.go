package speaker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"sluice.dev/sluice/internal/filewatch"
)

// TestReadConfig reads a mounted ConfigMap, which changes when Kubernetes swaps a link beside the
// file.
func TestReadConfig(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	version := func(name, text string) {
		t.Helper()
		err := os.Mkdir(filepath.Join(dir, name), 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name, "speaker.yaml"), []byte(text), 0o600)
		}
		if err == nil {
			err = os.Symlink(name, filepath.Join(dir, "..data_tmp"))
		}
		if err == nil {
			err = os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	version("..1", "interface: rdma0\ngroups: []\n")
	file := filepath.Join(dir, "speaker.yaml")
	if err := os.Symlink("..data/speaker.yaml", file); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen, done := make(chan configFile), make(chan struct{})
	go func() {
		defer close(done)
		filewatch.Watch(ctx, slog.New(slog.DiscardHandler), file, func() {
			select {
			case seen <- readConfig(file):
			case <-ctx.Done():
			}
		})
	}()
	if l := <-seen; l.err != nil || l.config.Interface != "rdma0" || len(l.hash) != 64 {
		t.Errorf("at first: %+v", l)
	}
	version("..2", "interface: rdma1\ngroups: []\n")
	if l := <-seen; l.err != nil || l.config.Interface != "rdma1" {
		t.Errorf("after the swap: %+v", l)
	}
	version("..3", "interface: rdma1\ngroup: []\n")
	if l := <-seen; l.err == nil || l.config != nil {
		t.Errorf("a file that cannot be used: %+v", l)
	}
	cancel()
	<-done
}
