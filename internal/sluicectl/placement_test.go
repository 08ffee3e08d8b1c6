package sluicectl

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/rdma/iwarp/iwarptest"
)

// TestPlacement: files move as the flags say, by the RDMA operations of the server that a relay
// counts.
func TestPlacement(t *testing.T) {
	e := newEnv(t)
	wire, err := iwarptest.Listen(iwarptest.Config{Target: e.two})
	must(t, err)
	defer wire.Close()
	data := randomBytes(300_000)
	for _, tt := range []struct {
		flags         string
		reads, writes bool
	}{
		{"--results tbsn", false, false},
		{"--results tbsn --min-length 1 --receive-buffer 32K", false, false},
		{"--results tbsn --min-length 1M", false, false}, // in the payload
		{"--results EXRW", false, true},
		{"--results exrw --threshold 64K", true, true},
		{"--threshold 1M", false, false},
		{"--results BYSIZE --threshold 1", true, true},
		{"--results BYSIZE --threshold 1M", false, false},
		{"--results CHOICE", false, false},                  // the server prefers receives
		{"--results tbsn --receive-buffer 8K", false, true}, // 16 receives are too few for the file
		{"--results CHOICE --ext TransportProperties", true, true},
		{"--results EXRW --ext none", true, true}, // chunks, as in version 1
		{"--rpc-version auto --results EXRW", false, true},
	} {
		url, flags := "nfs+rdma://"+wire.Address()+"/file", strings.Fields(tt.flags)
		before := wire.Counts()
		if code, _, errs := e.run(string(data), append(flags, "put", "-", url)...); code != 0 || !bytes.Equal(e.read("file"), data) {
			t.Errorf("%s: put: %s", tt.flags, errs)
		}
		between := wire.Counts()
		if got := e.ok(append(flags, "cat", url)...); got != string(data) {
			t.Errorf("%s: cat wrote %d others", tt.flags, len(got))
		}
		after := wire.Counts()
		if reads, writes := between.Reads > before.Reads, after.Writes > between.Writes; reads != tt.reads || writes != tt.writes {
			t.Errorf("%s: put by Reads %v, cat by Writes %v, must be %v and %v: %+v, %+v, %+v", tt.flags, reads, writes, tt.reads, tt.writes, before, between, after)
		}
	}
}

func TestPlacementFlags(t *testing.T) {
	e := newEnv(t)
	for args, want := range map[string]string{
		"--results Fast":               `--results is "Fast", must be auto, TBSN, EXRW, CHOICE or BYSIZE.`,
		"--results NOITEM":             `--results is "NOITEM", must be auto, TBSN, EXRW, CHOICE or BYSIZE.`,
		"--results BYSIZE":             "--results BYSIZE needs a --threshold.",
		"--threshold 2G":               "--threshold is 2GiB, must be up to 1GiB.",
		"--min-length 0":               "--min-length is 0B, must be 1 to 1MiB.",
		"--min-length 2M":              "--min-length is 2MiB, must be 1 to 1MiB.",
		"--receive-buffer 2M":          "--receive-buffer is 2MiB, must be a power of two from 4KiB to 1MiB.",
		"--receive-buffer 2K":          "--receive-buffer is 2KiB, must be a power of two from 4KiB to 1MiB.",
		"--receive-buffer 5K":          "--receive-buffer is 5KiB, must be a power of two from 4KiB to 1MiB.",
		"--rpc-version 1 --results XX": `--results is "XX", must be auto, TBSN, EXRW, CHOICE or BYSIZE.`,
	} {
		if code, out, errs := e.run("", append(strings.Fields(args), "ping", "TWO")...); code != 1 || out != "" || errs != "sluicectl: "+want+"\n" {
			t.Errorf("%s: exit %d, %q\n%q, must be\n%q", args, code, out, errs, want)
		}
	}
	for _, n := range []string{"4K", "1M"} {
		if got := e.ok("--receive-buffer", n, "ping", "TWO"); !strings.Contains(got, fmt.Sprintf("65536 bytes at the server, %d here", map[string]int{"4K": 4096, "1M": 1 << 20}[n])) {
			t.Errorf("--receive-buffer %s: %s", n, got)
		}
	}
}
