package upstreamtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Answer is the model's answer to one request. A Server leaves its thinking out if the request disables thinking. It
// adds nothing. Kimi and DeepSeek refuse an answer that calls a tool without a Think when it comes back.
type Answer struct {
	Blocks []Block
	// StopReason is a word of the messages dialect. If it is empty, it is tool_use for an answer with a call, else
	// end_turn. Responses also accept content_filter and, for a failing response, failed.
	StopReason string
	// Cut, if set, ends the answer early.
	Cut *Cut
	// Pause, if set, replaces StreamOptions.Pause.
	Pause Pause
}

// Block is a part of an Answer. Think, Omitted, Redacted, Compact, Say and Use return blocks.
type Block struct {
	Type  string // as in the messages dialect
	Text  string // of text and thinking
	Name  string // of a tool
	Input string // of a tool, a JSON object
	ID    string // of a call; if empty, the vendor makes one
}

// Think returns a thinking block.
func Think(text string) Block { return Block{Type: thinkingBlock, Text: text} }

// Omitted returns a thinking block with a signature and without text.
func Omitted() Block { return Block{Type: thinkingBlock} }

// Redacted returns a redacted thinking block. Vendors without such blocks leave it out.
func Redacted() Block { return Block{Type: redactedBlock} }

// Compact returns a compaction of everything before it. Only Responses send it.
func Compact(text string) Block { return Block{Type: compactionBlock, Text: text} }

// Say returns a text block.
func Say(text string) Block { return Block{Type: textBlock, Text: text} }

// Use returns a call of a tool. The input is a JSON object.
func Use(name, input string) Block { return Block{Type: useBlock, Name: name, Input: input} }

// Reply returns an Answer of these blocks.
func Reply(blocks ...Block) Answer { return Answer{Blocks: blocks} }

// CutAfter returns a with its connection cut after this many events of the stream. If inside is set, half of the next
// event arrives as well. Of a JSON answer half arrives.
func (a Answer) CutAfter(events int, inside bool) Answer {
	a.Cut = &Cut{Events: events, Inside: inside}
	return a
}

// FailAfter returns a with a stream that ends with an error event of status 529 after this many events.
func (a Answer) FailAfter(events int) Answer {
	a.Cut = &Cut{Events: events, Error: 529}
	return a
}

// Cut is the place where an answer ends early.
type Cut struct {
	Events int  // events that arrive whole
	Inside bool // half of the next event arrives
	Clean  bool // the stream ends without an error, as behind a proxy that lost the vendor
	Error  int  // if not 0, an error event of this status replaces the cut connection
}

// issued is a Block with the parts that the vendor adds.
type issued struct {
	Block
	signature string // or the data of a redacted block, or the encrypted content of an item
	item      string // its id as an item of Responses
	unsigned  bool   // the vendor gives no signature
}

// stopReason returns the reason why a ends.
func (a Answer) stopReason() string {
	switch {
	case a.StopReason != "":
		return a.StopReason
	case slices.ContainsFunc(a.Blocks, func(b Block) bool { return b.Type == useBlock }):
		return "tool_use"
	}
	return "end_turn"
}

// magicWords in the user's text make the default answer call a tool.
const magicWords = "use the tool"

// defaultAnswer returns an answer that thinks if it may. On the words "use the tool" it calls the first tool, and
// then repeats the result. Else it repeats the user's text, or fills in the requested format.
func defaultAnswer(r *Request) Answer {
	var a Answer
	if r.Thinking && !r.thought {
		a.Blocks = append(a.Blocks,
			Think(fmt.Sprintf("The user says %q. There are %d results so far.", clip(r.User), len(r.Results))))
	}
	calls := strings.Contains(strings.ToLower(r.User), magicWords) || r.forced != ""
	switch {
	case len(r.Results) > 0:
		a.Blocks = append(a.Blocks, Say("The tool gave: "+strings.Join(r.Results, "; ")))
	case calls && len(r.Tools) > 0:
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

// maxEcho is the most of the user's text that the default answer repeats, in bytes.
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

	namespace string // the namespace of a Responses tool; may be empty
	custom    bool   // its input is a text
}

// sampleInput returns an object with the required members of the schema.
func (t Tool) sampleInput() string {
	var schema struct {
		Properties map[string]struct {
			Type string           `json:"type"`
			Enum []jsontext.Value `json:"enum"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	// A schema of another shape has no known required members.
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
