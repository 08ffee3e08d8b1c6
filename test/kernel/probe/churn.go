package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// churn makes, links, renames and removes names again and again. Each operation fails when it is
// executed twice, so a server that re-executes a call repeated over a new connection is caught.
func churn(dir string, rounds string) {
	n, err := strconv.Atoi(rounds)
	if err != nil {
		usage()
	}
	for i := range n {
		at := filepath.Join(dir, fmt.Sprint(i%7))
		f := filepath.Join(at, "f")
		steps := []func() error{
			func() error { return os.Mkdir(at, 0o755) },
			func() error { return create(f, 0o644) },
			func() error { return os.Symlink("nowhere", f+".symlink") },
			func() error { return os.Link(f, f+".link") },
			func() error { return os.Rename(f, f+".renamed") },
			func() error { return os.Remove(f + ".renamed") },
			func() error { return os.Remove(f + ".link") },
			func() error { return os.Remove(f + ".symlink") },
			func() error { return os.Remove(at) },
		}
		for _, step := range steps {
			if err := step(); err != nil {
				fmt.Printf("round %d: %v\n", i, err)
				os.Exit(1)
			}
		}
	}
}
