package responseswire

import (
	"slices"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// responsesParameters has the refused members of the table in docs/dialects.md for requests of this dialect to another
// backend.
var responsesParameters = chatwire.Parameters{
	"prompt":       {Refused: "prompts are not kept here"},
	"top_logprobs": {Refused: "this model gives no log probabilities", Unless: []string{"0"}},
}

// refusedIncludes are the parts of an answer that no other dialect has, with the reason. Others are ignored: they
// concern tools that a vendor runs, or reasoning that goes back by itself.
var refusedIncludes = map[string]string{
	"message.output_text.logprobs": "this model gives no log probabilities",
}

// ignoredTools are tools of a vendor that clients always send, so a request stays useful without them, even if it has
// no others. Types that begin with web_search are ignored too.
var ignoredTools = []string{"image_generation", "tool_search"}

// silentItems are the items of an input that another dialect omits. A text replaces all other items of one vendor, see
// wire.StandIn.
var silentItems = []string{
	// Reasoning is its vendor's alone. What a backend of ours thought is put back by the ledger.
	reasoningItem,
	// The tools join the request's. A snapshot says nothing to a model.
	toolsItem, snapshotItem,
	// What a vendor's own tools did stands in the answer that followed.
	"code_interpreter_call", "file_search_call", "image_generation_call", "mcp_approval_request",
	"mcp_approval_response", "mcp_call", "mcp_list_tools", "tool_search_call", "tool_search_output", "web_search_call",
}

// droppedMembers are the members that translation maps, and out does not have.
func (in request) droppedMembers(out wire.Request, o chatwire.Options) []string {
	if o.Native {
		return nil
	}
	return chatwire.DroppedMembers(map[string]bool{
		"include": slices.ContainsFunc(in.Include, func(name string) bool { return name != encryptedReasoning }),
		"reasoning.effort": in.Reasoning != nil && in.Reasoning.Effort != "" && in.Reasoning.Effort != "none" &&
			out.Thinking == nil && !o.Intermediate,
		"temperature":    in.Temperature != nil && out.Temperature == nil,
		"text.verbosity": in.Text != nil && in.Text.Verbosity != "",
		"top_p":          in.TopP != nil && out.TopP == nil,
	})
}
