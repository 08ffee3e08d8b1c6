package telemetry

import (
	"bytes"
	"flag"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestLogFormat checks the flag of each format, and its lines.
func TestLogFormat(t *testing.T) {
	for value, want := range map[string]string{"text": "level=INFO msg=hello peer=a\n", "json": `"level":"INFO","msg":"hello","peer":"a"}` + "\n", "xml": ""} {
		var f LogFormat
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		flags.TextVar(&f, "log-format", Text, "")
		err := flags.Parse([]string{"--log-format", value})
		if (err != nil) != (want == "") {
			t.Errorf("%s: %v", value, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), `"xml": want text or json`) {
				t.Error(err)
			}
			continue
		}
		var b bytes.Buffer
		log := slog.New(f.Handler(&b, slog.LevelInfo))
		log.Info("hello", "peer", "a")
		log.Debug("not shown")
		if !strings.HasSuffix(b.String(), want) {
			t.Errorf("%s: %s", value, b.String())
		}
	}
}

// TestBuildInfo checks the labels of sluice_build_info, of two registries of one process.
func TestBuildInfo(t *testing.T) {
	r := prometheus.NewRegistry()
	var wg sync.WaitGroup
	wg.Go(func() { RegisterBuildInfo(prometheus.NewRegistry(), "speaker", "v1.2.2") })
	RegisterBuildInfo(r, "gateway", "v1.2.3")
	wg.Wait()
	families, err := r.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "sluice_build_info" {
		t.Fatal(families, err)
	}
	labels := map[string]string{}
	for _, l := range families[0].GetMetric()[0].GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	if labels["program"] != "gateway" || labels["version"] != "v1.2.3" || !strings.HasPrefix(labels["goversion"], "go") {
		t.Errorf("%v", labels)
	}
}
