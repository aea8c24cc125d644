package upstreamtest

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Endpoint is the kind of endpoint of a request.
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

// model reports whether a model answers at d.
func (d Endpoint) model() bool {
	return d == EndpointMessages || d == EndpointChat || d == EndpointResponses || d == EndpointInteractions
}

// dialect returns the dialect of d.
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

// Request is one request to a Server, with its verdict.
type Request struct {
	Endpoint Endpoint
	Path     string // with its query
	Header   http.Header
	Body     []byte

	Model    string
	Stream   bool
	Thinking bool     // the model may think
	User     string   // the texts of the user's last message without results
	Results  []string // results of tools since then
	Tools    []Tool   // none if tool_choice is none

	// Status is the status of the answer. It is 0 until the verdict.
	Status int
	// Rejection is the message of the refusal, or "".
	Rejection string
	// Dropped are the thinking blocks that were silently left out, for example "messages.1.content.0".
	Dropped []string
	// Missing is the number of the latest turn's thinking blocks, or reasoning items, that did not come back without being
	// refused.
	Missing int
	// Returned is the number of the latest turn's reasoning items that came back. Returned and Missing only cover answers
	// that have calls or items with known ids.
	Returned int
	// LostCompactions are the ids of compactions that precede a replayed item and are missing from the request.
	LostCompactions []string
	// Prompt and Output are the tokens of prompt and answer. CacheRead and CacheWritten are the tokens of the prompt
	// that were read from the prompt cache and written to it. All are 0 without Config.PromptCache and in refused
	// requests.
	Prompt, CacheRead, CacheWritten, Output int

	rule    *rule          // the rule that refused the request
	forced  string         // the tool that must be called; anyTool for any
	thought bool           // the model has thought in this turn and does not think between calls
	format  jsontext.Value // the schema of the answer; may be nil
}

// exchange is one request during its validation.
type exchange struct {
	*Request
	server *Server
	config *Config
	body   members
	lists  map[*byte]decoded // decoded lists by the address of their first byte
	betas  []string

	// Messages dialect:
	modes    modes
	mode     string // thinking.type; empty if absent
	turns    []turn
	checked  bool // the beginning of the latest turn has been checked
	loop     int  // index after the user's last message without results
	contexts []contextHash
	marks    []mark
	mismatch string   // prefix_mismatch_behavior; empty disables the check
	reasons  []string // of Dropped, in the same order

	// Chat completions:
	messages []members
	talk     dialogue
	called   bool // an answer has calls; also in the messages dialect

	// Responses. loop is the index after the user's last message.
	items      []members // the previous response's context, then the input
	input      int       // index of the input in items
	origins    []string  // ids of the reasoning items and compactions, by index in items
	compaction string    // the newest compaction in items; may be empty
	reused     int       // number of items that the vendor has seen before
	stop       string    // of the answer
	responseID string
}

// beta reports whether the anthropic-beta header has this value.
func (x *exchange) beta(name string) bool { return slices.Contains(x.betas, name) }

// bodyObject returns an object of the request's body, or nil.
func (x *exchange) bodyObject(name string) members { return x.body.in(name) }

// effort returns the requested effort in either dialect.
func (x *exchange) effort() string {
	if e, ok := x.body.text("reasoning_effort"); ok {
		return e
	}
	return x.bodyObject("output_config").str("effort")
}

// readTools reads the tools that may or must be called.
func (x *exchange) readTools() {
	choice, word := x.bodyObject("tool_choice"), x.body.str("tool_choice")
	if config := x.bodyObject("generation_config"); config != nil {
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

// offer adds tools that the client runs.
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

// anyTool in Request.forced requires a call of any tool.
const anyTool = "any"

// texts returns the texts of a content in either dialect.
func texts(m members) (out []string) {
	if s, ok := m.text("content"); ok {
		return []string{s}
	}
	blocks, _ := m.list("content")
	return blockTexts(blocks)
}

func blockTexts(blocks []members) (out []string) {
	for _, b := range blocks {
		if s, ok := b.text("text"); ok && b.kind() == textBlock {
			out = append(out, s)
		}
	}
	return out
}
