package upstreamtest

import (
	"net/http"
	"slices"
	"strconv"

	"mneme/proxy/wire"
)

const defaultChunk = 12

// write sends an answer, whole or as a stream.
func (x *exchange) write(w http.ResponseWriter, r *http.Request, a Answer, blocks []issued) {
	if a.Pause == nil {
		a.Pause = x.config.Stream.Pause
	}
	v := rendering{
		exchange: x, blocks: blocks, stop: a.stopReason(), chunk: x.config.Stream.Chunk, output: spokenTokens(blocks),
		id: randomText(24),
	}
	if v.chunk <= 0 {
		v.chunk = defaultChunk
	}
	if x.Endpoint == EndpointMessages {
		w.Header().Set("Anthropic-Ratelimit-Requests-Limit", "4000")
		w.Header().Set("Anthropic-Ratelimit-Requests-Remaining", "3999")
	}
	if x.Stream {
		x.writeStream(w, r, a, v)
		return
	}
	if a.Pause != nil {
		a.Pause(r.Context(), 0)
	}
	body := v.encode()
	if a.Cut != nil {
		// The length exceeds the body, so that clients notice the cut.
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		abort(w)
	}
	x.server.writeJSON(w, body)
}

// spokenTokens estimates the tokens of an answer, except those that Responses count as reasoning.
func spokenTokens(blocks []issued) int {
	n := 1
	for _, b := range blocks {
		n += (len(b.Text) + len(b.Input)) / 4
	}
	return n
}

// reasoningTokens estimates the tokens that Responses count as reasoning.
func reasoningTokens(blocks []issued) (n int) {
	for _, b := range blocks {
		if b.Type == thinkingBlock {
			n += len(b.Text)/4 + 1
		}
	}
	return n
}

// abort cuts the connection after the written bytes.
func abort(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func (x *exchange) writeStream(w http.ResponseWriter, r *http.Request, a Answer, v rendering) {
	frames := v.frames()
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-cache")
	for i, f := range frames {
		if a.Pause != nil {
			a.Pause(r.Context(), i)
		}
		if r.Context().Err() != nil {
			return
		}
		if a.Cut == nil || i < a.Cut.Events {
			x.flush(w, f)
			continue
		}
		switch {
		case a.Cut.Error != 0:
			x.flush(w, v.failure(i, a.Cut.Error))
			return
		case a.Cut.Inside:
			x.flush(w, f[:len(f)/2])
		}
		if a.Cut.Clean {
			return
		}
		abort(w)
	}
}

// flush writes b in the configured pieces.
func (x *exchange) flush(w http.ResponseWriter, b []byte) {
	n := x.config.Stream.Split
	if n <= 0 {
		n = len(b)
	}
	for piece := range slices.Chunk(b, n) {
		_, _ = w.Write(piece) // fails only if the client has disconnected
		_ = http.NewResponseController(w).Flush()
	}
}

// rendering writes one answer in any dialect, whole and as a stream.
type rendering struct {
	*exchange
	blocks []issued
	stop   string
	chunk  int
	output int // tokens
	id     string
}

// encode returns the answer as JSON.
func (v rendering) encode() []byte {
	switch v.Endpoint {
	case EndpointMessages:
		return v.message(true)
	case EndpointResponses:
		status, _ := statusOf(v.stop)
		return v.response(status, stopped)
	case EndpointInteractions:
		return v.interaction(false)
	}
	return v.chat()
}

func (v rendering) frames() [][]byte {
	switch v.Endpoint {
	case EndpointMessages:
		return v.messageFrames()
	case EndpointResponses:
		return v.responseFrames()
	case EndpointInteractions:
		return v.interactionFrames()
	}
	return v.chatFrames()
}

// failure returns the events that end the stream after n events with an error of this status.
func (v rendering) failure(n, status int) []byte {
	if r := (refusal{status: status, message: faultText(status)}); v.Endpoint == EndpointResponses {
		return v.failed(numbered(n), r)
	}
	return errorFrame(v.Endpoint.dialect(), status, faultText(status))
}

// message returns the answer in the messages dialect. Without content it is the head of a stream.
func (v rendering) message(content bool) object {
	blocks, stop, output := [][]byte{}, orNull(""), 1
	if content {
		stop, output = v.stop, v.output
		for _, b := range v.blocks {
			blocks = append(blocks, b.complete())
		}
	}
	fresh, read, written := v.input()
	o := obj("id", "msg_01"+v.id, "type", "message", "role", assistant, "model", v.Model, "content", array(blocks),
		"stop_reason", stop, "stop_sequence", nil, "usage", obj("input_tokens", fresh, "cache_creation_input_tokens", written,
			"cache_read_input_tokens", read, "output_tokens", output))
	if len(v.Dropped) == 0 || !v.beta(betaBinding) {
		return o
	}
	var dropped []object
	for i, path := range v.Dropped {
		dropped = append(dropped, obj("type", "thinking_dropped", "path", path, "reason", v.reasons[i]))
	}
	return o.with("input_transformations", array(dropped))
}

// complete returns the complete block.
func (b issued) complete() object {
	o := obj("type", b.Type)
	switch {
	case b.Type == textBlock:
		return o.with("text", b.Text)
	case b.Type == thinkingBlock && b.unsigned:
		return o.with("thinking", b.Text)
	case b.Type == thinkingBlock:
		return o.with("thinking", b.Text, "signature", b.signature)
	case b.Type == redactedBlock:
		return o.with("data", b.signature)
	}
	return o.with("id", b.ID, "name", b.Name, "input", []byte(b.Input))
}

// begin returns the block as in content_block_start. A redacted block is complete.
func (b issued) begin() object {
	if b.Type != redactedBlock {
		b.Text, b.signature, b.Input = "", "", "{}"
	}
	return b.complete()
}

// deltaKinds are the types and members of deltas by the type of their block.
var deltaKinds = map[string][2]string{
	textBlock: {"text_delta", "text"}, thinkingBlock: {"thinking_delta", "thinking"},
	useBlock: {"input_json_delta", "partial_json"},
}

// deltas returns the deltas of the block in a stream.
func (b issued) deltas(chunk int) (list []object) {
	kind, ok := deltaKinds[b.Type]
	if !ok {
		return nil
	}
	texts := pieces(b.Text, chunk)
	if b.Type == useBlock {
		texts = append([]string{""}, pieces(b.Input, chunk)...)
	}
	for _, text := range texts {
		list = append(list, obj("type", kind[0], kind[1], text))
	}
	if b.Type == thinkingBlock && !b.unsigned {
		list = append(list, obj("type", "signature_delta", "signature", b.signature))
	}
	return list
}

// messageFrames returns the answer as events of the messages dialect.
func (v rendering) messageFrames() (frames [][]byte) {
	add := func(kind string, pairs ...any) {
		frames = append(frames, frame(kind, obj("type", kind).with(pairs...), v.config.vendor() == Kimi))
	}
	add(wire.MessageStart, "message", v.message(false))
	add("ping")
	for i, b := range v.blocks {
		add(wire.BlockStart, "index", i, "content_block", b.begin())
		for k, d := range b.deltas(v.chunk) {
			if k == 1 && i%2 == 1 {
				add("ping") // a ping may come anywhere
			}
			add(wire.BlockDelta, "index", i, "delta", d)
		}
		add(wire.BlockStop, "index", i)
	}
	add(wire.MessageDelta, "delta", obj("stop_reason", v.stop, "stop_sequence", nil),
		"usage", obj("output_tokens", v.output))
	add(wire.MessageStop)
	return frames
}
