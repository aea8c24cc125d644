package sanitize

import "mneme/proxy/wire"

// Kind names a kind of change in logs and metrics.
type Kind string

// The kinds, each in the words of what was done.
const (
	KindThinking    Kind = "thinking_removed"    // a block that the vendor does not take, or not so
	KindSignature   Kind = "signature_removed"   // of a block that is no thinking
	KindMarked      Kind = "thinking_unmarked"   // cache_control of thinking
	KindReasoning   Kind = "reasoning_removed"   // a field of a chat message
	KindPlaceholder Kind = "reasoning_stood_for" // missing reasoning that the vendor requires
	KindTrailing    Kind = "trailing_thinking"   // thinking in the last message, where it may not be

	KindToolID     Kind = "tool_id"         // an id was illegal or in use
	KindUnanswered Kind = "result_missing"  // a call got a result that says so
	KindPlace      Kind = "result_moved"    // a result was not where its call wants it
	KindOrphan     Kind = "result_orphaned" // a result without a call became text
	KindDoubled    Kind = "result_doubled"  // a result or a tool that came twice was removed
	KindArguments  Kind = "arguments"       // arguments of a call were not a JSON object

	KindEmpty   Kind = "empty"
	KindRole    Kind = "role"
	KindMarkers Kind = "cache_markers"
	KindJoined  Kind = "texts_joined"     // the parts of what the user says became one text
	KindContent Kind = "content_replaced" // content that the vendor does not take became text
	KindClient  Kind = "client_header"    // a line of the client's in the system prompt

	KindMode       Kind = "thinking_mode"   // asked for in the model's own way
	KindBudget     Kind = "thinking_budget" // made legal, or thinking is off for want of one
	KindToolChoice Kind = "tool_choice"     // it forces a tool: thinking is off, or it no longer does
	KindLoop       Kind = "tool_loop"       // it does not begin with thinking: thinking is off
	KindEdits      Kind = "clear_thinking"  // an edit that needs thinking
	KindEffort     Kind = "effort"
	KindSampling   Kind = "sampling"
	KindLimit      Kind = "max_tokens"        // under the name that the model takes
	KindAnswer     Kind = "answer_bounded"    // the request left the answer open
	KindRefused    Kind = "parameter_refused" // the backend refused it for this model before
	KindShorter    Kind = "answer_shortened"  // to the model's limit, which an earlier refusal named
	KindFormat     Kind = "answer_form"       // of the answer: by a tool, since the model has none of its own
	KindVendorTool Kind = "vendor_tool"       // a tool of another vendor was removed, or became a function
	KindToolName   Kind = "tool_name"         // of a tool, in a form that the vendor takes
	KindSchema     Kind = "tool_schema"       // of a tool, in a form that the vendor takes
	KindSplit      Kind = "reasoning_split"   // chat completions are asked for reasoning apart from the text
	KindUsage      Kind = "usage"             // a stream is asked to end with its counts of tokens
	KindContext    Kind = "context_management"
	KindBeta       Kind = "beta"
)

// rules are applied in this order. What is wrong with messages in themselves is corrected first, so
// that the rules about thinking see the messages that are sent; and of that the chains of calls and
// results, since leaving out an empty message must not bring a late result next to its call. The
// mode of thinking is settled before everything that depends on it.
var rules = map[wire.Dialect][]func(*request){
	wire.Messages: {
		(*request).replaceContent,
		(*request).dropClientHeader,
		(*request).chainBlocks,
		tellServerTools,
		(*request).fillEmpty,
		(*request).joinTexts,
		(*request).dropThinking,
		(*request).dropStrayMembers,
		(*request).settleRoles,
		(*request).fitTools,
		(*request).answerByTool,
		(*request).fitSchemas,

		(*request).leaveOut,
		(*request).settleMode,
		(*request).freeToolChoice,
		(*request).fitBudget,
		(*request).startLoop,

		(*request).dropMisplacedThinking,
		(*request).dropThinkingWhenOff,
		(*request).dropTrailingThinking,
		(*request).standForBlocks,
		(*request).dropThinkingEdits,
		(*request).fitEffort,
		(*request).boundAnswer,
		(*request).fitSampling,
		(*request).dropMarkers,
		markPrefixes,
		(*request).leaveOut, // again, since a rule may have added a refused parameter
		(*request).settleBetas,
	},
	wire.Chat: {
		(*request).replaceContent,
		(*request).readCalls,
		(*request).chainCalls,
		(*request).fillEmpty,
		(*request).joinTexts,
		(*request).dropReasoning,
		(*request).fitTools,
		(*request).fitSchemas,

		(*request).leaveOut,
		(*request).settleRoles, // after a system message may have been added
		(*request).settleMode,
		(*request).freeToolChoice,
		(*request).fitBudget,
		(*request).chooseEffort,
		(*request).fitChatEffort,

		(*request).standForFields,
		(*request).fitSampling,
		(*request).boundAnswer,
		(*request).nameLimit,
		(*request).askUsage,
		splitReasoning,
		(*request).dropMarkers,
		(*request).leaveOut,
	},
}
