// Package otel has a real Collector's receiver take the traces of a real mneme. It is a module of its own, so that
// mneme's does not need the Collector's.
package otel

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// free is an address that nothing listens at.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// mneme is the program, as it is in this repository.
func mneme(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "mneme")
	build := exec.Command("go", "build", "-o", to, "./cmd/mneme")
	build.Dir = filepath.Join("..", "..", "..")
	said, err := build.CombinedOutput()
	require.NoError(t, err, string(said))
	return to
}

// The Collector's receiver takes a run's spans, which mneme sends by its end at the latest.
func TestACollectorTakesARun(t *testing.T) {
	at, sink := free(t), new(consumertest.TracesSink)
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{
		"protocols": map[string]any{"http": map[string]any{"endpoint": at}},
	}).Unmarshal(cfg))
	collector, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), cfg, sink)
	require.NoError(t, err)
	require.NoError(t, collector.Start(t.Context(), componenttest.NewNopHost()))
	defer func() { require.NoError(t, collector.Shutdown(context.Background())) }()

	web := free(t)
	up := exec.Command(mneme(t), "up")
	up.Dir = t.TempDir()
	up.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + up.Dir, "MNEME_WEBMEMORY_LISTEN=" + web,
		"MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_PROXY_LISTEN=127.0.0.1:0", "MNEME_REDIS_EMBEDDED_LISTEN=127.0.0.1:0",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + at, "OTEL_BSP_SCHEDULE_DELAY=3600000", "OTEL_RESOURCE_ATTRIBUTES=team=shop"}
	up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log strings.Builder
	up.Stdout, up.Stderr = &log, &log
	require.NoError(t, up.Start())
	require.NoError(t, said("http://"+web))
	require.NoError(t, up.Process.Signal(syscall.SIGTERM))
	require.NoError(t, up.Wait(), log.String())

	var names []string
	traces := map[string]bool{}
	for _, sent := range sink.AllTraces() {
		for _, of := range sent.ResourceSpans().All() {
			team, _ := of.Resource().Attributes().Get("team")
			require.Equal(t, "shop", team.Str())
			for _, scope := range of.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					names = append(names, span.Name())
					traces[span.TraceID().String()] = true
				}
			}
		}
	}
	require.Len(t, traces, 1, "%v", names)
	for _, name := range []string{"invoke_workflow mneme", "invoke_agent master", "chat master", "create_memory"} {
		require.True(t, slices.Contains(names, name), "%s is not among %v", name, names)
	}
}

// said posts a message, as soon as it is taken.
func said(url string) (err error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var resp *http.Response
		resp, err = http.Post(url+"/v1/chats/1/messages", "application/json", strings.NewReader(`{"message":"Hello"}`))
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		err = fmt.Errorf("it answers %s", resp.Status)
	}
	return err
}
