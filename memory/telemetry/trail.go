package telemetry

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
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

	flags  string // of the traceparent that came: two hexadecimal digits
	parent string // the span that it names: 16 hexadecimal digits; empty where none came
	span   string // of this service, as part of which requests are made; empty where no spans are made
}

// New is the trail of what no request has caused, with a trace id of its own.
func New() Trail { return Trail{Trace: random(16), flags: "00"} }

// Spanless says in a request of a service to itself that its traceparent names no span: the trace begins with it, if
// one is made. What comes from a client with it is read so, too.
const Spanless = "Mneme-Spanless"

// Take is the trail that a request's header begins. What is no traceparent is as none,
// as the standard wants it: no request is refused for that.
func Take(h http.Header) Trail {
	if values := h[Header]; len(values) == 1 {
		if trace, parent, flags, ok := parse(values[0]); ok {
			if len(h[Spanless]) > 0 {
				parent = ""
			}
			return Trail{Trace: trace, parent: parent, flags: flags}
		}
	}
	return New()
}

// parse reads version-trace-parent-flags. Versions after 00 may have more behind.
func parse(s string) (trace, parent, flags string, ok bool) {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || len(s) > 55 && (s[:2] == "00" || s[55] != '-') {
		return "", "", "", false
	}
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	for _, part := range []string{version, trace, parent, flags} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return "", "", "", false
		}
	}
	return trace, parent, flags, version != "ff" && strings.Trim(trace, "0") != "" && strings.Trim(parent, "0") != ""
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
func (t Trail) Parent() string { return t.format(cmp.Or(t.span, random(8))) }

func (t Trail) format(span string) string { return "00-" + t.Trace + "-" + span + "-" + t.flags }

// Current is the traceparent of the span below which the trail's next one stands; empty for none. remote says that it came
// with a request, rather than being of this service.
func (t Trail) Current() (traceparent string, remote bool) {
	if span := cmp.Or(t.span, t.parent); span != "" {
		traceparent = t.format(span)
	}
	return traceparent, t.span == ""
}

// WithSpan is the trail of what a span of this service does, whose ids and flags are given in hexadecimal digits: requests
// name it as their parent.
func (t Trail) WithSpan(trace, span, flags string) Trail {
	t.Trace, t.span, t.flags = trace, span, flags
	return t
}

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
	return FromContext(ctx).Delegated(call).In(ctx)
}

// Delegated is the trail of what a delegation does. Where spans are made, the id of its span follows from that of the
// run's: so what asks on its behalf and what makes the span of the run's events need not know of each other.
func (t Trail) Delegated(call string) Trail {
	t.Call = call
	if t.span != "" {
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(t.span + call))
		t.span = hex.EncodeToString(sum.Sum(nil))
	}
	return t
}

type key struct{}

// request is what a context holds.
type request struct {
	Trail
	logged bool // it has a log line of its own
}

// FromContext is the trail of a context; empty without one.
func FromContext(ctx context.Context) Trail {
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

// MarkLogged records that the handler writes the request's log line itself.
func MarkLogged(ctx context.Context) {
	if r, ok := ctx.Value(key{}).(*request); ok {
		r.logged = true
	}
}

func (r *request) in(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, r) }
