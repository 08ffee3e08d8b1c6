package sluicectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelp: help has the flags of a command by group, and those of the transport only where they
// are asked for.
func TestHelp(t *testing.T) {
	e := newEnv(t)
	for args, want := range map[string][]string{ // "!" begins words that must be missing
		"ls --help":        {"Usage:\n  sluicectl ls ", "\nFlags:\n", "--all", "\nConnection flags:\n", "--timeout", "--reconnect", "help transport", "!--inline"},
		"ping --help":      {"--timeout", "!--reconnect", "!--inline"},
		"clients --help":   {"--admin", "--timeout", "!--reconnect", "!--provider", "!help transport"},
		"pv --help":        {"--capacity", "!Connection flags", "!help transport"},
		"doctor --help":    {"--device", "--timeout", "!--provider"},
		"help transport":   {"--inline", "--rpc-version", "--spin", "!--timeout"},
		"--help":           {"\nFiles:\n", "\nServers and connections:\n", "\nGateways:\n", "  transport ", "  completion ", "--version"},
		"":                 {"\nFiles:\n"},
		"completion bash":  {"__start_sluicectl"},
		"__complete li":    {":4"},
		"__complete ls n":  {"nfs+rdma://\nnfs+tcp://\n:6"},
		"__complete put n": {":0"},
	} {
		got := e.ok(strings.Fields(args)...)
		for _, w := range want {
			missing, w := strings.HasPrefix(w, "!"), strings.TrimPrefix(w, "!")
			if strings.Contains(got, w) == missing {
				t.Errorf("%s: %q missing is %v in\n%s", args, w, !missing, got)
			}
		}
	}
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		if c.HasParent() && c.Runnable() && c.GroupID == "" && c.Name() != "version" {
			t.Errorf("%s is in no group", c.CommandPath())
		}
		if strings.Contains(c.Use, "URL") != (c.Flags().Lookup("inline") != nil) {
			t.Errorf("%s: only commands with a URL have flags for the transport", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(CommandLine("test"))
}

// TestComplete: the shell completes URLs by the names on the server.
func TestComplete(t *testing.T) {
	e := newEnv(t)
	must(t, os.Mkdir(filepath.Join(e.dir, "dir"), 0o755))
	e.write("dir/a file?", nil, 0o644)
	e.write("dir/.hidden", nil, 0o644)
	e.write("dim", nil, 0o644)
	for word, want := range map[string]string{
		"TCP/di":            "TCP/dim\nTCP/dir/\n:6\n",
		"TCP/dir/":          "TCP/dir/a%20file%3F\n:6\n",
		"TCP/dir/a%20":      "TCP/dir/a%20file%3F\n:6\n",
		"TCP/dir/.":         "TCP/dir/.hidden\n:6\n",
		"TCP/none/x":        ":6\n",
		"nfs+tcp://":        ":6\n",
		"nfs+tcp://127.0.0": ":6\n",
	} {
		if got := e.ok("__complete", "stat", word); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
