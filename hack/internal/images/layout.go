package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation with the name of an image in a layout.
const refName = "org.opencontainers.image.ref.name"

// WriteLayout writes the images to an OCI image layout, each for all architectures, and pushes them
// to the repository unless it is empty. Unless sboms is empty, that folder gets the list of
// contents of each image, NAME_ARCH.cdx.json.
func WriteLayout(dir string, images, archs []string, version, repository, sboms string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	for _, image := range images {
		index, err := makeIndex(image, version, archs, sboms)
		if err != nil {
			return fmt.Errorf("%s: %w", image, err)
		}
		tag, err := name.NewTag(Project + "/" + image + ":" + version)
		if err != nil {
			return err
		}
		if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: tag.Name()})); err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s@%s\n", dir, tag, digest)
		if repository == "" {
			continue
		}
		to, err := name.NewTag(repository + "/" + image + ":" + version)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(to, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("pushing %s: %w", to, err)
		}
		fmt.Printf("%s@%s\n", to, digest)
	}
	return nil
}

// makeIndex makes an image for each architecture. It leaves out and reports those for which this
// machine cannot build on rdma-core.
func makeIndex(image, version string, archs []string, sboms string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	made := 0
	for _, arch := range archs {
		t, r, err := makeTree(image, version, arch)
		if errors.Is(err, errNoCross) {
			fmt.Printf("%s: not for %s: %v\n", image, arch, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		img, err := r.assemble(t, image, version, arch)
		if err != nil {
			return nil, err
		}
		if sboms != "" {
			if err := os.WriteFile(filepath.Join(sboms, image+"_"+arch+".cdx.json"), t.entries[sbomFile].data, 0o644); err != nil {
				return nil, err
			}
		}
		made++
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	if made == 0 {
		return nil, fmt.Errorf("for none of %v", archs)
	}
	return index, nil
}
