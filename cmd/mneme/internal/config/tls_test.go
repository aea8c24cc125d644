package config

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that only calls the services of this machine finds them by a file with faults elsewhere.
func TestACommandFindsTheServicesInAFileWithFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile(DefaultFile, []byte(`
run_timeout: soon
colour: red
webmemory: {max_history: many, queue: {wait: long}, listen: "127.0.0.1:1", colour: red}
agents: {master: {tools: [{http: 5}]}}
apiserver: {listen: "127.0.0.1:2"}
proxy: {backends: {a: {kind: [x]}}}
tls: {cert: a.pem}
`), 0o600))
	c := LoadLocal("", []string{"MNEME_TLS_KEY=b.pem", "MNEME_RUN_TIMEOUT=soon"})
	require.Equal(t, "127.0.0.1:1", c.Webmemory.Listen)
	require.Equal(t, "127.0.0.1:2", c.Apiserver.Listen)
	require.Equal(t, "127.0.0.1:8082", c.Proxy.Listen)
	require.Equal(t, TLS{Cert: "a.pem", Key: "b.pem"}, c.TLS)
	require.Equal(t, "127.0.0.1:8080", LoadLocal("nowhere.yaml", nil).Webmemory.Listen)
}
