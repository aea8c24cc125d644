package usage

import "mneme/proxy/wire"

// Reader takes the counts out of one answer of a backend. It keeps none of the memory that it is given. The zero value
// is ready for use.
type Reader struct {
	counts  wire.Usage
	counted bool // the vendor counted something
	final   bool // and the output to its end
	text    tally
}

// Event takes an event of the messages dialect.
func (r *Reader) Event(e *wire.Event) {
	switch e.Type {
	case wire.MessageStart:
		if e.Message != nil {
			r.count(e.Message.Usage)
		}
	case wire.BlockDelta:
		switch e.Delta.Type {
		case wire.TextDelta, wire.ThinkingDelta, wire.InputDelta:
			r.addText(e.Delta.Inner())
		}
	case wire.MessageDelta:
		r.count(e.Usage)
		r.final = r.final || e.Usage != wire.Usage{}
	}
}

// Chunk takes a chunk of a chat completion, or a completion that came whole. All counts are cumulative.
func (r *Reader) Chunk(c *wire.Chunk) {
	if c.Counted {
		r.counts, r.counted, r.final = c.Usage, true, true
	}
	if !r.final {
		c.Pieces(r.addText)
	}
}

// Message takes an answer of the messages dialect that came as one JSON body, which wire.ReadMessage has read.
func (r *Reader) Message(o *wire.Outline) {
	m := o.Messages[0]
	if u, ok := wire.ReadUsage(wire.Messages, o.Raw(m.Members.Get("usage"))); ok {
		r.count(u)
		r.final = true
		return
	}
	for _, b := range m.Blocks {
		for _, name := range []string{"text", "thinking"} {
			if v := o.Raw(b.Members.Get(name)); v.Kind() == '"' {
				r.addText(v[1 : len(v)-1])
			}
		}
	}
}

// addText counts what the model says, as it stands between the quotes of a JSON string.
func (r *Reader) addText(text []byte) {
	if !r.final {
		r.text.literal(text)
	}
}

// count takes the counts that u has: later events of a stream repeat only some.
func (r *Reader) count(u wire.Usage) {
	r.counts.Update(u)
	r.counted = r.counted || u != wire.Usage{}
}

// Tokens gives the counts when the answer is over, or broke off. What the vendor
// left untold is estimated, from the request as it was sent and from the text
// that came; estimated then says so. Without an answer there is nothing to count.
func (r *Reader) Tokens(request []byte) (t wire.Usage, estimated bool) {
	textTokens := r.text.tokens()
	if !r.counted && textTokens == 0 {
		return t, false
	}
	t = r.counts
	if t.InputTokens+t.CacheRead+t.CacheCreation == 0 {
		t.InputTokens, estimated = EstimateInput(request), true
	}
	if (!r.final || t.OutputTokens == 0) && textTokens > t.OutputTokens {
		t.OutputTokens, estimated = textTokens, true
	}
	return t, estimated
}
