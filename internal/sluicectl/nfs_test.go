package sluicectl

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestNFSVersions(t *testing.T) {
	e := newEnv(t)
	e.write("file", []byte("0123456789"), 0o640)
	for args, want := range map[string]string{
		"ping FOUR":               "FOUR answers NFS version 4.2\n",
		"ping 4TCP":               "4TCP answers NFS version 4.2\n",
		"ping --nfs 3 4TCP":       "4TCP answers NFS version 3\n",
		"ping TCP":                "TCP answers NFS version 3\n",
		"cat --nfs 4.2 FOUR/file": "0123456789",
		"cat --nfs 3 FOUR/file":   "0123456789",
	} {
		if got := e.ok(strings.Fields(args)...); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, must begin with %q", args, got, want)
		}
	}
	for args, want := range map[string]string{
		"cat --nfs 4.2 TCP/file":   `sluicectl: cannot mount / of ADDR: the server has NFS versions 3 to 3, not 4.`,
		"cat --nfs 4.1 TCP/file":   `sluicectl: --nfs is "4.1", must be auto, 3 or 4.2.`,
		"cat 4TCP/nothing":         `sluicectl: cannot read 4TCP/nothing: /nothing: no such file or directory (NFS4ERR_NOENT).`,
		"ls 4TCP/?export=/nothing": `sluicectl: cannot mount /nothing of ADDR: no such file or directory (NFS4ERR_NOENT).`,
	} {
		if code, _, got := e.run("", strings.Fields(args)...); code != 1 || strings.TrimSpace(got) != want {
			t.Errorf("%s: %q, must be %q", args, got, want)
		}
	}
}

// Each operation runs on both versions.
func TestBenchVersions(t *testing.T) {
	e := newEnv(t)
	for _, op := range []string{"NULL", "GETATTR", "READ", "WRITE", "SETATTR", "RENAME", "CREATE", "REMOVE"} {
		for _, u := range []string{"FOUR", "4TCP"} {
			args := []string{"bench", "--op", op, "--size", "4K", "--file-size", "64K", "--depth", "7", "--connections", "2", "--count", "300", "--warmup", "0", "--json", u}
			var r benchResult
			must(t, json.Unmarshal([]byte(e.ok(args...)), &r))
			if r.NFS != "4.2" || r.Ops != 300 {
				t.Errorf("%s on %s: %+v", op, u, r)
			}
		}
	}
	if got := e.ok("ls", "4TCP"); got != benchFile+"\n" {
		t.Errorf("left are %q", got)
	}
}
