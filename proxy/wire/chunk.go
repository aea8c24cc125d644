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
	Index    int64
	Finish   string // reason for the end of the choice; empty if it continues
	Ending   Span   // of Finish
	Complete bool   // the completion came whole
	Span            // of what is added to the message, or of the message
	Delta    Object // its members
	Calls    []CallPiece
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
	c.Usage, c.Counted = ReadUsage(Chat, c.Raw(c.Members.Get("usage")))
	for i, span := range c.Elements(c.Members.Get("choices")) {
		members := c.Object(span)
		choice := Choice{Index: number(c, members.Get("index")), Ending: members.Get("finish_reason"),
			Span: members.Get("delta")}
		choice.Finish = stringOf(c.Raw(choice.Ending))
		if choice.Finish == "null" { // DashScope's chunks before the last one
			choice.Finish = ""
		}
		if message := members.Get("message"); !choice.Exists() && message.Exists() {
			choice.Complete, choice.Span = true, message
		}
		choice.Delta = c.Object(choice.Span)
		for i, span := range c.Elements(choice.Delta.Get("tool_calls")) {
			piece := CallPiece{Members: c.Object(span), Index: int64(i), Placed: choice.Complete}
			piece.Function = c.Object(piece.Members.Get("function"))
			if index := piece.Members.Get("index"); !choice.Complete {
				piece.Index, piece.Placed = number(c, index), c.Raw(index).Kind() == '0'
			}
			choice.Calls = append(choice.Calls, piece)
		}
		if i == 0 && !c.Counted { // Moonshot's streams
			c.Usage, c.Counted = ReadUsage(Chat, c.Raw(members.Get("usage")))
		}
		c.Choices = append(c.Choices, choice)
	}
	return c, nil
}

func number(c *Chunk, s Span) int64 { return gjson.ParseBytes(c.Raw(s)).Int() }

// Done reports whether the chunk is the [DONE] behind the last one.
func (c *Chunk) Done() bool { return string(c.Body) == "[DONE]" }

// Failed reports whether the chunk is an error.
func (c *Chunk) Failed() bool {
	failure := c.Raw(c.Members.Get("error"))
	return len(failure) > 0 && failure.Kind() != 'n' || BaseResponseFailed(c.Raw(c.Members.Get("base_resp")))
}

// IsFinal reports whether a stream may end after the chunk.
func (c *Chunk) IsFinal() bool {
	return c.Done() || c.Failed() || len(c.Choices) > 0 && c.Choices[0].Finish != ""
}

// IsPreamble reports whether the chunk announces an answer without any content.
func (c *Chunk) IsPreamble() bool {
	if c.Raw(c.Members.Get("choices")).Kind() != '[' || c.IsFinal() || c.Raw(c.Members.Get("usage")).Kind() == '{' {
		return false
	}
	return len(c.Choices) == 0 || !slices.ContainsFunc(c.Choices[0].Delta, func(m Member) bool {
		v := string(c.Raw(m.Value))
		return m.Name != "role" && v != "null" && v != `""` && v != "[]"
	})
}

// OnlyCounts reports whether the chunk has counts and nothing else.
func (c *Chunk) OnlyCounts() bool {
	return c.Raw(c.Members.Get("usage")).Kind() == '{' && c.Raw(c.Members.Get("choices")).Kind() == '[' &&
		len(c.Choices) == 0
}

// Pieces calls f with each piece of text that the chunk adds, as it stands between the quotes of its JSON string: of the
// answer, of thinking and of the arguments of calls.
func (c *Chunk) Pieces(f func(raw []byte)) {
	for _, choice := range c.Choices {
		for _, m := range choice.Delta {
			switch m.Name {
			case "content", "reasoning_content", "reasoning":
				f(inner(c.Raw(m.Value)))
			}
		}
		for _, call := range choice.Calls {
			f(inner(c.Raw(call.Function.Get("arguments"))))
		}
	}
}
