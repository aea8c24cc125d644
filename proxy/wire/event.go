package wire

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"

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

// EventType is the type of a stream's event or of a whole answer; empty if its data has none.
func EventType(data []byte) string {
	if rest, ok := bytes.CutPrefix(data, []byte(`{"type":"`)); ok {
		if t, ok := names[string(rest[:max(0, bytes.IndexByte(rest, '"'))])]; ok {
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
	CitationsDelta = "citations_delta"
)

// Event is one event of an answer in the messages dialect, in which all of the gateway hears what a backend says: read
// once from a vendor's frame, or made of what a vendor of another dialect says. Type says which fields are set.
type Event struct {
	Type    string    `json:"type"`
	Message *Response `json:"message,omitzero"`
	Index   int       `json:"index"`
	Block   *Block    `json:"content_block,omitzero"`
	Delta   Delta     `json:"delta,omitzero"`
	Usage   Usage     `json:"usage,omitzero"` // cumulative

	// Data is the event as its vendor wrote it, in the memory of its frame; nil for one that was made here.
	Data []byte `json:"-"`
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

	// Raw is what ReadEvent has in place of the text that is added: what stands between the quotes of its JSON string, in
	// the event's memory, since pieces can be joined so even where one ends inside of a surrogate pair. Of a citation it
	// is the value.
	Raw []byte `json:"-"`
}

// Inner is what a delta adds, as it stands between the quotes of a JSON string.
func (d *Delta) Inner() []byte {
	if d.Raw == nil {
		d.Raw = Inner(d.Text + d.Thinking + d.PartialJSON + d.Signature)
	}
	return d.Raw
}

// added are the members that a delta adds to, by its type.
var added = map[string]string{
	TextDelta: "text", ThinkingDelta: "thinking", InputDelta: "partial_json", SignatureDelta: "signature",
	CitationsDelta: "citation",
}

// ReadEvent reads the data of an event. Of its strings it decodes those that say what it is, and no text. Data without
// any, as a comment has, and [DONE] are events without a type. Errors wrap ErrBadJSON.
func ReadEvent(data []byte) (Event, error) {
	e := Event{Data: data}
	if e.piece() || len(data) == 0 || string(data) == "[DONE]" {
		return e, nil
	}
	return e, read(data, '{', e.read)
}

// The members of events that are read, in the order of the spans in which find puts them.
var (
	membersOfEvent   = []string{"type", "index", "delta", "content_block", "message", "usage"}
	membersOfMessage = []string{"id", "model", "usage"}
	membersOfBlock   = []string{"type", "text", "thinking", "signature", "id", "name", "input"}
	membersOfDelta   = []string{"type", "text", "thinking", "partial_json", "signature", "citation", "stop_reason",
		"stop_sequence"}
)

func (e *Event) read(r *outliner) error {
	var values [8][]byte
	if err := r.find(membersOfEvent, values[:]); err != nil {
		return err
	}
	e.Type, e.Index = stringOf(values[0]), int(gjson.ParseBytes(values[1]).Int())
	delta, block, message := values[2], values[3], values[4]
	e.Usage, _ = ReadUsage(Messages, values[5])
	switch {
	case e.Type == MessageStart && findIn(message, membersOfMessage, values[:]):
		e.Message = &Response{ID: stringOf(values[0]), Type: "message", Role: RoleAssistant, Model: stringOf(values[1]),
			Content: Content{}}
		e.Message.Usage, _ = ReadUsage(Messages, values[2])
	case e.Type == BlockStart && findIn(block, membersOfBlock, values[:]):
		e.Block = &Block{Type: stringOf(values[0]), Text: stringOf(values[1]), Thinking: stringOf(values[2]),
			Signature: stringOf(values[3]), ID: stringOf(values[4]), Name: stringOf(values[5]), Input: values[6], Raw: block}
	case (e.Type == BlockDelta || e.Type == MessageDelta) && findIn(delta, membersOfDelta, values[:]):
		e.Delta = Delta{Type: stringOf(values[0]), StopReason: NullString(stringOf(values[6])),
			StopSequence: NullString(stringOf(values[7])), Raw: []byte{}}
		if i := slices.Index(membersOfDelta, added[e.Delta.Type]); i == 5 {
			e.Delta.Raw = values[i]
		} else if i > 0 {
			e.Delta.Raw = inner(values[i])
		}
	}
	return nil
}

// inner is what stands between the quotes of a raw string, in valid UTF-8; empty for a value of another kind.
func inner(v []byte) []byte {
	switch {
	case len(v) < 2 || v[0] != '"':
		return []byte{}
	case !utf8.Valid(v):
		v = Quote(stringOf(v))
	}
	return v[1 : len(v)-1]
}

// JSON is the event's data.
func (e *Event) JSON() []byte {
	if e.Data != nil {
		return e.Data
	}
	dst := append(append(append(make([]byte, 0, 128+len(e.Delta.Raw)), `{"type":"`...), e.Type...), '"')
	switch e.Type {
	case BlockStart, BlockDelta, BlockStop:
		dst = strconv.AppendInt(append(dst, `,"index":`...), int64(e.Index), 10)
	}
	switch e.Type {
	case MessageStart:
		dst = e.Message.append(append(dst, `,"message":`...), []byte("[]"))
	case BlockStart:
		dst = e.Block.append(append(dst, `,"content_block":`...))
	case BlockDelta:
		dst = append(append(append(dst, `,"delta":{"type":"`...), e.Delta.Type...), `","`...)
		dst = append(append(append(dst, added[e.Delta.Type]...), `":"`...), e.Delta.Inner()...)
		dst = append(dst, `"}`...)
	case MessageDelta:
		dst = e.Delta.StopReason.append(append(dst, `,"delta":{"stop_reason":`...))
		dst = e.Delta.StopSequence.append(append(dst, `,"stop_sequence":`...))
		dst = e.Usage.append(append(dst, `},"usage":`...))
	}
	return append(dst, '}')
}

// MarshalJSONTo writes exactly the fields of the event's type.
func (e Event) MarshalJSONTo(enc *jsontext.Encoder) error { return enc.WriteValue(e.JSON()) }

// Clone is the event without the memory of its frame, which is used again.
func (e Event) Clone() Event {
	if e.Data == nil {
		return e
	}
	clone, _ := ReadEvent(slices.Clone(e.Data)) // it was read before
	return clone
}

// Shift has an event be about a block so many places further behind, or before.
func (e *Event) Shift(n int) {
	if n == 0 {
		return
	}
	e.Index += n
	if value := gjson.GetBytes(e.Data, "index"); value.Index > 0 {
		e.Data = Splice(e.Data, Span{Start: value.Index, End: value.Index + len(value.Raw)},
			strconv.AppendInt(nil, int64(e.Index), 10))
	}
}

// ReadEvents reads an answer that came as one JSON body, as the events that a stream would have had. An error is
// returned as a Failure.
func ReadEvents(body []byte) ([]Event, error) {
	var r Response
	if err := Unmarshal(body, &r); err != nil {
		return nil, err
	}
	if r.Type == ErrorEvent {
		return nil, ReadFailure(0, body)
	}
	return r.Events(), nil
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
