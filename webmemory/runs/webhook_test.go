package runs_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/access/audit"
	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/runs"
)

func TestWhatRunsWaitForIsListed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := webmemorytest.NewWorld(t, nil)
	w.ScriptApiserver(webmemorytest.SuspendOn(func(r api.RunRequest) []event.Wait {
		waits := webmemorytest.Approvals("w-" + r.ChatID.String())
		if r.ChatID.String() == "5" {
			waits[0].Kind, waits[0].ExpiresAt = event.Question, waits[0].ExpiresAt-60
		}
		return waits
	}))
	for i := range 5 {
		w.PostSuspended(fmt.Sprint(i + 1))
	}
	// What is listed and does not wait is passed over, and taken off.
	require.NoError(t, w.Redis.ZAdd(ctx, "mneme:waiting", redis.Z{Score: 1, Member: "gone"},
		redis.Z{Score: 2, Member: "no chat"}).Err())
	list := func(query string) (chats []string, next string) {
		t.Helper()
		got := w.Do("GET", "/v1/approvals"+query, nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		var page webapi.ApprovalList
		require.NoError(t, json.Unmarshal(got.Body, &page))
		for _, a := range page.Approvals {
			require.Equal(t, "w-"+a.ChatID.String(), a.ID)
			require.NotEmpty(t, a.RunID)
			require.JSONEq(t, `{"amount":5}`, string(a.Arguments))
			chats = append(chats, a.ChatID.String())
		}
		return chats, page.NextCursor
	}
	all, next := list("?status=open")
	require.Equal(t, []string{"5", "1", "2", "3", "4"}, all, "by when it expires")
	require.Empty(t, next)
	require.EqualValues(t, 5, w.Redis.ZCard(ctx, "mneme:waiting").Val())
	var paged []string
	for query := "?limit=2"; query != ""; {
		some, next := list(query)
		paged = append(paged, some...)
		if query = ""; next != "" {
			query = "?limit=2&cursor=" + url.QueryEscape(next)
		}
	}
	require.Equal(t, all, paged)
	questions, _ := list("?kind=question")
	require.Equal(t, []string{"5"}, questions)
	for _, bad := range []string{"?limit=0", "?limit=2000", "?status=done", "?kind=other"} {
		require.Equal(t, 400, w.Do("GET", "/v1/approvals"+bad, nil).Status, bad)
	}
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/5", nil).Status)
	left, _ := list("")
	require.NotContains(t, left, "5")
}

// A tool that was approved for good is named to the runs that follow in the chat, and in no other.
func TestAToolIsApprovedForGood(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil)
	s := w.ScriptApiserver(webmemorytest.SuspendOn(func(api.RunRequest) []event.Wait {
		waits := webmemorytest.Approvals("w1", "w2")
		waits[0].Approves, waits[1].Approves = "crm/refund", "crm/pay"
		return waits
	}))
	run := w.PostSuspended("1")
	answers := webmemorytest.Approve("w1", "w2")
	answers.Answers[1].Decision = event.Deny
	require.Equal(t, 200, w.Resume("1", run, answers).Status)
	approvedIn := func(chat string) []string {
		t.Helper()
		require.Equal(t, 200, w.Post(chat, "plain").Status)
		posted := s.Requests()
		return posted[len(posted)-1].Approved
	}
	require.Equal(t, []string{"crm/refund"}, approvedIn("1"))
	require.Empty(t, approvedIn("2"))
	run = w.PostSuspended("1")
	require.Equal(t, 200, w.Resume("1", run, webmemorytest.Approve("w1", "w2")).Status)
	require.Equal(t, []string{"crm/refund", "crm/pay"}, approvedIn("1"))
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
	require.Empty(t, approvedIn("1"))
}

// The webhook is told with a signature, tried again, and never sent elsewhere or told arguments.
func TestTheWebhookIsTold(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	bodies := make(chan []byte, 1)
	var tries atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	defer elsewhere.Close()
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if tries.Add(1) == 1 {
			rw.WriteHeader(503)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mac := hmac.New(sha256.New, []byte("secret"))
		fmt.Fprintf(mac, "%s.%s", r.Header.Get(runs.WebhookTimestamp), body)
		if r.Header.Get(runs.WebhookSignature) != "sha256="+hex.EncodeToString(mac.Sum(nil)) {
			t.Error("the signature is wrong")
		}
		if strings.Contains(string(body), `"chat_id":2`) || strings.Contains(string(body), `"chat_id":"2"`) {
			http.Redirect(rw, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}
		bodies <- body
	}))
	defer hook.Close()
	w, _, run := webmemorytest.NewSuspendedWorld(t, func(c *webmemory.Config) {
		c.Webhook = webmemory.Webhook{URL: hook.URL, Secret: "secret"}
	})
	body := <-bodies
	var told runs.WebhookBody
	require.NoError(t, json.Unmarshal(body, &told))
	require.Equal(t, run, told.RunID)
	require.Equal(t, "1", told.ChatID.String())
	require.Equal(t, "w1", told.Pending[0].ID)
	require.Equal(t, "refund", told.Pending[0].Tool)
	require.Greater(t, told.Pending[0].ExpiresAt, event.Seconds(time.Now()))
	require.NotContains(t, string(body), "amount")
	w.PostSuspended("2")
	<-bodies
	webmemorytest.Eventually(t, "it is counted", func() bool {
		return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), `mneme_approvals_webhook_total{outcome="failed"} 1`)
	})
}

func TestTheClientsOwnTools(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil)
	s := w.ScriptApiserver(webmemorytest.SuspendOn(func(r api.RunRequest) []event.Wait {
		return []event.Wait{{ID: "w1", Kind: event.ClientResult, ToolCallID: "t1", Tool: r.Tools[0].Name,
			Arguments: json.RawMessage(`{}`), ExpiresAt: event.Seconds(time.Now().Add(time.Hour))}}
	}))
	tool := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"description":"d","parameters":{"type":"object"}}`, name)
	}
	post := func(tools, more string, header ...string) webmemorytest.Response {
		return w.Do("POST", "/v1/chats/1/messages", `{"message":"hi","tools":[`+tools+`]`+more+`}`, append(header,
			"Content-Type", "application/json")...)
	}
	many := strings.Repeat(tool("x")+",", 41)
	for name, c := range map[string]struct {
		tools, more string
		status      int
	}{
		"a bad name":      {tool("a b"), "", 400},
		"no name":         {tool(""), "", 400},
		"two of a name":   {tool("a") + "," + tool("a"), "", 400},
		"no schema":       {`{"name":"a"}`, "", 400},
		"a schema's list": {`{"name":"a","parameters":[]}`, "", 400},
		"too many":        {many[:len(many)-1], "", 400},
		"of a subagent":   {tool("a"), `,"agent_version":"analytic"`, 400},
		"too much": {fmt.Sprintf(`{"name":"a","description":%q,"parameters":{}}`, strings.Repeat("x", 300<<10)), "",
			413},
		"too long a user": {"", `,"user":"` + strings.Repeat("u", 300) + `"`, 400},
	} {
		got := post(c.tools, c.more)
		require.Equal(t, c.status, got.Status, "%s: %s", name, got.Body)
	}
	got := post(tool("door"), `,"user":"ann"`, "Idempotency-Key", "k")
	require.Equal(t, 202, got.Status, string(got.Body))
	w.AwaitSuspension("1")
	sent := s.Requests()[0]
	require.Equal(t, "ann", sent.User)
	require.Equal(t, "door", sent.Tools[0].Name)
	require.Equal(t, 422, post(tool("window"), `,"user":"ann"`, "Idempotency-Key", "k").Status, "other tools are another post")
	require.Equal(t, 422, post(tool("door"), `,"user":"bob"`, "Idempotency-Key", "k").Status)
	require.Equal(t, 202, post(tool("door"), `,"user":"ann"`, "Idempotency-Key", "k").Status)
	answered := w.Resume("1", got.RunID(), `{"answers":[{"id":"w1","decision":"approve","result":"open"}]}`,
		"Content-Type", "application/json")
	require.Equal(t, 200, answered.Status, string(answered.Body))
}

// The person that said yes or no is found later, without what the call was about.
func TestAnswersToApprovalsAreAudited(t *testing.T) {
	t.Parallel()
	w, _, run := webmemorytest.NewSuspendedWorld(t)
	log := audit.New(w.Redis)
	w.URL = w.StartReplica(func(c *webmemory.Config) { c.Audit = log })
	require.Equal(t, 404, w.Resume("1", run, webmemorytest.Approve("none")).Status)
	require.Equal(t, 200, w.Resume("1", run, webmemorytest.Decide(event.Deny, "w1")).Status)
	entries, err := log.Page(t.Context(), memory.Tenant{}, "", 10)
	require.NoError(t, err)
	require.Len(t, entries, 1, "what was refused is not there")
	require.Equal(t, "approval.deny", entries[0].Action)
	require.Equal(t, "chats/1/runs/"+run+"/w1", entries[0].Target)
}
