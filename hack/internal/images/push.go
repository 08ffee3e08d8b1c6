package images

import (
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Project prefixes the names of images without a registry.
const Project = "sluice.dev"

// Push sends an archive's image to REPOSITORY/image:version, with the credentials of
// ~/.docker/config.json, and returns its digest. Registries on loopback are used without TLS.
func Push(file, repository, image, version string) (digest string, err error) {
	tag, err := name.NewTag(repository + "/" + image + ":" + version)
	if err != nil {
		return "", err
	}
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		return "", err
	}
	if err := remote.Write(tag, img, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", fmt.Errorf("pushing %s: %w", tag, err)
	}
	h, err := img.Digest()
	return h.String(), err
}

// Install returns the command that installs the chart with these images; "" if the operator's is
// missing.
func Install(repository, version string, images []string) string {
	if !slices.Contains(images, "operator") {
		return ""
	}
	set := "images.tag=" + version
	if repository != Project {
		set += ",images.registry=" + repository
	}
	return "helm upgrade --install sluice charts/sluice --namespace sluice-system --create-namespace \\\n  --set-string " + set
}
