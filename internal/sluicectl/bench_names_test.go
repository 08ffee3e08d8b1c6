package sluicectl

import (
	"encoding/json"
	"os"
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
