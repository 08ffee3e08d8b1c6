// Package tracingtest has a receiver of traces for tests: OTLP over HTTP, decoded by the types that
// OpenTelemetry generates from the protocol's definition.
package tracingtest

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Receiver keeps the spans that it receives. Requests that are not OTLP fail the test.
type Receiver struct {
	t *testing.T

	mu       sync.Mutex
	resource map[string]string
	header   http.Header
	spans    []*trace.Span
}

// New starts a receiver, and returns its base URL.
func New(t *testing.T) (*Receiver, string) {
	r := &Receiver{t: t, resource: map[string]string{}}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return r, s.URL
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		r.t.Error(err)
	}
	var in collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &in); err != nil || q.Method != http.MethodPost || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("%s %s with %s: %v", q.Method, q.URL.Path, q.Header.Get("Content-Type"), err)
	}
	r.mu.Lock()
	r.header = q.Header
	for _, rs := range in.GetResourceSpans() {
		for _, kv := range rs.GetResource().GetAttributes() {
			r.resource[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
		for _, ss := range rs.GetScopeSpans() {
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
	r.mu.Unlock()
	out, err := proto.Marshal(&collector.ExportTraceServiceResponse{})
	if err != nil {
		r.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

// Received returns the attributes of the resource, the headers of the last request, and all spans.
func (r *Receiver) Received() (map[string]string, http.Header, []*trace.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.resource), r.header, slices.Clone(r.spans)
}
