package app_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// A model repeats a secret in its thinking, to a subagent and in later turns, over two replicas. Once an exchange is
// redacted, and each message that the answer named, no byte of the secret is in Redis, in its files or in either data
// directory, and no model is sent it any more.
func TestARedactionReachesEverythingThatKeepsText(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	vendor := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: true}})
	server := httptest.NewServer(vendor)
	defer server.Close()
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	var ups []*up
	folders := []string{redis.Dir}
	for range 2 {
		dir := t.TempDir()
		folders = append(folders, dir)
		ups = append(ups, start(t, "MNEME_DATA_DIR="+dir, "MNEME_REDIS_URL="+redis.URL(),
			"MNEME_PROXY_ACTIVE=claude", backend("claude", "anthropic", server.URL, `model_map: {"*": claude-opus-5-5}`),
			"MNEME_AGENTS_MASTER_REASONING_EFFORT=medium"))
	}
	const secret = "QX-4711-ZZ"
	think, say := upstreamtest.Think, upstreamtest.Say
	for i, text := range []string{"Good morning!", "It is " + secret, "What is it?"} {
		told := []string{"nothing", secret, secret}[i]
		vendor.Queue(
			upstreamtest.Reply(think("I think of "+told), upstreamtest.Use("analytic", `{"task":"Count `+told+`"}`)),
			upstreamtest.Reply(think("counting "+told), say("Counted "+told)),
			upstreamtest.Reply(think("done with "+told), say("So it is "+told)),
		)
		ups[i%2].say("7", text)
	}
	places := func() (found []string) {
		for _, key := range redis.Client().Keys(t.Context(), "*").Val() {
			c := redis.Client()
			all := fmt.Sprint(key, c.Get(t.Context(), key).Val(), c.HGetAll(t.Context(), key).Val(),
				c.ZRange(t.Context(), key, 0, -1).Val(), c.LRange(t.Context(), key, 0, -1).Val(),
				c.SMembers(t.Context(), key).Val(), c.XRange(t.Context(), key, "-", "+").Val())
			if strings.Contains(all, secret) || strings.HasPrefix(key, "events:7:") {
				found = append(found, key)
			}
		}
		for _, dir := range folders {
			require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					content, _ := os.ReadFile(path) // one that went meanwhile has nothing
					if strings.Contains(string(content), secret) {
						found = append(found, path)
					}
				}
				return nil
			}))
		}
		return found
	}
	require.NotEmpty(t, places())

	redact := func(u *up, path string) (out webapi.Redacted) {
		status, body := u.request("DELETE", "/v1/chats/7"+path, "", "")
		require.Equal(t, 200, status, body)
		require.NoError(t, json.Unmarshal([]byte(body), &out))
		return out
	}
	status, body := ups[0].request("GET", "/v1/chats/7/recall?query="+secret, "", "")
	require.Equal(t, 200, status, body)
	var found webapi.Recalled
	require.NoError(t, json.Unmarshal([]byte(body), &found))
	first := found.Hits[len(found.Hits)-1]
	path := func(ref webapi.MessageRef) string {
		if ref.Subagent == "" {
			return "/messages/" + ref.ID
		}
		return "/subagents/" + string(ref.Subagent) + "/messages/" + ref.ID
	}
	redact(ups[0], path(webapi.MessageRef{Subagent: first.Subagent, ID: first.ID}))
	for i, history := range []string{"", "analytic", "knowledge"} {
		key := memory.ChatKey(memory.MustChat("7"))
		if history != "" {
			key = memory.SubagentKey(memory.Agent(history), key.Chat())
		}
		status, body := ups[0].request("GET", webapi.HistoryPath(key)+"?archive=true&limit=1000", "", "")
		require.Contains(t, []int{200, 404}, status, body)
		for _, m := range gjson.Get(body, "messages").Array() {
			if strings.Contains(m.Raw, secret) {
				redact(ups[i%2], path(webapi.MessageRef{Subagent: memory.Agent(history), ID: m.Get("id").Str})+"?scope=message")
			}
		}
	}
	require.NoError(t, redis.Client().BgRewriteAOF(t.Context()).Err())
	require.Eventually(t, func() bool { return len(places()) == 0 }, time.Minute, 20*time.Millisecond, "%v", places())
	for _, u := range ups {
		vendor.Queue(upstreamtest.Reply(think("well"), say("Hello.")))
		require.Equal(t, "Hello.", u.say("7", "Hi"))
		require.NotContains(t, string(vendor.Last().Body), secret)
	}
	require.Empty(t, vendor.Rejections(), "what is left of the histories is valid for models")
}
