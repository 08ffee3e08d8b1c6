package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// plugin packages the plugin for kubectl, from the packages' files, and its manifest for krew if
// the URL of the release is known.
func (r *release) plugin() error {
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	var platforms []any
	for _, arch := range r.archs {
		root := filepath.Join(r.tmp, "sluicectl", arch)
		doc := filepath.Join(root, "usr/share/doc/sluicectl")
		files, err := readTree(filepath.Join(doc, "licences"), "licences/")
		if err != nil {
			return err
		}
		files["LICENSE"] = licence
		if files["kubectl-sluice"], err = os.ReadFile(filepath.Join(root, "usr/bin/sluicectl")); err != nil {
			return err
		}
		text, err := archive(files, "kubectl-sluice")
		if err != nil {
			return err
		}
		file := fmt.Sprintf("kubectl-sluice-%s-linux-%s.tar.gz", r.number(), arch)
		if err := os.WriteFile(filepath.Join(r.out, file), text, 0o644); err != nil {
			return err
		}
		r.made(file)
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": "linux", "arch": arch}},
			"uri":      strings.TrimSuffix(r.url, "/") + "/" + file,
			"sha256":   fmt.Sprintf("%x", sha256.Sum256(text)),
			"bin":      "kubectl-sluice",
		})
	}
	if r.url == "" {
		fmt.Println("no manifest for krew: -url gives the place of this folder")
		return nil
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "sluice"},
		"spec": map[string]any{
			"version":          r.version,
			"homepage":         r.url,
			"shortDescription": "Show Sluice's NFS over RDMA gateways and exports",
			"description": "Shows the gateways and exports of Sluice and why one is not ready, prints mount\n" +
				"commands and PersistentVolumes, pings exports, and shows live traffic.\n",
			"platforms": platforms,
		},
	})
	if err != nil {
		return err
	}
	r.made("sluice.yaml")
	return os.WriteFile(filepath.Join(r.out, "sluice.yaml"), text, 0o644)
}
