package app_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// yesterdayIn returns the beginning and the end of yesterday in a zone.
func yesterdayIn(zone *time.Location, now time.Time) (from, to time.Time) {
	y, m, d := now.In(zone).Date()
	return time.Date(y, m, d-1, 0, 0, 0, 0, zone), time.Date(y, m, d, 0, 0, 0, 0, zone)
}

// The same question about yesterday gives a user in Tokyo and one in Los Angeles different days. A run that waits keeps
// its zone. Two posts from one zone have the same beginning.
func TestYesterdayIsTheUsers(t *testing.T) {
	t.Parallel()
	vendor := upstreamtest.New(upstreamtest.Config{Remember: 20})
	server := httptest.NewServer(vendor)
	defer server.Close()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=claude",
		backend("claude", "anthropic", server.URL, `model_map: {"*": claude-opus-5-5}`))
	status, body := u.request("PUT", "/v1/users/ann", "application/json", `{"time_zone":"Asia/Tokyo"}`)
	require.Equal(t, http.StatusOK, status, body)

	now := time.Now()
	zones := map[string]*time.Location{}
	told, lines := map[string]time.Time{}, ""
	for _, name := range []string{"Asia/Tokyo", "America/Los_Angeles"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		zones[name] = zone
	}
	for name, other := range map[string]string{"Asia/Tokyo": "America/Los_Angeles", "America/Los_Angeles": "Asia/Tokyo"} {
		from, to := yesterdayIn(zones[name], now)
		notFrom, notTo := yesterdayIn(zones[other], now)
		for _, at := range []time.Time{from.Add(time.Hour), to.Add(-time.Hour)} {
			if at.Before(notFrom) || !at.Before(notTo) {
				told[name] = at
			}
		}
		lines += fmt.Sprintf(`{"message":{"role":"user","content":"Told in %s.","timestamp":%d,"id":"m.%d"}}`+"\n",
			strings.ReplaceAll(name, "_", " "), told[name].Unix(), len(told))
	}
	const ask = `"message":"What did I say yesterday?"`
	const tools = `,"tools":[{"name":"peek","description":"Looks.","parameters":{"type":"object"}}]`
	for chat, c := range map[string]struct{ zone, more string }{
		"1": {"Asia/Tokyo", `,"user":"ann"`}, "2": {"America/Los_Angeles", `,"user":"ann","time_zone":"America/Los_Angeles"`},
	} {
		status, body := u.request("POST", "/v1/chats/"+chat+"/import", "application/x-ndjson", lines)
		require.Equal(t, http.StatusCreated, status, body)
		status, body = u.request("POST", "/v1/chats/"+chat+"/notes", "application/json", `{"text":"I like tea."}`)
		require.Equal(t, http.StatusCreated, status, body)
		vendor.Queue(upstreamtest.Reply(upstreamtest.Use("peek", `{}`)))
		status, body = u.request("POST", "/v1/chats/"+chat+"/messages", "application/json", "{"+ask+c.more+tools+"}")
		require.Equal(t, http.StatusAccepted, status, body)
		vendor.Queue(upstreamtest.Reply(upstreamtest.Use("recall", `{"query":"What did I say yesterday?"}`)),
			upstreamtest.Reply(upstreamtest.Say("This.")))
		run, wait := gjson.Get(body, "run_id").Str, gjson.Get(body, "waits.0.id").Str
		status, body = u.request("POST", "/v1/chats/"+chat+"/runs/"+run+"/resume", "application/json",
			fmt.Sprintf(`{"answers":[{"id":%q,"decision":"approve","result":"nothing"}]}`, wait))
		require.Equal(t, http.StatusOK, status, body)
		result := strings.Join(vendor.Last().Results, "\n")
		require.Contains(t, result, "Times are "+c.zone+".\n")
		require.Contains(t, result, told[c.zone].In(zones[c.zone]).Format("2006-01-02 15:04>")+"\nuser: Told in "+
			strings.ReplaceAll(c.zone, "_", " "))
		require.Equal(t, 1, strings.Count(result, "Told in"), result)
		system := gjson.GetBytes(vendor.Last().Body, "system").Raw
		require.Contains(t, system, " "+time.Now().In(zones[c.zone]).Format(time.DateOnly)+` \"I like tea.`)

		vendor.Queue(upstreamtest.Reply(upstreamtest.Say("Yes.")))
		status, body = u.request("POST", "/v1/chats/"+chat+"/messages", "application/json", `{"message":"Thanks."`+c.more+tools+`}`)
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, system, gjson.GetBytes(vendor.Last().Body, "system").Raw)
	}
}

// The page posts the browser's zone. No message is lost if the browser names no zone, or an unknown one.
func TestThePageSendsItsZone(t *testing.T) {
	testtier.Slow(t)
	ctx := newBrowser(t)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	to, err := url.Parse(u.url(""))
	require.NoError(t, err)
	posts := make(chan string, 10)
	forward := httputil.NewSingleHostReverseProxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			posts <- gjson.GetBytes(body, "time_zone").String()
		}
		forward.ServeHTTP(w, r)
	}))
	defer s.Close()
	for i, c := range []struct {
		zone string
		want []string
	}{{"Asia/Kathmandu", []string{"Asia/Kathmandu"}}, {"", []string{""}}, {"Etc/Unknown", []string{"Etc/Unknown", ""}}} {
		open(t, ctx, fmt.Sprintf("%s/?%d#/chats/c%d", s.URL, i, i))
		say := fmt.Sprintf(`(() => {
			Intl.DateTimeFormat.prototype.resolvedOptions = () => ({ timeZone: %q });
			const field = document.querySelector("form.composer textarea");
			if (!field) return false;
			Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set.call(field, "I like tea.");
			field.dispatchEvent(new Event("input", { bubbles: true }));
			setTimeout(() => field.form.requestSubmit(), 200);
			return true;
		})()`, c.zone)
		require.Eventually(t, func() bool {
			done, err := chromedp.Run(ctx, chromedp.Evaluate[bool](say))
			return err == nil && done
		}, time.Minute, 500*time.Millisecond)
		for _, want := range c.want {
			require.Equal(t, want, <-posts, c.zone)
		}
		require.Eventually(t, func() bool {
			_, body := u.request("GET", fmt.Sprintf("/v1/chats/c%d/history", i), "", "")
			return gjson.Get(body, "total").Int() == 2
		}, time.Minute, 50*time.Millisecond, c.zone)
	}
	require.Empty(t, posts)
}
