package mcpserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/mcpserver"
)

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A client that waits for an answer hears every 15 seconds that it is still waited for.
func TestProgressWhileNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := webapi.NewOver("http://webmemory", &http.Client{Transport: roundTrip(
			func(r *http.Request) (*http.Response, error) {
				stream, events := io.Pipe()
				go func() {
					time.Sleep(40 * time.Second)
					for i, p := range []event.Payload{&event.Assistant{Content: "at last"},
						&event.RunFinished{Outcome: event.Completed}} {
						e := event.New(event.Head{RunID: "r", Seq: int64(i + 1)}, p)
						fmt.Fprintf(events, "data: %s\n\n", e.Line())
					}
					events.Close()
				}()
				return &http.Response{StatusCode: http.StatusOK, Body: stream, Request: r,
					Header: http.Header{"Content-Type": {"text/event-stream"}}}, nil
			})})
		require.NoError(t, err)
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		served := make(chan error, 1)
		go func() {
			served <- mcpserver.Config{Memory: memory, Log: zerolog.Nop()}.Stdio(t.Context(), in, out)
		}()
		var told []time.Duration
		began := time.Now()
		client := mcp.NewClient(&mcp.Implementation{Name: "test"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) {
				told = append(told, time.Since(began))
			}})
		s, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
		require.NoError(t, err)
		got, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask", Meta: mcp.Meta{"progressToken": 1},
			Arguments: map[string]any{"chat": "c", "message": "hi"}})
		require.NoError(t, err)
		require.Equal(t, "at last", got.Content[0].(*mcp.TextContent).Text)
		synctest.Wait()
		require.Equal(t, []time.Duration{15 * time.Second, 30 * time.Second}, told)
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
	})
}
