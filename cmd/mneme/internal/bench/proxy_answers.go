package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// streamDeltas is how many pieces of thinking and text a streamed answer has.
const streamDeltas = 20

// answer is the body of an answer in the messages dialect.
type answer struct {
	ID      string      `json:"id"`
	Type    string      `json:"type"`
	Role    string      `json:"role"`
	Model   string      `json:"model"`
	Content []part      `json:"content"`
	Stop    *string     `json:"stop_reason"`
	At      *string     `json:"stop_sequence"`
	Usage   answerUsage `json:"usage"`
}

type answerUsage struct {
	Input   int `json:"input_tokens"`
	Created int `json:"cache_creation_input_tokens"`
	Read    int `json:"cache_read_input_tokens"`
	Output  int `json:"output_tokens"`
}

func newAnswer(stop string, content ...part) answer {
	a := answer{
		ID: "msg_01Qx7Yw" + callMark, Type: "message", Role: "assistant", Model: benchModel, Content: content,
		Usage: answerUsage{Input: 412, Read: 3072, Output: 287},
	}
	if stop != "" {
		a.Stop = &stop
	}
	return a
}

// usual is the content of the answer to every call outside the script.
func usual() []part {
	rng := rand.New(rand.NewPCG(20, 7))
	t := thought(rng)
	t.Thinking += " Order " + callMark + "."
	t.Signature = t.Signature[:len(t.Signature)-16] + callMark + "AAA="
	return []part{t, {Type: "text", Text: "Order " + callMark + ": " + prose(rng, 500)}}
}

// scripted is the answer that says a message of the history.
func scripted(u utterance) []byte {
	stop := "end_turn"
	if u.Content[len(u.Content)-1].Type == "tool_use" {
		stop = "tool_use"
	}
	return encode(newAnswer(stop, u.Content...))
}

// streamEvent is the data of one, whichever it is.
type streamEvent struct {
	Type    string       `json:"type"`
	Message *answer      `json:"message,omitempty"`
	Index   *int         `json:"index,omitempty"`
	Block   *openBlock   `json:"content_block,omitempty"`
	Delta   *streamDelta `json:"delta,omitempty"`
	Usage   *answerUsage `json:"usage,omitempty"`
}

// openBlock is a block that has only begun.
type openBlock struct {
	Type      string  `json:"type"`
	Thinking  *string `json:"thinking,omitempty"`
	Signature *string `json:"signature,omitempty"`
	Text      *string `json:"text,omitempty"`
}

type streamDelta struct {
	Type      string `json:"type,omitempty"`
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Text      string `json:"text,omitempty"`
	Stop      string `json:"stop_reason,omitempty"`
}

// usualStream is the usual answer as a stream, and where each event ends in it.
func usualStream() (stream []byte, ends []int) {
	add := func(e streamEvent) {
		stream = fmt.Appendf(stream, "event: %s\ndata: %s\n\n", e.Type, encode(e))
		ends = append(ends, len(stream))
	}
	delta := func(index int, d streamDelta) {
		add(streamEvent{Type: "content_block_delta", Index: &index, Delta: &d})
	}
	content := usual()
	begun := newAnswer("")
	begun.Content, begun.Usage.Output = []part{}, 1
	add(streamEvent{Type: "message_start", Message: &begun})
	empty := ""

	first, second := 0, 1
	add(streamEvent{Type: "content_block_start", Index: &first, Block: &openBlock{Type: "thinking", Thinking: &empty, Signature: &empty}})
	for _, text := range pieces(content[first].Thinking, streamDeltas/3) {
		delta(first, streamDelta{Type: "thinking_delta", Thinking: text})
	}
	delta(first, streamDelta{Type: "signature_delta", Signature: content[first].Signature})
	add(streamEvent{Type: "content_block_stop", Index: &first})

	add(streamEvent{Type: "content_block_start", Index: &second, Block: &openBlock{Type: "text", Text: &empty}})
	for _, text := range pieces(content[second].Text, streamDeltas-streamDeltas/3) {
		delta(second, streamDelta{Type: "text_delta", Text: text})
	}
	add(streamEvent{Type: "content_block_stop", Index: &second})

	add(streamEvent{Type: "message_delta", Delta: &streamDelta{Stop: "end_turn"}, Usage: &answerUsage{Output: 287}})
	add(streamEvent{Type: "message_stop"})
	return stream, ends
}

// pieces cuts a text at spaces into n pieces, or fewer if it has fewer words.
func pieces(text string, n int) []string {
	var out []string
	for ; n > 1; n-- {
		cut := strings.IndexByte(text[len(text)/n:], ' ')
		if cut < 0 {
			break
		}
		cut += len(text) / n
		out, text = append(out, text[:cut]), text[cut:]
	}
	return append(out, text)
}
