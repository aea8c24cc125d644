package turns_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
	"mneme/memory"
)

// onePixel is a PNG that begins as one.
const onePixel = "data:image/png;base64,iVBORw0KGgo="

// The process of a run with an image is killed at every event of the run. Another one brings it to its end without
// the image; what is stored is the text and the reference, once, and the post that is repeated then is the same run.
func TestTheProcessOfARunWithAnImageIsKilled(t *testing.T) {
	t.Parallel()
	for n := range webmemorytest.ScriptEvents {
		s := &webmemorytest.Script{}
		w := webmemorytest.NewWorld(t, s.Play, webmemorytest.ShortenLease)
		settings := w.ChildConfig()
		settings.Lease = webmemorytest.ShortLease
		child, process := w.StartChild(settings)
		post := map[string]any{"message": "What is it?", "images": []string{onePixel}}
		var id string
		w.Target(child, func() {
			s.Allow("1", n)
			got := w.Do("POST", "/v1/chats/1/messages", post, "Prefer", "respond-async", "Idempotency-Key", "k")
			require.Equal(t, 202, got.Status, string(got.Body))
			id = got.RunID()
			events := w.Stream("GET", "/v1/chats/1/runs/"+id+"/events", nil)
			for range n {
				_, _, ok := events.Next()
				require.True(t, ok)
			}
		})
		process.Kill()
		s.Allow("1", webmemorytest.ScriptEvents-n)
		again := w.Do("POST", "/v1/chats/1/messages", post, "Idempotency-Key", "k")
		require.Equal(t, 200, again.Status, string(again.Body))
		require.Equal(t, id, again.RunID())
		wantChat, _ := webmemorytest.ScriptHistories("What is it?\n\n[image: image/png, 8 B]")
		webmemorytest.Eventually(t, "the killed process's turn is brought to its end", func() bool {
			return slices.Equal(wantChat, w.History("chat_history:1"))
		})
		raw, err := w.Redis.Get(t.Context(), "chat_history:1").Bytes()
		require.NoError(t, err)
		var stored []memory.Message
		require.NoError(t, json.Unmarshal(raw, &stored))
		require.Len(t, stored[0].Images, 1)
		require.Equal(t, 8, stored[0].Images[0].Bytes)
		other := w.Do("POST", "/v1/chats/1/messages", map[string]any{"message": "What is it?"}, "Idempotency-Key", "k")
		require.Equal(t, 422, other.Status, string(other.Body))
	}
}
