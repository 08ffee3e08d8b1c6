package sluicectl

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestCPUTime reads the clocks of this process both ways, with work in between.
func TestCPUTime(t *testing.T) {
	first := ownCPU()
	for ownCPU()-first < 5*time.Millisecond {
	}
	got, err := cpuTime(os.Getpid())
	must(t, err)
	if after := ownCPU(); got < first+5*time.Millisecond || got > after {
		t.Errorf("%v, must be from %v to %v", got, first+5*time.Millisecond, after)
	}
	if one, err := cpuTime(1); err != nil || one < 0 {
		t.Errorf("process 1: %v, %v", one, err)
	}
	for pid, want := range map[int]string{
		0:       "process 0: must be 1 at least",
		-7:      "process -7: must be 1 at least",
		1 << 27: "process 134217728: no such process", // more than PID_MAX_LIMIT
	} {
		if _, err := cpuTime(pid); err == nil || err.Error() != want {
			t.Errorf("%v, must be %q", err, want)
		}
	}
}

func TestBenchCPU(t *testing.T) {
	e := newEnv(t)
	self := strconv.Itoa(os.Getpid())
	var b benchResult
	must(t, json.Unmarshal([]byte(e.ok("bench", "--count", "100", "--warmup", "0s", "--cpu-of", self+",1", "--cpu-of", self, "--json", "TCP")), &b))
	if len(b.CPU) != 3 || b.CPU[0] <= 0 || b.CPU[1] < 0 || b.CPU[2] <= 0 || b.ClientCPU <= 0 {
		t.Errorf("%v and %v, must be the CPU time of three processes, and of the client", b.CPU, b.ClientCPU)
	}
	if out := e.ok("bench", "--count", "100", "--cpu-of", self, "TCP"); !strings.Contains(out, "\n  process "+self) {
		t.Errorf("%s", out)
	}
	code, _, errs := e.run("", "bench", "--count", "1", "--cpu-of", "0", "TCP")
	if want := "sluicectl: cannot measure TCP: process 0: must be 1 at least.\n"; code != 1 || errs != want {
		t.Errorf("exit %d, %q, must be %q", code, errs, want)
	}
}
