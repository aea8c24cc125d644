package upstreamtest

import (
	"net/http"
	"slices"
	"strconv"

	"mneme/proxy/wire"
)

const defaultChunk = 12

// write sends an answer as it was asked for.
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
	body := v.whole()
	if a.Cut != nil {
		// The length promises more than comes, so that no client takes it for whole.
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		abort(w)
	}
	x.server.writeJSON(w, body)
}

// spokenTokens estimates an answer, but for what Responses count as reasoning.
func spokenTokens(blocks []issued) int {
	n := 1
	for _, b := range blocks {
		n += (len(b.Text) + len(b.Input)) / 4
	}
	return n
}

// reasoningTokens are what Responses count beside it.
func reasoningTokens(blocks []issued) (n int) {
	for _, b := range blocks {
		if b.Type == thinkingBlock {
			n += len(b.Text)/4 + 1
		}
	}
	return n
}

// abort cuts the connection behind what was written.
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
		if a.Cut == nil || i < a.Cut.After {
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

// flush writes b in the pieces that were asked for.
func (x *exchange) flush(w http.ResponseWriter, b []byte) {
	n := x.config.Stream.Split
	if n <= 0 {
		n = len(b)
	}
	for piece := range slices.Chunk(b, n) {
		_, _ = w.Write(piece) // a client that left gets nothing
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

// whole is the answer in one piece.
func (v rendering) whole() []byte {
	switch v.Endpoint {
	case EndpointMessages:
		return v.message(true)
	case EndpointResponses:
		status, _ := statusOf(v.stop)
		return v.response(status, v.stopped())
	}
	return v.chat()
}

func (v rendering) frames() [][]byte {
	switch v.Endpoint {
	case EndpointMessages:
		return v.messageFrames()
	case EndpointResponses:
		return v.responseFrames()
	}
	return v.chatFrames()
}

// failure is what ends the stream after n events with an error of this status.
func (v rendering) failure(n, status int) []byte {
	if r := (refusal{status: status, message: faultText(status)}); v.Endpoint == EndpointResponses {
		return v.failed(numbered(n), r)
	}
	return errorFrame(v.Endpoint.dialect(), status, faultText(status))
}

// message is the answer in the messages dialect; without content, its head.
func (v rendering) message(content bool) []byte {
	var blocks [][]byte
	stop, output := []byte("null"), 1
	if content {
		stop, output = quoted(v.stop), v.output
		for _, b := range v.blocks {
			blocks = append(blocks, b.whole())
		}
	}
	fresh, read, written := v.input()
	usage := object(nil).number("input_tokens", fresh).number("cache_creation_input_tokens",
		written).number("cache_read_input_tokens", read).
		number("output_tokens", output).end()
	o := object(nil).text("id", "msg_01"+v.id).text("type", "message").text("role", assistant).text("model", v.Model).
		raw("content", array(blocks)).raw("stop_reason", stop).raw("stop_sequence", []byte("null")).raw("usage", usage)
	if len(v.Dropped) > 0 && v.beta(betaBinding) {
		o = o.raw("input_transformations", v.transformations())
	}
	return o.end()
}

// transformations says what was left out of the request.
func (v rendering) transformations() []byte {
	var list [][]byte
	for i, path := range v.Dropped {
		list = append(list, object(nil).text("type", "thinking_dropped").text("path", path).text("reason",
			v.reasons[i]).end())
	}
	return array(list)
}

// whole is the block in one piece.
func (b issued) whole() []byte {
	o := object(nil).text("type", b.Type)
	switch b.Type {
	case textBlock:
		o = o.text("text", b.Text)
	case thinkingBlock:
		if o = o.text("thinking", b.Text); !b.unsigned {
			o = o.text("signature", b.signature)
		}
	case redactedBlock:
		o = o.text("data", b.signature)
	case useBlock:
		o = o.text("id", b.ID).text("name", b.Name).raw("input", []byte(b.Input))
	}
	return o.end()
}

// begin is the block as content_block_start has it: a redacted one is whole.
func (b issued) begin() []byte {
	switch b.Type {
	case textBlock, thinkingBlock:
		b.Text, b.signature = "", ""
	case useBlock:
		b.Input = "{}"
	}
	return b.whole()
}

// deltas are what a stream adds to the block after its beginning.
func (b issued) deltas(chunk int) (list [][]byte) {
	kind, name, text := "text_delta", "text", b.Text
	switch b.Type {
	case thinkingBlock:
		kind, name = "thinking_delta", "thinking"
	case useBlock:
		kind, name, text = "input_json_delta", "partial_json", b.Input
		list = append(list, object(nil).text("type", kind).text(name, "").end())
	case redactedBlock:
		return nil
	}
	for _, p := range pieces(text, chunk) {
		list = append(list, object(nil).text("type", kind).text(name, p).end())
	}
	if b.Type == thinkingBlock && !b.unsigned {
		list = append(list, object(nil).text("type", "signature_delta").text("signature", b.signature).end())
	}
	return list
}

// messageFrames is the answer as events of the messages dialect.
func (v rendering) messageFrames() (frames [][]byte) {
	add := func(kind string, o object) {
		frames = append(frames, frame(kind, o.end(), v.config.vendor() == Kimi))
	}
	event := func(kind string) object { return object(nil).text("type", kind) }
	add(wire.MessageStart, event(wire.MessageStart).raw("message", v.message(false)))
	add("ping", event("ping"))
	for i, b := range v.blocks {
		add(wire.BlockStart, event(wire.BlockStart).number("index", i).raw("content_block", b.begin()))
		for k, d := range b.deltas(v.chunk) {
			if k == 1 && i%2 == 1 {
				add("ping", event("ping")) // it may come anywhere
			}
			add(wire.BlockDelta, event(wire.BlockDelta).number("index", i).raw("delta", d))
		}
		add(wire.BlockStop, event(wire.BlockStop).number("index", i))
	}
	delta := object(nil).text("stop_reason", v.stop).raw("stop_sequence", []byte("null")).end()
	usage := object(nil).number("output_tokens", v.output).end()
	add(wire.MessageDelta, event(wire.MessageDelta).raw("delta", delta).raw("usage", usage))
	add(wire.MessageStop, event(wire.MessageStop))
	return frames
}
