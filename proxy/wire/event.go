package wire

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

// Types of stream events.
const (
	MessageStart = "message_start"
	BlockStart   = "content_block_start"
	BlockDelta   = "content_block_delta"
	BlockStop    = "content_block_stop"
	MessageDelta = "message_delta"
	MessageStop  = "message_stop"
	ErrorEvent   = "error"
)

// eventTypes interns the types of events. EventType looks for them at the very beginning of the
// data, where vendors put the type.
var eventTypes = func() map[string]string {
	m := map[string]string{"ping": "ping"}
	for _, t := range []string{
		MessageStart, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop, ErrorEvent,
		// Of Responses those that a stream has many of, and those that the gateway acts on.
		"response.created", "response.in_progress", "response.queued", "response.output_item.added",
		"response.output_item.done", "response.content_part.added", "response.content_part.done",
		"response.output_text.delta", "response.output_text.done", "response.reasoning_summary_part.added",
		"response.reasoning_summary_part.done", "response.reasoning_summary_text.delta",
		"response.reasoning_summary_text.done", "response.function_call_arguments.delta",
		"response.function_call_arguments.done", "response.completed", "response.incomplete",
	} {
		m[t] = t
	}
	return m
}()

// EventType is the type of a stream's event or of a whole answer; empty if its data has none.
func EventType(data []byte) string {
	if rest, ok := bytes.CutPrefix(data, []byte(`{"type":"`)); ok {
		if t, ok := eventTypes[string(rest[:max(0, bytes.IndexByte(rest, '"'))])]; ok {
			return t
		}
	}
	return gjson.GetBytes(data, "type").Str
}

// Types of a content_block_delta.
const (
	TextDelta      = "text_delta"
	ThinkingDelta  = "thinking_delta"
	SignatureDelta = "signature_delta"
	InputDelta     = "input_json_delta"
)

// Event is one event of a streamed answer; Type says which fields are set.
type Event struct {
	Type    string    `json:"type"`
	Message *Response `json:"message,omitzero"`
	Index   int       `json:"index"`
	Block   *Block    `json:"content_block,omitzero"`
	Delta   Delta     `json:"delta,omitzero"`
	Usage   Usage     `json:"usage,omitzero"` // cumulative
}

// Delta is what a content_block_delta or a message_delta adds.
type Delta struct {
	Type         string     `json:"type,omitzero"`
	Text         string     `json:"text,omitzero"`
	Thinking     string     `json:"thinking,omitzero"`
	Signature    string     `json:"signature,omitzero"`
	PartialJSON  string     `json:"partial_json,omitzero"`
	StopReason   NullString `json:"stop_reason,omitzero"`
	StopSequence NullString `json:"stop_sequence,omitzero"`
}

// MarshalJSONTo writes exactly the fields of the event's type.
func (v Event) MarshalJSONTo(e *jsontext.Encoder) error {
	switch v.Type {
	case MessageStart:
		return json.MarshalEncode(e, struct {
			Type    string    `json:"type"`
			Message *Response `json:"message"`
		}{v.Type, v.Message})
	case BlockStart:
		return json.MarshalEncode(e, struct {
			Type  string `json:"type"`
			Index int    `json:"index"`
			Block *Block `json:"content_block"`
		}{v.Type, v.Index, v.Block})
	case BlockDelta:
		return json.MarshalEncode(e, struct {
			Type  string `json:"type"`
			Index int    `json:"index"`
			Delta Delta  `json:"delta"`
		}{v.Type, v.Index, v.Delta})
	case BlockStop:
		return json.MarshalEncode(e, struct {
			Type  string `json:"type"`
			Index int    `json:"index"`
		}{v.Type, v.Index})
	case MessageDelta:
		return json.MarshalEncode(e, struct {
			Type  string `json:"type"`
			Delta struct {
				StopReason   NullString `json:"stop_reason"`
				StopSequence NullString `json:"stop_sequence"`
			} `json:"delta"`
			Usage Usage `json:"usage"`
		}{v.Type, struct {
			StopReason   NullString `json:"stop_reason"`
			StopSequence NullString `json:"stop_sequence"`
		}{v.Delta.StopReason, v.Delta.StopSequence}, v.Usage})
	}
	return json.MarshalEncode(e, struct {
		Type string `json:"type"`
	}{v.Type})
}

// Events is the stream that is equivalent to r.
func (r Response) Events() []Event {
	head := r
	head.Content, head.StopReason, head.StopSequence = Content{}, "", ""
	events := []Event{{Type: MessageStart, Message: &head}}
	for i, b := range r.Content {
		start, deltas := b.split()
		events = append(events, Event{Type: BlockStart, Index: i, Block: &start})
		for _, d := range deltas {
			events = append(events, Event{Type: BlockDelta, Index: i, Delta: d})
		}
		events = append(events, Event{Type: BlockStop, Index: i})
	}
	return append(events,
		Event{Type: MessageDelta, Delta: Delta{StopReason: r.StopReason, StopSequence: r.StopSequence}, Usage: r.Usage},
		Event{Type: MessageStop})
}

// split splits a block into its start and the deltas that follow.
func (b Block) split() (start Block, deltas []Delta) {
	start = b
	switch b.Type {
	case TextBlock:
		start.Text = ""
		deltas = []Delta{{Type: TextDelta, Text: b.Text}}
	case ThinkingBlock:
		start.Thinking, start.Signature = "", ""
		if b.Thinking != "" {
			deltas = append(deltas, Delta{Type: ThinkingDelta, Thinking: b.Thinking})
		}
		if b.Signature != "" {
			deltas = append(deltas, Delta{Type: SignatureDelta, Signature: b.Signature})
		}
	case ToolUseBlock:
		start.Input = jsontext.Value("{}")
		deltas = []Delta{{Type: InputDelta, PartialJSON: string(orEmptyObject(b.Input))}}
	}
	return start, deltas
}

// Assembler puts a streamed answer together. The zero value is ready for use.
type Assembler struct {
	response Response
	grown    []byte // text, thinking or input of the open block
	started  bool
	stopped  bool
}

// Add takes the next event. An event for a block that is not open is an error.
func (a *Assembler) Add(e Event) error {
	last := len(a.response.Content) - 1
	switch e.Type {
	case MessageStart:
		if e.Message == nil {
			return fmt.Errorf("%s without a message", e.Type)
		}
		a.response, a.started = *e.Message, true
	case BlockStart:
		if e.Block == nil || e.Index != last+1 {
			return fmt.Errorf("%s at index %d, expected a block at %d", e.Type, e.Index, last+1)
		}
		a.response.Content = append(a.response.Content, *e.Block)
		a.grown = nil
	case BlockDelta, BlockStop:
		if e.Index != last || last < 0 {
			return fmt.Errorf("%s at index %d, the open block is %d", e.Type, e.Index, last)
		}
		if e.Type == BlockStop {
			a.close(&a.response.Content[last])
			break
		}
		a.grown = append(append(append(a.grown, e.Delta.Text...), e.Delta.Thinking...), e.Delta.PartialJSON...)
		a.response.Content[last].Signature += e.Delta.Signature
	case MessageDelta:
		a.response.StopReason, a.response.StopSequence = e.Delta.StopReason, e.Delta.StopSequence
		a.response.Usage.Update(e.Usage)
	case MessageStop:
		a.stopped = true
	}
	return nil
}

// close completes a block with what has grown.
func (a *Assembler) close(b *Block) {
	switch b.Type {
	case TextBlock:
		b.Text += string(a.grown)
	case ThinkingBlock:
		b.Thinking += string(a.grown)
	case ToolUseBlock:
		if len(a.grown) > 0 {
			b.Input = InputObject(string(a.grown))
		}
	}
	a.grown = nil
}

// Response is the answer; ok is false until it is complete.
func (a *Assembler) Response() (r Response, ok bool) {
	return a.response, a.started && a.stopped
}
