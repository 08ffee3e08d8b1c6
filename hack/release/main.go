// Release makes the files of a release. The file VERSION has its version V.
//
//	go run ./hack/release [-o FOLDER] [-arch amd64,arm64] [-push REPOSITORY] [-url URL]
//
// FOLDER receives:
//
//	images/                            an OCI image layout: gateway, gateway-verbs, operator
//	sluice-V.tgz                       the chart
//	sluice-kustomize-V.tar.gz          config, the same for kustomize
//	sluice-gateway, sluicectl          packages for Debian and for RPM
//	kubectl-sluice-V-linux-ARCH.tar.gz the plugin for kubectl
//	sluice.yaml                        with -url, the place of FOLDER: the plugin's manifest for krew
//	sbom/                              the contents of each image and package, by CycloneDX
//	SHA256SUMS                         checksums of all these
//
// With -push, images and chart are sent to REPOSITORY, and the chart's and the kustomization's
// images are those. The same checkout and Go make the same bytes.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sluice.dev/sluice/hack/internal/images"
)

// release is a release in the making.
type release struct {
	out, tmp   string
	version    string // v1.2.3
	archs      []string
	repository string // "" for none
	url        string // of out; "" for none
}

// number is the version as packages and charts write it.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

func main() {
	log.SetFlags(0)
	log.SetPrefix("hack/release: ")
	var r release
	flag.StringVar(&r.out, "o", "bin/release", "`FOLDER` to make")
	archs := flag.String("arch", "amd64,arm64", "`LIST` of architectures, with commas")
	flag.StringVar(&r.repository, "push", "", "`REPOSITORY` to push to, such as registry.example/sluice, with the credentials of ~/.docker/config.json")
	flag.StringVar(&r.url, "url", "", "`URL` where the folder will be, for the plugin's manifest")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unexpected argument %q", flag.Arg(0))
	}
	r.archs = strings.Split(*archs, ",")
	if err := r.make(); err != nil {
		log.Fatal(err)
	}
}

var semver = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func (r *release) make() (err error) {
	text, err := os.ReadFile("VERSION")
	if err != nil {
		return fmt.Errorf("%w: run me in the folder of the checkout", err)
	}
	if r.version = strings.TrimSpace(string(text)); !semver.MatchString(r.version) {
		return fmt.Errorf("VERSION is %q, must be like v1.2.3", text)
	}
	if r.tmp, err = os.MkdirTemp("", "sluice-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.tmp)
	sboms := filepath.Join(r.out, "sbom")
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(sboms, 0o755); err != nil {
		return err
	}
	if err := run("go", "run", "./hack/man", "-version", r.version, "-o", filepath.Join(r.tmp, "share")); err != nil {
		return err
	}
	if err := images.WriteLayout(filepath.Join(r.out, "images"), []string{"gateway", "gateway-verbs", "operator"}, r.archs, r.version, r.repository, sboms); err != nil {
		return err
	}
	for _, part := range []func() error{r.chart, r.kustomize, r.packages, r.plugin, r.sums} {
		if err := part(); err != nil {
			return err
		}
	}
	if r.repository != "" {
		fmt.Printf("\nhelm install sluice oci://%s/charts/sluice --version %s --namespace sluice-system --create-namespace\n", r.repository, r.number())
	}
	return nil
}

// made reports a file.
func (r *release) made(name string) { fmt.Println(filepath.Join(r.out, name)) }

func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
