// Command man writes the man pages of sluicectl, and its completion for bash, zsh and fish, from
// its commands; and the man page of the gateway, under its name in packages, from its flags.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra/doc"

	"sluice.dev/sluice/internal/sluicectl"
)

func main() {
	out := flag.String("o", "bin/share", "`DIR` of the pages; it gets the layout of /usr/share")
	version := flag.String("version", "unknown", "version of the programs")
	flag.Parse()
	if err := write(*out, *version); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// write makes DIR/man/man1 and the directories where the shells look.
func write(dir, version string) error {
	root := sluicectl.CommandLine(version)
	pages := filepath.Join(dir, "man/man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	header := &doc.GenManHeader{Section: "1", Source: "Sluice " + version, Manual: "Sluice"}
	if err := doc.GenManTree(root, header, pages); err != nil {
		return err
	}
	if err := writeGateway(filepath.Join(dir, "man/man8"), version); err != nil {
		return err
	}
	var errs []error
	for name, generate := range map[string]func(string) error{
		"bash-completion/completions/sluicectl":    func(f string) error { return root.GenBashCompletionFileV2(f, true) },
		"zsh/site-functions/_sluicectl":            root.GenZshCompletionFile,
		"fish/vendor_completions.d/sluicectl.fish": func(f string) error { return root.GenFishCompletionFile(f, true) },
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		errs = append(errs, generate(name))
	}
	return errors.Join(errs...)
}
