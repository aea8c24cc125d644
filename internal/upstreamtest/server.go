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

// maxBody bounds the body of a request, maxKept those of all requests that are
// remembered, in bytes.
const (
	maxBody = 32 << 20
	maxKept = 64 << 20
)

// Server is a vendor. It is an http.Handler with endpoints under /v1 and, for clients
// with a base URL that ends in /v1 or /anthropic, where those expect them. It starts no
// goroutines; its methods may be called at any time.
type Server struct {
	config Config
	signer signer

	answered  newest[*answered] // by their ids and those of their calls
	items     newest[*made]     // of Responses, by their ids and those of their calls
	responses newest[[]members] // the whole context behind each persisted response
	prompts   *promptCache

	mu       sync.Mutex // guards the rest
	answers  []Answer
	faults   []Fault
	requests []*Request // the newest; what they point to changes only under mu
	size     int        // of their bodies, in bytes
	count    int

	observing sync.Mutex // held while Config.Observe runs
}

// New is a vendor of this kind.
func New(c Config) *Server {
	if c.Vendor == OpenAI {
		c.Chat.OpenAI = true
	}
	limit := 10 * c.remember()
	return &Server{config: c, signer: newSigner(c.name()), prompts: &promptCache{kept: map[contextHash]time.Time{}},
		answered: newest[*answered]{limit: limit}, items: newest[*made]{limit: limit},
		responses: newest[[]members]{limit: limit, bytes: maxKept}}
}

// Queue adds answers. Each is given once, in order, to requests that no rule
// refuses.
func (s *Server) Queue(answers ...Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, answers...)
}

// Fail adds faults. Each fails one request to a model, in order, before any rule
// is looked at. Without any, those that are still to be had are taken back.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(faults) == 0 {
		s.faults = nil
	}
	s.faults = append(s.faults, faults...)
}

// Pending is how many queued answers and faults are still to be had.
func (s *Server) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.answers) + len(s.faults)
}

// Requests are the newest requests at the endpoints of models, count_tokens
// included, oldest first. Their headers and bodies must not be changed.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Request, len(s.requests))
	for i, r := range s.requests {
		out[i] = *r
	}
	return out
}

// Last is the newest of Requests, the zero Request if there is none.
func (s *Server) Last() Request {
	if all := s.Requests(); len(all) > 0 {
		return all[len(all)-1]
	}
	return Request{}
}

// Rejections are those of Requests that a rule refused.
func (s *Server) Rejections() []Request {
	return slices.DeleteFunc(s.Requests(), func(r Request) bool { return r.Rejection == "" })
}

// Count is how many requests came to the endpoints that Requests is about, those
// that are forgotten included.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// endpoints are the paths behind the prefixes that base URLs may have, with their method.
var endpoints = map[string]Endpoint{
	"POST /messages":              EndpointMessages,
	"POST /messages/count_tokens": EndpointCount,
	"POST /chat/completions":      EndpointChat,
	"POST /responses":             EndpointResponses,
	"POST /interactions":          EndpointInteractions,
	"GET /models":                 EndpointModels,
	"POST /embeddings":            EndpointEmbeddings,
}

// prefixes are what vendors' base URLs have before /v1, or in place of it.
var prefixes = []string{"/anthropic", "/api/anthropic", "/api/paas/v4", "/api", "/openai", "/v1beta/openai", "/v1beta"}

// endpoint finds what a request is for; ok is false if the vendor has no such endpoint.
func (s *Server) endpoint(r *http.Request) (d Endpoint, ok bool) {
	path := r.URL.Path
	for _, before := range prefixes {
		if rest, ok := strings.CutPrefix(path, before+"/"); ok {
			path = "/" + rest
			break
		}
	}
	path = strings.TrimPrefix(path, "/v1")
	d = endpoints[r.Method+" "+path]
	return d, d == EndpointModels || vendorRules[d.dialect()][s.config.vendor()] != nil && d != ""
}

// ServeHTTP answers one request; see Server for the paths.
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

// serve answers a request that came to an endpoint. It settles the verdict before it writes the answer: a test may look
// for the verdict as soon as its client has the first byte.
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

// record stores a request and returns the function that stores the verdict on it.
func (s *Server) record(r *Request) (settle func(status int, rejection string)) {
	kept := *r
	if r.Endpoint.model() || r.Endpoint == EndpointCount {
		s.mu.Lock()
		s.count++
		s.requests = append(s.requests, &kept)
		s.size += len(kept.Body)
		for len(s.requests) > s.config.remember() || s.size > maxKept && len(s.requests) > 1 {
			s.size -= len(s.requests[0].Body)
			s.requests = slices.Delete(s.requests, 0, 1)
		}
		s.mu.Unlock()
	}
	return func(status int, rejection string) {
		r.Status, r.Rejection = status, rejection
		s.mu.Lock()
		kept = *r
		s.mu.Unlock()
		if s.config.Observe != nil {
			s.observing.Lock()
			defer s.observing.Unlock()
			s.config.Observe(*r)
		}
	}
}

// fault is what the request fails with, nil if it does not.
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

// take is the first of what is queued, nil if there is none.
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

// next is the answer to a request that was accepted.
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

// judge reads the request and applies the vendor's rules to it.
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
	_, _ = w.Write(body) // a client that left gets nothing
}

// inBedrocksWords is what that platform makes of the model's own errors.
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
	_, _ = w.Write(body) // a client that left gets nothing
}

// models lists what is served, in a shape that both dialects read.
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
