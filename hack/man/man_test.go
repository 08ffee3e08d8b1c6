package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice.dev/sluice/internal/sluicectl"
)

// TestPages: each command has a page with its flags, and the shells have their completion.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	check(t, dir, sluicectl.CommandLine("v1.2.3"))
	for name, command := range map[string][]string{
		"bash-completion/completions/sluicectl":    {"bash", "-n"},
		"zsh/site-functions/_sluicectl":            nil,
		"fish/vendor_completions.d/sluicectl.fish": nil,
	} {
		name = filepath.Join(dir, name)
		if b, err := os.ReadFile(name); err != nil || !strings.Contains(string(b), "sluicectl") {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		if command == nil {
			continue
		}
		if out, err := exec.Command(command[0], append(command[1:], name)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func check(t *testing.T, dir string, c *cobra.Command) {
	page := filepath.Join(dir, "man/man1", strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
	b, err := os.ReadFile(page)
	if err != nil {
		t.Error(err)
		return
	}
	text := strings.ReplaceAll(string(b), `\-`, "-")
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
			t.Errorf("%s does not name --%s", page, f.Name)
		}
	})
	for _, sub := range c.Commands() {
		if !sub.Hidden && !sub.IsAdditionalHelpTopicCommand() {
			check(t, dir, sub)
		}
	}
}
