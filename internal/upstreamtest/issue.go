package upstreamtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Lengths of Kimi's signatures, in characters.
const (
	kimiStreamed = 4340
	kimiWhole    = 12946
)

// glmSignature is an assumed length of GLM's signatures, in characters.
const glmSignature = 344

// issue adds ids and signatures to an answer and remembers it. It removes thinking if the request disables it or the
// vendor has no such block.
func (x *exchange) issue(a *Answer) []issued {
	vendor := x.config.vendor()
	a.Blocks = slices.DeleteFunc(slices.Clone(a.Blocks), func(b Block) bool {
		return (b.Type == thinkingBlock || b.Type == redactedBlock) && !x.Thinking || b.Type == redactedBlock &&
			vendor != Anthropic || b.Type == compactionBlock && (x.Endpoint != EndpointResponses || vendor != OpenAI)
	})
	out := make([]issued, len(a.Blocks))
	calls := 0
	for i, b := range a.Blocks {
		out[i].Block = b
		if b.Type != useBlock {
			continue
		}
		if b.Input == "" {
			out[i].Input = "{}"
		}
		if b.ID == "" {
			out[i].ID = x.callID(b.Name, calls)
		}
		calls++
	}
	if x.Endpoint == EndpointResponses {
		x.stop = a.stopReason()
		x.sealItems(out, a.Cut == nil && x.stop != stopFailed)
		return out
	}
	if x.Endpoint == EndpointInteractions {
		x.stop = a.stopReason()
		return sealSteps(x, out)
	}
	if vendor == Anthropic {
		x.seal(out)
		return out
	}
	n := map[Vendor]int{GLM: glmSignature, Kimi: kimiWhole}[vendor]
	if vendor == Kimi && x.Stream {
		n = kimiStreamed
	}
	for i := range out {
		out[i].signature, out[i].unsigned = randomBase64(n), n == 0
	}
	return out
}

// callID returns an id for the nth call of an answer, in the vendor's form.
func (x *exchange) callID(name string, n int) string {
	switch x.config.vendor() {
	case Kimi:
		if x.Endpoint == EndpointChat {
			return fmt.Sprintf("functions.%s:%d", name, n)
		}
		return fmt.Sprintf("tool_%d", n)
	case Google:
		return strings.ToLower(randomText(8))
	case DeepSeek:
		return fmt.Sprintf("call_%02d_%s", n, randomText(24))
	case Chat, OpenAI:
		if x.config.Chat.ToolIDs == MistralIDs {
			return randomText(9)
		}
		return "call_" + randomText(24)
	}
	return "toolu_01" + randomText(22)
}

// omits reports whether the answer's thinking has no text.
func (x *exchange) omits() bool {
	switch x.bodyObject("thinking").str("display") {
	case "omitted":
		return true
	case "summarized":
		return false
	}
	return x.config.Thinking.Omit
}

// seal signs an answer's thinking and remembers the answer.
func (x *exchange) seal(blocks []issued) {
	record, keys := &answered{id: newID(), model: x.Model}, map[string]*answered{}
	last := len(x.turns)
	run := -1
	for i := x.loop; i < last; i++ {
		if x.beginsRun(i) {
			run++
		}
	}
	if x.runStart(last) == last {
		run++
	}
	var previous blockID
	for _, m := range x.marks {
		if previous = m.seal.id; m.run >= 0 {
			record.turn = append(record.turn, placed{m.run, m.seal.id})
		}
	}
	preceding := x.blocksBefore(last, 0)
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case useBlock:
			keys[b.ID] = record
		case thinkingBlock, redactedBlock:
			v := seal{
				id: newID(), answer: record.id, previous: previous, first: len(record.own) == 0,
				context: x.contexts[x.runStart(last)],
				place:   place(preceding), redacted: b.Type == redactedBlock, model: x.Model,
			}
			if x.omits() {
				b.Text = ""
			}
			v.omitted = b.Text == ""
			b.signature = x.server.signer.sign(v, b.Text)
			previous = v.id
			record.own = append(record.own, v.id)
			record.turn = append(record.turn, placed{run, v.id})
		}
		preceding = append(preceding, b.asSent())
	}
	keys[record.id.key()] = record
	x.server.answered.add(keys, 0)
}

// asSent returns b as a client sends it back, as far as signatures cover it.
func (b issued) asSent() members {
	m := members{"type": quoted(b.Type)}
	switch b.Type {
	case textBlock:
		m["text"] = quoted(b.Text)
	case useBlock:
		m["id"], m["name"], m["input"] = quoted(b.ID), quoted(b.Name), jsontext.Value(b.Input)
	}
	return m
}
