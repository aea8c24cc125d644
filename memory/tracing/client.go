package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"mneme/memory/telemetry"
)

// client is otlptrace.Client over HTTP with protobuf, as opentelemetry.io/docs/specs/otlp has it. OpenTelemetry's own,
// otlptracehttp, links gRPC, and with that keeps methods which the linker drops otherwise: 17 MB in all.
type client struct {
	url     string
	headers http.Header
}

// variable is that of traces, or else that of all signals.
func variable(what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_TRACES_" + what
	if os.Getenv(name) == "" {
		name = "OTEL_EXPORTER_OTLP_" + what
	}
	return name, os.Getenv(name)
}

// newClient reads the environment; nil if that names no collector.
func newClient() (*client, error) {
	name, endpoint := variable("ENDPOINT")
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s is no URL such as http://127.0.0.1:4318: set it to the collector's, or to nothing", name)
	}
	if !strings.Contains(name, "TRACES") { // which names the very place
		endpoint = strings.TrimSuffix(endpoint, "/") + "/v1/traces"
	}
	c := &client{endpoint, http.Header{"Content-Type": {"application/x-protobuf"}}}
	name, text := variable("HEADERS")
	for pair := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, fmt.Errorf("%s is no list such as Authorization=Basic%%20abc,other=value", name)
		}
		c.headers.Set(strings.TrimSpace(key), value)
	}
	return c, nil
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error { return nil }

// postTime is how long a collector may take for one request, as OTEL_EXPORTER_OTLP_TIMEOUT is by itself.
const postTime = 10 * time.Second

// collector is the client of the collector.
var collector = &http.Client{CheckRedirect: telemetry.NoRedirect}

// UploadTraces implements otlptrace.Client. What a collector does not take is lost.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, postTime)
	defer cancel()
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // the bytes of an ExportTraceServiceRequest
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = c.headers
	resp, err := collector.Do(r)
	if urlErr := new(url.Error); errors.As(err, &urlErr) {
		return urlErr.Err // without the URL, which may hold a key
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answers %s", resp.Status)
	}
	return nil
}
