package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const drawn = `[
 {"op": "machine", "processor": "Some <CPU>", "processors": 2, "kernel": "6.1", "go": "go1.26", "date": "2026-01-02"},
 {"op": "READ 64KiB", "depth": 16, "crc": true, "sluice": 1234.5, "ganesha": 800, "unit": "MB/s", "vs_ganesha": 1.54, "gateway_cpu_us": 50, "ganesha_cpu_us": 90},
 {"op": "READ 64KiB", "depth": 16, "crc": false, "sluice": 7777, "ganesha": 800, "unit": "MB/s", "vs_ganesha": 1.9},
 {"op": "SETATTR on disk", "depth": 16, "unit": "ops/s", "sides": [
  {"side": "NFS-Ganesha", "figure": 20000, "server_cpu_us": 40}, {"side": "Sluice", "figure": 4000, "server_cpu_us": 30, "ratio": 0.2}]},
 {"op": "version 2: NULL", "unit": "us", "sides": [{"side": "version 1", "figure": 1}, {"side": "2", "figure": 1}, {"side": "3", "figure": 1}]},
 {"op": "counters READ", "client": {}, "gateway": {}}
]`

// TestDraw: the picture names the machine and has a line for each row with NFS-Ganesha.
func TestDraw(t *testing.T) {
	svg, err := draw([]byte(drawn))
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"2 × Some &lt;CPU&gt;, Linux 6.1, go1.26, 2026-01-02", "READ 64KiB, depth 16<", ">1.54<", ">1234 / 800 MB/s<", ">50 / 90<",
		"SETATTR on disk, depth 16<", ">0.20<", ">4000 / 20000 ops/s<",
	} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the picture has no %q:\n%s", want, svg)
		}
	}
	for _, other := range []string{"7777", "version 2", "counters"} {
		if strings.Contains(string(svg), other) {
			t.Errorf("the picture has %q", other)
		}
	}
	for _, bad := range []string{"", "{}", "[]", `[{"op": "machine"}]`} {
		if _, err := draw([]byte(bad)); err == nil {
			t.Errorf("%q is drawn", bad)
		}
	}
}
