// Command diagrams draws the diagrams of docs/design.md as SVG: the packages with their imports, as
// `go list` reports them, and the paths of messages through them.
//
//	go run ./hack/diagrams [-out DIR]
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("hack/diagrams: ")
	out := flag.String("out", "docs/diagrams", "folder to write to")
	flag.Parse()
	files, err := draw()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		log.Fatal(err)
	}
	for name, svg := range files {
		if err := os.WriteFile(filepath.Join(*out, name), svg, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// draw returns all diagrams by file name.
func draw() (map[string][]byte, error) {
	packages, err := drawPackages()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"packages.svg": packages}
	for name, s := range sequences {
		files[name+".svg"] = s.draw()
	}
	return files, nil
}
