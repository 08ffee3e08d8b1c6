// Image makes the container images of Sluice, without a daemon, as archives for "ctr images
// import", "docker load", "podman load" and "crane push".
//
//	go run ./hack/image [-o FOLDER] [-version V] [-push REPOSITORY] NAME...
//	go run ./hack/image -layout FOLDER [-arch amd64,arm64] [-version V] [-push REPOSITORY] NAME...
//
// Each image sluice.dev/NAME:V becomes FOLDER/NAME.tar, or with -layout, for each architecture,
// part of an OCI image layout. With -push it is also sent to REPOSITORY/NAME:V. The command that
// installs the chart with these images is printed. The same checkout makes the same bytes: all
// times in them are 1970. Each image has the licence texts of its contents in /usr/share/doc.
// The names:
//
//	gateway         cmd/gateway and cmd/sluicectl, static, as user 65532
//	gateway-verbs   the same with the provider on rdma-core and its libraries, as root: only root
//	                has effective capabilities such as IPC_LOCK
//	operator        cmd/operator, static, as user 65532
//	pause           holds the namespaces of a pod of the test cluster
//	deviceplugin    the test cluster's stand-in for the SR-IOV network device plugin, as root
//	sriovdp         the SR-IOV network device plugin itself, from hack/k8s/prepare, as root
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"sluice.dev/sluice/hack/internal/images"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	out := flag.String("o", "bin/images", "`FOLDER` of the archives")
	layoutDir := flag.String("layout", "", "`FOLDER` of an OCI image layout to write instead of archives")
	arch := flag.String("arch", runtime.GOARCH, "`LIST` of architectures for -layout, with commas")
	version := flag.String("version", "development", "the images' tag `V`, also built into the programs")
	registry := flag.String("push", "", "`REPOSITORY` to push the images to, such as registry.example/sluice, with the credentials of ~/.docker/config.json")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatalf("want one or more of %v", images.Names())
	}
	if *layoutDir != "" {
		if err := images.WriteLayout(*layoutDir, flag.Args(), strings.Split(*arch, ","), *version, *registry, ""); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		log.Fatal(err)
	}
	failed := false
	for _, name := range flag.Args() {
		path := filepath.Join(*out, name+".tar")
		size, err := images.Write(path, name, *version)
		if err != nil {
			log.Printf("%s: %v", name, err)
			failed = true
			continue
		}
		fmt.Printf("%s: %s/%s:%s, %.1f MB\n", path, images.Project, name, *version, float64(size)/1e6)
		if *registry == "" {
			continue
		}
		digest, err := images.Push(path, *registry, name, *version)
		if err != nil {
			log.Printf("%s: %v", name, err)
			failed = true
			continue
		}
		fmt.Printf("%s/%s:%s@%s\n", *registry, name, *version, digest)
	}
	if failed {
		os.Exit(1)
	}
	if command := images.Install(cmp.Or(*registry, images.Project), *version, flag.Args()); command != "" {
		if *registry == "" {
			fmt.Printf("\nImport the archives on each node (ctr -n k8s.io images import FILE), or push them with -push REPOSITORY. Then:\n")
		}
		fmt.Printf("\n%s\n", command)
	}
}
