package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"

	"sluice.dev/sluice/internal/gateway"
)

// gatewayPage is the page without its flags.
//
//go:embed gateway.md
var gatewayPage string

// writeGateway writes sluice-gateway.8.
func writeGateway(dir, version string) error {
	var flags strings.Builder
	gateway.Flags().VisitAll(func(f *flag.Flag) {
		name, text := flag.UnquoteUsage(f)
		head := "**--" + f.Name + "**"
		if name != "" {
			head += " *" + name + "*"
		}
		if f.DefValue != "" && f.DefValue != "false" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&flags, "%s\n: %s\n\n", head, strings.ReplaceAll(text, "|", "\\|"))
	})
	page := strings.NewReplacer("VERSION", version, "FLAGS\n", flags.String()).Replace(gatewayPage)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "sluice-gateway.8"), md2man.Render([]byte(page)), 0o644)
}
