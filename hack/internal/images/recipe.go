// Package images makes container images, and the files of packages, from the programs of a
// checkout.
package images

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonroot is the user of images that need no privileges. It is a number, so that Kubernetes sees
// that it is not root.
const nonroot = 65532

// recipe describes an image.
type recipe struct {
	programs []string // packages, which become /usr/bin/NAME; the first is the entry point
	prepared string   // a program of hack/k8s/prepare, which is then the entry point
	verbs    bool     // built on rdma-core, by cgo
	user     int
	more     func(*tree) error
}

var recipes = map[string]recipe{
	"gateway":       {programs: []string{"cmd/gateway", "cmd/sluicectl"}, user: nonroot, more: stateDir},
	"gateway-verbs": {programs: []string{"cmd/gateway", "cmd/sluicectl"}, verbs: true, more: addVerbs},
	"operator":      {programs: []string{"cmd/operator"}, user: nonroot, more: addCertificates},
	"pause":         {programs: []string{"hack/cluster/pause"}, user: nonroot},
	"deviceplugin":  {programs: []string{"hack/cluster/deviceplugin"}},
	"sriovdp":       {prepared: "sriovdp", more: addPCIIDs},
}

// Write makes the archive of an image for this machine's architecture, and returns its size in
// bytes.
func Write(file, image, version string) (size int64, err error) {
	tag, err := name.NewTag(Project + "/" + image + ":" + version)
	if err != nil {
		return 0, err
	}
	t, r, err := makeTree(image, version, runtime.GOARCH)
	if err != nil {
		return 0, err
	}
	img, err := r.assemble(t, image, version, runtime.GOARCH)
	if err != nil {
		return 0, err
	}
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		return 0, err
	}
	s, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	return s.Size(), nil
}

// Names returns the images that can be made.
func Names() []string { return slices.Sorted(maps.Keys(recipes)) }

// WriteFiles builds programs for an architecture, and writes them with their licence texts and
// their list of contents to a folder, as they lie in an image.
func WriteFiles(dir, version, arch string, programs ...string) error {
	t, r := newTree(), recipe{programs: programs}
	if err := r.build(t, version, arch); err != nil {
		return err
	}
	if err := addContents(t, r, path.Base(programs[0]), version); err != nil {
		return err
	}
	return t.write(dir)
}

// makeTree builds an image's programs for an architecture, and returns all files of the image.
func makeTree(image, version, arch string) (*tree, recipe, error) {
	r, ok := recipes[image]
	if !ok {
		return nil, r, fmt.Errorf("there is no recipe for this image, want one of %v", Names())
	}
	t := newTree()
	t.dir("tmp", 0o1777)
	t.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n"))
	t.file("etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n"))
	if err := r.build(t, version, arch); err != nil {
		return nil, r, err
	}
	if r.more != nil {
		if err := r.more(t); err != nil {
			return nil, r, err
		}
	}
	return t, r, addContents(t, r, image, version)
}

func (r recipe) assemble(t *tree, image, version, arch string) (v1.Image, error) {
	return assemble(t, arch, v1.Config{
		Entrypoint: []string{"/usr/bin/" + r.entry()},
		Env:        []string{"PATH=/usr/bin"},
		User:       fmt.Sprintf("%d:%d", r.user, r.user),
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Sluice " + image,
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	})
}

// assemble makes an image of one layer.
func assemble(t *tree, arch string, config v1.Config) (v1.Image, error) {
	layer, err := t.layer()
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created = arch, "linux", v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config = config
	return mutate.ConfigFile(img, file)
}

func (r recipe) entry() string {
	if r.prepared != "" {
		return r.prepared
	}
	return path.Base(r.programs[0])
}

// build compiles the recipe's programs.
func (r recipe) build(t *tree, version, arch string) error {
	root, err := checkout()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "sluice-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if r.prepared != "" {
		cmd := exec.Command(filepath.Join(root, "hack/k8s/prepare"), r.prepared)
		cmd.Stderr = os.Stderr
		bin, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("hack/k8s/prepare %s: %w", r.prepared, err)
		}
		if err := t.copy(filepath.Join(strings.TrimSpace(string(bin)), r.prepared), "usr/bin/"+r.prepared, 0o755); err != nil {
			return err
		}
	}
	for _, p := range r.programs {
		if _, err := os.Stat(filepath.Join(root, p)); err != nil {
			return fmt.Errorf("the program that it is for is not in this checkout: %w", err)
		}
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+version)
		env := []string{"CGO_ENABLED=0"}
		if r.verbs {
			if env, err = crossVerbs(arch); err != nil {
				return err
			}
			// Use Go's own resolver: the C library's would need more files in the image.
			cmd.Args = append(cmd.Args, "-tags", "verbs,netgo,osusergo")
		}
		id := fmt.Sprint(p, arch, version, r.verbs)
		if built[id] == nil {
			bin := filepath.Join(tmp, path.Base(p))
			cmd.Args = append(cmd.Args, "-o", bin, "./"+p)
			cmd.Dir, cmd.Env = root, append(os.Environ(), append(env, "GOOS=linux", "GOARCH="+arch)...)
			if said, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("go build ./%s: %w\n%s", p, err, said)
			}
			if built[id], err = os.ReadFile(bin); err != nil {
				return err
			}
		}
		t.file("usr/bin/"+path.Base(p), 0o755, built[id])
	}
	return nil
}

// built has the programs built before, since several images and packages have the same.
var built = map[string][]byte{}

// checkout returns the module's root above the working directory.
func checkout() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m, in the folder of the checkout: %w", err)
	}
	return string(out[:len(out)-1]), nil
}

// stateDir adds the directory for the key of file handles of a gateway without a configuration.
func stateDir(t *tree) error {
	t.dir("var/lib/sluice", 0o700)
	t.own("var/lib/sluice", nonroot)
	return nil
}

// addPCIIDs adds the list of adapters' names. Without it the device plugin downloads one.
func addPCIIDs(t *tree) error {
	const ids = "usr/share/misc/pci.ids"
	t.packages["pci.ids"] = true
	return t.copy("/"+ids, ids, 0o644)
}

func addCertificates(t *tree) error {
	const bundle = "etc/ssl/certs/ca-certificates.crt"
	t.packages["ca-certificates"] = true
	return t.copy("/"+bundle, bundle, 0o644)
}
