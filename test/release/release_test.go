//go:build operator

// Package release tests hack/release: a release is made and pushed to a registry of the test, and
// its files are used as a user would.
package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/test/apiserver"
	"sluice.dev/sluice/test/prereq"
)

// The release of all tests.
var (
	out        string // its folder
	bin        string // of helm and kubectl
	repository string // where it was pushed
	number     string // 1.2.3
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	var err error
	if bin, err = apiserver.Prepare("helm", "kubernetes"); err != nil {
		return 1, err
	}
	tmp, err := os.MkdirTemp("", "sluice-release-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(tmp)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	out, repository = filepath.Join(tmp, "release"), strings.TrimPrefix(server.URL, "http://")+"/storage/sluice"
	text, err := os.ReadFile(apiserver.Path("VERSION"))
	if err != nil {
		return 1, err
	}
	number = strings.TrimPrefix(strings.TrimSpace(string(text)), "v")
	cmd := exec.Command("go", "run", "./hack/release", "-o", out, "-push", repository, "-url", "https://downloads.example/sluice/")
	cmd.Dir = apiserver.Path(".")
	if said, err := cmd.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("hack/release: %w\n%s", err, said)
	}
	return m.Run(), nil
}

// output runs a program, which has to succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/dev/null", "HELM_PLUGINS=/nonexistent")
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, said)
	}
	return string(said)
}

// TestFiles: each file of the release is there and has its checksum.
func TestFiles(t *testing.T) {
	cmd := exec.Command("sha256sum", "--strict", "--check", "--quiet", "SHA256SUMS")
	cmd.Dir = out
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, said)
	}
	sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"images/index.json", "sluice-" + number + ".tgz", "sluice-kustomize-" + number + ".tar.gz", "sluice.yaml"}
	for _, arch := range []string{"amd64", "arm64"} {
		rpm := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
		for _, p := range []string{"sluice-gateway", "sluicectl"} {
			want = append(want, p+"_"+number+"_"+arch+".deb", p+"-"+number+"-1."+rpm+".rpm", "sbom/"+p+"-package_"+arch+".cdx.json")
		}
		want = append(want, "kubectl-sluice-"+number+"-linux-"+arch+".tar.gz", "sbom/gateway_"+arch+".cdx.json", "sbom/operator_"+arch+".cdx.json")
	}
	want = append(want, "sbom/gateway-verbs_"+runtime.GOARCH+".cdx.json")
	for _, name := range want {
		if !bytes.Contains(sums, []byte("  "+name+"\n")) {
			t.Errorf("SHA256SUMS lacks %s", name)
		}
	}
}

// platforms checks that an image can be pulled for both architectures.
func platforms(t *testing.T, image string) {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Error(err)
		return
	}
	if ref.Context().RegistryStr() != strings.Split(repository, "/")[0] {
		t.Errorf("%s is not in the registry", image)
		return
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if arch != runtime.GOARCH && strings.HasSuffix(ref.Context().Name(), "gateway-verbs") {
			continue // needs rdma-core of that architecture
		}
		img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Errorf("%s for %s: %v", image, arch, err)
			continue
		}
		if c, err := img.ConfigFile(); err != nil || c.Architecture != arch {
			t.Errorf("%s for %s: %+v, %v", image, arch, c, err)
		}
	}
}

var imageNames = regexp.MustCompile(`(?m)(?:image: "?|-image=)([^\s"]+)`)

// references checks all images that manifests name.
func references(t *testing.T, manifests string) {
	t.Helper()
	var images []string
	for _, m := range imageNames.FindAllStringSubmatch(manifests, -1) {
		images = append(images, m[1])
	}
	slices.Sort(images)
	images = slices.Compact(images)
	if len(images) < 3 {
		t.Errorf("the manifests name the images %q, want three", images)
	}
	for _, image := range images {
		if !strings.HasSuffix(image, ":v"+number) {
			t.Errorf("%s is not of v%s", image, number)
		}
		platforms(t, image)
	}
}

// TestChart renders the chart from the registry with its defaults: its images are there.
func TestChart(t *testing.T) {
	chart := "oci://" + repository + "/charts/sluice"
	references(t, output(t, filepath.Join(bin, "helm"), "template", "sluice", chart, "--version", number, "--plain-http", "--kube-version", "1.36.0",
		"--namespace", "sluice-system", "--set", "clientHosts.enabled=true"))
	dir := t.TempDir()
	output(t, filepath.Join(bin, "helm"), "pull", chart, "--version", number, "--plain-http", "--destination", dir)
	file := "sluice-" + number + ".tgz"
	if !bytes.Equal(read(t, filepath.Join(dir, file)), read(t, filepath.Join(out, file))) {
		t.Error("the pushed chart is another than the file")
	}
	output(t, filepath.Join(bin, "helm"), "lint", "--strict", filepath.Join(out, file))
}

func TestKustomize(t *testing.T) {
	dir := t.TempDir()
	unpack(t, filepath.Join(out, "sluice-kustomize-"+number+".tar.gz"), dir)
	references(t, output(t, filepath.Join(bin, "kubectl"), "kustomize", filepath.Join(dir, "config")))
}

// TestLayout: the folder has the same images as the registry.
func TestLayout(t *testing.T) {
	index, err := layout.ImageIndexFromPath(filepath.Join(out, "images"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != 3 {
		t.Errorf("%d images, want 3", len(m.Manifests))
	}
	for _, d := range m.Manifests {
		image, ok := strings.CutPrefix(d.Annotations["org.opencontainers.image.ref.name"], "sluice.dev/")
		ref, err := name.ParseReference(repository + "/" + image)
		if err != nil || !ok {
			t.Fatalf("annotations %v: %v", d.Annotations, err)
		}
		if pushed, err := remote.Head(ref); err != nil || pushed.Digest != d.Digest {
			t.Errorf("%s: %v, %v; the layout has %v", ref, pushed, err, d.Digest)
		}
	}
}

// TestGatewayPackage installs the package of this architecture in an empty root.
func TestGatewayPackage(t *testing.T) {
	root := install(t, "sluice-gateway")
	program := filepath.Join(root, "usr/bin/sluice-gateway")
	if said := output(t, program, "--version"); !strings.HasPrefix(said, "Sluice gateway v"+number+" ") {
		t.Errorf("--version: %s", said)
	}
	example := filepath.Join(root, "etc/sluice/gateway.yaml")
	if said := output(t, program, "--config", example, "--check-config"); !strings.HasSuffix(said, " is valid: 0 exports\n") {
		t.Error(said)
	}
	// The export that the example has in comments.
	before, after, ok := strings.Cut(string(read(t, example)), "exports: []\n")
	if !ok {
		t.Fatal("the example has no empty list of exports")
	}
	_, after, _ = strings.Cut(after, "#\n")
	full := filepath.Join(t.TempDir(), "full.yaml")
	if err := os.WriteFile(full, []byte(before+regexp.MustCompile(`(?m)^# `).ReplaceAllString(after, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := output(t, program, "--config", full, "--check-config"); !strings.HasSuffix(said, " is valid: 1 exports\n") {
		t.Error(said)
	}
	contents(t, root, "sluice-gateway", "sluice-gateway")
	page := output(t, "sh", "-c", "gzip -dc "+filepath.Join(root, "usr/share/man/man8/sluice-gateway.8.gz"))
	if !strings.Contains(strings.ReplaceAll(page, `\-`, "-"), "--check-config") {
		t.Errorf("the man page lacks --check-config:\n%s", page)
	}
}

// exposure is the worst score of the unit by systemd-analyze security, from 0 to 100.
const exposure = "35"

// TestUnit has systemd verify the unit where it is installed.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		prereq.Missing(t, "systemd-analyze is missing: hack/deps test installs it")
	}
	root := install(t, "sluice-gateway")
	// verify also looks for the units that it names, and for programs.
	for _, unit := range []string{"basic.target", "sysinit.target", "shutdown.target", "network-online.target", "multi-user.target"} {
		if err := os.WriteFile(filepath.Join(root, "usr/lib/systemd/system", unit), []byte("[Unit]\nDescription="+unit+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "bin"), 0o755), os.WriteFile(filepath.Join(root, "bin/kill"), nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	if said := output(t, "systemd-analyze", "verify", "--root="+root, "--man=no", "sluice-gateway.service"); said != "" {
		t.Errorf("systemd-analyze verify:\n%s", said)
	}
	output(t, "systemd-analyze", "security", "--root="+root, "--offline=yes", "--threshold="+exposure, "--no-pager", "sluice-gateway.service")
}

func TestToolPackage(t *testing.T) {
	root := install(t, "sluicectl")
	if said := output(t, filepath.Join(root, "usr/bin/sluicectl"), "--version"); said != "sluicectl v"+number+"\n" {
		t.Errorf("--version: %s", said)
	}
	if said := output(t, filepath.Join(root, "usr/bin/kubectl-sluice"), "--version"); said != "kubectl sluice v"+number+"\n" {
		t.Errorf("kubectl-sluice --version: %s", said)
	}
	for _, file := range []string{"usr/share/man/man1/sluicectl-ping.1.gz", "usr/share/bash-completion/completions/sluicectl"} {
		if len(read(t, filepath.Join(root, file))) == 0 {
			t.Errorf("%s is empty", file)
		}
	}
	contents(t, root, "sluicectl", "sluicectl")
}

// install installs a package by dpkg in a root of its own.
func install(t *testing.T, pack string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(out, pack+"_"+number+"_"+runtime.GOARCH+".deb")
	output(t, "dpkg", "--root="+root, "--force-not-root,script-chrootless", "--log="+filepath.Join(root, "log"), "-i", file)
	if said := output(t, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "-W", "-f", "${db:Status-Status} ${Version}", pack); said != "installed "+number+"-1" {
		t.Errorf("dpkg: %s is %s", pack, said)
	}
	return root
}

// contents compares the list of a package's contents with its program, and looks for the licences.
func contents(t *testing.T, root, pack, program string) {
	t.Helper()
	doc := filepath.Join(root, "usr/share/doc", pack)
	var bom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct {
			Name, Version string
			PURL          string `json:"purl"`
		}
	}
	if err := json.Unmarshal(read(t, filepath.Join(doc, "sbom.cdx.json")), &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Fatalf("sbom.cdx.json: %v, format %q", err, bom.BOMFormat)
	}
	have := map[string]bool{}
	for _, c := range bom.Components {
		have[c.Name+" "+c.Version] = true
	}
	modules := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(output(t, "go", "version", "-m", filepath.Join(root, "usr/bin", program)), -1)
	if len(modules) < 3 {
		t.Errorf("%s has %d modules", program, len(modules))
	}
	for _, m := range modules {
		if !have[m[1]+" "+m[2]] {
			t.Errorf("sbom.cdx.json lacks %s %s", m[1], m[2])
		}
		texts, err := os.ReadDir(filepath.Join(doc, "licences", m[1]+"@"+m[2]))
		if err != nil || !slices.ContainsFunc(texts, func(d os.DirEntry) bool { return !d.IsDir() }) {
			t.Errorf("no licence of %s %s: %v", m[1], m[2], err)
		}
	}
	if len(bom.Components) != len(modules)+1 {
		t.Errorf("sbom.cdx.json has %d components, want %d modules and Go's own library", len(bom.Components), len(modules))
	}
	if !bytes.Contains(read(t, filepath.Join(doc, "copyright")), []byte("Apache License")) {
		t.Error("copyright lacks the licence")
	}
}

// TestRPM has rpm install both packages of this architecture in an empty root.
func TestRPM(t *testing.T) {
	if _, err := exec.LookPath("rpm"); err != nil {
		prereq.Missing(t, "rpm is missing: hack/deps test installs it")
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	root := t.TempDir()
	var files []string
	for _, pack := range []string{"sluice-gateway", "sluicectl"} {
		file := filepath.Join(out, pack+"-"+number+"-1."+arch+".rpm")
		files = append(files, file)
		if said := output(t, "rpm", "-qp", "--qf", "%{NAME} %{VERSION} %{ARCH} %{LICENSE}", file); said != pack+" "+number+" "+arch+" Apache-2.0" {
			t.Error(said)
		}
	}
	output(t, "rpm", append([]string{"--root", root, "-i", "--noscripts", "--nodeps"}, files...)...)
	output(t, filepath.Join(root, "usr/bin/sluice-gateway"), "--config", filepath.Join(root, "etc/sluice/gateway.yaml"), "--check-config")
	if said := output(t, "rpm", "-qpc", files[0]); said != "/etc/sluice/gateway.yaml\n" {
		t.Errorf("configuration files: %q", said)
	}
}

// TestPlugin follows the manifest for krew as krew does.
func TestPlugin(t *testing.T) {
	var m struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, ShortDescription string
			Platforms                 []struct {
				URI, SHA256, Bin string
				Selector         struct{ MatchLabels map[string]string }
			}
		}
	}
	if err := yaml.Unmarshal(read(t, filepath.Join(out, "sluice.yaml")), &m); err != nil {
		t.Fatal(err)
	}
	if m.Kind != "Plugin" || m.Metadata.Name != "sluice" || m.Spec.Version != "v"+number || len(m.Spec.Platforms) != 2 || len(m.Spec.ShortDescription) > 50 {
		t.Errorf("manifest %+v", m)
	}
	for _, p := range m.Spec.Platforms {
		file, ok := strings.CutPrefix(p.URI, "https://downloads.example/sluice/")
		if !ok {
			t.Errorf("URI %s", p.URI)
		}
		if sum := strings.Fields(output(t, "sha256sum", filepath.Join(out, file)))[0]; sum != p.SHA256 {
			t.Errorf("%s has checksum %s, the manifest %s", file, sum, p.SHA256)
		}
		if p.Selector.MatchLabels["arch"] != runtime.GOARCH {
			continue
		}
		dir := t.TempDir()
		unpack(t, filepath.Join(out, file), dir)
		if said := output(t, filepath.Join(dir, p.Bin), "--version"); said != "kubectl sluice v"+number+"\n" {
			t.Error(said)
		}
		if len(read(t, filepath.Join(dir, "LICENSE"))) == 0 {
			t.Error("no licence")
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unpack(t *testing.T, file, dir string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(read(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Clean("/"+h.Name))
		text, err := io.ReadAll(r)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, os.FileMode(h.Mode))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestService boots systemd in namespaces, with the packages installed and the gateway as its
// service.
func TestService(t *testing.T) {
	if os.Getuid() != 0 {
		prereq.Missing(t, "only root may boot systemd in namespaces")
	}
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		prereq.Missing(t, "systemd is missing: hack/deps test installs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	args := []string{"--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child", "testdata/boot", dir}
	for _, pack := range []string{"sluice-gateway", "sluicectl"} {
		args = append(args, filepath.Join(out, pack+"_"+number+"_"+runtime.GOARCH+".deb"))
	}
	if said, err := exec.CommandContext(ctx, "unshare", args...).CombinedOutput(); err != nil {
		inside, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Errorf("%v\n%s\n%s", err, said, inside)
	}
}
