package webmemory_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// onePixel is a PNG that begins as one.
const onePixel = "data:image/png;base64,iVBORw0KGgo="

// The process of a run with an image is killed at every event of the run. Another one brings it to its end without
// the image; what is stored is the text and the reference, once, and the post that is repeated then is the same run.
func TestTheProcessOfARunWithAnImageIsKilled(t *testing.T) {
	t.Parallel()
	for n := range scriptEvents {
		s := newScript()
		w := newWorld(t, s.agent, lease)
		settings := w.settings()
		settings.Lease = shortLease
		child, process := w.start(settings)
		post := map[string]any{"message": "What is it?", "images": []string{onePixel}}
		var id string
		w.on(child, func() {
			s.let(memory.MustChat("1"), n)
			got := w.do("POST", "/v1/chats/1/messages", post, "Prefer", "respond-async", "Idempotency-Key", "k")
			require.Equal(t, 202, got.status, string(got.body))
			id = got.header.Get("Mneme-Run-Id")
			events := w.open("GET", "/v1/chats/1/runs/"+id+"/events", nil)
			for range n {
				_, _, ok := events.next()
				require.True(t, ok)
			}
		})
		process.Kill()
		s.let(memory.MustChat("1"), scriptEvents-n)
		again := w.do("POST", "/v1/chats/1/messages", post, "Idempotency-Key", "k")
		require.Equal(t, 200, again.status, string(again.body))
		require.Equal(t, id, again.header.Get("Mneme-Run-Id"))
		wantChat, _ := whole("What is it?\n\n[image: image/png, 8 B]")
		eventually(t, "the killed process's turn is brought to its end", func() bool {
			return slices.Equal(wantChat, w.stored("chat_history:1"))
		})
		raw, err := w.look.Get(t.Context(), "chat_history:1").Bytes()
		require.NoError(t, err)
		var stored []memory.Message
		require.NoError(t, json.Unmarshal(raw, &stored))
		require.Len(t, stored[0].Images, 1)
		require.Equal(t, 8, stored[0].Images[0].Bytes)
		other := w.do("POST", "/v1/chats/1/messages", map[string]any{"message": "What is it?"}, "Idempotency-Key", "k")
		require.Equal(t, 422, other.status, string(other.body))
	}
}
