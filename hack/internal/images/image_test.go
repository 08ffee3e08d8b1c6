package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"sluice.dev/sluice/test/prereq"
)

// made makes an image, and reads it back.
func made(t *testing.T, name string) (file string, config *v1.ConfigFile, files map[string]*tar.Header) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name+".tar")
	clear(built)
	size, err := Write(file, name, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if size > 40e6 {
		t.Errorf("%s has %d bytes: want less than 40 MB", name, size)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"sluice.dev/" + name + ":v1.2.3"}; !cmp.Equal(manifest[0].RepoTags, want) {
		t.Errorf("the archive is for %v, want %v", manifest[0].RepoTags, want)
	}
	img := image(t, file)
	if config, err = img.ConfigFile(); err != nil {
		t.Fatal(err)
	}
	files = map[string]*tar.Header{}
	entries(t, img, func(h *tar.Header, _ io.Reader) {
		if !h.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s is of %v, want 1970", h.Name, h.ModTime)
		}
		files["/"+h.Name] = h
	})
	return file, config, files
}

func image(t *testing.T, file string) v1.Image {
	t.Helper()
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func entries(t *testing.T, img v1.Image, do func(*tar.Header, io.Reader)) {
	t.Helper()
	flat := mutate.Extract(img)
	defer flat.Close()
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		do(h, r)
	}
}

func TestGateway(t *testing.T) {
	file, config, files := made(t, "gateway")
	if want := []string{"/usr/bin/gateway"}; !cmp.Equal(config.Config.Entrypoint, want) {
		t.Errorf("entry point %v, want %v", config.Config.Entrypoint, want)
	}
	if config.Config.User != "65532:65532" {
		t.Errorf("user %q, want 65532:65532: not root, as a number", config.Config.User)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("image for %s/%s", config.OS, config.Architecture)
	}
	for name, want := range map[string]struct {
		mode int64
		uid  int
	}{
		"/usr/bin/gateway": {0o755, 0}, "/usr/bin/sluicectl": {0o755, 0}, "/etc/passwd": {0o644, 0},
		"/tmp": {0o1777, 0}, "/var/lib/sluice": {0o700, 65532}, "/usr/share/doc/sluice/sbom.cdx.json": {0o644, 0},
	} {
		if h := files[name]; h == nil {
			t.Errorf("%s is missing", name)
		} else if h.Mode != want.mode || h.Uid != want.uid || h.Gid != want.uid {
			t.Errorf("%s has mode %o, owner %d:%d; want %o, %d", name, h.Mode, h.Uid, h.Gid, want.mode, want.uid)
		}
	}
	again, _, _ := made(t, "gateway")
	if sum(t, file) != sum(t, again) {
		t.Error("made again, the archive differs")
	}
	dir := unpack(t, file)
	says(t, "Sluice gateway v1.2.3", dir, "/usr/bin/gateway", "--version")
}

func TestVerbs(t *testing.T) {
	if err := exec.Command("pkg-config", "--exists", "libibverbs", "librdmacm").Run(); err != nil {
		prereq.Missing(t, "rdma-core's headers are missing: hack/deps verbs installs them")
	}
	file, config, _ := made(t, "gateway-verbs")
	if config.Config.User != "0:0" {
		t.Errorf("user %q, want root: other users' capabilities are not effective", config.Config.User)
	}
	dir := unpack(t, file)
	says(t, "Sluice gateway v1.2.3", dir, "/usr/bin/gateway", "--version")
	// The loader itself reports missing libraries, for the program and for those loaded while it
	// runs.
	interpreter, err := interpreterOf(contents(t, filepath.Join(dir, "usr/bin/gateway")))
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := filepath.Glob(filepath.Join(dir, "usr/lib/*/libibverbs/*.so"))
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Join(loaded, " ")
	for _, want := range []string{"libmlx5-", "librxe-", "libsiw-"} {
		if !strings.Contains(names, want) {
			t.Errorf("no provider %s… among %s", want, names)
		}
	}
	says(t, "librdmacm.so.1 => /", dir, interpreter, "--list", "/usr/bin/gateway")
	for _, l := range loaded {
		says(t, "libibverbs.so.1 => /", dir, interpreter, "--list", strings.TrimPrefix(l, dir))
	}
}

func TestNoProgramNoImage(t *testing.T) {
	recipes["missing"] = recipe{programs: []string{"cmd/missing"}}
	t.Cleanup(func() { delete(recipes, "missing") })
	file := filepath.Join(t.TempDir(), "missing.tar")
	if _, err := Write(file, "missing", "v1"); err == nil || !strings.Contains(err.Error(), "is not in this checkout") {
		t.Errorf("an image without a program: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("an archive was left")
	}
	if _, err := Write(file, "gateway", "v1+dirty"); err == nil {
		t.Error("a tag that is none was taken")
	}
}

// unpack unpacks an image's files into a directory.
func unpack(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	entries(t, image(t, file), func(h *tar.Header, r io.Reader) {
		name := filepath.Join(dir, h.Name)
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o755)
		} else {
			err = os.WriteFile(name, data, os.FileMode(h.Mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return dir
}

// says runs a program with only the image's files, and expects want in its output.
func says(t *testing.T, want, dir string, args ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		prereq.Missing(t, "only root may enter the image by chroot")
	}
	said, err := exec.Command("chroot", append([]string{dir}, args...)...).CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte(want)) || bytes.Contains(said, []byte("not found")) {
		t.Errorf("%v: %v\n%s\nwant %q", args, err, said, want)
	}
}

func contents(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sum(t *testing.T, file string) [sha256.Size]byte { return sha256.Sum256(contents(t, file)) }

func TestOperator(t *testing.T) {
	file, config, files := made(t, "operator")
	if config.Config.User != "65532:65532" || !cmp.Equal(config.Config.Entrypoint, []string{"/usr/bin/operator"}) {
		t.Errorf("user %q, entry point %v; want 65532:65532, /usr/bin/operator", config.Config.User, config.Config.Entrypoint)
	}
	if h := files["/etc/ssl/certs/ca-certificates.crt"]; h == nil || h.Size < 10_000 {
		t.Errorf("the certificates of authorities are %+v", h)
	}
	says(t, "v1.2.3", unpack(t, file), "/usr/bin/operator", "--version")
}
