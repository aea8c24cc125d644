package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/certificate"
	"mneme/internal/tlstest"
)

// If a machine's configuration names a certificate, a command there knows the services that have it, by an address
// that it does not name; elsewhere the certificate is verified as any.
func TestCommandsKnowTheServicesOfTheirMachine(t *testing.T) {
	t.Chdir(t.TempDir())
	ca, dir := tlstest.New(t), t.TempDir()
	cert, key := ca.Issue(t, 48*time.Hour, 24*time.Hour, "mneme.example.com").Write(t, dir)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"status":"ready"}`))
	}))
	pair, err := certificate.Open(cert, key, zerolog.Nop())
	require.NoError(t, err)
	s.Config.TLSConfig = pair.Server()
	go func() { _ = s.Config.ServeTLS(s.Listener, "", "") }() // ends with Close
	defer s.Config.Close()
	addr := s.Listener.Addr().String()
	runIn := func(environ ...string) func(args ...string) string {
		return func(args ...string) string {
			var out strings.Builder
			con := &console{environ: environ, stdin: strings.NewReader(""), stdout: &out, stderr: &out}
			run(t.Context(), args, con)
			return out.String()
		}
	}
	here := runIn("MNEME_TLS_CERT="+cert, "MNEME_TLS_KEY="+key)
	require.Equal(t, "{\"status\":\"ready\"}\n", here("health", addr))
	require.Contains(t, here("health", "http://"+addr), addr+" speaks TLS; call it https://"+addr)
	require.Contains(t, here("chat", "--help"), "https://127.0.0.1:8080")
	require.Contains(t, runIn()("health", "https://"+addr), "by a name that its certificate has")
	require.Contains(t, runIn()("health", addr), "call it https://"+addr)
	require.Contains(t, runIn()("memory", "ls", "--url", "https://"+addr), "by a name that its certificate has")

	// What else is wrong with a file is no matter of these commands.
	require.NoError(t, os.WriteFile("mneme.yaml", []byte("tls: {cert: "+cert+", key: "+key+"}\nno_such_key: 1\n"), 0o600))
	require.Equal(t, "{\"status\":\"ready\"}\n", runIn()("health", addr))
	require.NoError(t, os.WriteFile("mneme.yaml", []byte("tls: {cert: "+cert+", key: "+key+"}\n"), 0o600))
	require.Contains(t, runIn()("config", "check"), "tls: a certificate for mneme.example.com, until ")
	require.Contains(t, runIn()("config", "show"), "apiserver: https://127.0.0.1:8081")
	require.NoError(t, os.Remove(filepath.Join(dir, "key.pem")))
	require.Contains(t, runIn()("config", "check"), "tls.key: there is no file")
}
