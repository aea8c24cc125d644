package chatwire

import (
	"maps"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// Parameter says what is done with a member of a request that translation does not map. The zero
// value means that it is ignored, which may change the style of the answer but not its kind.
type Parameter struct {
	Refused string   // the reason for refusing it with status 400; empty if it is ignored
	Unless  []string // compact JSON values that ask for what happens anyway, and so are accepted
}

// Parameters are the members of a request that are refused, or accepted with some values, by their names. All others are
// ignored.
type Parameters map[string]Parameter

// chatParameters has the refused members of the table in docs/dialects.md for chat-completions requests to a messages
// backend.
var chatParameters = Parameters{
	"audio":              {Refused: "audio answers are not served"},
	"function_call":      {Refused: "use tool_choice", Unless: []string{`"none"`, `"auto"`}},
	"functions":          {Refused: "use tools", Unless: []string{"[]"}},
	"logprobs":           {Refused: "this model gives no log probabilities", Unless: []string{"false"}},
	"modalities":         {Refused: "only text is served", Unless: []string{`["text"]`, "[]"}},
	"n":                  {Refused: "one request gives one choice", Unless: []string{"1"}},
	"top_logprobs":       {Refused: "this model gives no log probabilities", Unless: []string{"0"}},
	"web_search_options": {Refused: "web search is not served"},
}

// messagesParameters is the table for messages requests to a backend of another dialect.
var messagesParameters = Parameters{
	"container":    {Refused: "this model has no containers"},
	"mcp_servers":  {Refused: "this model cannot call MCP servers", Unless: []string{"[]"}},
	"thread":       {Unless: []string{`{"type":"create"}`}}, // see Unmapped
	"fallbacks":    {Unless: []string{"[]"}},
	"service_tier": {Unless: []string{`"auto"`}},
	"speed":        {Unless: []string{`"standard"`}},
}

// Unmapped makes functions of a messages request's tools, and returns the members that a backend of another dialect does
// not get. Each has the name of its path. The error is a wire.Failure: the request cannot go there.
func Unmapped(in *wire.Request) (ignored []string, err error) {
	if err := NoThread(in.Other["thread"]); err != nil {
		return nil, err
	}
	if ignored, err = messagesParameters.Judge(in.Other); err != nil {
		return nil, err
	}
	dropped, err := onlyFunctions(in)
	if err != nil {
		return nil, err
	}
	ignored = append(ignored, dropped...)
	for _, t := range in.Tools {
		for name := range t.Other {
			if !slices.Contains(markers, name) && !slices.Contains(ignored, "tools."+name) {
				ignored = append(ignored, "tools."+name)
			}
		}
	}
	if in.Metadata != nil && in.Metadata.UserID != "" {
		ignored = append(ignored, UserID)
	}
	if slices.ContainsFunc(in.Messages, func(m wire.Message) bool { return m.OutputConfig != nil }) {
		ignored = append(ignored, "messages.output_config")
	}
	slices.Sort(ignored)
	return ignored, nil
}

// UserID is the path of the user's id in a messages request.
const UserID = "metadata.user_id"

// markers are the members of tools that change nothing of an answer but how soon it comes.
var markers = []string{wire.CacheControl, "eager_input_streaming"}

// NoThread refuses a request that continues a thread, because only the vendor that began it knows it. The client
// sends the whole conversation after such an error
// (https://platform.claude.com/docs/en/build-with-claude/message-threads).
func NoThread(thread jsontext.Value) error {
	if gjson.GetBytes(thread, "type").Str != "continue" {
		return nil
	}
	return wire.Failure{Status: http.StatusNotFound, Code: "thread_not_found", Param: "thread",
		Message: "thread_not_found: this backend keeps no threads; send the whole conversation"}
}

// Judge applies the table to the members that translation has not mapped, and gives the names of those
// that are ignored, sorted. null counts as absent. The error is a wire.Failure with status 400.
func (table Parameters) Judge(members map[string]jsontext.Value) (ignored []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name].Clone()
		// White space inside the value must not matter for the comparison.
		if err := value.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
			return nil, wire.Refuse("%s cannot be read: %v", name, err)
		}
		p := table[name]
		switch {
		case string(value) == "null" || slices.Contains(p.Unless, string(value)):
		case p.Refused != "":
			return nil, wire.Refuse("the parameter %q cannot be served by this backend: %s", name, p.Refused)
		default:
			ignored = append(ignored, name)
		}
	}
	return ignored, nil
}
