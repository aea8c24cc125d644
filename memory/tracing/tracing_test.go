package tracing_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/telemetry"
	"mneme/memory/tracing"
)

// quiet is an environment that names no collector.
func quiet(t *testing.T) {
	t.Helper()
	for _, name := range []string{"ENDPOINT", "TRACES_ENDPOINT", "HEADERS", "TRACES_HEADERS"} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, "")
	}
	t.Setenv("OTEL_SDK_DISABLED", "")
	t.Setenv("OTEL_TRACES_EXPORTER", "")
}

func fails(t *testing.T) func(error) { return func(err error) { t.Error(err) } }

// Without a collector nothing is made, and what a request does with that allocates nothing.
func TestOffIsFree(t *testing.T) {
	quiet(t)
	e, err := tracing.Open("v1", true, fails(t))
	require.NoError(t, err)
	require.Nil(t, e)
	tracer := e.Tracer("webmemory")
	require.Nil(t, tracer)
	trail := telemetry.New()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		span, below := tracer.Start(trail, tracing.Begin{Operation: tracing.Agent, Subject: "master", User: "ana"})
		if span != nil || below != trail {
			t.Fatal("there is a span")
		}
		span.SetInput("Hello")
		span.Arguments("{}")
		span.End("failed")
	}))
}

func TestWhatSaysThatNothingIsSent(t *testing.T) {
	for name, value := range map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "none"} {
		quiet(t)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		t.Setenv(name, value)
		e, err := tracing.Open("v1", false, fails(t))
		require.NoError(t, err)
		require.Nil(t, e, name)
	}
}

func TestWrongVariables(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "unix:///run/collector",
		"OTEL_EXPORTER_OTLP_HEADERS": "secret", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=%zz",
	} {
		quiet(t)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		t.Setenv(name, value)
		_, err := tracing.Open("v1", false, fails(t))
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "secret")
	}
}

// The variables of traces come before those of all signals, and name the very place.
func TestWhereAndHowItIsSent(t *testing.T) {
	got := make(chan *http.Request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	defer server.Close()
	for path, names := range map[string][2]string{
		"/otel/v1/traces": {"OTEL_EXPORTER_OTLP_ENDPOINT", "/otel/"},
		"/here":           {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "/here"},
	} {
		quiet(t)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		t.Setenv(names[0], server.URL+names[1])
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc, x-team = shop")
		e, err := tracing.Open("v1", false, fails(t))
		require.NoError(t, err)
		span, trail := e.Tracer("proxy").Start(telemetry.Trail{}, tracing.Begin{Operation: tracing.Chat, Subject: "gpt"})
		require.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-01$", trail.Parent())
		require.Equal(t, trail.Parent(), trail.Parent(), "requests stand below the span")
		require.NotEqual(t, trail.Parent(), trail.Delegated("a").Parent())
		require.Equal(t, trail.Delegated("a").Parent(), trail.Delegated("a").Parent())
		span.End("")
		require.NoError(t, e.Close())
		r := <-got
		require.Equal(t, path, r.URL.Path)
		require.Equal(t, "Basic abc", r.Header.Get("Authorization"))
		require.Equal(t, "shop", r.Header.Get("X-Team"))
	}
}

// The sampler is the environment's, and what it leaves out is left out below, too.
func TestASamplerLeavesTracesOut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("something was sent")
	}))
	defer server.Close()
	quiet(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0")
	e, err := tracing.Open("v1", false, fails(t))
	require.NoError(t, err)
	begun := telemetry.New()
	span, trail := e.Tracer("webmemory").Start(begun, tracing.Begin{Operation: tracing.Workflow, Subject: tracing.Mneme})
	require.Equal(t, begun.Trace, trail.Trace, "the trace has the id that stands in the logs")
	require.Regexp(t, "-00$", trail.Parent())
	child, _ := e.Tracer("apiserver").Start(trail, tracing.Begin{Operation: tracing.Agent, Subject: "master"})
	child.End("")
	span.End("")
	require.NoError(t, e.Close())
}

// A collector that redirects does not send the headers and spans elsewhere.
func TestARedirectIsNotFollowed(t *testing.T) {
	var calls atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	quiet(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-secret=abc")
	var told error
	e, err := tracing.Open("v1", false, func(err error) { told = err })
	require.NoError(t, err)
	span, _ := e.Tracer("proxy").Start(telemetry.Trail{}, tracing.Begin{Operation: tracing.Chat, Subject: "gpt"})
	span.End("")
	_ = e.Close()
	require.Zero(t, calls.Load())
	require.ErrorContains(t, told, "307")
}
