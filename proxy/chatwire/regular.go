package chatwire

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// Regular rewrites the chunks of one answer that differ from OpenAI's format, so that everything after it reads one
// format. Regular chunks keep their bytes. It handles
//   - content as a list of parts, with Mistral's reasoning in parts of type thinking
//     (https://docs.mistral.ai/capabilities/reasoning), which becomes reasoning_content,
//   - reasoning between <think> tags at the beginning of the content, as local servers without a reasoning parser and
//     MiniMax send it (https://github.com/vllm-project/vllm/issues/12468), which becomes reasoning_content too,
//   - MiniMax's reasoning_details without any other member of reasoning, whose text becomes reasoning_content too. Its
//     chunks have the next piece, or all of the text so far (https://github.com/MiniMax-AI/MiniMax-M2/issues/95),
//   - reasons for the end that OpenAI does not have, if Endings is set,
//   - several calls with one index but different ids (https://github.com/ollama/ollama/issues/7881).
//
// The zero value is ready for use.
type Regular struct {
	// KeepTags leaves <think> tags in the content.
	KeepTags bool
	// Endings replaces known reasons for the end by OpenAI's. Unknown ones stay.
	Endings bool

	tags    thinkTags
	calls   []placedCall
	details []byte // the text of reasoning_details so far, while chunks may repeat it
	pieces  bool   // a chunk had only the next piece
	repeats bool   // a chunk had all of the text so far
}

// placedCall is a call of an answer. Its place among the calls is its index in OpenAI's format.
type placedCall struct {
	index int64 // the vendor's
	id    string
}

// Chunk returns c, or a regular form of it.
func (r *Regular) Chunk(c *wire.Chunk) (*wire.Chunk, error) {
	var edits wire.Edits
	for i := range c.Choices {
		if choice := &c.Choices[i]; choice.Index == 0 {
			r.content(&edits, c, choice)
			r.reasoning(&edits, c, choice)
			r.indexes(&edits, c, choice)
			if word := endingWords[wire.EndingOf(choice.Finish)]; r.Endings && word != "" && word != choice.Finish &&
				choice.Finish != "function_call" {
				edits.Replace(choice.Ending, wire.Quote(word))
			}
		}
	}
	if edits.Empty() {
		return c, nil
	}
	return wire.ReadChunk(edits.Apply(c.Body))
}

// endingWords are OpenAI's reasons for the end, see https://platform.openai.com/docs/api-reference/chat/object.
var endingWords = map[wire.Ending]string{
	wire.EndTurn: finishStop, wire.EndLength: finishLength, wire.EndWindow: finishLength, wire.EndTools: finishTools,
	wire.EndFilter: finishFilter,
}

// content rewrites content that is a list or has tags.
func (r *Regular) content(edits *wire.Edits, c *wire.Chunk, choice *wire.Choice) {
	span := choice.Delta.Get("content")
	value := c.Raw(span)
	var text, thoughts string
	switch value.Kind() {
	case '[':
		text, thoughts = partsOf(value)
	case '"':
		if r.KeepTags || r.tags.done {
			return
		}
		plain, _ := c.Text(span)
		if text, thoughts = r.tags.split(plain, choice.Finish != "" || choice.Complete); text == plain && thoughts == "" {
			return
		}
	default:
		if choice.Finish == "" || !choice.Exists() || r.tags.pending == "" {
			return
		}
		// The end of a text that began like a tag, or of reasoning that ended like one.
		member := "content"
		if r.tags.inside {
			member = "reasoning_content"
		}
		with := `"` + member + `":` + string(wire.Quote(r.tags.flush()))
		if len(choice.Delta) > 0 {
			with += ","
		}
		edits.Replace(wire.Span{Start: choice.Start + 1, End: choice.Start + 1}, []byte(with))
		return
	}
	with := string(wire.Quote(text))
	if thoughts != "" && !choice.Delta.Get("reasoning_content").Exists() {
		with += `,"reasoning_content":` + string(wire.Quote(thoughts))
	}
	edits.Replace(span, []byte(with))
}

// next returns what a text of reasoning_details adds to those before it. A text that extends them, or repeats them after
// one that did, is all of the text so far. After one that does neither, each text is a piece.
func (r *Regular) next(text string) string {
	if r.pieces || text == "" {
		return text
	}
	next, ok := strings.CutPrefix(text, string(r.details))
	switch {
	case len(r.details) == 0, !ok:
		r.pieces = len(r.details) > 0 && !r.repeats
	case next != "" || r.repeats:
		r.repeats, text = true, next
	default: // the same piece twice
		r.pieces = true
	}
	if r.pieces {
		r.details = nil
	} else {
		r.details = append(r.details, text...)
	}
	return text
}

// reasoning adds the text of reasoning_details as reasoning_content, unless the delta has it.
func (r *Regular) reasoning(edits *wire.Edits, c *wire.Chunk, choice *wire.Choice) {
	span := choice.Delta.Get("reasoning_details")
	if !span.Exists() || choice.Delta.Get("reasoning_content").Exists() || choice.Delta.Get("reasoning").Exists() {
		return
	}
	thoughts := ""
	for _, element := range c.Elements(span) {
		place := c.Object(element).Get("text")
		text, _ := c.Text(place)
		if next := r.next(text); next != text {
			text = next
			edits.Replace(place, wire.Quote(text))
		}
		thoughts += text
	}
	if thoughts != "" {
		r.tags.done = true
		edits.Replace(wire.Span{Start: choice.Start + 1, End: choice.Start + 1},
			[]byte(`"reasoning_content":`+string(wire.Quote(thoughts))+`,`))
	}
}

// partsOf returns the text and the reasoning of a list of parts.
func partsOf(list []byte) (text, thoughts string) {
	gjson.ParseBytes(list).ForEach(func(_, part gjson.Result) bool {
		switch part.Get("type").Str {
		case "thinking":
			thinking := part.Get("thinking")
			thoughts += thinking.Str
			thinking.ForEach(func(_, piece gjson.Result) bool { thoughts += piece.Get("text").Str; return thinking.IsArray() })
		case "refusal":
			text += part.Get("refusal").Str
		default:
			text += part.Get("text").Str
		}
		return true
	})
	return text, thoughts
}

// indexes makes the indexes of the calls unique.
func (r *Regular) indexes(edits *wire.Edits, c *wire.Chunk, choice *wire.Choice) {
	if choice.Complete {
		return // the place in the list is the index
	}
	for _, piece := range choice.Calls {
		id, _ := c.Text(piece.Members.Get("id"))
		if !piece.Placed {
			continue // readers identify calls without an index by their ids
		}
		place := len(r.calls)
		for i, call := range slices.Backward(r.calls) {
			if call.index == piece.Index {
				if id == "" || call.id == "" || id == call.id {
					place = i
				}
				break
			}
		}
		if place == len(r.calls) {
			r.calls = append(r.calls, placedCall{piece.Index, id})
		}
		same := func(p placedCall) bool { return p.index == piece.Index }
		if slices.ContainsFunc(r.calls[:place], same) {
			edits.Replace(piece.Members.Get("index"), strconv.AppendInt(nil, int64(place), 10))
		}
	}
}

const (
	openTag  = "<think>"
	closeTag = "</think>"
)

// thinkTags separates the reasoning at the beginning of a text, which comes in pieces.
type thinkTags struct {
	pending string // may be a part of a tag
	inside  bool
	done    bool // the rest is text
}

// split returns what a piece adds to the text and to the reasoning. last indicates the end of the text.
func (t *thinkTags) split(piece string, last bool) (text, thoughts string) {
	t.pending += piece
	if !t.inside {
		begin := strings.TrimLeft(t.pending, " \t\r\n")
		switch {
		case strings.HasPrefix(begin, openTag):
			t.inside, t.pending = true, strings.TrimLeft(begin[len(openTag):], "\r\n")
		case !last && strings.HasPrefix(openTag, begin):
			return "", ""
		default:
			t.done = true
			return t.flush(), ""
		}
	}
	if head, tail, closed := strings.Cut(t.pending, closeTag); closed {
		t.done, t.pending = true, ""
		return strings.TrimLeft(tail, "\r\n"), strings.TrimRight(head, "\r\n")
	}
	keep := 0 // the end of what came may begin the closing tag
	for n := min(len(closeTag)-1, len(t.pending)); n > 0 && !last; n-- {
		if strings.HasSuffix(t.pending, closeTag[:n]) {
			keep = n
			break
		}
	}
	thoughts, t.pending = t.pending[:len(t.pending)-keep], t.pending[len(t.pending)-keep:]
	return "", thoughts
}

// flush returns the held text.
func (t *thinkTags) flush() string {
	text := t.pending
	t.pending = ""
	return text
}
