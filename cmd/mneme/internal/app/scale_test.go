package app_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/redistest"
	processes "mneme/internal/stack"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory/event"
)

// ownAddress is an address of this machine that is not loopback, as a container has
// one in its network.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback, so replicas behind one name were not tried")
	return ""
}

// serve runs one service in this process until the test ends.
func serve(t *testing.T, service func(context.Context, config.Config, app.Options) error, environ ...string) app.Addrs {
	t.Helper()
	cfg, err := config.Load("", append([]string{"MNEME_DATA_DIR=" + t.TempDir()}, environ...))
	require.NoError(t, err)
	addrs, _ := running(t, service, cfg, app.Options{Out: io.Discard, Log: zerolog.Nop()})
	return addrs
}

// oneName is one address that stands for several, as a Service of Kubernetes does.
func oneName(t *testing.T, addrs ...string) string {
	t.Helper()
	name, err := processes.Balance(addrs...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = name.Close() })
	return name.Addr().String()
}

// Two webmemories and two apiservers, each pair behind one name, as `docker compose up
// --scale` makes them: every stop finds the process that has the run, whichever
// webmemory is asked, and the run's last events come.
func TestStopsFindTheirRunBehindOneName(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const chats = 12
	ip := ownAddress(t)
	redis := "MNEME_REDIS_URL=" + redistest.Start(t).URL()
	asked := make(chan struct{}, 10*chats)
	vendor := upstreamtest.New(upstreamtest.Config{
		Vendor: upstreamtest.Chat,
		Stream: upstreamtest.StreamOptions{Pause: func(ctx context.Context, event int) {
			if event == 0 {
				asked <- struct{}{}
				<-ctx.Done() // it thinks for ever
			}
		}},
	})
	model := httptest.NewServer(vendor)
	t.Cleanup(model.Close)
	gateway := serve(t, app.Proxy, redis, "MNEME_PROXY_LISTEN=127.0.0.1:0", "MNEME_PROXY_ACTIVE=v",
		backend("v", "openai", model.URL+"/v1"))

	var apis, webs []string
	for range 2 {
		a := serve(t, app.Apiserver, redis, "MNEME_APISERVER_LISTEN=0.0.0.0:0", "MNEME_AUTH_MODE=none",
			"MNEME_APISERVER_PROXY=http://"+gateway.Proxy)
		_, port, err := net.SplitHostPort(a.Apiserver)
		require.NoError(t, err)
		apis = append(apis, net.JoinHostPort(ip, port))
	}
	name := oneName(t, apis...)
	for range 2 {
		w := serve(t, app.Webmemory, redis, "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_WEBMEMORY_APISERVER=http://"+name)
		webs = append(webs, w.Webmemory)
	}
	front := "http://" + oneName(t, webs...)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

	streams := make([]*http.Response, chats)
	for i := range streams {
		var err error
		streams[i], err = client.Post(fmt.Sprintf("%s/v1/chats/%d/messages", front, i), "application/json",
			strings.NewReader(`{"message":"Think.","stream":true}`))
		require.NoError(t, err)
		defer streams[i].Body.Close()
		require.Equal(t, http.StatusOK, streams[i].StatusCode)
	}
	for range chats {
		<-asked
	}
	for _, a := range apis {
		require.False(t, strings.Contains(metrics(t, a), "\nmneme_apiserver_runs_running 0\n"),
			"each of the two has some of the runs")
	}
	for i, stream := range streams {
		run := stream.Header.Get("Mneme-Run-Id")
		require.NotEmpty(t, run)
		resp, err := client.Post(fmt.Sprintf("%s/v1/chats/%d/runs/%s/stop", front, i, run), "application/json", nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusAccepted, resp.StatusCode, "chat %d: %s", i, body)
	}
	for i, stream := range streams {
		raw, err := io.ReadAll(stream.Body)
		require.NoError(t, err)
		events := transcript(t, string(raw))
		require.NotEmpty(t, events)
		end, ok := events[len(events)-1].Payload.(*event.RunFinished)
		require.True(t, ok, "chat %d ends with %T", i, events[len(events)-1].Payload)
		require.Equal(t, event.Stopped, end.Outcome, "chat %d", i)
	}
}

func metrics(t *testing.T, addr string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(raw)
}
