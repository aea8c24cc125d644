package sanitize

import "mneme/proxy/wire"

// Rule names a kind of change in logs and metrics.
type Rule string

// The rules, each in the words of what it did.
const (
	RuleThinking    Rule = "thinking_removed"    // a block that the vendor does not take, or not so
	RuleSignature   Rule = "signature_removed"   // of a block that is no thinking
	RuleMarked      Rule = "thinking_unmarked"   // cache_control of thinking
	RuleReasoning   Rule = "reasoning_removed"   // a field of a chat message
	RulePlaceholder Rule = "reasoning_stood_for" // missing reasoning that the vendor requires
	RuleTrailing    Rule = "trailing_thinking"   // thinking in the last message, where it may not be

	RuleToolID     Rule = "tool_id"         // an id was illegal or in use
	RuleUnanswered Rule = "result_missing"  // a call got a result that says so
	RulePlace      Rule = "result_moved"    // a result was not where its call wants it
	RuleOrphan     Rule = "result_orphaned" // a result without a call became text
	RuleDoubled    Rule = "result_doubled"  // a result that came twice was removed

	RuleEmpty   Rule = "empty"
	RuleRole    Rule = "role"
	RuleMarkers Rule = "cache_markers"
	RuleJoined  Rule = "texts_joined" // the parts of what the user says became one text

	RuleMode       Rule = "thinking_mode"   // asked for in the model's own way
	RuleBudget     Rule = "thinking_budget" // made legal, or thinking is off for want of one
	RuleToolChoice Rule = "tool_choice"     // it forces a tool: thinking is off, or it no longer does
	RuleLoop       Rule = "tool_loop"       // it does not begin with thinking: thinking is off
	RuleEdits      Rule = "clear_thinking"  // an edit that needs thinking
	RuleEffort     Rule = "effort"
	RuleSampling   Rule = "sampling"
	RuleLimit      Rule = "max_tokens"        // under the name that the model takes
	RuleAnswer     Rule = "answer_bounded"    // the request left the answer open
	RuleRefused    Rule = "parameter_refused" // the backend refused it for this model before
	RuleFormat     Rule = "answer_form"       // of the answer: by a tool, since the model has none of its own
	RuleSchema     Rule = "tool_schema"       // of a tool, in a form that the vendor takes
	RuleUsage      Rule = "usage"             // a stream is asked to end with its counts of tokens
	RuleContext    Rule = "context_management"
	RuleBeta       Rule = "beta"
)

// rules are applied in this order. What is wrong with messages in themselves is corrected first, so
// that the rules about thinking see the messages that are sent; and of that the chains of calls and
// results, since leaving out an empty message must not bring a late result next to its call. The
// mode of thinking is settled before everything that depends on it.
var rules = map[wire.Dialect][]func(*request){
	wire.Messages: {
		(*request).chainBlocks,
		(*request).fillEmpty,
		(*request).joinTexts,
		(*request).dropThinking,
		(*request).dropStrayMembers,
		(*request).settleRoles,
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
		(*request).readCalls,
		(*request).chainCalls,
		(*request).fillEmpty,
		(*request).joinTexts,
		(*request).dropReasoning,
		(*request).settleRoles,
		(*request).fitSchemas,

		(*request).leaveOut,
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
		(*request).dropMarkers,
		(*request).leaveOut,
	},
}
