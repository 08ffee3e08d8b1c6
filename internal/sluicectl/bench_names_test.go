package sluicectl

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestBenchNames measures the operations on names and attributes. They leave nothing behind.
func TestBenchNames(t *testing.T) {
	e := newEnv(t)
	for _, u := range []string{"RDMA/", "TCP/"} {
		for _, op := range []string{"SETATTR", "RENAME", "CREATE", "REMOVE"} {
			var b benchResult
			must(t, json.Unmarshal([]byte(e.ok("bench", "--op", op, "--depth", "3", "--connections", "2", "--count", "101", "--warmup", "5ms", "--json", u)), &b))
			if b.Ops != 101 || b.Op != op || b.Connections != 2 || b.Messages != 2 || b.P50 <= 0 {
				t.Errorf("%s %s: %+v", u, op, b)
			}
			left, err := os.ReadDir(e.dir)
			must(t, err)
			if len(left) > 0 {
				t.Fatalf("%s %s left %v", u, op, left)
			}
		}
	}
}

// TestBenchSmallFiles reads and makes files by one call each.
func TestBenchSmallFiles(t *testing.T) {
	e := newEnv(t)
	for _, u := range []string{"FOUR/", "4TCP/"} {
		for _, op := range []string{"OPEN-READ", "CREATE-WRITE"} {
			args := []string{"bench", "--op", op, "--size", "4K", "--file-size", "64K", "--depth", "3", "--count", "101", "--warmup", "5ms", "--json", u}
			var b benchResult
			must(t, json.Unmarshal([]byte(e.ok(append(args, "--nfs", "4.2")...)), &b))
			if b.Ops != 101 || b.Op != op || b.NFS != "4.2" || b.Messages != 2 || b.MBPerSec <= 0 {
				t.Errorf("%s %s: %+v", u, op, b)
			}
			if code, _, errs := e.run("", append(args, "--nfs", "3")...); code == 0 || !strings.Contains(errs, "unsupported operation by version 3") {
				t.Errorf("%s %s by version 3: exit %d, %q", u, op, code, errs)
			}
		}
		left, err := os.ReadDir(e.dir)
		must(t, err)
		if len(left) != 1 || left[0].Name() != benchFile {
			t.Fatalf("%s left %v, must leave %s", u, left, benchFile)
		}
	}
}

// TestBenchConnections counts the calls of several connections together, beside idle ones.
func TestBenchConnections(t *testing.T) {
	e := newEnv(t)
	for _, u := range []string{"RDMA", "TWO", "TCP"} {
		for _, op := range []string{"NULL", "READ"} {
			var b benchResult
			must(t, json.Unmarshal([]byte(e.ok("bench", "--op", op, "--size", "4K", "--file-size", "64K", "--depth", "2", "--connections", "5", "--idle-connections", "3",
				"--count", "200", "--warmup", "1ms", "--json", u+"/")), &b))
			if b.Ops != 200 || b.Connections != 5 || b.Idle != 3 || b.Messages != 2 {
				t.Errorf("%s %s: %+v", u, op, b)
			}
		}
	}
}
