package telemetry

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/rs/zerolog"
)

// Header is traceparent of W3C Trace Context, in Go's spelling.
const Header = "Traceparent"

// Trail is what joins all that is logged and asked for one request. Fields that are
// not known are empty.
type Trail struct {
	Trace string // W3C trace id: 32 lower-case hexadecimal digits
	Run   string // id of the run that it belongs to
	Chat  string
	Call  string // id of the delegation that it belongs to; empty outside of one

	flags string // of the traceparent that came: two hexadecimal digits
}

// New is the trail of what no request has caused, with a trace id of its own.
func New() Trail { return Trail{Trace: random(16), flags: "00"} }

// Take is the trail that a request's header begins. What is no traceparent is as none,
// as the standard wants it: no request is refused for that.
func Take(h http.Header) Trail {
	if values := h[Header]; len(values) == 1 {
		if trace, flags, ok := parse(values[0]); ok {
			return Trail{Trace: trace, flags: flags}
		}
	}
	return New()
}

// parse reads version-trace-parent-flags. Versions after 00 may have more behind.
func parse(s string) (trace, flags string, ok bool) {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || len(s) > 55 && (s[:2] == "00" || s[55] != '-') {
		return "", "", false
	}
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	for _, part := range []string{version, trace, parent, flags} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return "", "", false
		}
	}
	return trace, flags, version != "ff" && strings.Trim(trace, "0") != "" && strings.Trim(parent, "0") != ""
}

// random is that many bytes in hexadecimal digits, not all of them 0.
func random(bytes int) string {
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(b[8:], rand.Uint64())
	b[0] |= 1
	return hex.EncodeToString(b[:bytes])
}

// Parent is the traceparent for one request that is made on this trail.
func (t Trail) Parent() string { return "00-" + t.Trace + "-" + random(8) + "-" + t.flags }

// Logger is log with what is known of the trail on each line. It is not inlined: its frame would
// be part of those callers' in which a goroutine waits for as long as an answer takes.
//
//go:noinline
func (t Trail) Logger(log zerolog.Logger) zerolog.Logger {
	return log.With().EmbedObject(t).Logger()
}

// MarshalZerologObject implements zerolog.LogObjectMarshaler: run, chat and trace_id.
func (t Trail) MarshalZerologObject(e *zerolog.Event) {
	for _, f := range [...]struct{ name, value string }{{"run", t.Run}, {"chat", t.Chat}, {"trace_id", t.Trace}} {
		if f.value != "" {
			e.Str(f.name, f.value)
		}
	}
}

// In puts the trail into a context, from which From has it.
func (t Trail) In(ctx context.Context) context.Context {
	return (&request{Trail: t}).in(ctx)
}

// Delegated is ctx for what a delegation does.
func Delegated(ctx context.Context, call string) context.Context {
	t := From(ctx)
	t.Call = call
	return t.In(ctx)
}

type key struct{}

// request is what a context holds.
type request struct {
	Trail
	told bool // it has a log line of its own
}

// From is the trail of a context; empty without one.
func From(ctx context.Context) Trail {
	if r, ok := ctx.Value(key{}).(*request); ok {
		return r.Trail
	}
	return Trail{}
}

// Concerns notes which run a request is about, once its handler knows: for its log
// line, its error and what it asks of others. It is for the handler's goroutine, before
// it starts any other with ctx.
func Concerns(ctx context.Context, chat, run string) {
	if r, ok := ctx.Value(key{}).(*request); ok {
		r.Chat, r.Run = chat, run
	}
}

// Told says that the handler writes the request's log line itself.
func Told(ctx context.Context) {
	if r, ok := ctx.Value(key{}).(*request); ok {
		r.told = true
	}
}

func (r *request) in(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, r) }
