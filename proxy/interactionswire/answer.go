package interactionswire

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// MessagesAnswer translates one answer of a backend of Interactions into the messages dialect. Event or Body take what
// the backend sent, in whichever form it came, and End finishes.
//
// Steps become blocks, which come one after another: the first that is open streams, others wait for its end.
type MessagesAnswer struct {
	out wire.AnswerWriter

	started bool
	done    bool
	steps   map[int]*growing
	waiting []*growing // in their order; the first is the one that streams

	called bool
	usage  wire.Usage
	stop   wire.NullString
}

// growing is a step that grows.
type growing struct {
	step    // as it began
	raw     gjson.Result
	unsent  string // text, summary or arguments that came
	spoke   bool   // some came
	started bool   // its block was begun
	done    bool
	pieces  []content // of the summary
}

// NewMessagesAnswer begins an answer.
func NewMessagesAnswer() *MessagesAnswer { return &MessagesAnswer{steps: map[int]*growing{}} }

// SetSink has to take each event of the answer.
func (a *MessagesAnswer) SetSink(sink func(*wire.Event)) { a.out.Sink = sink }

// Complete reports whether the vendor has finished the answer, so that End can follow.
func (a *MessagesAnswer) Complete() bool { return a.stop != "" }

// Event takes the data of one server-sent event. An error is returned as a wire.Failure.
func (a *MessagesAnswer) Event(data []byte) error {
	if len(data) == 0 || string(data) == "[DONE]" || a.done {
		return nil
	}
	var e event
	if err := wire.Unmarshal(data, &e); err != nil {
		return err
	}
	if e.Type == "error" {
		return wire.ReadError(e.Error)
	}
	a.start(e.Interaction)
	switch e.Type {
	case "interaction.created":
	case "step.start":
		return a.begin(e.Index, e.Step)
	case "step.delta":
		a.grow(e.Index, e.Delta)
	case "step.stop":
		if g := a.steps[e.Index]; g != nil {
			g.done = true
			a.send()
		}
	default: // interaction.completed; some versions name other ends by their status. Updates of the status have none
		if e.Interaction != nil {
			return a.end(e.Interaction)
		}
	}
	return nil
}

// Body takes an answer that came as one JSON body.
func (a *MessagesAnswer) Body(body []byte) error {
	var i interaction
	if err := wire.Unmarshal(body, &i); err != nil {
		return err
	}
	a.start(&i)
	for index, s := range i.Steps {
		if err := a.begin(index, s); err != nil {
			return err
		}
	}
	return a.end(&i)
}

// End finishes the answer. It fails with chatwire.ErrCut if the backend did not finish it.
func (a *MessagesAnswer) End() error {
	if a.stop == "" {
		return chatwire.ErrCut
	}
	a.done = true
	a.out.End(a.stop, a.usage)
	return nil
}

func (a *MessagesAnswer) start(i *interaction) {
	if a.started {
		return
	}
	if a.started = true; i == nil {
		i = new(interaction)
	}
	a.out.Start(cmp.Or(i.ID, "v1_"+rand.Text()), i.Model)
}

// begin takes a step, whole or as its first event has it.
func (a *MessagesAnswer) begin(index int, raw jsontext.Value) error {
	g := &growing{raw: gjson.ParseBytes(raw)}
	if err := wire.Unmarshal(raw, &g.step); err != nil {
		return err
	}
	if len(g.Error) > 0 && g.Error.Kind() != 'n' {
		return wire.ReadError(g.Error)
	}
	switch g.Type {
	case outputStep:
		g.unsent = joined(g.Content, "")
	case thoughtStep:
		g.unsent = joined(g.Summary, "")
	case callStep:
		a.called = true
	default: // what a tool of the vendor's did stands in what is said next
		return nil
	}
	a.steps[index] = g
	a.waiting = append(a.waiting, g)
	a.send()
	return nil
}

// grow adds to a step.
func (a *MessagesAnswer) grow(index int, d delta) {
	g := a.steps[index]
	if g == nil || g.done {
		return
	}
	switch d.Type {
	case "text":
		g.unsent += d.Text
	case "thought_summary":
		if d.Content != nil {
			g.unsent += d.Content.Text
			g.pieces = append(g.pieces, *d.Content)
		}
	case "thought_signature":
		g.Signature = d.Signature
	case "arguments_delta":
		g.unsent += gjson.ParseBytes(d.Arguments).Str
	}
	a.send()
}

// send sends what there is of the steps that are next.
func (a *MessagesAnswer) send() {
	for len(a.waiting) > 0 {
		g := a.waiting[0]
		if g.Type == callStep && !g.started {
			a.out.CloseBlock()
			a.out.OpenCall(g.ID, g.Name)
		}
		if g.started = true; g.Type == callStep && g.done && !g.spoke && strings.TrimSpace(g.unsent) == "" {
			g.unsent = cmp.Or(string(g.Arguments), "{}")
		}
		if text := g.unsent; text != "" {
			g.unsent, g.spoke = "", true
			switch g.Type {
			case callStep:
				a.out.Delta(wire.Delta{Type: wire.InputDelta, PartialJSON: text})
			case thoughtStep:
				a.out.Thinking(text)
			default:
				a.out.Text(text)
			}
		}
		if !g.done {
			return
		}
		if g.Type == callStep {
			a.out.CloseBlock()
		}
		if g.Type != outputStep {
			a.out.Signature(wire.Seal(g.payload()))
		}
		a.out.CloseBlock()
		a.waiting = a.waiting[1:]
	}
}

// payload is what has to come back of a step: of a thought all of it, of a call what its block does not have.
func (g *growing) payload() []byte {
	if g.Type == thoughtStep && len(g.pieces) == 0 && g.Signature == g.raw.Get("signature").Str {
		return []byte(g.raw.Raw)
	}
	out := wire.Without([]byte(g.raw.Raw), "signature", "summary", "id", "name", "arguments") // the type stays
	member := func(name string, value []byte) {
		out = slices.Concat(out[:len(out)-1], []byte(`,"`+name+`":`), value, []byte("}"))
	}
	if g.Signature != "" || g.raw.Get("signature").Exists() {
		member("signature", wire.Quote(g.Signature))
	}
	if g.Type == thoughtStep && len(g.Summary)+len(g.pieces) > 0 {
		v, _ := wire.Marshal(merged(slices.Concat(g.Summary, g.pieces))) // it was read before
		member("summary", v)
	}
	return out
}

// merged are contents of which texts that follow each other are one.
func merged(list []content) (out []content) {
	for _, c := range list {
		if n := len(out) - 1; n >= 0 && c.Type == wire.TextBlock && out[n].Type == wire.TextBlock {
			out[n].Text += c.Text
			continue
		}
		out = append(out, c)
	}
	return out
}

// end takes the interaction as it is in the end. That calls were made says more than the status, which is completed for
// them in a stream.
func (a *MessagesAnswer) end(i *interaction) error {
	switch i.Status {
	case "failed", "cancelled":
		return wire.Failure{Status: 502, Message: "the interaction ended as " + i.Status}
	case "completed", "requires_action":
		if a.stop = wire.StopEndTurn; a.called {
			a.stop = wire.StopToolUse
		}
	case "incomplete", "budget_exceeded":
		a.stop = wire.StopMaxTokens
	default:
		return chatwire.ErrCut
	}
	for _, g := range a.waiting {
		g.done = true
	}
	a.send()
	a.usage, _ = wire.ReadUsage(wire.Interactions, i.Usage)
	return nil
}
