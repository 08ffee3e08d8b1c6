//go:build operator

package api

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sluice.dev/sluice/test/apiserver"
)

// TestGeneratedFilesAreCurrent generates them again elsewhere and compares.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "./hack/generate", "-out", dir)
	cmd.Dir = apiserver.Path(".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("hack/generate: %v\n%s", err, out)
	}
	count := 0
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		count++
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		want, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if have, err := os.ReadFile(apiserver.Path(name)); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what would be generated now (%v): run make generate", name, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 4 {
		t.Errorf("%d files were generated, want more", count)
	}
}
