package sluicectl

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestCPUTicks(t *testing.T) {
	const short = "S 1 7 7 0 -1 4194560 900 0 3 0 1234 56"
	const rest = short + " 7 8 20 0 14 0 99 1000 200"
	for stat, want := range map[string]uint64{
		"7 (gateway) " + rest:          1290,
		"7 (a ) 1 (2) R 3 ()) " + rest: 1290,
		"7 () " + short:                1290,
	} {
		if n, err := cpuTicks(stat); n != want || err != nil {
			t.Errorf("%q: %d, %v, must be %d", stat, n, err, want)
		}
	}
	for stat, want := range map[string]string{
		"":                                       "/proc/PID/stat has 0 fields behind the name, want more than 12",
		"7 (x) S 1 7 7 0 -1 4194560 900 0 3 0 1": "/proc/PID/stat has 12 fields behind the name, want more than 12",
		"7 (x) " + strings.Replace(rest, "1234", "-1", 1):  `/proc/PID/stat, utime: strconv.ParseUint: parsing "-1": invalid syntax`,
		"7 (x) " + strings.Replace(rest, " 56 ", " x ", 1): `/proc/PID/stat, stime: strconv.ParseUint: parsing "x": invalid syntax`,
	} {
		if _, err := cpuTicks(stat); err == nil || err.Error() != want {
			t.Errorf("%q: %v, must be %q", stat, err, want)
		}
	}
}

func TestBenchCPU(t *testing.T) {
	r := newRig(t)
	self := strconv.Itoa(os.Getpid())
	var b benchResult
	must(t, json.Unmarshal([]byte(r.ok("bench", "--count", "100", "--warmup", "0s", "--cpu-of", self+",1", "--cpu-of", self, "--json", "TCP")), &b))
	if len(b.CPU) != 3 || b.CPU[0] < 0 || b.CPU[1] < 0 || b.CPU[2] < 0 {
		t.Errorf("%v, must be what three processes took", b.CPU)
	}
	if out := r.ok("bench", "--count", "100", "--cpu-of", self, "TCP"); !strings.Contains(out, "\n  process "+self) {
		t.Errorf("%s", out)
	}
	code, _, errs := r.run("", "bench", "--count", "1", "--cpu-of", "0", "TCP")
	if want := "sluicectl: cannot measure TCP: /proc/0/stat: no such file or directory.\n"; code != 1 || errs != want {
		t.Errorf("exit %d, %q, must be %q", code, errs, want)
	}
}
