package tracing

import (
	"encoding/json"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// This file has all names. Those that begin with gen_ai are of the semantic conventions for generative AI,
// github.com/open-telemetry/semantic-conventions-genai v0.1.0; what is common to all spans, as error.type, is of
// OpenTelemetry's general ones. Langfuse and Phoenix read most of them, and beside them those that their own
// documentation names: langfuse.com/integrations/native/opentelemetry, and the specification of OpenInference.

// Operation is a kind of span.
type Operation struct {
	name        string
	of          attribute.Key // what says what it is about, and stands behind name in the span's name
	kind        trace.SpanKind
	observation string // as Langfuse calls it
	inference   string // as OpenInference does
}

// Operations.
var (
	Workflow     = Operation{"invoke_workflow", agentName, trace.SpanKindInternal, "chain", "CHAIN"}
	Agent        = Operation{"invoke_agent", agentName, trace.SpanKindInternal, "agent", "AGENT"}
	Chat         = Operation{"chat", requestModel, trace.SpanKindClient, "generation", "LLM"}
	Embeddings   = Operation{"embeddings", requestModel, trace.SpanKindClient, "embedding", "EMBEDDING"}
	Tool         = Operation{"execute_tool", toolName, trace.SpanKindInternal, "tool", "TOOL"}
	Retrieval    = Operation{"retrieval", dataSource, trace.SpanKindInternal, "retriever", "RETRIEVER"}
	SearchMemory = Operation{"search_memory", memoryStore, trace.SpanKindInternal, "retriever", "RETRIEVER"}
	CreateMemory = Operation{"create_memory", memoryStore, trace.SpanKindInternal, "span", "CHAIN"}
)

// Names behind an Operation, and of memories.
const (
	Mneme     = "mneme" // the workflow, which is a run
	Documents = "documents"
	History   = "history"
	Notes     = "notes"
)

// ToolFailed is the error of a call that gave its model an error.
const ToolFailed = "tool_failed"

// Attributes.
const (
	agentName    = attribute.Key("gen_ai.agent.name")
	conversation = attribute.Key("gen_ai.conversation.id")
	dataSource   = attribute.Key("gen_ai.data_source.id")
	memoryStore  = attribute.Key("gen_ai.memory.store.id")
	operation    = attribute.Key("gen_ai.operation.name")
	provider     = attribute.Key("gen_ai.provider.name")
	requestModel = attribute.Key("gen_ai.request.model")
	toolName     = attribute.Key("gen_ai.tool.name")
	errorType    = attribute.Key("error.type")

	// MemoryRecords is how many were found, or made.
	MemoryRecords = attribute.Key("gen_ai.memory.record.count")
	// ToolCall is the model's id of a call.
	ToolCall = attribute.Key("gen_ai.tool.call.id")

	responseModel = attribute.Key("gen_ai.response.model")
	inputTokens   = attribute.Key("gen_ai.usage.input_tokens")
	outputTokens  = attribute.Key("gen_ai.usage.output_tokens")
	cacheRead     = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	cacheCreation = attribute.Key("gen_ai.usage.cache_creation.input_tokens")
	reasoning     = attribute.Key("gen_ai.usage.reasoning.output_tokens")

	// What the conventions have no name for.
	run      = attribute.Key("mneme.run.id")
	backend  = attribute.Key("mneme.backend")
	attempts = attribute.Key("mneme.attempts")
	cost     = attribute.Key("mneme.cost_micro_usd")
	// Outcome is how a run or a delegation ended, or that it waits.
	Outcome = attribute.Key("mneme.outcome")

	session  = attribute.Key("session.id") // both read it
	user     = attribute.Key("user.id")    // both read it
	observed = attribute.Key("langfuse.observation.type")
	costs    = attribute.Key("langfuse.observation.cost_details")
	inferred = attribute.Key("openinference.span.kind")
	llmModel = attribute.Key("llm.model_name")
	llmIn    = attribute.Key("llm.token_count.prompt")
	llmOut   = attribute.Key("llm.token_count.completion")
	llmTotal = attribute.Key("llm.token_count.total")
	llmRead  = attribute.Key("llm.token_count.prompt_details.cache_read")
	llmCost  = attribute.Key("llm.cost.total")

	// What users, models and tools wrote: only with Exporter's content.
	inputMessages  = attribute.Key("gen_ai.input.messages")
	outputMessages = attribute.Key("gen_ai.output.messages")
	toolArguments  = attribute.Key("gen_ai.tool.call.arguments")
	toolResult     = attribute.Key("gen_ai.tool.call.result")
	inputValue     = attribute.Key("input.value")  // both read it
	outputValue    = attribute.Key("output.value") // both read it
)

// providers are the vendors that the conventions call otherwise than the gateway does.
var providers = map[string]string{
	"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "gemini": "gcp.gemini", "kimi": "moonshot_ai",
	"mistral": "mistral_ai", "xai": "x_ai",
}

// Call is what a call of a model took. Tokens are counted as in tally.Counts.
type Call struct {
	Vendor, Backend, Model                    string // Model as the backend calls it
	Attempts                                  int
	Input, Cached, Written, Output, Reasoning int64
	MicroUSD                                  int64
	Priced                                    bool // MicroUSD is known
}

func (c Call) attributes() []attribute.KeyValue {
	vendor := c.Vendor
	if known := providers[vendor]; known != "" {
		vendor = known
	}
	all := []attribute.KeyValue{provider.String(vendor), backend.String(c.Backend), attempts.Int(c.Attempts)}
	if c.Model != "" {
		all = append(all, responseModel.String(c.Model), llmModel.String(c.Model))
	}
	if c.Input+c.Output > 0 {
		all = append(all, inputTokens.Int64(c.Input), outputTokens.Int64(c.Output), cacheRead.Int64(c.Cached),
			cacheCreation.Int64(c.Written), reasoning.Int64(c.Reasoning), llmIn.Int64(c.Input), llmOut.Int64(c.Output),
			llmTotal.Int64(c.Input+c.Output), llmRead.Int64(c.Cached))
	}
	if c.Priced {
		usd := float64(c.MicroUSD) / 1e6
		raw, _ := json.Marshal(map[string]float64{"total": usd}) // a number
		all = append(all, cost.Int64(c.MicroUSD), llmCost.Float64(usd), costs.String(string(raw)))
	}
	return all
}

// message is a text as the conventions have messages.
func message(role, text string) string {
	type part struct {
		Type    string `json:"type"`
		Content string `json:"content"`
	}
	raw, _ := json.Marshal([]any{map[string]any{"role": role, "parts": []part{{"text", text}}}}) // plain text
	return string(raw)
}

// names is how a span about something is called. Those of memories are called by what is done alone.
func (o Operation) names(about string) string {
	if o.of == memoryStore {
		return o.name
	}
	return strings.Join(slices.DeleteFunc([]string{o.name, about}, func(s string) bool { return s == "" }), " ")
}
