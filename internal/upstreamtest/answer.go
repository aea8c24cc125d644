package upstreamtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Answer is what the model says to one request. Thinking is left out of it if the
// request has thinking off. The other way round nothing is added: an answer to
// Kimi's or DeepSeek's requests that calls a tool without a Think cannot be sent
// back as it is.
type Answer struct {
	Blocks []Block
	// StopReason in the words of the messages dialect; empty is tool_use if a tool
	// is called, else end_turn. Responses also know content_filter and, for a response
	// that fails in the end, failed.
	StopReason string
	// Cut, if set, ends it early.
	Cut *Cut
	// Pause, if set, takes the place of StreamOptions.Pause.
	Pause Pause
}

// Block is a part of an Answer; Think, Omitted, Redacted, Say and Use make them.
type Block struct {
	Type  string // as in the messages dialect
	Text  string // of text and thinking
	Name  string // of a tool
	Input string // of a tool, a JSON object
	ID    string // of a call; empty: one is made as the vendor makes them
}

// Think is a thinking block.
func Think(text string) Block { return Block{Type: thinkingBlock, Text: text} }

// Omitted is a thinking block with a signature and no text.
func Omitted() Block { return Block{Type: thinkingBlock} }

// Redacted is a redacted thinking block. Vendors that have none leave it out.
func Redacted() Block { return Block{Type: redactedBlock} }

// Compact is a compaction of everything before it, of Responses. Other endpoints leave it out.
func Compact(text string) Block { return Block{Type: compactionBlock, Text: text} }

// Say is a text block.
func Say(text string) Block { return Block{Type: textBlock, Text: text} }

// Use calls a tool with a JSON object as its input.
func Use(name, input string) Block { return Block{Type: useBlock, Name: name, Input: input} }

// Reply is an Answer of these blocks.
func Reply(blocks ...Block) Answer { return Answer{Blocks: blocks} }

// CutAfter is a with its connection cut after so many events of the stream: in
// the middle of the next event, or between the two. Of a JSON answer half comes.
func (a Answer) CutAfter(events int, inside bool) Answer {
	a.Cut = &Cut{After: events, Inside: inside}
	return a
}

// FailAfter is a with a stream that ends with an error event of status 529 after so many
// events.
func (a Answer) FailAfter(events int) Answer {
	a.Cut = &Cut{After: events, Error: 529}
	return a
}

// Cut says where an answer ends early.
type Cut struct {
	After  int  // events that come whole
	Inside bool // and half of the next
	Clean  bool // the stream ends as if it were over, as after a proxy between has lost the vendor
	Error  int  // if not 0, an error event of this status instead of a cut connection
}

// issued is a Block as it leaves.
type issued struct {
	Block
	signature string // or the data of a redacted block, or the encrypted content of an item
	item      string // its id as an item of Responses
	unsigned  bool   // the vendor gives no signature
}

// stopReason is why a ends.
func (a Answer) stopReason() string {
	switch {
	case a.StopReason != "":
		return a.StopReason
	case slices.ContainsFunc(a.Blocks, func(b Block) bool { return b.Type == useBlock }):
		return "tool_use"
	}
	return "end_turn"
}

// magicWords make the default answer call a tool.
const magicWords = "use the tool"

// defaultAnswer thinks if it may, calls the first tool on the words "use the
// tool" and then says what the tool gave, else what the user said, or what the
// format of the answer requires.
func defaultAnswer(r *Request) Answer {
	var a Answer
	if r.Thinking && !r.thought {
		a.Blocks = append(a.Blocks,
			Think(fmt.Sprintf("The user says %q. There are %d results so far.", clip(r.User), len(r.Results))))
	}
	asked := strings.Contains(strings.ToLower(r.User), magicWords) || r.forced != ""
	switch {
	case len(r.Results) > 0:
		a.Blocks = append(a.Blocks, Say("The tool gave: "+strings.Join(r.Results, "; ")))
	case asked && len(r.Tools) > 0:
		t := r.Tools[0]
		if i := slices.IndexFunc(r.Tools, func(t Tool) bool { return t.Name == r.forced }); i >= 0 {
			t = r.Tools[i]
		}
		a.Blocks = append(a.Blocks, Say("Let me look."), Use(t.Name, t.sampleInput()))
	case r.format != nil:
		a.Blocks = append(a.Blocks, Say(Tool{Schema: r.format}.sampleInput()))
	default:
		a.Blocks = append(a.Blocks, Say("You said: "+clip(r.User)))
	}
	return a
}

// maxEcho bounds what of the user's text the default answer repeats, in bytes.
const maxEcho = 500

func clip(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	return strings.ToValidUTF8(s[:maxEcho], "") + "…"
}

// Tool is a tool that a request offers.
type Tool struct {
	Name   string
	Schema jsontext.Value // of its input; may be nil

	namespace string // that it stands in, of Responses; empty for none
	custom    bool   // its input is a text
}

// sampleInput fills in what the schema requires.
func (t Tool) sampleInput() string {
	var schema struct {
		Properties map[string]struct {
			Type string           `json:"type"`
			Enum []jsontext.Value `json:"enum"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	// A schema of another shape requires nothing that could be filled in.
	_ = json.Unmarshal(t.Schema, &schema, lenient)
	input := obj()
	for _, name := range schema.Required {
		p := schema.Properties[name]
		value := map[string]string{"integer": "1", "number": "1", "boolean": "true", "array": "[]", "object": "{}"}[p.Type]
		switch {
		case len(p.Enum) > 0:
			value = string(p.Enum[0])
		case value == "":
			value = `"sample"`
		}
		input = input.with(name, []byte(value))
	}
	return string(input)
}
