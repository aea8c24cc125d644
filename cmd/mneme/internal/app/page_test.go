package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
)

func TestThePageHasAnAddressThatABrowserCanOpen(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080/", "[::]:8080": "http://127.0.0.1:8080/",
		"0.0.0.0:80": "http://127.0.0.1:80/", "[::1]:8080": "http://[::1]:8080/",
	} {
		require.Equal(t, want, app.Addrs{Webmemory: at}.Page(), at)
	}
}
