package upstreamtest

import (
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Endpoint is what a request was sent to.
type Endpoint string

// The endpoints.
const (
	EndpointMessages   Endpoint = "messages"     // POST /v1/messages
	EndpointCount      Endpoint = "count_tokens" // POST /v1/messages/count_tokens
	EndpointChat       Endpoint = "chat"         // POST /v1/chat/completions
	EndpointModels     Endpoint = "models"       // GET /v1/models
	EndpointEmbeddings Endpoint = "embeddings"   // POST /v1/embeddings
)

// model says whether a model answers behind d.
func (d Endpoint) model() bool { return d == EndpointMessages || d == EndpointChat }

// dialect is how d speaks.
func (d Endpoint) dialect() wire.Dialect {
	if d == EndpointMessages || d == EndpointCount {
		return wire.Messages
	}
	return wire.Chat
}

// Request is what a Server saw of one request, and what became of it.
type Request struct {
	Endpoint Endpoint
	Path     string // with its query
	Header   http.Header
	Body     []byte

	Model    string
	Stream   bool
	Thinking bool     // the model may think
	User     string   // the texts of the last message of the user that is no result
	Results  []string // what tools gave since then
	Tools    []Tool   // none if tool_choice is none

	// Status that was answered with; 0 while the request is not judged yet.
	Status int
	// Rejection is the text by which a rule refused the request, empty if none did.
	Rejection string
	// Dropped are the thinking blocks that were left out silently, as
	// "messages.1.content.0".
	Dropped []string
	// Lost is how many thinking blocks of the latest turn did not come back, though
	// no rule refused that.
	Lost int

	forced  string         // the tool that must be called; "any" for any
	thought bool           // the model has thought in this turn and does not think between calls
	format  jsontext.Value // the schema of the answer; nil for none
}

// exchange is one request at a model's endpoint while it is judged.
type exchange struct {
	*Request
	server *Server
	config *Config
	body   members
	betas  []string

	// Of the messages dialect:
	modes    modes
	kind     string // thinking.type; empty if absent
	turns    []turn
	system   []members
	tools    []members
	loop     int // first message after the last one of the user that is no result
	said     []contextHash
	marks    []mark
	mismatch string   // what to do with blocks of another conversation; empty if nobody looks
	reasons  []string // why each of Dropped was

	// Of chat completions:
	messages []members
}

// beta says whether the request has that value of the anthropic-beta header.
func (x *exchange) beta(name string) bool { return slices.Contains(x.betas, name) }

// at is an object inside the request's body; nil if it is none.
func (x *exchange) at(name string) members {
	object, _ := x.body.object(name)
	return object
}

// effort is what the request asks for in either dialect.
func (x *exchange) effort() string {
	if e, ok := x.body.text("reasoning_effort"); ok {
		return e
	}
	e, _ := x.at("output_config").text("effort")
	return e
}

// readTools notes what may or must be called.
func (x *exchange) readTools() {
	list, _ := x.body.list("tools")
	choice, name := x.at("tool_choice").kind(), ""
	if s, ok := x.body.text("tool_choice"); ok {
		choice = s
	}
	name, _ = x.at("tool_choice").text("name")
	if f, ok := x.at("tool_choice").object("function"); ok {
		name, _ = f.text("name")
	}
	switch choice {
	case "none":
		return
	case "any", "required":
		x.forced = "any"
	case "tool", "function":
		x.forced = name
	}
	for _, t := range list {
		schema := t["input_schema"]
		if f, ok := t.object("function"); ok {
			t, schema = f, f["parameters"]
		}
		name, _ := t.text("name")
		x.Tools = append(x.Tools, Tool{name, schema})
	}
}

// texts are the texts of a content in either dialect.
func texts(m members) (all []string) {
	if s, ok := m.text("content"); ok {
		return []string{s}
	}
	blocks, _ := m.list("content")
	return blockTexts(blocks)
}

func blockTexts(blocks []members) (all []string) {
	for _, b := range blocks {
		if s, ok := b.text("text"); ok && b.kind() == textBlock {
			all = append(all, s)
		}
	}
	return all
}
