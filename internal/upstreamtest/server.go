package upstreamtest

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mneme/proxy/wire"
)

// maxBody limits the body of a request, maxKept the bodies of all remembered requests, in bytes.
const (
	maxBody = 32 << 20
	maxKept = 64 << 20
)

// Server is a fake vendor. It is an http.Handler with endpoints under /v1 and under the other base URLs of vendors.
// It starts no goroutines. Its methods are safe for concurrent use.
type Server struct {
	config Config
	signer signer

	answered  newest[*answered]   // by their ids and their calls' ids
	items     newest[*issuedItem] // of Responses, by their ids and their calls' ids
	responses newest[[]members]   // the whole context of each persisted response
	prompts   *promptCache

	mu       sync.Mutex // guards the rest
	answers  []Answer
	faults   []Fault
	requests []*Request // the newest; the values change only under mu
	size     int        // of the bodies of requests, in bytes
	count    int

	observing sync.Mutex // held while Config.Observe runs
}

// New returns a vendor with this configuration.
func New(c Config) *Server {
	if c.Vendor == OpenAI {
		c.Chat.OpenAI = true
	}
	limit := 10 * c.remember()
	return &Server{config: c, signer: newSigner(c.name()), prompts: &promptCache{expiry: map[contextHash]time.Time{}},
		answered: newest[*answered]{limit: limit}, items: newest[*issuedItem]{limit: limit},
		responses: newest[[]members]{limit: limit, bytes: maxKept}}
}

// Queue adds answers. Each of them answers one accepted request, in order.
func (s *Server) Queue(answers ...Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, answers...)
}

// Fail adds faults. Each of them fails one request to a model, in order, before any rule is applied. Without
// arguments it removes the pending faults.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(faults) == 0 {
		s.faults = nil
	}
	s.faults = append(s.faults, faults...)
}

// Pending returns the number of queued answers and faults.
func (s *Server) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.answers) + len(s.faults)
}

// Requests returns the newest requests to models, including count_tokens, oldest first. Callers must not change their
// headers and bodies.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Request, len(s.requests))
	for i, r := range s.requests {
		out[i] = *r
	}
	return out
}

// Last returns the newest request, or the zero Request if there is none.
func (s *Server) Last() Request {
	if requests := s.Requests(); len(requests) > 0 {
		return requests[len(requests)-1]
	}
	return Request{}
}

// Rejections returns the refused ones of Requests.
func (s *Server) Rejections() []Request {
	return slices.DeleteFunc(s.Requests(), func(r Request) bool { return r.Rejection == "" })
}

// Count returns the number of requests to models, including forgotten ones.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// endpoints are the endpoints by method and path behind a prefix.
var endpoints = map[string]Endpoint{
	"POST /messages":              EndpointMessages,
	"POST /messages/count_tokens": EndpointCount,
	"POST /chat/completions":      EndpointChat,
	"POST /responses":             EndpointResponses,
	"POST /interactions":          EndpointInteractions,
	"GET /models":                 EndpointModels,
	"POST /embeddings":            EndpointEmbeddings,
}

// prefixes precede or replace /v1 in vendors' base URLs.
var prefixes = []string{"/anthropic", "/api/anthropic", "/api/paas/v4", "/api", "/openai", "/v1beta/openai", "/v1beta"}

// endpoint returns the endpoint of a request. ok is false if the vendor does not serve it.
func (s *Server) endpoint(r *http.Request) (d Endpoint, ok bool) {
	path := r.URL.Path
	for _, prefix := range prefixes {
		if rest, ok := strings.CutPrefix(path, prefix+"/"); ok {
			path = "/" + rest
			break
		}
	}
	path = strings.TrimPrefix(path, "/v1")
	d = endpoints[r.Method+" "+path]
	return d, d == EndpointModels || vendorRules[d.dialect()][s.config.vendor()] != nil && d != ""
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Request-Id", "req_01"+randomText(22))
	d, ok := s.endpoint(r)
	if !ok {
		dialect := wire.Chat
		if strings.Contains(r.URL.Path, "/messages") || r.Header.Get("Anthropic-Version") != "" {
			dialect = wire.Messages
		}
		s.refuse(w, dialect, refusal{status: http.StatusNotFound, message: "Not found: " + r.Method + " " + r.URL.Path},
			unrecorded)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		s.refuse(w, d.dialect(), refusal{status: http.StatusRequestEntityTooLarge,
			message: "Request exceeds the maximum size"}, unrecorded)
		return
	}
	x := &exchange{
		server: s, config: &s.config,
		Request: &Request{Endpoint: d, Path: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body},
	}
	s.serve(w, r, x)
}

// serve answers a request to an endpoint. It settles the verdict before it writes the answer, because a test may read
// the verdict when its client has the first byte.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, x *exchange) {
	settle := s.record(x.Request)
	if err := x.hold(keyRule); err != nil {
		s.refuse(w, x.Endpoint.dialect(), err, settle)
		return
	}
	if f := s.fault(x); f != nil {
		settle(f.Status, "")
		f.write(w, r, x.Endpoint.dialect())
		return
	}
	if err := x.judge(); err != nil {
		if !x.refuseInStream(w, err, settle) {
			s.refuse(w, x.Endpoint.dialect(), err, settle)
		}
		return
	}
	var body []byte
	switch x.Endpoint {
	case EndpointModels:
		body = s.models()
	case EndpointCount:
		body = obj("input_tokens", x.tokens())
	case EndpointEmbeddings:
		body = x.embeddings()
	default:
		a := s.next(x)
		blocks := x.issue(&a)
		count(x, blocks)
		settle(http.StatusOK, "")
		x.write(w, r, a, blocks)
		return
	}
	settle(http.StatusOK, "")
	s.writeJSON(w, body)
}

// unrecorded drops the verdict on a request that Requests does not list.
func unrecorded(int, string) {}

// record stores a request and returns the function that stores its verdict.
func (s *Server) record(r *Request) (settle func(status int, rejection string)) {
	stored := *r
	if r.Endpoint.model() || r.Endpoint == EndpointCount {
		s.mu.Lock()
		s.count++
		s.requests = append(s.requests, &stored)
		s.size += len(stored.Body)
		for len(s.requests) > s.config.remember() || s.size > maxKept && len(s.requests) > 1 {
			s.size -= len(s.requests[0].Body)
			s.requests = slices.Delete(s.requests, 0, 1)
		}
		s.mu.Unlock()
	}
	return func(status int, rejection string) {
		r.Status, r.Rejection = status, rejection
		s.mu.Lock()
		stored = *r
		s.mu.Unlock()
		if s.config.Observe != nil {
			s.observing.Lock()
			defer s.observing.Unlock()
			s.config.Observe(*r)
		}
	}
}

// fault returns the fault of the request, or nil.
func (s *Server) fault(x *exchange) *Fault {
	if x.Endpoint.model() {
		if f := take(s, &s.faults); f != nil {
			return f
		}
	}
	if s.config.Fault == nil {
		return nil
	}
	return s.config.Fault(x.Request)
}

// take removes and returns the first element of a queue, or nil.
func take[T any](s *Server, queue *[]T) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(*queue) == 0 {
		return nil
	}
	first := (*queue)[0]
	*queue = (*queue)[1:]
	return &first
}

// next returns the answer to an accepted request.
func (s *Server) next(x *exchange) Answer {
	if a := take(s, &s.answers); a != nil {
		return *a
	}
	if s.config.Answer != nil {
		if a := s.config.Answer(x.Request); a != nil {
			return *a
		}
	}
	return defaultAnswer(x.Request)
}

// judge reads the request and applies the vendor's rules.
func (x *exchange) judge() (err error) {
	if x.Endpoint == EndpointModels {
		return nil
	}
	if x.body, err = read(x.Body); err != nil {
		return err
	}
	x.Model = x.body.str("model")
	x.Stream = string(x.body["stream"]) == "true"
	rules := vendorRules[x.Endpoint.dialect()][x.config.vendor()]
	if x.Endpoint == EndpointEmbeddings {
		rules = []rule{modelRule, inputRule}
	}
	for _, line := range x.Header.Values("Anthropic-Beta") {
		for value := range strings.SplitSeq(line, ",") {
			if value = strings.TrimSpace(value); value != "" {
				x.betas = append(x.betas, value)
			}
		}
	}
	x.readTools()
	return x.hold(rules...)
}

// refuse settles a request as refused and answers with err.
func (s *Server) refuse(w http.ResponseWriter, d wire.Dialect, err error, settle func(int, string)) {
	var r refusal
	if !errors.As(err, &r) {
		r = refusal{status: http.StatusBadRequest, message: err.Error()}
	}
	if s.config.Thinking.Bedrock && r.status == http.StatusBadRequest {
		r.message = inBedrocksWords(r.message)
	}
	status, body := r.status, r.bodyIn(d)
	if s.config.Wrap != nil {
		status, body = s.config.Wrap(status, body)
	}
	settle(status, r.message)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client has disconnected
}

// inBedrocksWords returns Bedrock's wording of the model's error.
func inBedrocksWords(message string) string {
	if !strings.HasPrefix(message, "messages.") {
		return message
	}
	message = strings.Replace(message, "Invalid `signature` in `thinking` block", "Invalid signature in thinking block", 1)
	return "The model returned the following errors: " + message
}

func (s *Server) writeJSON(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // fails only if the client has disconnected
}

// models lists the served models in a shape that both dialects accept.
func (s *Server) models() []byte {
	names := s.config.Models
	if len(names) == 0 {
		names = []string{s.config.name() + "-model"}
	}
	var list []object
	for _, name := range names {
		list = append(list, obj("id", name, "object", "model", "type", "model", "display_name", name,
			"owned_by", s.config.name(), "created", created, "created_at", "2025-06-15T14:40:00Z"))
	}
	return obj("object", "list", "data", array(list), "has_more", []byte("false"))
}
