package upstreamtest

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Endpoint is what a request was sent to.
type Endpoint string

// The endpoints.
const (
	EndpointMessages     Endpoint = "messages"     // POST /v1/messages
	EndpointCount        Endpoint = "count_tokens" // POST /v1/messages/count_tokens
	EndpointChat         Endpoint = "chat"         // POST /v1/chat/completions
	EndpointResponses    Endpoint = "responses"    // POST /v1/responses
	EndpointInteractions Endpoint = "interactions" // POST /v1beta/interactions
	EndpointModels       Endpoint = "models"       // GET /v1/models
	EndpointEmbeddings   Endpoint = "embeddings"   // POST /v1/embeddings
)

// model says whether a model answers behind d.
func (d Endpoint) model() bool {
	return d == EndpointMessages || d == EndpointChat || d == EndpointResponses || d == EndpointInteractions
}

// dialect is how d speaks.
func (d Endpoint) dialect() wire.Dialect {
	switch d {
	case EndpointMessages, EndpointCount:
		return wire.Messages
	case EndpointResponses:
		return wire.Responses
	case EndpointInteractions:
		return wire.Interactions
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
	// Lost is how many thinking blocks, or reasoning items, of the latest turn did not
	// come back, though no rule refused that.
	Lost int
	// Kept is how many reasoning items of the latest turn came back, of Responses only.
	// Kept and Lost are about answers that can be told by the ids of their calls or items.
	Kept int
	// LostCompactions are the ids of compactions that the model had given, or been given,
	// before something that this request replays, and that are not in it.
	LostCompactions []string
	// Prompt is how many tokens the prompt has, CacheRead and CacheWritten how many of them were read from the prompt
	// cache and put there, and Output how many the answer has. All are 0 without Config.PromptCache, and where a
	// request was refused.
	Prompt, CacheRead, CacheWritten, Output int

	forced  string         // the tool that must be called; anyTool for any
	thought bool           // the model has thought in this turn and does not think between calls
	format  jsontext.Value // the schema of the answer; nil for none
}

// exchange is one request at a model's endpoint while it is judged.
type exchange struct {
	*Request
	server *Server
	config *Config
	body   members
	lists  map[*byte]decoded // those read so far, by where they begin
	betas  []string

	// Of the messages dialect:
	modes    modes
	mode     string // thinking.type; empty if absent
	turns    []turn
	begun    bool // something of the latest turn was looked at
	loop     int  // first message after the last one of the user that is no result
	said     []contextHash
	marks    []mark
	mismatch string   // what to do with blocks of another conversation; empty if it is not checked
	reasons  []string // why each of Dropped was

	// Of chat completions:
	messages []members
	talk     dialogue
	called   bool // tools, in any answer; of the messages dialect, too

	// Of Responses; loop is the item behind the user's last message:
	items      []members // what the response before knew and said, then the input
	input      int       // where the input begins in items
	known      []string  // which reasoning item or compaction each of items is, by what it says itself
	compaction string    // the newest in items; empty for none
	reused     int       // how many of items have been read by the vendor before
	stop       string    // of the answer
	responseID string
}

// beta says whether the request has that value of the anthropic-beta header.
func (x *exchange) beta(name string) bool { return slices.Contains(x.betas, name) }

// at is an object inside the request's body; nil if it is none.
func (x *exchange) at(name string) members { return x.body.in(name) }

// effort is what the request asks for in either dialect.
func (x *exchange) effort() string {
	if e, ok := x.body.text("reasoning_effort"); ok {
		return e
	}
	return x.at("output_config").str("effort")
}

// readTools notes what may or must be called.
func (x *exchange) readTools() {
	choice, word := x.at("tool_choice"), x.body.str("tool_choice")
	if config := x.at("generation_config"); config != nil {
		word = cmp.Or(config.in("tool_choice").in("allowed_tools").str("mode"), config.str("tool_choice"))
	}
	switch cmp.Or(choice.kind(), word) {
	case "none":
		return
	case "any", "required":
		x.forced = anyTool
	case "tool", "function", "custom":
		x.forced = choice.str("name")
		if f, ok := choice.object("function"); ok {
			x.forced = f.str("name")
		}
	}
	list, _ := x.list(x.body, "tools")
	if x.offer(list, ""); choice.kind() != "allowed_tools" || x.Endpoint != EndpointResponses {
		return
	}
	if choice.str("mode") == "required" {
		x.forced = anyTool
	}
	allowed, _ := choice.list("tools")
	x.Tools = slices.DeleteFunc(x.Tools, func(t Tool) bool {
		return !slices.ContainsFunc(allowed, func(a members) bool { return a.str("name") == t.Name })
	})
}

// offer notes tools that the client runs.
func (x *exchange) offer(list []members, namespace string) {
	for _, t := range list {
		f, isFunction := t.object("function")
		switch kind := t.kind(); {
		case x.Endpoint != EndpointResponses && isFunction:
			x.Tools = append(x.Tools, Tool{Name: f.str("name"), Schema: f["parameters"]})
		case x.Endpoint == EndpointInteractions:
			x.Tools = append(x.Tools, Tool{Name: t.str("name"), Schema: t["parameters"]})
		case x.Endpoint != EndpointResponses:
			x.Tools = append(x.Tools, Tool{Name: t.str("name"), Schema: t["input_schema"]})
		case kind == "namespace":
			inner, _ := t.list("tools")
			x.offer(inner, t.str("name"))
		case kind == "function", kind == "custom":
			x.Tools = append(x.Tools, Tool{t.str("name"), t["parameters"], namespace, kind == "custom"})
		}
	}
}

// anyTool is Request.forced where any tool will do.
const anyTool = "any"

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
