package app_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
)

// An answer that is longer than agents.max_answer is stored as far as it fits, of the master and of a subagent, also if it
// is larger than an event can be. The chat continues.
func TestAnAnswerThatIsTooLongIsCut(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, text := range map[string]string{
		"a little": strings.Repeat("word ", 300), "more than an event": strings.Repeat("\x01word", 6<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, settings := scripted(t, text)
			u := start(t, append(settings, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_AGENTS_MAX_ANSWER=1024")...)
			for _, message := range []string{`{"message":"one"}`, `{"message":"two"}`} {
				status, body := u.request(http.MethodPost, "/v1/chats/1/messages", "application/json", message)
				require.Equal(t, http.StatusBadGateway, status, body)
				require.Equal(t, "answer_too_long", gjson.Get(body, "error.code").Str, body)
			}
			_, history := u.request(http.MethodGet, "/v1/chats/1/history", "", "")
			require.Equal(t, int64(4), gjson.Get(history, "messages.#").Int())
			for _, at := range []string{"messages.1", "messages.3"} {
				answer := gjson.Get(history, at)
				require.True(t, answer.Get("partial").Bool(), at)
				require.True(t, strings.HasPrefix(text, answer.Get("content").Str), at)
				require.InDelta(t, 1024, len(answer.Get("content").Raw), 10)
			}
		})
	}
}
