package tracing

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// client is otlptrace.Client over HTTP with protobuf. OpenTelemetry's own, otlptracehttp, links gRPC and with it 17 MB;
// what this one does follows opentelemetry.io/docs/specs/otlp, and what it reads of the environment
// opentelemetry.io/docs/specs/otel/protocol/exporter.
type client struct {
	url     string
	headers http.Header
	gzip    bool
	http    *http.Client
}

// variable is that of traces, or else that of all signals; name is the one that was set.
func variable(what string) (name, value string) {
	for _, name = range []string{"OTEL_EXPORTER_OTLP_TRACES_" + what, "OTEL_EXPORTER_OTLP_" + what} {
		if value = os.Getenv(name); value != "" {
			return name, value
		}
	}
	return name, ""
}

// newClient reads the environment; nil if that names no collector.
func newClient() (*client, error) {
	name, to := variable("ENDPOINT")
	if to == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if u, err := url.Parse(to); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s is no URL such as http://127.0.0.1:4318: set it to the collector's, or to nothing", name)
	}
	if !strings.Contains(name, "TRACES") { // which names the very place
		to = strings.TrimSuffix(to, "/") + "/v1/traces"
	}
	c := &client{url: to, headers: http.Header{"Content-Type": {"application/x-protobuf"}}}
	name, text := variable("HEADERS")
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if text != "" && (!ok || err != nil) {
			return nil, fmt.Errorf("%s is no list such as Authorization=Basic%%20abc,other=value", name)
		}
		if ok {
			c.headers.Set(strings.TrimSpace(key), value)
		}
	}
	name, text = variable("TIMEOUT")
	timeout, err := strconv.Atoi(cmp.Or(text, "10000"))
	if err != nil || timeout <= 0 {
		return nil, fmt.Errorf("%s is no number of milliseconds, such as 10000", name)
	}
	_, text = variable("COMPRESSION")
	c.gzip = text == "gzip"
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if name, file := variable("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s is no file of certificates in PEM that can be read", name)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	c.http = &http.Client{Transport: transport, Timeout: time.Duration(timeout) * time.Millisecond}
	return c, nil
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. What a collector refuses for a while is sent again until ctx ends, which the
// SDK bounds.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // the bytes of an ExportTraceServiceRequest
	if err != nil {
		return err
	}
	if c.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(body) // into memory
		_ = w.Close()
		body = packed.Bytes()
	}
	for wait := time.Second; ; wait *= 2 {
		after, err := c.post(ctx, body)
		if err == nil || after < 0 {
			return err
		}
		select {
		case <-time.After(max(wait, after)):
		case <-ctx.Done():
			return err
		}
	}
}

// post sends a body once. After an error it may be sent again after a while, unless that is negative.
func (c *client) post(ctx context.Context, body []byte) (again time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header = c.headers.Clone()
	if c.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if said := new(url.Error); errors.As(err, &said) {
			err = said.Err // without the URL, which may hold a key
		}
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is kept
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted:
		return 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return time.Duration(seconds) * time.Second, fmt.Errorf("the collector answers %s", resp.Status)
	}
	return -1, fmt.Errorf("the collector answers %s", resp.Status)
}
