package chatwire

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// parameter says what is done with a member of a request that translation does not map. The zero
// value means that it is ignored, which may change the style of the answer but not its kind.
type parameter struct {
	refused string   // the reason for refusing it with status 400; empty if it is ignored
	unless  []string // compact JSON values that ask for what happens anyway, and so are accepted
}

// chatParameters is the table of docs/gateway.md for chat-completions requests to a messages
// backend. Members that are not listed are ignored too.
var chatParameters = map[string]parameter{
	"audio":              {refused: "audio answers are not served"},
	"function_call":      {refused: "use tool_choice", unless: []string{`"none"`, `"auto"`}},
	"functions":          {refused: "use tools", unless: []string{"[]"}},
	"logprobs":           {refused: "this model gives no log probabilities", unless: []string{"false"}},
	"modalities":         {refused: "only text is served", unless: []string{`["text"]`, "[]"}},
	"n":                  {refused: "one request gives one choice", unless: []string{"1"}},
	"top_logprobs":       {refused: "this model gives no log probabilities", unless: []string{"0"}},
	"web_search_options": {refused: "web search is not served"},

	"frequency_penalty": {},
	"logit_bias":        {},
	"metadata":          {},
	"prediction":        {},
	"presence_penalty":  {},
	"prompt_cache_key":  {},
	"safety_identifier": {},
	"seed":              {},
	"service_tier":      {},
	"store":             {},
	"verbosity":         {},
}

// messagesParameters is the table for messages requests to a chat backend.
var messagesParameters = map[string]parameter{
	"container":   {refused: "this model has no containers"},
	"mcp_servers": {refused: "this model cannot call MCP servers", unless: []string{"[]"}},

	"context_management": {},
	"output_config":      {},
	"service_tier":       {},
	"top_k":              {},
}

// judge applies a table to the members that translation has not mapped. null counts as absent.
func judge(table map[string]parameter, members map[string]jsontext.Value) (ignored []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name].Clone()
		// White space inside the value must not matter for the comparison.
		if err := value.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
			return nil, refuse("%s cannot be read: %v", name, err)
		}
		p := table[name]
		switch {
		case string(value) == "null" || slices.Contains(p.unless, string(value)):
		case p.refused != "":
			return nil, refuse("the parameter %q cannot be served by this backend: %s", name, p.refused)
		default:
			ignored = append(ignored, name)
		}
	}
	return ignored, nil
}

// refuse is a 400 whose message is for the author of the request.
func refuse(format string, args ...any) error {
	return wire.Failure{Status: 400, Message: fmt.Sprintf(format, args...)}
}
