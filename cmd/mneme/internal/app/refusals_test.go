package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// What a vendor says when it refuses is for no user of a chat: events and answers say it
// in our own sentence. Our key, which this vendor repeats wherever it can, is in none of
// them, and in no log, header or metric; nor is what the user wrote in the log.
func TestAVendorsWordsStayBehindTheGateway(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const key = "sk-live-4f9a8b7c6d5e4f3a2b1c0d9e"
	const wrote = "my doctor found a harmless lump on my left arm"
	for name, c := range map[string]struct {
		status    int
		body      string
		code      string
		message   string
		retryable bool
	}{
		"the key": {401,
			`{"error":{"message":"Incorrect API key provided: %s. You can find yours at ` +
				`https://vendor.example.","code":"invalid_api_key"}}`,
			"model_unauthorized", "The model's vendor refused the key (check VENDOR_KEY).", false},
		"a parameter": {400, `{"error":{"message":"Bad header: Authorization: Bearer %s"}}`,
			"model_rejected", "The model's vendor refused the request as wrong; the gateway's log says why.", false},
		"the content": {400, `{"error":{"message":"Filtered (%s): ` + wrote + `","code":"content_filter"}}`,
			"model_refused", "The model's vendor refused to answer this (content filter).", false},
		"the model": {404, `{"error":{"message":"The model gpt-9 does not exist for %s","code":"model_not_found"}}`,
			"model_unknown", "The model's vendor does not have the model; check model_map of the gateway's backend.", false},
		"too much": {429, `{"error":{"message":"Rate limit reached for %s","code":"rate_limit_exceeded"}}`,
			"rate_limited", "The model's vendor takes no more requests for the moment; try again in 3600 s.", true},
		"no credit": {429, `{"error":{"message":"You exceeded your current quota, %s","code":"insufficient_quota"}}`,
			"quota_exhausted", "The account at the model's vendor has no credit left.", false},
		"a failure": {500, `internal error at Bearer %s`,
			"model_unavailable", "The model's vendor cannot be reached or failed; try again in a moment.", true},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", stream=", stream), func(t *testing.T) {
				vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
					if token != key {
						t.Errorf("the vendor got the key %q", token)
					}
					w.Header().Set("X-Echo", r.Header.Get("Authorization"))
					w.Header().Set("Retry-After", "3600")
					w.Header().Set("Content-Type", "application/json")
					body := c.body
					if strings.Contains(body, "%s") {
						body = fmt.Sprintf(body, token)
					}
					if stream && strings.HasPrefix(body, "{") {
						w.Header().Set("Content-Type", "text/event-stream")
						_, _ = fmt.Fprintf(w, "data: %s\n\n", body)
						return
					}
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(body))
				}))
				defer vendor.Close()
				u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "VENDOR_KEY="+key,
					backend("v", "openai", vendor.URL+"/v1", "api_key_env: VENDOR_KEY"))
				events := u.stream("1", wrote)
				failure := failureOf(t, events)
				if stream && (name == "a parameter") {
					// nothing in the event says which party is at fault
					require.Contains(t, []string{c.code, "model_unavailable"}, failure.Code)
				} else {
					require.Equal(t, c.code, failure.Code)
					require.Equal(t, c.message, failure.Message)
					require.Equal(t, c.retryable, failure.Retryable)
				}
				told, err := json.Marshal(events)
				require.NoError(t, err)

				body, err := json.Marshal(map[string]string{"message": wrote})
				require.NoError(t, err)
				_, answer := u.request(http.MethodPost, "/v1/chats/2/messages", "application/json", string(body))
				_, history := u.request(http.MethodGet, "/v1/chats/1/history", "", "")
				everything := string(told) + answer + history + u.log.String()
				for _, addr := range []string{u.addrs.Webmemory, u.addrs.Apiserver, u.addrs.Proxy} {
					resp, err := http.Get("http://" + addr + "/metrics")
					require.NoError(t, err)
					var b strings.Builder
					require.NoError(t, resp.Write(&b))
					everything += b.String()
				}
				require.NotContains(t, everything, key)
				require.NotContains(t, string(told)+answer, "vendor.example")
				require.NotContains(t, string(told)+answer, "Bad header")
				require.NotContains(t, u.log.String(), "harmless")
				require.Contains(t, u.log.String(), "the backend refused a request")
			})
		}
	}
}
