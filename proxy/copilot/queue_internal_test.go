package copilot

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever comes and goes, a queue gives what it took, in order and without losing
// a byte of text, and never holds more than its bounds.
func TestAQueueGivesWhatItTook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := queue{maxEvents: rapid.IntRange(1, 20).Draw(t, "events"), maxBytes: rapid.IntRange(1, 5000).Draw(t, "bytes")}
		var in, out strings.Builder
		write := func(b *strings.Builder, e event) {
			if e.kind == eventDelta {
				fmt.Fprintf(b, "%s:", e.data.MessageID)
			}
			b.Write(e.text)
			b.WriteString(e.data.Content)
		}
		var last string // message of the delta at the end of the queue
		t.Repeat(map[string]func(*rapid.T){
			"delta": func(t *rapid.T) {
				e := event{kind: eventDelta, text: []byte(rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "text"))}
				e.data.MessageID = rapid.SampledFrom([]string{"A", "B"}).Draw(t, "message")
				text := string(e.text)
				joined, ok := q.push(e)
				switch {
				case joined:
					require.True(t, ok)
					require.Equal(t, last, e.data.MessageID, "only neighbours of one message join")
					in.WriteString(text)
				case ok:
					write(&in, e)
					last = e.data.MessageID
				}
			},
			"other": func(t *rapid.T) {
				e := event{kind: eventMessage, data: eventData{Content: rapid.StringMatching(`[0-9]{0,99}`).Draw(t, "content")}}
				if _, ok := q.push(e); ok {
					write(&in, e)
					last = ""
				}
			},
			"pop": func(t *rapid.T) {
				if e, ok := q.pop(); ok {
					write(&out, e)
				}
				if len(q.events) == 0 {
					last = ""
				}
			},
			"": func(t *rapid.T) {
				require.LessOrEqual(t, len(q.events), q.maxEvents)
				require.True(t, q.bytes <= q.maxBytes || len(q.events) == 1, "%d bytes of %d in %d events", q.bytes, q.maxBytes,
					len(q.events))
			},
		})
		for e, ok := q.pop(); ok; e, ok = q.pop() {
			write(&out, e)
		}
		require.Equal(t, in.String(), out.String())
		require.Zero(t, q.bytes)
	})
}

// A reader that is always a little behind, for ever, costs no more than its lag.
func TestAQueueThatIsNeverEmptyDoesNotGrow(t *testing.T) {
	q := queue{maxEvents: 1024, maxBytes: 8 << 20}
	for i := range 100_000 {
		_, ok := q.push(event{kind: eventMessage})
		require.True(t, ok)
		if i >= 10 {
			_, ok := q.pop()
			require.True(t, ok)
		}
	}
	require.LessOrEqual(t, cap(q.events), 64)
}
