package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/memory/telemetry"
)

// A server that redirects does not send keys and texts elsewhere, whichever server it is.
func TestNoClientFollowsARedirect(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	seen, a := telemetry.Open("v1", zerolog.Nop()), &app{}
	defer seen.Close()
	for _, client := range []*http.Client{a.client(seen, "engine"), a.ourClient(seen, "webmemory")} {
		resp, err := client.Post(server.URL, "application/json", http.NoBody)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusTemporaryRedirect, resp.StatusCode)
	}
}
