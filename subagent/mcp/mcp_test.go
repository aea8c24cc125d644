package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mneme/memory/telemetry"
	"mneme/subagent/external"
	"mneme/subagent/mcp"
)

type city struct {
	City string `json:"city"`
}

// shop is a server by the SDK, with tools of every kind. said has the _meta of the last call.
func shop(said *sync.Map) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, nil)
	yes := true
	sdk.AddTool(s, &sdk.Tool{Name: "weather", Description: "The weather.\u200b\x1b[31m"},
		func(ctx context.Context, r *sdk.CallToolRequest, in city) (*sdk.CallToolResult, any, error) {
			for key, value := range r.Params.Meta {
				said.Store(key, value)
			}
			token := r.Params.GetProgressToken()
			_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Message: "looking"})
			if seen, wait := said.Load("seen"); wait {
				<-seen.(chan string)
			}
			return &sdk.CallToolResult{Content: []sdk.Content{
				&sdk.TextContent{Text: "12 °C in " + in.City}, &sdk.TextContent{Text: "rain"},
				&sdk.ImageContent{MIMEType: "image/png", Data: make([]byte, 12345)},
			}}, nil, nil
		})
	sdk.AddTool(s, &sdk.Tool{Name: "refund", Annotations: &sdk.ToolAnnotations{DestructiveHint: &yes}},
		func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			return nil, nil, fmt.Errorf("no such order; by token secret-of-the-crm")
		})
	s.AddTool(&sdk.Tool{Name: "count", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{StructuredContent: map[string]any{"n": 3, "what": "<a>"}}, nil
		})
	s.AddTool(&sdk.Tool{Name: "long", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: strings.Repeat("ж", 300<<10)}}}, nil
		})
	s.AddTool(&sdk.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			if r.Params.InputResponses == nil {
				return &sdk.CallToolResult{RequestState: "s1", InputRequests: sdk.InputRequestMap{
					"size": &sdk.ElicitParams{Message: "Which size?", RequestedSchema: json.RawMessage(
						`{"type":"object","properties":{"size":{"type":"integer"}}}`)},
					"page": &sdk.ElicitParams{Mode: "url", URL: "https://example.com", Message: "m", ElicitationID: "e"},
				}}, nil
			}
			raw, err := json.Marshal(r.Params.InputResponses)
			return &sdk.CallToolResult{Content: []sdk.Content{
				&sdk.TextContent{Text: r.Params.RequestState + string(raw)}}}, err
		})
	return s
}

// older answers as a server that knows sessions only.
func older(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "server/discover") {
			http.Error(w, "Bad Request: not initialized", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		next.ServeHTTP(w, r)
	})
}

func init() {
	roles["shop"] = func() {
		fmt.Println("The shop is open.") // as many programs do
		_ = shop(&sync.Map{}).Run(context.Background(), &sdk.StdioTransport{})
	}
	roles["env"] = func() {
		s := sdk.NewServer(&sdk.Implementation{Name: "env", Version: "1"}, nil)
		s.AddTool(&sdk.Tool{Name: "env", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				dir, _ := os.Getwd()
				return &sdk.CallToolResult{Content: []sdk.Content{
					&sdk.TextContent{Text: strings.Join(append(os.Environ(), "in="+dir), "\n")}}}, nil
			})
		_ = s.Run(context.Background(), &sdk.StdioTransport{})
	}
}

// program is a server of the test's own on standard input and output.
func program(t *testing.T, role string) mcp.ServerConfig {
	return mcp.ServerConfig{
		Command: []string{os.Args[0]}, Env: []string{roleVar + "=" + role, "SECRET=secret-of-the-crm"},
		Dir: filepath.Join(t.TempDir(), "mcp", role), Pin: true, Timeout: 20 * time.Second,
	}
}

// The tools of a server of either era, over either transport, are listed, pinned and called.
func TestTools(t *testing.T) {
	var said sync.Map
	handler := func(stateless bool) http.Handler {
		return sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
			require.Equal(t, "Bearer secret-of-the-crm", r.Header.Get("Authorization"))
			return shop(&said)
		}, &sdk.StreamableHTTPOptions{Stateless: stateless})
	}
	config := func(h http.Handler) mcp.ServerConfig {
		web := httptest.NewServer(h)
		t.Cleanup(web.Close)
		return mcp.ServerConfig{
			URL: web.URL + "/mcp", Headers: map[string]string{"Authorization": "Bearer secret-of-the-crm"}, Pin: true,
			Timeout: 20 * time.Second,
		}
	}
	for name, config := range map[string]mcp.ServerConfig{
		"http": config(handler(true)), "http, sessions": config(handler(false)),
		"http, an older server": config(older(handler(false))), "program": program(t, "shop"),
	} {
		t.Run(name, func(t *testing.T) {
			p := &pins{}
			c := open(t, map[string]mcp.ServerConfig{"crm": config}, p)
			require.Equal(t, []mcp.Status{{Server: "crm", State: mcp.StateReady, Tools: 5}}, c.Status())
			tools := c.Tools("crm")
			require.Equal(t, []string{"ask", "count", "long", "refund", "weather"}, names(tools))
			require.Equal(t, external.Hints{Destructive: true}, tools[3].Hints)
			require.Equal(t, "The weather.[31m", tools[4].Description, "what nobody sees is left out")
			require.JSONEq(t, `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],
				"additionalProperties":false}`, string(tools[4].Parameters))
			require.Len(t, p.kept["crm"], 5)

			progress := make(chan string, 1)
			if name != "program" {
				said.Store("seen", progress)
			}
			ctx := telemetry.Trail{Trace: strings.Repeat("a", 32)}.In(t.Context())
			r, err := c.Caller("crm", "weather").Call(ctx, external.Call{
				ID: "call-1", Run: "run-1", Chat: "7", Arguments: json.RawMessage(`{"city":"Oslo"}`),
				Progress: func(text string) { // the tool waits for it
					require.Equal(t, "looking", text)
					progress <- text
				},
			})
			require.NoError(t, err)
			require.Equal(t, external.Returned{Text: "12 °C in Oslo\nrain\n[image/png, 12 kB, not shown]"}, r)
			if name != "program" {
				for key, want := range map[string]string{"Mneme-Run-Id": "run-1", "Mneme-Call-Id": "call-1", "Mneme-Chat-Id": "7"} {
					got, _ := said.Load(key)
					require.Equal(t, want, got, key)
				}
				trace, _ := said.Load("traceparent")
				require.Contains(t, trace, strings.Repeat("a", 32))
				_, user := said.Load("Mneme-User")
				require.False(t, user)
			}

			require.Equal(t, external.Returned{Text: "no such order; by token ***", Failed: true},
				call(t, c, "crm", "refund", `{}`))
			require.Equal(t, `{"n":3,"what":"<a>"}`, call(t, c, "crm", "count", "").Text)
			long := call(t, c, "crm", "long", `{}`).Text
			require.LessOrEqual(t, len(long), 256<<10)
			require.Greater(t, len(long), 255<<10)

			_, err = c.Caller("crm", "other").Call(t.Context(), external.Call{})
			require.EqualError(t, err, "The server crm has no tool other.")
			_, err = c.Caller("erp", "other").Call(t.Context(), external.Call{})
			require.EqualError(t, err, "No server of tools is called erp.")
		})
	}
}

// A tool that asks a person gives its questions back, and goes on with the answers, also by
// another process. What is no form is declined.
func TestAToolAsks(t *testing.T) {
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return shop(&sync.Map{}) },
		&sdk.StreamableHTTPOptions{Stateless: true})
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	servers := map[string]mcp.ServerConfig{"crm": {URL: web.URL}, "program": program(t, "shop")}
	c := open(t, servers, &pins{})
	for server := range servers {
		r := call(t, c, server, "ask", `{}`)
		require.NotNil(t, r.Elicitation, "%+v", r)
		require.Equal(t, []external.Question{{Key: "size", Message: "Which size?",
			Schema: json.RawMessage(`{"properties":{"size":{"type":"integer"}},"type":"object"}`)}}, r.Elicitation.Questions)
		require.JSONEq(t, `{"request_state":"s1","declined":["page"],"asked":["size"]}`, string(r.Elicitation.State))
		later := open(t, servers, &pins{})
		for answer, want := range map[string]string{
			`{"size":7}`: `s1{"page":{"action":"decline"},"size":{"action":"accept","content":{"size":7}}}`,
			`null`:       `s1{"page":{"action":"decline"},"size":{"action":"decline"}}`,
		} {
			r, err := later.Caller(server, "ask").Call(t.Context(), external.Call{
				State: r.Elicitation.State, Answers: map[string]json.RawMessage{"size": json.RawMessage(answer)},
			})
			require.NoError(t, err)
			require.Equal(t, want, r.Text)
		}
	}
}

// A program gets PATH, its own folder as HOME, and what is named; nothing else of this process.
func TestAProgramsEnvironment(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-1")
	config := program(t, "env")
	config.Path = "/bin:/usr/bin"
	c := open(t, map[string]mcp.ServerConfig{"env": config}, &pins{})
	require.Equal(t, strings.Join([]string{"PATH=/bin:/usr/bin", "HOME=" + config.Dir, roleVar + "=env", "SECRET=***",
		"in=" + config.Dir}, "\n"), call(t, c, "env", "env", `{}`).Text)
}
