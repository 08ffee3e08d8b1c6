package sluicectl

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/internal/names"
)

// TestVersions pings servers of all versions with all flags that are about versions.
func TestVersions(t *testing.T) {
	e := newEnv(t)
	all, none := names.OfExtensions(names.AllExtensions()), []string{}
	for _, tt := range []struct {
		args       string
		version    int
		extensions []string
		// the server's receives have 8 KiB, and 64 KiB for data
		inlineCall int
	}{
		{"RDMA", 1, nil, 8192},
		{"BOTH", 2, all, 16384},
		{"TWO", 2, all, 16384},
		{"BASE", 2, none, 4096},

		{"--rpc-version 1 RDMA", 1, nil, 8192},
		{"--rpc-version 1 BOTH", 1, nil, 8192},
		{"--rpc-version 2 BOTH", 2, all, 16384},
		{"--rpc-version 2 --ext all TWO", 2, all, 16384},
		{"--rpc-version 2 --ext none TWO", 2, none, 4096},
		{"--rpc-version 2 --ext transportproperties TWO", 2, []string{"TransportProperties"}, 16384},
		{"--ext TransportProperties,MessageContinuation BOTH", 2, []string{"TransportProperties", "MessageContinuation"}, 16384},
		{"--ext TransportProperties,SendBasedPlacement BOTH", 2, []string{"TransportProperties", "SendBasedPlacement"}, 16384},
		{"--ext none BOTH", 2, none, 4096},
		{"--ext none RDMA", 1, nil, 8192},
	} {
		var p pingResult
		must(t, json.Unmarshal([]byte(e.ok(append([]string{"ping", "--json", "--inline", "16384"}, strings.Fields(tt.args)...)...)), &p))
		if p.Version != tt.version || !slices.Equal(p.Extensions, tt.extensions) || (p.Extensions == nil) != (tt.extensions == nil) || p.InlineCall != tt.inlineCall {
			t.Errorf("%s: %+v", tt.args, p)
		}
		if second := tt.version == 2; second != (p.Dialect != "") || second != (p.Server != nil) || second != (p.Client != nil) {
			t.Errorf("%s: %+v", tt.args, p)
		}
		if len(tt.extensions) == 0 {
			continue
		}
		client := sideResult{16384, "None", 1, 1, 0}
		if slices.Contains(tt.extensions, "SendBasedPlacement") {
			client.Placement, client.ReceiveSize = 65536, 16384+65536
		}
		if (*p.Server != sideResult{8192 + 65536, "Inline", 16, 16, 65536} || *p.Client != client) {
			t.Errorf("%s: %+v, %+v", tt.args, p.Server, p.Client)
		}
	}
	for args, want := range map[string]string{
		"ping --rpc-version 2 RDMA":         "cannot connect to ADDR: the server has version 1 of RPC-over-RDMA; --rpc-version says which to speak.",
		"ping --rpc-version 1 TWO":          "cannot ping TWO: the server has version 2 of RPC-over-RDMA; --rpc-version says which to speak.",
		"ls --rpc-version 1 TWO":            "cannot connect to ADDR: the server has version 2 of RPC-over-RDMA; --rpc-version says which to speak.",
		"ping --rpc-version 3 TWO":          `--rpc-version is "3", must be auto, 1 or 2.`,
		"ping --ext Speed TWO":              `--ext: "Speed" is not an extension: want one of TransportProperties, MessageContinuation, SendBasedPlacement, or none or all.`,
		"ping --ext none,all TWO":           `--ext: "none" is not an extension: want one of TransportProperties, MessageContinuation, SendBasedPlacement, or none or all.`,
		"ping --ext SendBasedPlacement TWO": "--ext: SendBasedPlacement needs TransportProperties.",
		"ping --rpc-version --ext= BOTH":    `--rpc-version is "--ext=", must be auto, 1 or 2.`,
	} {
		if code, out, errs := e.run("", strings.Fields(args)...); code != 1 || out != "" || errs != "sluicectl: "+want+"\n" {
			t.Errorf("%s: exit %d, %q\n%q, must be\n%q", args, code, out, errs, "sluicectl: "+want+"\n")
		}
	}
	if got := e.ok("version"); got != "sluicectl test\n" || got != e.ok("--version") {
		t.Errorf("%q", got)
	}
}

func TestPingVersion2(t *testing.T) {
	e := newEnv(t)
	figure := regexp.MustCompile(`\d+ µs`)
	if got, want := figure.ReplaceAllString(e.ok("ping", "BOTH"), "N µs"), `BOTH answers NFS version 3
  round trip           N µs (and N µs to connect)
  transport            RPC-over-RDMA version 2
  dialect              draft-cel-nfsv4-rpcrdma-version-two-05, draft-dnoveck-nfsv4-rpcrdma-rtrext-03
  extensions           TransportProperties, MessageContinuation, SendBasedPlacement
  receives             of 73728 bytes at the server, of 69632 here
  of these for data    65536 bytes at the server, 65536 here
  transmissions        16 at most for a call, 16 for a reply
  reverse calls        inline at the server, none here
  provider             iwarp (software)
  inline thresholds    4096 bytes for calls, 4096 for replies
  credits              64 granted, 128 asked for
  RDMA Reads           16 at once from the server (IRD), 16 from here (ORD)
  CRC32C               on
  remote invalidation  on
`; got != want {
		t.Errorf("%s\nmust be\n%s", got, want)
	}
	if got := e.ok("ping", "--ext", "none", "BOTH"); !strings.Contains(got, "  extensions           none\n") {
		t.Error(got)
	}
}
