package proxy_test

import (
	"encoding/json"
	"fmt"

	"pgregory.net/rapid"

	"mneme/internal/upstreamtest"
)

// chooser draws numbers below n: a *rand.Rand, or rapid for properties.
type chooser interface{ IntN(n int) int }

type rapidChooser struct{ t *rapid.T }

func (c rapidChooser) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(c.t, "choice") }

func pick[T any](c chooser, from ...T) T { return from[c.IntN(len(from))] }

// randomModel is a model with random answers.
type randomModel struct {
	chooser
	tag       string // in each of its thoughts
	omitFirst bool   // an answer may begin with redacted or omitted thinking
	n         int    // unique texts so far
}

// words returns a text that is hard to pass on: escapes, characters outside of the basic plane, or text that looks like
// the wire format. A number makes it unique.
func (m *randomModel) words(tag string) string {
	m.n++
	return fmt.Sprint(pick(m, "so", " leading", "two\n\nlines\r\n", "\"quoted\" \\ and \u2028",
		"data: {\"type\":\"error\"}\n\n", "жизнь", "👩‍👩‍👧 and 漢字", "<b>&amp;</b>", "\t"), m.n, tag, pick(m, "", "!", " \n"))
}

func (m *randomModel) thought() upstreamtest.Block { return think(m.words(m.tag)) }

// text returns a text that is unique or comes again and again.
func (m *randomModel) text() upstreamtest.Block {
	return speak(pick(m, "yes", "yes", "It is so. ", "Let me see:\n\n- one\n- two", m.words("")))
}

// answer returns an answer that begins with thinking. It calls tools unless it is the last one of a turn.
func (m *randomModel) answer(last bool) upstreamtest.Answer {
	redacted, omitted := upstreamtest.Redacted(), upstreamtest.Omitted()
	blocks := []upstreamtest.Block{m.thought()}
	if m.omitFirst {
		blocks[0] = pick(m, redacted, omitted, blocks[0], blocks[0])
	}
	for range m.IntN(4) {
		blocks = append(blocks, pick(m, redacted, omitted, m.thought(), m.text()))
	}
	if last {
		return reply(append(blocks, m.text())...)
	}
	for range 1 + m.IntN(3) {
		input, _ := json.Marshal(map[string]string{"q": m.words("")})
		blocks = append(blocks, upstreamtest.Use("look", pick(m, string(input), `{}`, `{"q":"x"}`,
			`{"q":"<x>","n":1.50e+3,"deep":[{"type":"thinking"},null,true]}`, fmt.Sprintf(`{ "n" : %d }`, m.n))))
	}
	return reply(blocks...)
}

// dialogue queues the answers of some turns and returns the user's texts.
func (m *randomModel) dialogue(v *upstreamtest.Server) (questions []string) {
	for range 1 + m.IntN(4) {
		for range m.IntN(3) {
			v.Queue(m.answer(false))
		}
		v.Queue(m.answer(true))
		questions = append(questions, pick(m, "yes", "and then?", "жизнь"))
	}
	return questions
}
