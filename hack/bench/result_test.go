package main

import (
	"regexp"
	"testing"
)

func TestRatio(t *testing.T) {
	got := samples{"a": {10, 40, 90}, "b": {20, 20, 30}, "none": {0, 0, 0}}
	for _, c := range []struct {
		other, unit string
		want        float64
	}{
		{"b", "ops/s", 2}, // of 0.5, 2 and 3
		{"b", "us", 0.5},  // a lower latency is a higher speed
		{"b", p99, 0.5},
		{"none", "MB/s", 0}, // nothing to compare with
	} {
		if r := got.ratio("a", c.other, c.unit); r != c.want {
			t.Errorf("to %s in %s: %v, must be %v", c.other, c.unit, r, c.want)
		}
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("the median of 1 to 4 is %v", m)
	}
}

func TestCost(t *testing.T) {
	var c cost
	for _, m := range []*measured{{Ops: 600, CPU: []float64{0.2, 1}}, {Ops: 400, CPU: []float64{0.3, 2}}} {
		if err := c.add(m, 2); err != nil {
			t.Fatal(err)
		}
	}
	if us := c.per(0, 0); us != 500 {
		t.Errorf("%v µs for a call, must be 500", us)
	}
	if s := c.per(1, 1e6); s != 3 {
		t.Errorf("%v s for a GB, must be 3", s)
	}
	if err := c.add(&measured{CPU: []float64{1}}, 2); err == nil {
		t.Error("one process' time was taken for two")
	}
}

func TestPlan(t *testing.T) {
	for only, want := range map[string]int{
		"": 14, "^proxy READ 64KiB": 2, "depth 16 CRC on": 7, "GETATTR depth 1 ": 1, "WRITE .*MiB.*16": 1, "sweep": 0,
	} {
		o := options{only: regexp.MustCompile(only)}
		if n := len(o.plan(proxyOperations(), true)); n != want {
			t.Errorf("-only %q: %d rows of the proxy, must be %d", only, n, want)
		}
	}
}
