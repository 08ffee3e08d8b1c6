// Image makes the container images of Sluice, without a daemon: archives that "ctr images import", "docker load", "podman load"
// and "crane push" take.
//
//	go run ./hack/image [-o FOLDER] [-version V] NAME...
//
// Each image sluice.dev/NAME:V becomes FOLDER/NAME.tar. The same checkout makes the same bytes: all times in them are 1970. The names:
//
//	gateway         cmd/gateway and cmd/sluicectl, static, as user 65532
//	gateway-verbs   the same with the provider on rdma-core, and every library that it loads, as root: capabilities such as IPC_LOCK
//	                are effective for root alone
//	operator        cmd/operator, static, as user 65532
//	pause           what holds the namespaces of a pod of the test cluster
//	deviceplugin    the test cluster's stand-in for the SR-IOV network device plugin, as root
package main

import (
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	out := flag.String("o", "bin/images", "`FOLDER` of the archives")
	version := flag.String("version", "development", "the images' tag `V`, also built into the programs")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatalf("want one or more of %v", slices.Sorted(maps.Keys(recipes)))
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		log.Fatal(err)
	}
	failed := false
	for _, name := range flag.Args() {
		path := filepath.Join(*out, name+".tar")
		size, err := write(path, name, *version)
		if err != nil {
			log.Printf("%s: %v", name, err)
			failed = true
			continue
		}
		fmt.Printf("%s: sluice.dev/%s:%s, %.1f MB\n", path, name, *version, float64(size)/1e6)
	}
	if failed {
		os.Exit(1)
	}
}
