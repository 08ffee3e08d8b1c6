package tracing

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	spans "go.opentelemetry.io/proto/otlp/trace/v1"

	"sluice.dev/sluice/internal/gateway/tracing/tracingtest"
	"sluice.dev/sluice/pkg/oncrpc"
)

// TestExport checks a call's spans as a receiver gets them, and the variables of the environment.
func TestExport(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
	r, endpoint := tracingtest.New(t)
	tr := New(slog.New(slog.DiscardHandler), "v9")
	_, before := tracingtest.New(t)
	if err := tr.Configure(0.5, before); err != nil {
		t.Fatal(err)
	}
	if err := tr.Configure(1, endpoint+"/"); err != nil {
		t.Fatal(err)
	}
	x := tr.Start()
	for _, s := range []oncrpc.Stage{oncrpc.Serving, oncrpc.Queued, oncrpc.Working} {
		x.Reached(s)
	}
	traceID, spanID := x.Answered(Answer{
		Export: "data", Program: "nfs3", Procedure: "READ", Number: 6, Version: 3, Network: "rdma",
		Client: netip.MustParseAddrPort("[::ffff:192.0.2.7]:700"), In: 100, Out: 4096, Failure: "NFS3ERR_IO",
	})
	x.Reached(oncrpc.Replying)
	x.Reached(oncrpc.Replied)
	x.Ended()
	tr.Start().Ended() // never answered
	if err := tr.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	resource, header, all := r.Received()
	if resource["service.name"] != "sluice-gateway" || resource["service.version"] != "v9" || resource["deployment.environment.name"] != "test" {
		t.Errorf("resource: %v", resource)
	}
	if got := header.Get("Authorization"); got != "Bearer x" {
		t.Errorf("authorization: %q", got)
	}
	var names []string
	var root *spans.Span
	for _, s := range all {
		if len(s.GetParentSpanId()) == 0 {
			root = s
			continue
		}
		names = append(names, s.GetName())
	}
	if want := "receive serve queue work reply"; strings.Join(names, " ") != want {
		t.Errorf("stages %v, want %s", names, want)
	}
	if root == nil {
		t.Fatalf("no span of the call in %v", all)
	}
	at := root.GetStartTimeUnixNano()
	for _, s := range all {
		if s != root {
			if string(s.GetParentSpanId()) != string(root.GetSpanId()) || s.GetStartTimeUnixNano() != at {
				t.Errorf("%s is not in the call, right after the stage before it", s.GetName())
			}
			at = s.GetEndTimeUnixNano()
		}
	}
	if at != root.GetEndTimeUnixNano() {
		t.Error("the last stage does not end with the call")
	}
	attributes := map[string]string{}
	for _, kv := range root.GetAttributes() {
		attributes[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	for k, want := range map[string]string{
		"rpc.system.name": "onc_rpc", "onc_rpc.program.name": "nfs3", "onc_rpc.procedure.name": "READ",
		"client.address": "192.0.2.7", "network.transport": "rdma", "sluice.export": "data",
	} {
		if attributes[k] != want {
			t.Errorf("%s is %q, want %q", k, attributes[k], want)
		}
	}
	if root.GetName() != "nfs3 READ" || root.GetStatus().GetCode() != spans.Status_STATUS_CODE_ERROR || root.GetStatus().GetMessage() != "NFS3ERR_IO" ||
		root.GetKind() != spans.Span_SPAN_KIND_SERVER {
		t.Errorf("the call is %v", root)
	}
	if !strings.EqualFold(hex.EncodeToString(root.GetTraceId()), traceID) || !strings.EqualFold(hex.EncodeToString(root.GetSpanId()), spanID) {
		t.Errorf("Answered returned %s %s", traceID, spanID)
	}
}

// TestRatio checks the share of sampled calls, and that unsampled ones cost nothing.
func TestRatio(t *testing.T) {
	_, endpoint := tracingtest.New(t)
	tr := New(slog.New(slog.DiscardHandler), "v9")
	if n := testing.AllocsPerRun(100, func() { tr.Start() }); n != 0 || tr.provider != nil {
		t.Errorf("off: %v allocations, provider %v", n, tr.provider)
	}
	defer func() {
		if err := tr.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if tr.Start() != nil {
			t.Error("a call is sampled after Close")
		}
	}()
	if err := tr.Configure(1e-12, endpoint); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { tr.Start() }); n != 0 {
		t.Errorf("on, but not sampled: %v allocations", n)
	}
	const calls = 100_000
	for _, ratio := range []float64{0, 0.1, 1} {
		if err := tr.Configure(ratio, endpoint); err != nil {
			t.Fatal(err)
		}
		n := 0.0
		for range calls {
			if tr.Start() != nil {
				n++
			}
		}
		// 20 standard deviations
		if most := ratio*calls + 2000; n < ratio*calls-2000 || n > most || ratio == 0 && n > 0 || ratio == 1 && n < calls {
			t.Errorf("ratio %v: %v of %v", ratio, n, calls)
		}
	}
}

// TestErrors checks that an unreachable receiver is logged once.
func TestErrors(t *testing.T) {
	var lines strings.Builder
	tr := New(slog.New(slog.NewTextHandler(&lines, nil)), "v9")
	for range 3 {
		tr.logError(io.ErrUnexpectedEOF)
	}
	if n := strings.Count(lines.String(), "traces not sent"); n != 1 {
		t.Errorf("%d lines: %s", n, lines.String())
	}
}
