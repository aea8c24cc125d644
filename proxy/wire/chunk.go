package wire

import (
	"slices"

	"github.com/tidwall/gjson"
)

// Chunk is one event of a streamed chat completion, read once for all who want to know of it, or a completion that came
// whole, of which the message is all that is added. It decodes no text.
type Chunk struct {
	Outline // of its data, with its members
	Choices []Choice
	Usage   Usage
	Counted bool // by Usage
}

// Choice is what a chunk says of one choice.
type Choice struct {
	Index  int64
	Finish string // why the choice ended; empty if it goes on
	Ending Span   // of Finish
	Whole  bool   // the completion came whole
	Span          // of what is added to the message, or of the message
	Delta  Object // its members
	Calls  []CallPiece
}

// CallPiece is a piece of a tool call, or a call.
type CallPiece struct {
	Members, Function Object
	Index             int64
	Placed            bool // the index is the vendor's, or the place in a whole message
}

// ReadChunk reads the data of an event, or a body. Data without any, as a comment has, and [DONE] are chunks that have
// nothing. Errors wrap ErrBadJSON.
func ReadChunk(data []byte) (*Chunk, error) {
	c := &Chunk{Outline: Outline{Body: data}}
	if len(data) == 0 || c.Done() {
		return c, nil
	}
	o, err := readObject(data)
	if err != nil {
		return c, err
	}
	c.Members = o.Members
	c.Usage, c.Counted = ReadUsage(Chat, c.Of(c.Members.Get("usage")))
	for i, at := range c.Elements(c.Members.Get("choices")) {
		of := c.Object(at)
		choice := Choice{Index: number(c, of.Get("index")), Ending: of.Get("finish_reason"), Span: of.Get("delta")}
		choice.Finish = stringOf(c.Of(choice.Ending))
		if choice.Finish == "null" { // DashScope's chunks before the last one
			choice.Finish = ""
		}
		if message := of.Get("message"); !choice.Found() && message.Found() {
			choice.Whole, choice.Span = true, message
		}
		choice.Delta = c.Object(choice.Span)
		for i, at := range c.Elements(choice.Delta.Get("tool_calls")) {
			piece := CallPiece{Members: c.Object(at), Index: int64(i), Placed: choice.Whole}
			piece.Function = c.Object(piece.Members.Get("function"))
			if index := piece.Members.Get("index"); !choice.Whole {
				piece.Index, piece.Placed = number(c, index), c.Of(index).Kind() == '0'
			}
			choice.Calls = append(choice.Calls, piece)
		}
		if i == 0 && !c.Counted { // Moonshot's streams
			c.Usage, c.Counted = ReadUsage(Chat, c.Of(of.Get("usage")))
		}
		c.Choices = append(c.Choices, choice)
	}
	return c, nil
}

func number(c *Chunk, s Span) int64 { return gjson.ParseBytes(c.Of(s)).Int() }

// Done reports whether the chunk is the [DONE] behind the last one.
func (c *Chunk) Done() bool { return string(c.Body) == "[DONE]" }

// Failed reports whether the chunk is an error.
func (c *Chunk) Failed() bool {
	failure := c.Of(c.Members.Get("error"))
	return len(failure) > 0 && failure.Kind() != 'n' || BaseResponseFailed(c.Of(c.Members.Get("base_resp")))
}

// Ends reports whether the chunk is one after which a stream may end.
func (c *Chunk) Ends() bool {
	return c.Done() || c.Failed() || len(c.Choices) > 0 && c.Choices[0].Finish != ""
}

// Begins reports whether the chunk says that an answer will come, and nothing of it.
func (c *Chunk) Begins() bool {
	if c.Of(c.Members.Get("choices")).Kind() != '[' || c.Ends() || c.Of(c.Members.Get("usage")).Kind() == '{' {
		return false
	}
	return len(c.Choices) == 0 || !slices.ContainsFunc(c.Choices[0].Delta, func(m Member) bool {
		v := string(c.Of(m.Value))
		return m.Name != "role" && v != "null" && v != `""` && v != "[]"
	})
}

// OnlyCounts reports whether the chunk has counts and nothing else.
func (c *Chunk) OnlyCounts() bool {
	return c.Of(c.Members.Get("usage")).Kind() == '{' && c.Of(c.Members.Get("choices")).Kind() == '[' &&
		len(c.Choices) == 0
}

// Pieces calls f with each piece of text that the chunk adds, as it stands between the quotes of its JSON string: of the
// answer, of thinking and of the arguments of calls.
func (c *Chunk) Pieces(f func(raw []byte)) {
	for _, choice := range c.Choices {
		for _, m := range choice.Delta {
			switch m.Name {
			case "content", "reasoning_content", "reasoning":
				f(inner(c.Of(m.Value)))
			}
		}
		for _, call := range choice.Calls {
			f(inner(c.Of(call.Function.Get("arguments"))))
		}
	}
}
