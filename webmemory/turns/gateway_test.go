package turns_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
)

// The gateway's routes record only in chats of agents, and only turns of the last day.
func TestTurnsOfAgentsAreRecordedInTheirChatsOnly(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("x"))
	url := w.StartReplica()
	for _, c := range []struct {
		chat, session string
		ago           time.Duration
		status        int
	}{
		{"agent:a", "s", time.Second, 204}, {"agent:a", "s", 7 * time.Hour, 204}, {"agent:a", "s", 25 * time.Hour, 400},
		{"agent:a", "s", -time.Hour, 400}, {"a", "s", time.Second, 400}, {"a", "items", time.Second, 204},
		{"a", "items", 25 * time.Hour, 400},
	} {
		body := fmt.Sprintf(`{"session":%q,"turn":"t","began":%d,"said":"hi"}`, c.session, time.Now().Add(-c.ago).UnixMilli())
		resp, err := http.Post(url+"/internal/v1/chats/"+c.chat+"/heard", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, c.status, resp.StatusCode, "%+v", c)
	}
}
