// Package tracing makes OpenTelemetry traces of sampled calls, from the receipt of a call through
// the backend to its reply, and sends them by OTLP over HTTP.
//
// A call that is not sampled costs a load of the ratio, and nothing with a ratio of 0.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
)

// sendTimeout is the time to send the last spans to a receiver that is replaced.
const sendTimeout = 5 * time.Second

// Tracer samples calls. New makes one.
type Tracer struct {
	log     *slog.Logger
	version string

	// sampled of 1<<63 calls are traced.
	sampled atomic.Uint64
	tracer  atomic.Pointer[trace.Tracer]

	mu       sync.Mutex
	endpoint string
	provider *sdk.TracerProvider // nil until the first ratio above 0
	failed   string              // last error of the exporter, which is logged
	former   sync.WaitGroup      // providers that send their last spans
}

// New returns a tracer that samples nothing before Configure.
func New(log *slog.Logger, version string) *Tracer { return &Tracer{log: log, version: version} }

// Configure sets the part of calls that are traced from now on, 0 to 1, and the base URL of the
// OTLP receiver. Without a URL the variables OTEL_EXPORTER_OTLP_ENDPOINT and
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT of the environment name the receiver.
func (t *Tracer) Configure(ratio float64, endpoint string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.provider; old != nil && endpoint != t.endpoint {
		t.provider = nil
		t.former.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
			defer cancel()
			_ = old.Shutdown(ctx) // errors are logged
		})
	}
	t.endpoint = endpoint
	if ratio > 0 && t.provider == nil {
		if err := t.openLocked(); err != nil {
			t.sampled.Store(0)
			return fmt.Errorf("tracing: %w", err)
		}
	}
	t.sampled.Store(uint64(math.Round(ratio * (1 << 63))))
	return nil
}

// openLocked makes the provider.
func (t *Tracer) openLocked() error {
	var options []otlptracehttp.Option
	if t.endpoint != "" {
		u, err := url.Parse(t.endpoint)
		if err != nil {
			return err
		}
		options = append(options, otlptracehttp.WithEndpointURL(u.JoinPath("v1/traces").String()))
	}
	exporter, err := otlptracehttp.New(context.Background(), options...)
	if err != nil {
		return err
	}
	// The environment's OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last, so they win.
	about, err := resource.New(context.Background(), resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("sluice-gateway"), semconv.ServiceVersion(t.version)), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.logError))
	t.provider = sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about), sdk.WithSampler(sdk.AlwaysSample()))
	tracer := t.provider.Tracer("sluice.dev/sluice/gateway", trace.WithInstrumentationVersion(t.version))
	t.tracer.Store(&tracer)
	return nil
}

// logError logs each new error of the exporter once.
func (t *Tracer) logError(err error) {
	t.mu.Lock()
	repeated := t.failed == err.Error()
	t.failed = err.Error()
	t.mu.Unlock()
	if !repeated {
		t.log.Warn("traces not sent", "error", err)
	}
}

// Close sends the spans of finished calls, for as long as ctx allows.
func (t *Tracer) Close(ctx context.Context) error {
	t.sampled.Store(0)
	t.mu.Lock()
	p := t.provider
	t.mu.Unlock()
	defer t.former.Wait()
	if p == nil {
		return nil
	}
	return p.Shutdown(ctx)
}

// Start returns the trace of a call that is received now, or nil if it is not sampled.
func (t *Tracer) Start() *Call {
	n := t.sampled.Load()
	if n == 0 || rand.Uint64()>>1 >= n {
		return nil
	}
	return &Call{tracer: *t.tracer.Load(), received: time.Now()}
}
