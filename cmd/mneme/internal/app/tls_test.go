package app_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/freeport"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/tlstest"
)

const month = 30 * 24 * time.Hour

// tlsClient asks by HTTP/2 at the name that the certificate has, wherever that is.
func tlsClient(t *testing.T, ca *tlstest.Authority) *http.Client {
	network := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool()},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(addr)
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
		}}
	t.Cleanup(network.CloseIdleConnections)
	return &http.Client{Transport: network}
}

// sayTLS posts a message and gives the events of the answer.
func sayTLS(t *testing.T, c *http.Client, web, message string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(web)
	require.NoError(t, err)
	body, err := json.Marshal(map[string]string{"message": message})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"https://mneme.example.com:"+port+"/v1/chats/tls/messages", strings.NewReader(string(body)))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 2, resp.ProtoMajor)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(raw))
	require.Contains(t, string(raw), "event: run_finished")
	return string(raw)
}

const (
	tellName = "Tell the analytic subagent that my name is Aliya"
	askName  = "Ask the analytic subagent what my name is"
)

// All services in one process, by sockets and without: messages, the page's address, plain HTTP, a renewal.
func TestUpWithTLS(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]func(context.Context, config.Config, app.Options) error{
		"in process": app.Up, "over sockets": app.UpOverSockets} {
		t.Run(name, func(t *testing.T) {
			ca, dir := tlstest.New(t), t.TempDir()
			cert, key := ca.Issue(t, month, month/2, "mneme.example.com").Write(t, dir)
			u := startOnly(t, service, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_TLS_CERT="+cert, "MNEME_TLS_KEY="+key)
			client := tlsClient(t, ca)
			sayTLS(t, client, u.addrs.Webmemory, tellName)
			_, port, err := net.SplitHostPort(u.addrs.Webmemory)
			require.NoError(t, err)
			require.Equal(t, "https://mneme.example.com:"+port+"/", u.addrs.Page())
			require.Contains(t, u.out.String(), "mneme is up: https://mneme.example.com:"+port+"/ shows it")
			require.Contains(t, u.out.String(), "curl -N https://mneme.example.com:"+port+"/v1")
			require.NotContains(t, u.out.String(), "http://")

			for _, addr := range []string{u.addrs.Webmemory, u.addrs.Apiserver, u.addrs.Proxy} {
				status, said := ask(t, http.MethodGet, "http://"+addr+"/readyz", "", "")
				require.Equal(t, http.StatusBadRequest, status)
				require.Contains(t, said, "HTTP request to an HTTPS server")
				_, port, err := net.SplitHostPort(addr)
				require.NoError(t, err)
				resp, err := client.Get("https://mneme.example.com:" + port + "/metrics")
				require.NoError(t, err)
				raw, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Contains(t, string(raw), "mneme_tls_certificate_expires_seconds 1")
			}
			_, err = tlsClient(t, tlstest.New(t)).Get("https://mneme.example.com:" + port + "/readyz")
			require.ErrorContains(t, err, "unknown authority")

			// After a renewal by another CA new connections get its certificate; those that are there go on, and
			// the services reach each other.
			next := tlstest.New(t)
			next.Issue(t, month, month/2, "mneme.example.com").Write(t, dir)
			require.Contains(t, sayTLS(t, tlsClient(t, next), u.addrs.Webmemory, askName), "Aliya")
			require.Contains(t, sayTLS(t, client, u.addrs.Webmemory, askName), "Aliya")
		})
	}
}

// The services as they are on machines of their own, with a certificate that has none of their addresses, before
// and after all of them were started again.
func TestServicesWithTLS(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ca := tlstest.New(t)
	cert, key := ca.Issue(t, month, month/2, "mneme.example.com").Write(t, t.TempDir())
	apis, gateway := freeport.Addr(t), freeport.Addr(t)
	_, port, err := net.SplitHostPort(apis)
	require.NoError(t, err)
	for _, ip := range ownIPs(t) { // over the network it tells webmemory its own address
		if net.ParseIP(ip).To4() != nil {
			apis = net.JoinHostPort(ip, port)
		}
	}
	environ := []string{
		"MNEME_REDIS_URL=" + redistest.Start(t).URL(), "MNEME_DATA_DIR=" + t.TempDir(),
		"MNEME_TLS_CERT=" + cert, "MNEME_TLS_KEY=" + key, "MNEME_AUTH_MODE=none",
		"MNEME_WEBMEMORY_LISTEN=0.0.0.0:0", "MNEME_APISERVER_LISTEN=0.0.0.0:" + port, "MNEME_PROXY_LISTEN=" + gateway,
		"MNEME_WEBMEMORY_APISERVER=https://" + apis, "MNEME_APISERVER_PROXY=https://" + gateway,
	}
	for _, message := range []string{tellName, askName} {
		var stops []func()
		var web *up
		for _, service := range []func(context.Context, config.Config, app.Options) error{
			app.Proxy, app.Apiserver, app.Webmemory} {
			web = startOnly(t, service, environ...)
			stops = append(stops, web.stop)
		}
		said := sayTLS(t, tlsClient(t, ca), web.addrs.Webmemory, message)
		require.Contains(t, said, "Aliya")
		if message == askName {
			// Another webmemory that lives is asked before an erasure is answered, by the address that it announces.
			other := startOnly(t, app.Webmemory, append(environ, "MNEME_DATA_DIR="+t.TempDir())...)
			sayTLS(t, tlsClient(t, ca), other.addrs.Webmemory, askName)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://mneme.example.com:"+
				strings.TrimPrefix(web.addrs.Webmemory, "[::]:")+"/v1/chats/tls", nil)
			require.NoError(t, err)
			resp, err := tlsClient(t, ca).Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.NotContains(t, web.log.String(), "another webmemory could not be asked")
			require.NotContains(t, sayTLS(t, tlsClient(t, ca), other.addrs.Webmemory, askName), "Aliya")
			other.stop()
		}
		for _, stop := range stops {
			stop()
		}
	}
}

func TestAStartWithoutAGoodCertificateSaysWhy(t *testing.T) {
	t.Parallel()
	ca, dir := tlstest.New(t), t.TempDir()
	cert, key := ca.Issue(t, month, month/2, "mneme.example.com").Write(t, dir)
	other := filepath.Join(dir, "other.pem")
	require.NoError(t, os.WriteFile(other, ca.Issue(t, month, month/2, "x").Key, 0o600))
	for says, environ := range map[string][]string{
		"MNEME_TLS_CERT: there is no key for it": {"MNEME_TLS_CERT=" + cert},
		"MNEME_TLS_KEY: there is no certificate": {"MNEME_TLS_KEY=" + key},
		"tls.key: there is no file":              {"MNEME_TLS_CERT=" + cert, "MNEME_TLS_KEY=" + key + "x"},
		"does not belong to the first":           {"MNEME_TLS_CERT=" + cert, "MNEME_TLS_KEY=" + other},
	} {
		cfg, err := config.Load("", append(environ, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0",
			"MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_PROXY_LISTEN=127.0.0.1:0", "MNEME_REDIS_EMBEDDED_LISTEN=127.0.0.1:0"))
		if err == nil {
			err = app.Up(t.Context(), cfg, app.Options{Log: zerolog.Nop()})
		}
		require.ErrorContains(t, err, says)
	}
}
