package wire

import (
	"net/http"
	"strings"
)

// An Ending is the class of a vendor's reason for the end of an answer.
type Ending int

// The endings.
const (
	EndFailed  Ending = iota // the vendor failed, or the reason is unknown
	EndTurn                  // the model finished, or met a stop sequence
	EndLength                // the limit of tokens or a loop cut the answer
	EndWindow                // the context window is full
	EndTools                 // the model calls tools
	EndFilter                // a filter or the model refused
	EndStopped               // stopped by a user, which no vendor says
)

// endings has the reasons in lower case.
//
// Sources: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons,
// https://platform.openai.com/docs/api-reference/chat/object, https://docs.mistral.ai/api (model_length, error),
// https://api-docs.deepseek.com/api/create-chat-completion (insufficient_system_resource),
// https://docs.z.ai/api-reference/llm/chat-completion (sensitive, model_context_window_exceeded),
// https://docs.together.ai/reference/chat-completions-1 (eos), https://docs.cohere.com/reference/chat (complete,
// tool_call, error_toxic), https://github.com/huggingface/text-generation-inference (eos_token),
// https://docs.vllm.ai/en/latest/api/vllm/v1/engine (abort), https://ai.google.dev/api/generate-content#FinishReason.
var endings = map[string]Ending{
	"stop": EndTurn, StopEndTurn: EndTurn, "stop_sequence": EndTurn, "eos": EndTurn, "eos_token": EndTurn,
	"complete": EndTurn, "completed": EndTurn, "end": EndTurn, "pause_turn": EndTurn, "compaction": EndTurn,

	"length": EndLength, StopMaxTokens: EndLength, "max_output_tokens": EndLength, "model_length": EndLength,
	"repetition_truncation": EndLength, "repetition": EndLength, "limit": EndLength,

	StopWindow: EndWindow, "context_length_exceeded": EndWindow,

	"tool_calls": EndTools, "tool_call": EndTools, StopToolUse: EndTools, "function_call": EndTools,

	"content_filter": EndFilter, "content_filtered": EndFilter, "sensitive": EndFilter, "safety": EndFilter,
	StopRefusal: EndFilter, "recitation": EndFilter, "blocklist": EndFilter, "prohibited_content": EndFilter,
	"spii": EndFilter, "image_safety": EndFilter, "language": EndFilter,
	"error_toxic": EndFilter, "guardrail_intervened": EndFilter,

	StopStopped: EndStopped,
}

// EndingOf returns the class of a finish_reason of chat completions or a stop_reason of messages, in any case of letters.
// An unknown reason is EndFailed.
func EndingOf(reason string) Ending { return endings[strings.ToLower(reason)] }

// FailedEnding returns the failure of an answer that ended for a reason of the class EndFailed.
func FailedEnding(reason string) Failure {
	return Failure{Status: http.StatusBadGateway, Code: "answer_failed",
		Message: "the backend ended its answer with the reason " + Clip(string(Quote(reason)), 100)}
}
