package offline

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Event payloads of the streamed answer. Each is a named type because their shapes differ, not their use.
type (
	messageStart struct {
		Type    string        `json:"type"`
		Message answerMessage `json:"message"`
	}
	blockStart struct {
		Type  string      `json:"type"`
		Index int         `json:"index"`
		Block answerBlock `json:"content_block"`
	}
	blockDelta struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Delta delta  `json:"delta"`
	}
	blockStop struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	messageDelta struct {
		Type  string    `json:"type"`
		Delta stopDelta `json:"delta"`
		Usage usage     `json:"usage"`
	}
	messageStop struct {
		Type string `json:"type"`
	}
	delta struct {
		Type    string  `json:"type"`
		Text    *string `json:"text,omitempty"`
		Partial *string `json:"partial_json,omitempty"`
	}
	stopDelta struct {
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
)

// encodeStream writes msg as the dialect's event sequence, one frame per event.
func encodeStream(msg answerMessage) [][]byte {
	var frames [][]byte
	emit := func(name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			return // our own types of strings and numbers, and inputs that were marshalled before, always marshal
		}
		frames = append(frames, fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data))
	}
	head := msg
	head.Content = []answerBlock{}
	head.StopReason = nil
	head.Usage.OutputTokens = 1
	emit("message_start", messageStart{Type: "message_start", Message: head})
	for i, b := range msg.Content {
		start, deltas := blockDeltas(b)
		emit("content_block_start", blockStart{Type: "content_block_start", Index: i, Block: start})
		for _, d := range deltas {
			emit("content_block_delta", blockDelta{Type: "content_block_delta", Index: i, Delta: d})
		}
		emit("content_block_stop", blockStop{Type: "content_block_stop", Index: i})
	}
	emit("message_delta", messageDelta{Type: "message_delta", Delta: stopDelta{StopReason: msg.StopReason}, Usage: msg.Usage})
	emit("message_stop", messageStop{Type: "message_stop"})
	return frames
}

// blockDeltas splits a block into its empty opening and the pieces that fill it.
func blockDeltas(b answerBlock) (answerBlock, []delta) {
	var deltas []delta
	if b.Type == "tool_use" {
		empty := ""
		deltas = append(deltas, delta{Type: "input_json_delta", Partial: &empty})
		for _, p := range pieces(string(b.Input)) {
			deltas = append(deltas, delta{Type: "input_json_delta", Partial: &p})
		}
		b.Input = json.RawMessage("{}")
		return b, deltas
	}
	for _, p := range pieces(*b.Text) {
		deltas = append(deltas, delta{Type: "text_delta", Text: &p})
	}
	empty := ""
	b.Text = &empty
	return b, deltas
}

// pieces cuts s after each run of spaces, so that a piece is about a word.
func pieces(s string) []string { return strings.SplitAfter(s, " ") }
