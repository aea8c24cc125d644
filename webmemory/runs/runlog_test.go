package runs_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
)

// streams is a run with an answer that comes in pieces.
func streams(pieces int) webmemorytest.Agent {
	return func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		var text strings.Builder
		for i := range pieces {
			piece := fmt.Sprint("слово", i, " ")
			text.WriteString(piece)
			emit(event.Head{}, &event.AssistantDelta{Text: piece})
		}
		emit(event.Head{}, &event.Assistant{Content: text.String()})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	}
}

// A post without a key leaves a run that any process can resume from any event, also
// once its log is packed.
func TestAFinishedRunIsResumedElsewhereFromAnyEvent(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, streams(120))
	tr := w.PostStream("1", "hello")
	run := tr.RunID()
	var want []string // the events' data, by number
	for {
		role, data, ok := tr.Next()
		if !ok {
			break
		}
		require.NotEmpty(t, role)
		want = append(want, string(data))
	}
	require.Len(t, want, 123)
	elsewhere := &webmemorytest.World{T: t, URL: w.StartReplica()}
	resumes := func() {
		t.Helper()
		for _, after := range []int{0, 1, 57, 121, 122} {
			tr := elsewhere.Stream("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID", fmt.Sprint(after))
			for n := after; n < len(want); n++ {
				_, data, ok := tr.Next()
				require.True(t, ok, "event %d after %d", n+1, after)
				require.Equal(t, want[n], string(data))
				require.Equal(t, fmt.Sprint(n+1), tr.LastID)
			}
			_, _, more := tr.Next()
			require.False(t, more)
		}
		require.Equal(t, http.StatusNoContent, elsewhere.Do("GET", "/v1/chats/1/runs/"+run+"/events", nil, "Last-Event-ID",
			"123").Status)
	}
	resumes()
	webmemorytest.Eventually(t, "the run's log is packed", func() bool {
		return w.Redis.XLen(t.Context(), "events:1:"+run).Val() == 1
	})
	resumes()

	require.Equal(t, http.StatusOK, w.Do("DELETE", "/v1/chats/1", nil).Status)
	p := elsewhere.Do("GET", "/v1/chats/1/runs/"+run+"/events", nil)
	require.Equal(t, http.StatusNotFound, p.Status)
	require.Equal(t, api.ErrUnknownRun.Code, p.Problem(t).Code)
}
