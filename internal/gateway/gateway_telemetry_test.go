package gateway

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/gateway/tracing/tracingtest"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// TestTraces follows calls over RDMA and TCP, to a volume and through a proxy, as the receiver of
// traces gets them, and the exemplars of /metrics.
func TestTraces(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	receiver, endpoint := tracingtest.New(t)
	far := newEnv(t)
	far.start(far.yaml(exportYAML{name: "far"}))
	r := newEnv(t)
	exports := []exportYAML{{name: "data"}, {name: "front", backend: inFrontOf(t, config.TCP, far.address("far", config.TCP))}}
	r.start(r.yaml(exports...))
	r.connect("data", config.TCP).works()
	if metrics := r.openMetrics(); strings.Contains(metrics, "trace_id") || strings.Contains(metrics, "span_id") {
		t.Error("exemplars without traces")
	}
	if _, _, spans := receiver.Received(); len(spans) > 0 {
		t.Errorf("%d spans while tracing is off", len(spans))
	}
	traced := r.yaml(exports...) + "tracing: {ratio: 1, endpoint: \"" + endpoint + "\"}\n"
	r.apply(traced)

	for _, c := range []struct {
		export  string
		network config.Network
		stages  []string // in the trace of a WRITE, at least
	}{
		{"data", config.RDMA, []string{"receive", "serve", "reply"}},
		{"data", config.TCP, []string{"serve", "reply"}},
		{"front", config.RDMA, []string{"receive", "serve", "backend", "reply"}},
	} {
		_, _, before := receiver.Received()
		client := r.connect(c.export, c.network)
		client.put("file-"+c.export+"-"+string(c.network), 100_000)
		if _, err := client.Lookup(context.Background(), client.root, "nothing"); err == nil {
			t.Fatal("there is a file")
		}
		var spans []*trace.Span
		var write, lookup *trace.Span
		eventually(t, "the WRITE and the LOOKUP are traced", func() bool {
			_, _, all := receiver.Received()
			spans = all[len(before):]
			write, lookup = root(spans, "nfs3 WRITE"), root(spans, "nfs3 LOOKUP")
			return write != nil && lookup != nil
		})
		var stages []string
		for _, s := range spans {
			if string(s.GetParentSpanId()) != string(write.GetSpanId()) {
				continue
			}
			stages = append(stages, s.GetName())
			if s.GetStartTimeUnixNano() < write.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() > write.GetEndTimeUnixNano() {
				t.Errorf("%s by %s: stage %s is not within the call", c.export, c.network, s.GetName())
			}
		}
		for _, want := range c.stages {
			if !slices.Contains(stages, want) {
				t.Errorf("%s by %s: no stage %s in %v", c.export, c.network, want, stages)
			}
		}
		if st := lookup.GetStatus(); st.GetCode() != trace.Status_STATUS_CODE_ERROR || st.GetMessage() != nfs3.ErrNoEnt.String() {
			t.Errorf("%s by %s: the LOOKUP of nothing has status %v", c.export, c.network, st)
		}
		if st := write.GetStatus(); st.GetCode() != trace.Status_STATUS_CODE_UNSET {
			t.Errorf("%s by %s: the WRITE has status %v", c.export, c.network, st)
		}
		if want := `trace_id="` + hex.EncodeToString(write.GetTraceId()) + `"`; !strings.Contains(r.openMetrics(), want) {
			t.Errorf("%s by %s: no exemplar with %s", c.export, c.network, want)
		}
	}
	if _, body := r.get("/metrics"); strings.Contains(body, "trace_id") || !strings.Contains(body, `sluice_build_info{`) || !strings.Contains(body, `program="gateway"`) {
		t.Error("the plain format has exemplars, or no sluice_build_info")
	}

	r.apply(r.yaml(exports...))
	c := r.connect("data", config.TCP)
	_, _, before := receiver.Received()
	c.works()
	r.apply(traced)
	if _, err := c.Lookup(context.Background(), c.root, "nothing"); err == nil {
		t.Fatal("there is a file")
	}
	var after []*trace.Span
	eventually(t, "the later call is traced", func() bool {
		_, _, all := receiver.Received()
		after = all[len(before):]
		return root(after, "nfs3 LOOKUP") != nil
	})
	if root(after, "nfs3 GETATTR") != nil {
		t.Error("a call is traced although tracing was off")
	}
}

// root returns the last span of a call with a name, once all of its trace is there: the span of a
// call ends last.
func root(spans []*trace.Span, name string) *trace.Span {
	for _, s := range slices.Backward(spans) {
		if s.GetName() == name && len(s.GetParentSpanId()) == 0 {
			return s
		}
	}
	return nil
}

// openMetrics fetches the metrics as a Prometheus does that wants exemplars.
func (r *env) openMetrics() string {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.g.Admin()+"/metrics", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/openmetrics-text") || !strings.HasSuffix(string(b), "# EOF\n") {
		r.t.Fatalf("%s: %v", resp.Header.Get("Content-Type"), err)
	}
	return string(b)
}
