// Package tracing makes spans of what a run does and sends them to a collector of OpenTelemetry, over OTLP by HTTP. The
// standard variables OTEL_… say where and how; where they name no collector nothing is made: an Exporter, a Tracer and a
// Span are nil then, and their methods do nothing and allocate nothing.
//
// It owns the names of spans and attributes (names.go) and the exporter with the SDK's goroutine, which drops what a
// collector does not take: a run never waits for one. Which span stands below which is the trail's, see
// telemetry.Trail. It never sends what users, models or tools wrote, unless Open is told to.
package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"mneme/memory/telemetry"
)

// Exporter sends the spans of one process. Safe for concurrent use.
type Exporter struct {
	version string
	content bool
	batch   sdk.SpanProcessor
}

// closeTime is how long the spans that are left may take to be sent.
const closeTime = 5 * time.Second

// Open begins to export if the environment names a collector; nil if it does not. content says that spans have what was
// written, too. failed is told what goes wrong later on, maybe often.
func Open(version string, content bool, failed func(error)) (*Exporter, error) {
	c, err := newClient()
	if c == nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(failed))
	exporter, err := otlptrace.New(context.Background(), c)
	if err != nil {
		return nil, err
	}
	return &Exporter{version, content, sdk.NewBatchSpanProcessor(exporter)}, nil
}

// Close sends what is left, for closeTime at most.
func (e *Exporter) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return e.batch.Shutdown(ctx)
}

// Tracer makes the spans of a service, which is called mneme-SERVICE unless OTEL_SERVICE_NAME says otherwise.
func (e *Exporter) Tracer(service string) *Tracer {
	if e == nil {
		return nil
	}
	res, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "mneme-"+service), attribute.String("service.version", e.version)),
		resource.WithFromEnv())
	if err != nil { // a part of the environment cannot be read, and is left out
		otel.Handle(err)
	}
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(e.batch), sdk.WithIDGenerator(ids{}), sdk.WithResource(res))
	return &Tracer{p.Tracer("mneme/" + service), e.content}
}

// Tracer makes the spans of one service. Safe for concurrent use.
type Tracer struct {
	tracer  trace.Tracer
	content bool
}

// Begin is how a span begins.
type Begin struct {
	Operation Operation
	Subject   string // the name of the agent, tool, model or memory
	User      string // "" for none
	Call      string // of the delegation that it is; "" for another span
	Link      string // traceparent of the span that it continues; "" for none
}

// Start begins a span below a trail's, and gives the trail of what it does. A trail that comes from nowhere begins a
// trace, under its own id. End the span; one that is not ended is not sent.
func (t *Tracer) Start(trail telemetry.Trail, b Begin) (*Span, telemetry.Trail) {
	if t == nil {
		return nil, trail
	}
	parent, remote := trail.Current()
	ctx := trace.ContextWithSpanContext(trail.In(context.Background()), spanContext(parent).WithRemote(remote))
	if b.Call != "" {
		own, _ := trail.Delegated(b.Call).Current()
		ctx = context.WithValue(ctx, chosen{}, spanContext(own).SpanID())
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(b.Operation.kind), trace.WithAttributes(common(trail, b)...)}
	if link := spanContext(b.Link); link.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: link}))
	}
	_, span := t.tracer.Start(ctx, b.Operation.span(b.Subject), options...)
	c := span.SpanContext()
	return &Span{span, t.content}, trail.WithSpan(c.TraceID().String(), c.SpanID().String(), c.TraceFlags().String())
}

// spanContext returns the span context of a traceparent; for "" it is invalid.
func spanContext(traceparent string) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{"traceparent": traceparent}))
}

// ids gives a trace that begins the id of its trail, which stands in the logs, and a delegation's span the one that its
// requests name as their parent. Others are random.
type ids struct{}

type chosen struct{} // key of the id of the span that is begun

func (i ids) NewIDs(ctx context.Context) (traceID trace.TraceID, spanID trace.SpanID) {
	traceID, err := trace.TraceIDFromHex(telemetry.FromContext(ctx).Trace)
	if err != nil { // of what no request has caused
		traceID, _ = trace.TraceIDFromHex(telemetry.New().Trace)
	}
	return traceID, i.NewSpanID(ctx, traceID)
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	id, _ = ctx.Value(chosen{}).(trace.SpanID)
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// Span is one that has begun. A nil one does nothing.
type Span struct {
	span    trace.Span
	content bool
}

// Set notes attributes. Ask before whether s is nil if they have to be made.
func (s *Span) Set(attributes ...attribute.KeyValue) {
	if s != nil {
		s.span.SetAttributes(attributes...)
	}
}

// Called notes what a call of a model took.
func (s *Span) Called(c Call) { s.Set(c.attributes()...) }

// End ends the span; failure is the code of what went wrong, "" for nothing.
func (s *Span) End(failure string) {
	if s == nil {
		return
	}
	if failure != "" {
		s.span.SetAttributes(errorType.String(failure))
		s.span.SetStatus(codes.Error, failure)
	}
	s.span.End()
}
