package responseswire

import (
	"fmt"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// responsesParameters is the table of docs/dialects.md for requests of this dialect to another backend. Members
// that are not listed are ignored too.
var responsesParameters = chatwire.Parameters{
	"prompt":       {Refused: "prompts are not kept here"},
	"top_logprobs": {Refused: "this model gives no log probabilities", Unless: []string{"0"}},

	"client_metadata":   {},
	"frequency_penalty": {},
	"max_tool_calls":    {},
	"metadata":          {},
	"presence_penalty":  {},
	"prompt_cache_key":  {},
	"service_tier":      {},
	"stream_options":    {},
	"truncation":        {},
}

// refusedIncludes are the parts of an answer that no other dialect has, with the reason. Others are ignored: they
// concern tools that a vendor runs, or reasoning that goes back by itself.
var refusedIncludes = map[string]string{
	"message.output_text.logprobs": "this model gives no log probabilities",
}

// ignoredTools are tools of a vendor without which a client goes on, since it sends them whether they are wanted or
// not. To them belong all with a type that begins with web_search.
var ignoredTools = []string{"image_generation", "tool_search"}

// vendorItems are the items of an input that no other dialect has, with the reason for refusing them; those without
// one are left out. All that are not listed are refused.
var vendorItems = map[string]string{
	// Reasoning is its vendor's alone. What a backend of ours thought is put back by the ledger.
	reasoningItem: "",

	// What a vendor's own tools did stands in the answer that followed.
	"code_interpreter_call": "", "file_search_call": "", "image_generation_call": "", "mcp_approval_request": "",
	"mcp_approval_response": "", "mcp_call": "", "mcp_list_tools": "", "tool_search_call": "",
	"tool_search_output": "", "web_search_call": "",

	"compaction":     "it holds the history in a form that only its vendor can read",
	"item_reference": "no stored response has it; send the item itself",
}

// refuse is a 400 with a message for the author of the request.
func refuse(format string, args ...any) error {
	return wire.Failure{Status: 400, Message: fmt.Sprintf(format, args...)}
}
