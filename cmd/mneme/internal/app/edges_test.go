package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A key that a client puts into an address is repeated by no answer of any service.
func TestAKeyInAnAddressIsNotRepeated(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	for _, key := range []string{"mn_ops_" + strings.Repeat("aB3-_", 8), "sk-proj-" + strings.Repeat("x7", 20)} {
		for _, at := range []string{
			u.addrs.Webmemory + "/v1/nothing/", u.addrs.Webmemory + "/v1/chats/7/runs/", u.addrs.Webmemory + "/",
			u.addrs.Webmemory + "/v1/keys/", u.addrs.Apiserver + "/", u.addrs.Apiserver + "/v1/runs/",
			u.addrs.Proxy + "/v1/", u.addrs.Proxy + "/v1/responses/", u.addrs.Proxy + "/",
		} {
			for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPost} {
				request, err := http.NewRequest(method, "http://"+at+key, nil)
				require.NoError(t, err)
				resp, err := http.DefaultClient.Do(request)
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				if resp.StatusCode >= 400 {
					require.NotContains(t, string(body), key, "%s %s", method, at)
				}
			}
		}
	}
}

// No answer of any service is taken for a page or a script by a browser that guesses.
func TestNoAnswerIsSniffed(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	for _, service := range []string{u.addrs.Webmemory, u.addrs.Apiserver, u.addrs.Proxy} {
		for _, path := range []string{"/", "/nothing", "/healthz", "/metrics", "/v1/models", "/v1/chats", "/openapi.json"} {
			for _, host := range []string{"", "evil.test"} {
				request, err := http.NewRequest(http.MethodGet, "http://"+service+path, nil)
				require.NoError(t, err)
				request.Host = host
				resp, err := http.DefaultClient.Do(request)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, []string{"nosniff"}, resp.Header["X-Content-Type-Options"], "%s%s of %q", service, path, host)
			}
		}
	}
}
