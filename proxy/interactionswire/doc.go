// Package interactionswire translates between the messages dialect of package wire and Google's Interactions (POST
// /v1beta/interactions), which is spoken with backends only: requests by InteractionsRequest, answers by
// MessagesAnswer, with one state machine for streams and for JSON.
//
// It owns the state of one answer at a time, and no goroutine. Nothing is stored at the vendor, and no interaction goes
// on from another one: each request has the whole conversation. docs/dialects.md says what becomes of each member of a
// request.
package interactionswire

import (
	"github.com/go-json-experiment/json/jsontext"
)

// The shapes are those of the schema of steps, which is the only one since June 2026. Sources, read on 2026-11-27:
//
//	googleapis/js-genai@6e9b35c (2.18.0) src/gaos/models/interactions/*.ts   requests, steps, events, usage, errors
//	googleapis/js-genai@6e9b35c sdk-samples/interactions_stateless.ts        store: false, steps go back as they came
//	https://ai.google.dev/gemini-api/docs/streaming                          the events of a stream and their order
//	https://ai.google.dev/gemini-api/docs/interactions/thinking              signatures without a state at the vendor
//	https://ai.google.dev/gemini-api/docs/api-errors                         codes of errors
//
// What the vendor thinks is a step of its own, with an encrypted signature, and has to come back exactly as it was. So
// its bytes are sealed in the signature of a thinking block (wire.Seal), whose text is the summary. What a call has
// beyond id, name and arguments is sealed in a thinking block without a text behind it, be it nothing: by that the
// calls of this vendor are known from others'. Both are thinking, so that the ledger gives them back to this vendor alone.

// request is a request for an interaction.
type request struct {
	Model  string            `json:"model"`
	System string            `json:"system_instruction,omitzero"`
	Input  []jsontext.Value  `json:"input"`
	Tools  []tool            `json:"tools,omitempty"`
	Config *generationConfig `json:"generation_config,omitzero"`
	Format jsontext.Value    `json:"response_format,omitzero"`
	Store  bool              `json:"store"`
	Stream bool              `json:"stream,omitzero"`
}

// generationConfig has no temperature, top_p and top_k: the schema has none.
type generationConfig struct {
	MaxTokens  int64          `json:"max_output_tokens,omitzero"`
	Stop       []string       `json:"stop_sequences,omitempty"`
	Level      string         `json:"thinking_level,omitzero"`
	Summaries  string         `json:"thinking_summaries,omitzero"`
	ToolChoice jsontext.Value `json:"tool_choice,omitzero"`
}

type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"`
}

// Types of steps that translation maps.
const (
	userStep    = "user_input"
	outputStep  = "model_output"
	thoughtStep = "thought"
	callStep    = "function_call"
	resultStep  = "function_result"
)

// step is a part of a conversation; Type says which fields count.
type step struct {
	Type    string    `json:"type"`
	Content []content `json:"content,omitempty"`

	Signature string    `json:"signature,omitzero"` // of a thought; of a call, in answers
	Summary   []content `json:"summary,omitempty"`

	ID        string         `json:"id,omitzero"` // of a call
	Name      string         `json:"name,omitzero"`
	Arguments jsontext.Value `json:"arguments,omitzero"`

	CallID  string         `json:"call_id,omitzero"` // of a result
	IsError bool           `json:"is_error,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"` // a text, or a list of texts and images

	Error jsontext.Value `json:"error,omitzero"` // of an output that failed
}

// content is a text, an image or a document, by the types that blocks have.
type content struct {
	Type string `json:"type"`
	Text string `json:"text,omitzero"`
	Data string `json:"data,omitzero"` // base64
	Mime string `json:"mime_type,omitzero"`
	URI  string `json:"uri,omitzero"`
}

// interaction is an answer, as far as translation needs it.
type interaction struct {
	ID     string           `json:"id"`
	Model  string           `json:"model"`
	Status string           `json:"status"`
	Steps  []jsontext.Value `json:"steps"`
	Usage  jsontext.Value   `json:"usage"`
}

// event is one event of a streamed answer; Type says which fields count.
type event struct {
	Type        string         `json:"event_type"`
	Index       int            `json:"index"`
	Step        jsontext.Value `json:"step"`
	Delta       delta          `json:"delta"`
	Interaction *interaction   `json:"interaction"`
	Error       jsontext.Value `json:"error"`
}

// delta is what an event adds to a step.
type delta struct {
	Type      string   `json:"type"`
	Text      string   `json:"text"`
	Content   *content `json:"content"` // of a summary
	Signature string   `json:"signature"`

	Arguments jsontext.Value `json:"arguments"` // of a call: a text, which is a piece of JSON
}
