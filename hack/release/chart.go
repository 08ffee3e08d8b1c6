package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/hack/internal/images"
)

// Media types of charts in registries (https://helm.sh/docs/topics/registries).
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chart packages the chart, with the repository as its default registry, and pushes it there.
func (r *release) chart() error {
	files, err := readTree("charts/sluice", "sluice/")
	if err != nil {
		return err
	}
	delete(files, "sluice/.helmignore")
	meta, err := yaml.YAMLToJSON(files["sluice/Chart.yaml"])
	if err != nil {
		return err
	}
	var have struct{ Version, AppVersion string }
	if err := json.Unmarshal(meta, &have); err != nil {
		return err
	}
	if have.Version != r.number() || have.AppVersion != r.version {
		return fmt.Errorf("charts/sluice/Chart.yaml has version %s and appVersion %s, want those of VERSION, %s: run make generate", have.Version, have.AppVersion, r.version)
	}
	if err := r.register(files, "sluice/values.yaml", "  registry: "+images.Project+"\n", "  registry: "+r.repository+"\n", 1); err != nil {
		return err
	}
	text, err := archive(files)
	if err != nil {
		return err
	}
	file := "sluice-" + r.number() + ".tgz"
	if err := os.WriteFile(filepath.Join(r.out, file), text, 0o644); err != nil {
		return err
	}
	r.made(file)
	if r.repository == "" {
		return nil
	}
	tag, err := name.NewTag(r.repository + "/charts/sluice:" + r.number())
	if err != nil {
		return err
	}
	if err := pushChart(tag, meta, text); err != nil {
		return fmt.Errorf("pushing %s: %w", tag, err)
	}
	fmt.Println(tag)
	return nil
}

// pushChart sends a chart's description and its archive.
func pushChart(tag name.Tag, meta, text []byte) error {
	auth := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	for _, blob := range []v1.Layer{static.NewLayer(meta, chartConfig), static.NewLayer(text, chartContent)} {
		if err := remote.WriteLayer(tag.Context(), blob, auth); err != nil {
			return err
		}
		d, err := partial.Descriptor(blob)
		if err != nil {
			return err
		}
		if d.MediaType == chartConfig {
			m.Config = *d
		} else {
			m.Layers = append(m.Layers, *d)
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return remote.Put(tag, manifest(text), auth)
}

// manifest is the manifest of an image.
type manifest []byte

func (m manifest) RawManifest() ([]byte, error)        { return m, nil }
func (m manifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// kustomize packages config, with the repository in all images.
func (r *release) kustomize() error {
	files, err := readTree("config", "config/")
	if err != nil {
		return err
	}
	if err := r.register(files, "config/manager/deployment.yaml", images.Project+"/", r.repository+"/", 4); err != nil {
		return err
	}
	text, err := archive(files)
	if err != nil {
		return err
	}
	file := "sluice-kustomize-" + r.number() + ".tar.gz"
	r.made(file)
	return os.WriteFile(filepath.Join(r.out, file), text, 0o644)
}

// register puts the repository into a file, in place of the usual one. It must be there n times.
func (r *release) register(files map[string][]byte, file, usual, ours string, n int) error {
	text := string(files[file])
	if have := strings.Count(text, usual); have != n {
		return fmt.Errorf("%s has %q %d times, want %d", file, usual, have, n)
	}
	if r.repository != "" {
		files[file] = []byte(strings.ReplaceAll(text, usual, ours))
	}
	return nil
}
