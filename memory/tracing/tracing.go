// Package tracing makes spans of what a run does and sends them to a collector of OpenTelemetry, over OTLP by HTTP. The
// standard variables OTEL_… say where and how; where they name no collector nothing is made: an Exporter, a Tracer and a
// Span are nil then, and their methods do nothing and allocate nothing.
//
// It owns the names of spans and attributes (names.go) and the exporter with the SDK's goroutine, which drops what a
// collector does not take: a run never waits for one. Which span stands below which is the trail's, see
// telemetry.Trail. It never sends what users, models or tools wrote, unless Open is told to.
package tracing

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
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
	to, err := newClient()
	if to == nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(failed))
	exporter, err := otlptrace.New(context.Background(), to)
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
	about, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "mneme-"+service), attribute.String("service.version", e.version)),
		resource.WithFromEnv())
	if err != nil { // a part of the environment cannot be read, and is left out
		otel.Handle(err)
	}
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(e.batch), sdk.WithIDGenerator(ids{}), sdk.WithResource(about))
	return &Tracer{p.Tracer("mneme/" + service), e.content}
}

// Tracer makes the spans of one service. Safe for concurrent use.
type Tracer struct {
	tracer  trace.Tracer
	content bool
}

// Begin is how a span begins.
type Begin struct {
	Of    Operation
	About string    // the name of the agent, tool, model or memory
	At    time.Time // zero for now
	User  string    // "" for none
	Call  string    // of the delegation that it is; "" for another span
	After string    // traceparent of what it goes on from; "" for none
}

// Start begins a span below a trail's, and gives the trail of what it does. A trail that comes from nowhere begins a
// trace, under its own id. End the span; one that is not ended is not sent.
func (t *Tracer) Start(trail telemetry.Trail, b Begin) (*Span, telemetry.Trail) {
	if t == nil {
		return nil, trail
	}
	if trail.Trace == "" { // of what no request has caused
		fresh := telemetry.New()
		fresh.Run, fresh.Chat = trail.Run, trail.Chat
		trail = fresh
	}
	ctx := trail.In(context.Background())
	above, sampled, remote := trail.Above()
	if above != "" {
		ctx = trace.ContextWithSpanContext(ctx, spanContext(trail.Trace, above, sampled, remote))
	}
	if b.Call != "" {
		own, _, _ := trail.Delegated(b.Call).Above()
		ctx = context.WithValue(ctx, chosen{}, own)
	}
	with := []attribute.KeyValue{operation.String(b.Of.name), b.Of.of.String(b.About), observed.String(b.Of.observation),
		inferred.String(b.Of.inference)}
	for _, a := range []attribute.KeyValue{run.String(trail.Run), conversation.String(trail.Chat),
		session.String(trail.Chat), user.String(b.User)} {
		if a.Value.AsString() != "" {
			with = append(with, a)
		}
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(b.Of.kind), trace.WithAttributes(with...),
		trace.WithTimestamp(cmp.Or(b.At, time.Now()))}
	if came := telemetry.Read(b.After); came.Trace != "" {
		above, sampled, _ := came.Above()
		options = append(options, trace.WithLinks(trace.Link{SpanContext: spanContext(came.Trace, above, sampled, true)}))
	}
	_, span := t.tracer.Start(ctx, b.Of.names(b.About), options...)
	c := span.SpanContext()
	return &Span{span, t.content}, trail.Under(c.SpanID().String(), c.IsSampled())
}

func spanContext(in, id string, sampled, remote bool) trace.SpanContext {
	traceID, _ := trace.TraceIDFromHex(in) // a trail's are valid
	spanID, _ := trace.SpanIDFromHex(id)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, Remote: remote,
		TraceFlags: trace.TraceFlags(0).WithSampled(sampled)})
}

// ids gives a trace that begins the id of its trail, which stands in the logs, and a delegation's span the one that its
// requests name as their parent. Others are random.
type ids struct{}

type chosen struct{} // key of the id of the span that is begun

func (i ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	in, _ := trace.TraceIDFromHex(telemetry.From(ctx).Trace)
	return in, i.NewSpanID(ctx, in)
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if text, ok := ctx.Value(chosen{}).(string); ok {
		id, _ = trace.SpanIDFromHex(text)
	}
	for !id.IsValid() {
		random := rand.Uint64()
		for i := range id {
			id[i] = byte(random >> (8 * i))
		}
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

// Asked notes what a user, or another agent, wrote, if that is sent at all.
func (s *Span) Asked(text string) { s.say(inputValue, text, inputMessages, "user") }

// Said notes what an agent answered, if that is sent at all.
func (s *Span) Said(text string) { s.say(outputValue, text, outputMessages, "assistant") }

// Arguments notes those of a tool's call, if they are sent at all.
func (s *Span) Arguments(json string) { s.say(inputValue, json, toolArguments, "") }

// Result notes what a tool's call gave, if that is sent at all.
func (s *Span) Result(text string) { s.say(outputValue, text, toolResult, "") }

func (s *Span) say(plain attribute.Key, text string, named attribute.Key, role string) {
	if s == nil || !s.content || text == "" {
		return
	}
	value := text
	if role != "" {
		value = message(role, text)
	}
	s.span.SetAttributes(plain.String(text), named.String(value))
}

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
