package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var versionLines = map[string]*regexp.Regexp{ // by file; the group lies before the version
	"charts/sluice/Chart.yaml":       regexp.MustCompile(`(?m)^(appVersion: v|version: )\S+$`),
	"charts/sluice/README.md":        regexp.MustCompile(`(--version )\S+`),
	"config/manager/deployment.yaml": regexp.MustCompile(`(sluice\.dev/[a-z-]+:v)\S+`),
}

// writeVersion sets the version of the file VERSION wherever an installation names it.
func writeVersion(out string) error {
	text, err := os.ReadFile("VERSION")
	if err != nil {
		return err
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "v")
	if !ok {
		return fmt.Errorf("VERSION is %q, must begin with v", text)
	}
	for name, line := range versionLines {
		to := filepath.Join(out, name)
		from := to
		if _, err := os.Stat(from); err != nil { // not generated before
			from = name
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if !line.Match(text) {
			return fmt.Errorf("%s: no line with a version", name)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, line.ReplaceAll(text, []byte("${1}"+version)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
