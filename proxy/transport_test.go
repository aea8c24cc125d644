package proxy_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"mneme/proxy"
)

// codex compresses its requests by zstd.
func TestCompressedRequestsAreRead(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	c := to(v, proxy.KindAnthropic)
	c.Limits.MaxBody = 1 << 20
	url, _ := gateway(t, c)
	for coding, compress := range map[string]func([]byte) []byte{"gzip": gzipped, "zstd": zstdCompressed} {
		got := post(t, url+"/v1/messages", string(compress([]byte(ask+"}"))), "Content-Encoding", coding)
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, ask+"}", v.last(t).body)
		require.Empty(t, v.last(t).header.Get("Content-Encoding"))

		bomb := compress(bytes.Repeat([]byte(" "), 2<<20))
		require.Less(t, len(bomb), 1<<15)
		got = post(t, url+"/v1/messages", string(bomb), "Content-Encoding", coding)
		require.Equal(t, 413, got.status, got.body)
	}
}

func gzipped(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}

func zstdCompressed(body []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	defer w.Close()
	return w.EncodeAll(body, nil)
}

func TestCompressedAnswersAreDecoded(t *testing.T) {
	t.Parallel()
	for status, body := range map[int]string{200: messagesBody, 400: `{"type":"error","error":{"type":` +
		`"invalid_request_error","message":"no"}}`} {
		v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(status)
			_, _ = w.Write(gzipped([]byte(body)))
		})
		url, _ := gateway(t, to(v, proxy.KindAnthropic))
		got := post(t, url+"/v1/messages", ask+"}")
		require.Equal(t, status, got.status)
		require.Equal(t, body, got.body)
		require.Empty(t, got.header.Get("Content-Encoding"))
	}
}

func TestAnUntrustedCertificateIsNamed(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	url, _ := gateway(t, proxy.Config{Backends: map[string]proxy.BackendConfig{
		"v": {Kind: proxy.KindAnthropic, BaseURL: server.URL},
	}})
	got := post(t, url+"/v1/messages", ask+"}")
	require.Equal(t, 502, got.status)
	require.Contains(t, got.body, `the TLS certificate of backend \"v\" is not trusted`)
	require.Contains(t, got.body, "SSL_CERT_FILE")
}

// A company's proxy resolves hosts that only it knows. A process reads its environment once, so the test runs another.
func TestVendorsAreReachedThroughTheProxyOfTheEnvironment(t *testing.T) {
	t.Parallel()
	if os.Getenv("BEHIND_A_PROXY") != "" {
		url, _ := gateway(t, proxy.Config{Backends: map[string]proxy.BackendConfig{
			"v": {Kind: proxy.KindAnthropic, BaseURL: "http://vendor.test"},
		}})
		require.Equal(t, 200, post(t, url+"/v1/messages", ask+"}").status)
		return
	}
	v := vendor(t, says("application/json", messagesBody))
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), "BEHIND_A_PROXY=1", "HTTP_PROXY="+v.server.URL)
	out, err := again.CombinedOutput()
	require.NoError(t, err, string(out))
	require.True(t, strings.HasPrefix(v.last(t).url, "http://vendor.test/v1/messages"), v.last(t).url)
}
