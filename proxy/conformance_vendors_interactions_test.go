package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/wire"
)

// google is Google with its Interactions.
var google = backendCase{name: "google", vendor: upstreamtest.Config{Vendor: upstreamtest.Google},
	config: proxy.BackendConfig{Kind: proxy.KindInteractions, Vendor: "gemini"}}

// invalidArgument is what Google says of a signature that it cannot read.
const invalidArgument = "Request contains an invalid argument."

// signed are the signatures of the thoughts in the input of a request for an interaction.
func signed(body []byte) (out []string) {
	for _, step := range gjson.GetBytes(body, "input").Array() {
		if s := step.Get("signature").Str; step.Get("type").Str == "thought" {
			out = append(out, s)
		}
	}
	return out
}

// talker is a client of a kind that keeps what it gets, in a conversation.
func talker(g *front, model, kind string, stream bool) agent {
	switch kind {
	case "messages":
		m := g.messages(model)
		m.stream = stream
		m.within("c1")
		return m
	case "chat":
		m := g.chat(model)
		m.stream = stream
		m.within("c1")
		return m
	}
	m := g.responses(model)
	m.stream, m.keeps, m.any = stream, true, true
	m.within("c1")
	return m
}

func begins(c agent) {
	switch m := c.(type) {
	case *messagesClient:
		m.user(textOf("Go"))
	case *chatClient:
		m.user("Go")
	case *responsesClient:
		m.add(map[string]string{"role": "user", "content": "Go"})
	}
}

// oneStep is a call of the model, which calls one tool, and what the tool gives.
func oneStep(t *testing.T, c agent) {
	calls := 0
	switch m := c.(type) {
	case *messagesClient:
		for _, b := range m.step() {
			if b.Type == "tool_use" {
				m.user(block{Type: "tool_result", ToolUseID: b.ID, Content: looked(string(b.Input))})
				calls++
			}
		}
	case *chatClient:
		for _, call := range m.step().ToolCalls {
			result := looked(call.Function.Arguments)
			m.history = append(m.history, chatMessage{Role: "tool", Content: &result, ToolCallID: call.ID})
			calls++
		}
	case *responsesClient:
		calls, _ = m.step()
	}
	require.Equal(t, 1, calls)
}

func mannersOf(c agent) *manners {
	switch m := c.(type) {
	case *messagesClient:
		return &m.manners
	case *chatClient:
		return &m.manners
	}
	return &c.(*responsesClient).manners
}

// Fault: what the model thought is lost inside a tool loop, or comes back otherwise than it was; parallel calls come back
// in another order, or without their results.
func TestConformanceThoughtsComeBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"messages", "chat", "responses", "chat, unnamed"} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream=%t", kind, stream), func(t *testing.T) {
				w := newWorld(t, google)
				v := w.vendors["google"]
				v.Queue(
					upstreamtest.Reply(upstreamtest.Think("deep thought one"), upstreamtest.Say("Let me see."),
						upstreamtest.Use("look", `{"q":"a"}`), upstreamtest.Use("look", `{"q":"b"}`)),
					upstreamtest.Reply(upstreamtest.Think("deep thought two"), upstreamtest.Use("look", `{"q":"c"}`)),
					upstreamtest.Reply(upstreamtest.Think("deep thought three"), upstreamtest.Say("Done.")),
				)
				kind, unnamed := strings.CutSuffix(kind, ", unnamed")
				c := talker(w.gateway(), "gemini-3.8-flash", kind, stream)
				if unnamed {
					mannersOf(c).header.Del("X-AG-Conversation-Id")
				}
				require.Equal(t, "Done.", c.say("Go"))
				require.Len(t, v.Requests(), 3)
				require.Len(t, signed(v.Last().Body), 2, string(v.Last().Body))
				c.say("Thanks")
				last := v.Last().Body
				require.Len(t, signed(last), 3, string(last))
				var kinds []string
				for _, step := range gjson.GetBytes(last, "input").Array() {
					kinds = append(kinds, step.Get("type").Str)
				}
				require.Equal(t, "user_input thought model_output function_call function_call function_result function_result "+
					"thought function_call function_result thought model_output user_input", strings.Join(kinds, " "))
				require.False(t, gjson.GetBytes(last, "store").Bool())
				require.True(t, gjson.GetBytes(last, "store").Exists())
				require.False(t, gjson.GetBytes(last, "previous_interaction_id").Exists())
				w.conforms(0)
			})
		}
	}
}

// Fault: thinking of one vendor goes to another one, or its own is gone when the conversation returns in the middle of a
// tool loop.
func TestConformanceThoughtsThroughASwitchOfFourDialects(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, kind := range []string{"messages", "chat", "responses"} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream=%t", kind, stream), func(t *testing.T) {
				w := newWorld(t, google, claude.told(budgeted), gpt, deepSeekChat)
				w.shares(redistest.Start(t))
				order := []string{"google", "claude", "google", "gpt", "google", "deepseek-chat", "google", "claude", "gpt"}
				for i, name := range order {
					w.vendors[name].Queue(upstreamtest.Reply(upstreamtest.Think("thought of "+name),
						upstreamtest.Use("look", fmt.Sprintf(`{"q":"%d"}`, i))))
				}
				g := w.gateway()
				c := talker(g, "claude-opus-4-8", kind, stream)
				begins(c)
				for i, name := range order {
					g.use(name)
					oneStep(t, c)
					w.turns.settle(t, i+1)
					g.stop() // what was thought outlives the gateway
					g = w.gateway()
					mannersOf(c).gateway = g
				}
				last := w.vendors["google"].Last().Body
				require.Len(t, signed(last), 3, string(last))
				for _, other := range []string{"thought of claude", "thought of gpt", "thought of deepseek"} {
					require.NotContains(t, string(last), other)
				}
				w.conforms(0)
			})
		}
	}
}

// Fault: a signature that the vendor refuses, since it is of another account, ends the conversation.
func TestConformanceThoughtsOfAnotherAccount(t *testing.T) {
	t.Parallel()
	other := google.with("google-b", func(c *upstreamtest.Config) { c.Name = "b" })
	w := newWorld(t, google, other)
	for name, v := range w.vendors {
		for i := range 3 {
			v.Queue(upstreamtest.Reply(upstreamtest.Think("thought"),
				upstreamtest.Use("look", fmt.Sprintf(`{"q":"%s %d"}`, name, i))))
		}
	}
	g := w.gateway()
	c := talker(g, "gemini-3.8-flash", "chat", false)
	begins(c)
	for _, backend := range []string{"google", "google-b", "google-b", "google"} {
		g.use(backend)
		oneStep(t, c)
	}
	require.Len(t, w.vendors["google-b"].Rejections(), 1, "it was refused once, and that is remembered")
	require.Len(t, signed(w.vendors["google-b"].Last().Body), 1, "its own stays")
	w.refusedAtMost(2) // one of each account
}

// Fault: an answer that is cut off, that fails or is refused looks like one that is whole.
func TestInteractionsThatEndBadly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer upstreamtest.Answer
		status int
		reason string
	}{
		"failed":  {upstreamtest.Answer{Blocks: []upstreamtest.Block{upstreamtest.Say("Hm.")}, StopReason: "failed"}, 500, "vendor_failed"},
		"blocked": {upstreamtest.Answer{Blocks: []upstreamtest.Block{upstreamtest.Say("Hm.")}, StopReason: "content_filter"}, 400, "content_refused"},
		"cut":     {upstreamtest.Reply(upstreamtest.Say("Hello, this is long enough.")).CutAfter(8, false), 0, ""},
		"clean cut": {upstreamtest.Answer{Blocks: []upstreamtest.Block{upstreamtest.Say("Hello, this is long enough.")},
			Cut: &upstreamtest.Cut{After: 8, Clean: true}}, 0, ""},
		"error in the middle": {upstreamtest.Reply(upstreamtest.Say("Hello, this is long enough.")).FailAfter(8), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, google)
			w.checked = true
			v := w.vendors["google"]
			g := w.gateway()
			body := `{"model":"gemini-3.8-flash","max_tokens":100,"messages":[{"role":"user","content":"hi"}]`
			v.Queue(c.answer)
			got := g.send(t.Context(), "/v1/messages", nil, []byte(body+`,"stream":true}`))
			require.Contains(t, got.body, "event: error", got.body)
			require.NotContains(t, got.body, "message_stop")
			if c.status > 0 {
				for range 4 { // what fails is asked for again
					v.Queue(c.answer)
				}
				got = g.send(t.Context(), "/v1/messages", nil, []byte(body+`}`))
				require.Equal(t, c.status, got.status, got.body)
				require.Equal(t, "error", gjson.Get(got.body, "type").Str)
				require.Equal(t, c.reason, got.header.Get("X-AG-Error"))
			}
		})
	}
}

// Fault: what the client asked for is not what the vendor is asked for, or the counts are not those of the vendor.
func TestInteractionsCarryTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, google)
	w.checked = true
	v := w.vendors["google"]
	g := w.gateway()
	v.Queue(upstreamtest.Answer{Blocks: []upstreamtest.Block{upstreamtest.Think("t"), upstreamtest.Say("cut")},
		StopReason: "max_tokens"})
	got := g.send(t.Context(), "/v1/chat/completions", nil, []byte(`{"model":"gemini-3.8-flash","reasoning_effort":"high",
		"max_completion_tokens":77,"temperature":0.3,"messages":[{"role":"system","content":"Be brief."},{"role":"user",
		"content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}],
		"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{}}}},
		"tools":[{"type":"function","function":{"name":"look","parameters":`+lookSchema+`}}],
		"tool_choice":{"type":"function","function":{"name":"look"}}}`))
	require.Equal(t, 200, got.status, got.body)
	require.Equal(t, "length", gjson.Get(got.body, "choices.0.finish_reason").Str, got.body)
	require.JSONEq(t, `{"model":"gemini-3.8-flash","store":false,"system_instruction":"Be brief.",
		"input":[{"type":"user_input","content":[{"type":"text","text":"What is it?"},
			{"type":"image","data":"aGk=","mime_type":"image/png"}]}],
		"generation_config":{"max_output_tokens":77,"thinking_level":"high",
			"tool_choice":{"allowed_tools":{"mode":"any","tools":["look"]}}},
		"response_format":{"type":"text","mime_type":"application/json","schema":{"type":"object","properties":{}}},
		"tools":[{"type":"function","name":"look","parameters":`+lookSchema+`}]}`, string(v.Last().Body))
	require.Positive(t, gjson.Get(got.body, "usage.completion_tokens_details.reasoning_tokens").Int(), got.body)
	require.Equal(t, 1, w.log.count(`"temperature"`), "the log says what was ignored")
}

// Fault: an error before the answer is none with a status; it is not tried again, or a caller's key is not presented.
func TestErrorsBeforeAnInteraction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, google.with("google", func(c *upstreamtest.Config) { c.APIKey = "caller" }).told(
		func(b *proxy.BackendConfig) { b.Auth = "passthrough" }))
	w.checked = true
	v := w.vendors["google"]
	g := w.gateway()
	body := []byte(`{"model":"gemini-3.8-flash","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	v.Fail(upstreamtest.ErrorFirst(wire.Interactions, 503, "The model is overloaded."))
	got := g.send(t.Context(), "/v1/messages", http.Header{"X-Api-Key": {"caller"}}, body)
	require.Equal(t, 200, got.status, got.body)
	require.Contains(t, got.body, "message_stop")
	require.Len(t, v.Requests(), 2)
	require.Equal(t, "caller", v.Last().Header.Get("X-Goog-Api-Key"))
	require.Empty(t, v.Last().Header.Get("Authorization"))

	got = g.send(t.Context(), "/v1/messages", http.Header{"Authorization": {"Bearer another"}}, body)
	require.Equal(t, 401, got.status, got.body)
	require.Equal(t, "key_refused", got.header.Get("X-AG-Error"))

	v.Fail(upstreamtest.Canned(403, `[{"error":{"code":403,"message":"Not for you.","status":"PERMISSION_DENIED"}}]`))
	got = g.send(t.Context(), "/v1/chat/completions", http.Header{"X-Api-Key": {"caller"}}, body)
	require.Equal(t, 403, got.status, got.body)
	require.Equal(t, "Not for you.", gjson.Get(got.body, "error.message").Str, got.body)
}

// Fault: a route leaves a vendor that failed and loses what it thought, or what was thought elsewhere goes to it.
func TestARouteOverInteractions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, google, claude.told(budgeted))
	w.config.Active = "main"
	w.config.Routes = map[string]proxy.RouteConfig{"main": {Use: []string{"google", "claude"}}}
	for name, v := range w.vendors {
		for range 3 {
			v.Queue(upstreamtest.Reply(upstreamtest.Think("thought of "+name), upstreamtest.Use("look", `{"q":"a"}`)))
		}
	}
	c := talker(w.gateway(), "claude-opus-4-8", "chat", true)
	begins(c)
	oneStep(t, c)
	w.vendors["google"].Fail(upstreamtest.Canned(500, `{"error":{"code":"api_error","message":"Sorry."}}`),
		upstreamtest.Canned(500, `{"error":{"code":"api_error","message":"Sorry."}}`))
	oneStep(t, c)
	require.NotContains(t, string(w.vendors["claude"].Last().Body), "thought of google")
	oneStep(t, c)
	require.Len(t, w.vendors["claude"].Requests(), 2, "a tool loop stays where it went")
	w.conforms(0)
}

// Google lists its models in a form of its own.
func TestTheModelsOfABackendOfInteractions(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", `{"models":[{"name":"models/gemini-3.8-flash","version":"3"}],"nextPageToken":"x"}`))
	url, _ := gateway(t, to(v, proxy.KindInteractions))
	got := call(t, http.MethodGet, url+"/v1/models", "").body
	require.Equal(t, "gemini-3.8-flash", gjson.Get(got, "data.0.id").Str, got)
}
