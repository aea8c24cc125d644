package tracing

import (
	"cmp"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"mneme/memory/telemetry"
)

// This file has all names. Those that begin with gen_ai are of the semantic conventions for generative AI,
// github.com/open-telemetry/semantic-conventions-genai v0.1.0; error.type is of OpenTelemetry's general ones. Langfuse
// and Phoenix read most of them, and beside them those that their own documentation names:
// langfuse.com/integrations/native/opentelemetry, and OpenInference, arize-ai.github.io/openinference/spec.

// Operation is a kind of span.
type Operation struct {
	name        string
	subjectKey  attribute.Key // attribute key of the span's subject
	kind        trace.SpanKind
	observation string // as Langfuse calls it
	inference   string // as OpenInference does
}

// Operations. A span is called by its operation and what it is about, one of a memory by the operation alone.
var (
	Workflow     = Operation{"invoke_workflow", "gen_ai.agent.name", trace.SpanKindInternal, "chain", "CHAIN"}
	Agent        = Operation{"invoke_agent", "gen_ai.agent.name", trace.SpanKindInternal, "agent", "AGENT"}
	Chat         = Operation{"chat", "gen_ai.request.model", trace.SpanKindClient, "generation", "LLM"}
	Embeddings   = Operation{"embeddings", "gen_ai.request.model", trace.SpanKindClient, "embedding", "EMBEDDING"}
	Tool         = Operation{"execute_tool", "gen_ai.tool.name", trace.SpanKindInternal, "tool", "TOOL"}
	Retrieval    = Operation{"retrieval", "gen_ai.data_source.id", trace.SpanKindInternal, "retriever", "RETRIEVER"}
	SearchMemory = Operation{"search_memory", memoryStore, trace.SpanKindInternal, "retriever", "RETRIEVER"}
	CreateMemory = Operation{"create_memory", memoryStore, trace.SpanKindInternal, "span", "CHAIN"}
)

func (o Operation) span(subject string) string {
	if o.subjectKey == memoryStore {
		return o.name
	}
	return strings.TrimSpace(o.name + " " + subject)
}

// What spans are about.
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
	memoryStore = attribute.Key("gen_ai.memory.store.id")
	errorType   = attribute.Key("error.type")

	MemoryRecords = attribute.Key("gen_ai.memory.record.count") // that were found, or made
	ToolCall      = attribute.Key("gen_ai.tool.call.id")        // the model's
	Outcome       = attribute.Key("mneme.outcome")              // how a run or a delegation ended, or that it waits
)

// common are the attributes of every span.
func common(trail telemetry.Trail, b Begin) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", b.Operation.name), b.Operation.subjectKey.String(b.Subject),
		attribute.String("langfuse.observation.type", b.Operation.observation),
		attribute.String("openinference.span.kind", b.Operation.inference),
	}
	for _, attr := range [...]attribute.KeyValue{
		attribute.String("gen_ai.conversation.id", trail.Chat), attribute.String("session.id", trail.Chat),
		attribute.String("user.id", b.User), attribute.String("mneme.run.id", trail.Run),
	} {
		if attr.Value.AsString() != "" {
			attrs = append(attrs, attr)
		}
	}
	return attrs
}

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
	attrs := []attribute.KeyValue{
		attribute.String("gen_ai.provider.name", cmp.Or(providers[c.Vendor], c.Vendor)),
		attribute.String("gen_ai.response.model", c.Model), attribute.String("llm.model_name", c.Model),
		attribute.String("mneme.backend", c.Backend), attribute.Int("mneme.attempts", c.Attempts),
	}
	if c.Input+c.Output > 0 {
		attrs = append(attrs,
			attribute.Int64("gen_ai.usage.input_tokens", c.Input), attribute.Int64("gen_ai.usage.output_tokens", c.Output),
			attribute.Int64("gen_ai.usage.cache_read.input_tokens", c.Cached),
			attribute.Int64("gen_ai.usage.cache_creation.input_tokens", c.Written),
			attribute.Int64("gen_ai.usage.reasoning.output_tokens", c.Reasoning),
			attribute.Int64("llm.token_count.prompt", c.Input), attribute.Int64("llm.token_count.completion", c.Output),
			attribute.Int64("llm.token_count.total", c.Input+c.Output),
			attribute.Int64("llm.token_count.prompt_details.cache_read", c.Cached))
	}
	if c.Priced {
		usd := float64(c.MicroUSD) / 1e6
		attrs = append(attrs, attribute.Int64("mneme.cost_micro_usd", c.MicroUSD), attribute.Float64("llm.cost.total", usd),
			attribute.String("langfuse.observation.cost_details", `{"total":`+encoded(usd)+`}`))
	}
	return attrs
}

// SetInput notes what a user, or another agent, wrote, if that is sent at all.
func (s *Span) SetInput(text string) { s.say("input.value", "gen_ai.input.messages", "user", text) }

// SetOutput notes what an agent answered, if that is sent at all.
func (s *Span) SetOutput(text string) {
	s.say("output.value", "gen_ai.output.messages", "assistant", text)
}

// Arguments notes those of a tool's call, if they are sent at all.
func (s *Span) Arguments(json string) { s.say("input.value", "gen_ai.tool.call.arguments", "", json) }

// Result notes what a tool's call gave, if that is sent at all.
func (s *Span) Result(text string) { s.say("output.value", "gen_ai.tool.call.result", "", text) }

// say notes content: plainly, as Langfuse and Phoenix read it, and as the conventions have it: of a role a message.
func (s *Span) say(plain, convention attribute.Key, role, text string) {
	if s == nil || !s.content || text == "" {
		return
	}
	message := text
	if role != "" {
		message = `[{"role":"` + role + `","parts":[{"type":"text","content":` + encoded(text) + `}]}]`
	}
	s.span.SetAttributes(plain.String(text), convention.String(message))
}

func encoded(v any) string {
	raw, _ := json.Marshal(v) // a text or a number
	return string(raw)
}
