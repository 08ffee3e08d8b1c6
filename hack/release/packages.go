package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/hack/internal/images"
)

const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// pack is a package for Debian and for RPM.
type pack struct {
	name, summary, text string
	program             string // a package of Go
	// files has places by sources: in the folder files or, after a slash, in hack/man's output.
	files   map[string]string
	config  string            // the place of a file that the user edits
	links   map[string]string // target by place
	scripts map[string]string
}

var packs = []pack{
	{
		name: "sluice-gateway", program: "cmd/gateway",
		summary: "NFS server and proxy over RDMA",
		text: "Sluice serves directories, and exports of other NFS servers, to NFS clients over\n" +
			"RPC-over-RDMA (software iWARP, without an adapter) and TCP.",
		files: map[string]string{
			"sluice-gateway.service":     "usr/lib/systemd/system/sluice-gateway.service",
			"gateway.yaml":               "etc/sluice/gateway.yaml",
			"/man/man8/sluice-gateway.8": "usr/share/man/man8/sluice-gateway.8",
		},
		config:  "etc/sluice/gateway.yaml",
		scripts: map[string]string{"postinstall": "postinstall.sh", "preremove": "preremove.sh", "postremove": "postremove.sh"},
	},
	{
		name: "sluicectl", program: "cmd/sluicectl",
		summary: "command-line client for NFS over RDMA",
		text: "sluicectl looks at, moves files through, and measures NFS servers over RPC-over-RDMA\n" +
			"(software iWARP, without an adapter) and TCP. It is also the plugin \"kubectl sluice\".",
		files: map[string]string{
			"/man/man1":                                 "usr/share/man/man1",
			"/bash-completion/completions/sluicectl":    "usr/share/bash-completion/completions/sluicectl",
			"/zsh/site-functions/_sluicectl":            "usr/share/zsh/site-functions/_sluicectl",
			"/fish/vendor_completions.d/sluicectl.fish": "usr/share/fish/vendor_completions.d/sluicectl.fish",
		},
		links: map[string]string{"usr/bin/kubectl-sluice": "sluicectl"},
	},
}

// packages makes the packages of each architecture.
func (r *release) packages() error {
	for _, p := range packs {
		for _, arch := range r.archs {
			if err := r.pack(p, arch); err != nil {
				return fmt.Errorf("package %s for %s: %w", p.name, arch, err)
			}
		}
	}
	return nil
}

func (r *release) pack(p pack, arch string) error {
	root := filepath.Join(r.tmp, p.name, arch)
	if err := r.stage(p, arch, root); err != nil {
		return err
	}
	config, err := r.nfpmConfig(p, arch, root)
	if err != nil {
		return err
	}
	file := root + ".yaml"
	if err := os.WriteFile(file, config, 0o644); err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		name := fmt.Sprintf("%s_%s_%s.deb", p.name, r.number(), arch)
		if format == "rpm" {
			name = fmt.Sprintf("%s-%s-1.%s.rpm", p.name, r.number(), map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch])
		}
		if err := run("go", "run", nfpm, "package", "--config", file, "--packager", format, "--target", filepath.Join(r.out, name)); err != nil {
			return err
		}
		r.made(name)
	}
	return nil
}

// stage lays out a package's files below root.
func (r *release) stage(p pack, arch, root string) error {
	if err := images.WriteFiles(root, r.version, arch, p.program); err != nil {
		return err
	}
	// The gateway's name is too general for a directory of all programs.
	if base := path.Base(p.program); base != p.name {
		if err := os.Rename(filepath.Join(root, "usr/bin", base), filepath.Join(root, "usr/bin", p.name)); err != nil {
			return err
		}
	}
	doc := filepath.Join(root, "usr/share/doc", p.name)
	if err := os.Rename(filepath.Join(root, "usr/share/doc/sluice"), doc); err != nil {
		return err
	}
	sbom, err := os.ReadFile(filepath.Join(doc, "sbom.cdx.json"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "sbom", p.name+"-package_"+arch+".cdx.json"), sbom, 0o644); err != nil {
		return err
	}
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	copyright := append([]byte("Sluice is licensed under the Apache License 2.0, below. The folder licences has the texts\nof the Go modules in it.\n\n"), licence...)
	if err := os.WriteFile(filepath.Join(doc, "copyright"), copyright, 0o644); err != nil {
		return err
	}
	for from, to := range p.files {
		source := filepath.Join("hack/release/files", from)
		if strings.HasPrefix(from, "/") {
			source = filepath.Join(r.tmp, "share", from)
		}
		to = filepath.Join(root, to)
		info, err := os.Stat(source)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if info.IsDir() {
			err = os.CopyFS(to, os.DirFS(source))
		} else {
			var text []byte
			if text, err = os.ReadFile(source); err == nil {
				err = os.WriteFile(to, text, 0o644)
			}
		}
		if err != nil {
			return err
		}
	}
	return compressPages(filepath.Join(root, "usr/share/man"))
}

// compressPages compresses man pages, as distributions do.
func compressPages(dir string) error {
	pages, err := readTree(dir, "")
	if err != nil {
		return err
	}
	for name, text := range pages {
		var out bytes.Buffer
		z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
		if _, err := z.Write(text); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".gz"), out.Bytes(), 0o644); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

type (
	nfpmConfig struct {
		Name        string            `json:"name"`
		Arch        string            `json:"arch"`
		Platform    string            `json:"platform"`
		Version     string            `json:"version"`
		Release     string            `json:"release"`
		Section     string            `json:"section"`
		Maintainer  string            `json:"maintainer"`
		Description string            `json:"description"`
		Vendor      string            `json:"vendor"`
		License     string            `json:"license"`
		Time        string            `json:"mtime"`
		Contents    []nfpmContent     `json:"contents"`
		Scripts     map[string]string `json:"scripts,omitempty"`
		RPM         map[string]string `json:"rpm"`
	}
	nfpmContent struct {
		Source      string    `json:"src"`
		Destination string    `json:"dst"`
		Type        string    `json:"type,omitempty"`
		Info        *nfpmInfo `json:"file_info,omitempty"`
	}
	nfpmInfo struct {
		Mode  int    `json:"mode"`
		Time  string `json:"mtime"`
		Owner string `json:"owner"`
		Group string `json:"group"`
	}
)

// epoch is the time of all files.
const epoch = "1970-01-01T00:00:00Z"

func (r *release) nfpmConfig(p pack, arch, root string) ([]byte, error) {
	c := nfpmConfig{
		Name: p.name, Arch: arch, Platform: "linux", Version: r.number(), Release: "1", Section: "net",
		Maintainer: "The Sluice authors <maintainers@sluice.dev>", Vendor: "Sluice", License: "Apache-2.0", Time: epoch,
		Description: p.summary + "\n" + p.text, RPM: map[string]string{"summary": p.summary},
	}
	files, err := readTree(root, "")
	if err != nil {
		return nil, err
	}
	for name := range files {
		f := nfpmContent{Source: filepath.Join(root, name), Destination: "/" + name, Info: &nfpmInfo{0o644, epoch, "root", "root"}}
		if strings.HasPrefix(name, "usr/bin/") {
			f.Info.Mode = 0o755
		}
		if name == p.config {
			f.Type = "config|noreplace"
		}
		c.Contents = append(c.Contents, f)
	}
	for place, target := range p.links {
		c.Contents = append(c.Contents, nfpmContent{Source: target, Destination: "/" + place, Type: "symlink"})
	}
	slices.SortFunc(c.Contents, func(a, b nfpmContent) int { return strings.Compare(a.Destination, b.Destination) })
	for when, file := range p.scripts {
		if c.Scripts == nil {
			c.Scripts = map[string]string{}
		}
		c.Scripts[when] = filepath.Join("hack/release/files", file)
	}
	return yaml.Marshal(c)
}
