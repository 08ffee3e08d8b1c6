package tracing

import (
	"context"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"sluice.dev/sluice/pkg/oncrpc"
)

// maxStages bounds the recorded stages of a call. The last one includes those that follow.
const maxStages = 16

// Call is the trace of a sampled call. It implements oncrpc.CallTrace. Its spans are made when the
// call is answered: one for the call, and in it one for each stage.
type Call struct {
	tracer   trace.Tracer
	received time.Time
	stages   []stage
	ctx      context.Context // of the span of the call; nil before Answered
	span     trace.Span
	replied  time.Time // when the reply had left; zero before
}

type stage struct {
	stage oncrpc.Stage
	begin time.Time
}

// Reached implements oncrpc.CallTrace.
func (x *Call) Reached(s oncrpc.Stage) {
	now := time.Now()
	if s == oncrpc.Replied {
		x.replied = now
		return
	}
	if len(x.stages) < maxStages {
		x.stages = append(x.stages, stage{s, now})
	}
}

// Answer describes an answered call.
type Answer struct {
	Export             string
	Program, Procedure string // names
	Number             uint32 // of the procedure
	Version            uint32
	Network            string
	Client             netip.AddrPort
	In, Out            int    // bytes of call and reply
	Failure            string // empty for success
}

// Answered starts the span of the call. It returns its identifiers, in hexadecimal.
func (x *Call) Answered(a Answer) (traceID, spanID string) {
	x.ctx, x.span = x.tracer.Start(context.Background(), a.Program+" "+a.Procedure,
		trace.WithTimestamp(x.received), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			semconv.RPCSystemNameKey.String("onc_rpc"),
			semconv.OncRPCProgramName(a.Program), semconv.OncRPCVersion(int(a.Version)),
			semconv.OncRPCProcedureName(a.Procedure), semconv.OncRPCProcedureNumber(int(a.Number)),
			semconv.NetworkTransportKey.String(a.Network),
			semconv.ClientAddress(a.Client.Addr().Unmap().String()), semconv.ClientPort(int(a.Client.Port())),
			attribute.String("sluice.export", a.Export),
			attribute.Int("sluice.call.bytes", a.In), attribute.Int("sluice.reply.bytes", a.Out),
		))
	if a.Failure != "" {
		x.span.SetStatus(codes.Error, a.Failure)
	}
	c := x.span.SpanContext()
	return c.TraceID().String(), c.SpanID().String()
}

// Ended implements oncrpc.CallTrace. A call that was not answered leaves no trace.
func (x *Call) Ended() {
	if x.span == nil {
		return
	}
	end := x.replied
	if end.IsZero() {
		end = time.Now()
	}
	at := x.received
	name := oncrpc.Receiving.String()
	child := func(until time.Time) {
		if until.After(at) {
			_, s := x.tracer.Start(x.ctx, name, trace.WithTimestamp(at))
			s.End(trace.WithTimestamp(until))
		}
	}
	for _, s := range x.stages {
		child(s.begin)
		at, name = s.begin, s.stage.String()
	}
	child(end)
	x.span.End(trace.WithTimestamp(end))
}
