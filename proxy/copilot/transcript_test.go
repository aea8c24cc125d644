package copilot_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/internal/outsidedata"
	"mneme/proxy/copilot"
)

// recordedFrame is a line of a recorded connection.
type recordedFrame struct {
	Direction string          `json:"dir"`
	Frame     json.RawMessage `json:"frame"`
}

func recorded(t *testing.T, name string) []recordedFrame {
	t.Helper()
	raw, err := os.ReadFile(outsidedata.Path(t, "copilot", name))
	require.NoError(t, err)
	var frames []recordedFrame
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var f recordedFrame
		require.NoError(t, json.Unmarshal(lines.Bytes(), &f))
		frames = append(frames, f)
	}
	require.NoError(t, lines.Err())
	return frames
}

type recordedEvent struct {
	Method string `json:"method"`
	Params struct {
		SessionID string `json:"sessionId"`
		Event     struct {
			Type string          `json:"type"`
			Data json.RawMessage `json:"data"`
		} `json:"event"`
	} `json:"params"`
}

// The events of seven sessions that a real CLI sent over one connection, in their
// order and with everything around them, give each session its own words.
func TestARecordedConnectionOfSevenSessionsOutsideData(t *testing.T) {
	frames := recorded(t, "transcript-many7.jsonl")
	want := map[string]string{} // by recorded id
	var ids []string
	for _, f := range frames {
		var e recordedEvent
		require.NoError(t, json.Unmarshal(f.Frame, &e))
		var d struct {
			Content string `json:"content"`
		}
		if e.Params.Event.Type == "assistant.message" {
			require.NoError(t, json.Unmarshal(e.Params.Event.Data, &d))
			if _, ok := want[e.Params.SessionID]; !ok {
				ids = append(ids, e.Params.SessionID)
			}
			want[e.Params.SessionID] += d.Content
		}
	}
	require.Len(t, want, 7)

	server, router := start(t, copilot.RouterConfig{})
	server.Handle("session.send", func(c *copilottest.Conn, m copilottest.Message) { c.Reply(m, struct{}{}) })
	sessions := map[string]*copilot.Session{}
	var renames []string
	for _, id := range ids {
		s := begin(t, router)
		require.NoError(t, s.Send(t.Context(), "x"))
		sessions[id] = s
		renames = append(renames, id, s.ID())
	}
	rename := strings.NewReplacer(renames...)
	for _, f := range frames {
		var e recordedEvent
		require.NoError(t, json.Unmarshal(f.Frame, &e))
		// Answers belong to calls that were not made here.
		if f.Direction == "S>C" && e.Method != "" {
			server.Conns()[0].Raw(copilottest.Frame(rename.Replace(string(f.Frame))))
		}
	}
	for id, s := range sessions {
		out, err := s.Stream(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, want[id], out.Text)
		require.Equal(t, copilot.Usage{Input: 10, Output: 5}, out.Usage)
	}
	stats := router.Stats()
	require.Zero(t, stats.Malformed)
	require.Positive(t, stats.Filtered)
}
