package images

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestPush pulls an image from a registry as it was made, under the name that the chart uses.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/storage/sluice"
	file := filepath.Join(t.TempDir(), "pushed.tar")
	img, err := assemble(newTree(), "amd64", v1.Config{User: "65532:65532"})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("sluice.dev/operator:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		t.Fatal(err)
	}
	digest, err := Push(file, repository, "operator", "v1")
	if err != nil {
		t.Fatal(err)
	}
	command := Install(repository, "v1", []string{"gateway", "operator"})
	ref, err := name.ParseReference(repository + "/operator:v1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Get(ref)
	if err != nil || got.Digest.String() != digest {
		t.Errorf("pulled %+v, %v; want %s", got, err, digest)
	}
	for _, want := range []string{
		"--set-string images.tag=v1,images.registry=" + repository,
	} {
		if !strings.Contains(command, want) {
			t.Errorf("%s\nlacks %s", command, want)
		}
	}
	if command := Install(Project, "v1", []string{"operator"}); strings.Contains(command, "registry") || !strings.Contains(command, "images.tag=v1") {
		t.Errorf("for images that were imported: %s", command)
	}
	if _, err := Push(file, "bad registry", "operator", "v1"); err == nil {
		t.Error("a registry that is none was taken")
	}
}
