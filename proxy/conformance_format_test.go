package proxy_test

import (
	"encoding/base64"
	"fmt"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

const (
	closedFormat = `{"type":"json_schema","json_schema":{"name":"place","strict":true,"schema":` + placeSchema + `}}`
	placeSchema  = `{"type":"object","properties":{"city":{"type":"string"},"n":{"type":"integer"}},` +
		`"required":["city","n"],"additionalProperties":false}`
	boundedFormat = `{"type":"json_schema","json_schema":{"name":"place","schema":{"type":"object",` +
		`"properties":{"city":{"type":"string","maxLength":9}},"required":["city"]}}}`

	messagesFormat = `,"output_config":{"format":{"type":"json_schema","schema":` + placeSchema + `}}`
	oldFormat      = `,"output_format":{"type":"json_schema","schema":` + placeSchema + `}`

	oslo = `{"city":"Oslo","n":1}`
)

// answerTool is an answer by the tool that the gateway offers for JSON.
func answerTool(input string) upstreamtest.Answer {
	return reply(think("Hm."), speak("I look it up."), upstreamtest.Use("answer_in_json", input))
}

// historyLen expects so many messages in the client's history: more than two per turn are calls of tools.
func historyLen(n int) turn {
	return steps(client(func(c *messagesClient) { require.Len(c.gateway.world, c.history, n) }),
		client(func(c *chatClient) { require.Len(c.gateway.world, c.history, n) }))
}

// answersJSON expects JSON as the only content of the newest answer, with a city if the format has a schema. The vendor
// was asked for it in its own way, or otherwise by this member. The next turn has the JSON in its history.
func answersJSON(schema, native bool, otherwise string) turn {
	return func(p *play) {
		require.True(p, gjson.Valid(p.text), p.text)
		require.True(p, !schema || gjson.Get(p.text, "city").Str != "", p.text)
		require.Equal(p, native, gjson.Get(p.last(), "output_config.format").Exists())
		require.Equal(p, native, !gjson.Get(p.last(), otherwise).Exists())
		if p.run.client == "chat" && gjson.Get(p.last(), "tool_choice.type").Str == "tool" {
			require.False(p, p.vendor().Last().Thinking, "vendors force no tool on a model that thinks")
		}
		steps(historyLen(4), members(""), say("And thank you."), vendorGot(string(marshal(p.text))))(p)
	}
}

// structured returns a dialogue with a client of chat completions that asks for JSON.
func structured(b backendCase, format string, native bool) transcript {
	kind := gjson.Get(format, "type").Str
	answers := []upstreamtest.Answer{}
	if b.model == kimi.model || b.model == prefixChecking.model && !native { // no tool can be forced on these
		answers = append(answers, answerTool(`{"city":"Ürüm\"qi","n":1}`))
	}
	return row(fmt.Sprintf("structured output, %s %s, %s native=%t", b.name, b.model, kind, native),
		"a client that asks for JSON gets something else, or its next turn fails.",
		runEach(b).cite("vercel/ai#7913").clients("chat").vary(streams),
		withoutTools, say("Good morning."), members(`,"response_format":`+format), begin("Where is it?", answers...),
		func(p *play) { require.Contains(p, p.answer().body, `"finish_reason":"stop"`) },
		answersJSON(kind == "json_schema", native, "tools"))
}

// structuredMessages returns a dialogue with a messages client that asks for JSON. Only the gateway knows its model.
func structuredMessages(b backendCase, native bool) transcript {
	answers := []upstreamtest.Answer{answerTool(oslo)}
	if native {
		answers = nil
	}
	return row(fmt.Sprintf("structured output of messages, %s %s", b.name, b.model),
		"a messages client gets a call of the gateway's tool in place of JSON.",
		runEach(b).asking("mine").vary(streams, variants{{"with tools", nil}, {"without tools", withoutTools}}),
		configureVendors(func(c *proxy.BackendConfig) { c.ModelMap = map[string]string{"mine": b.model} }),
		thinkingMode(""), say("Good morning."), members(messagesFormat), say("Where is it?", answers...),
		answersJSON(true, native, "tool_choice"))
}

// formats are ways to ask for JSON in the messages dialect.
var formats = variants{{"config", members(messagesFormat)}, {"old member", members(oldFormat)}}

var formatRows = []transcript{
	structured(claude, closedFormat, true),
	structured(manual, closedFormat, true),
	structured(prefixChecking, closedFormat, true),
	structured(claude, boundedFormat, false),
	structured(claude.asking("claude-opus-5-5"), boundedFormat, false),
	structured(manual, `{"type":"json_object"}`, false),
	structured(claude.asking("claude-3-5-haiku"), closedFormat, false),
	structured(kimi.asking("kimi-k2.5"), closedFormat, false),
	structured(kimi, closedFormat, false),
	structured(deepSeek, closedFormat, false),
	structured(glm, closedFormat, false),
	structuredMessages(kimi.asking("kimi-k2.5"), false),
	structuredMessages(kimi, false),
	structuredMessages(deepSeek, false),
	structuredMessages(glm, false),
	structuredMessages(claude.asking("claude-3-5-haiku"), false),
	structuredMessages(claude, true),
	row("structured output beside tools", "a model that has tools cannot use them before it answers in JSON.",
		runEach(kimi.asking("kimi-k2.5")).clients("chat").vary(streams).flag(noBudget),
		unnamed, members(`,"response_format":`+closedFormat),
		say("Where is it?", reply(speak("I look."), look("x")), reply(upstreamtest.Use("answer_in_json", oslo))),
		clientReadsJSON(oslo), historyLen(4), vendorGotAt("tool_choice.type", `"any"`)),
	row("structured output of messages over chat completions", "the schema does not reach the backend.",
		runEach(unlisted).cite("vercel/ai#6484").
			asking("gpt-4.1").vary(streams, formats),
		judgeAlone, unnamed, withoutTools, say("Where is it?"), clientReadsJSON(`{"city":"sample","n":1}`),
		func(p *play) {
			require.JSONEq(p, placeSchema, gjson.Get(p.last(), "response_format.json_schema.schema").Raw)
		},
		vendorGotAt("response_format.json_schema.strict", "true"),
		func(p *play) { require.Empty(p, p.vendor().Rejections()) }),
	row("a schema in words", "a vendor takes any JSON object only, and the schema is lost or costs a refusal each time.",
		runEach(deepSeekChat.asking("deepseek-chat")).cite("ItzCrazyKns/Vane#969").clients(both...).vary(streams, formats),
		judgeAlone, unnamed, withoutTools, thinkingMode(""),
		client(func(c *chatClient) { c.more = `,"response_format":` + closedFormat }),
		say("Where is it?", reply(speak(oslo))), clientReadsJSON(oslo), vendorCalls(2), // one refusal
		say("Where is it?", reply(speak(oslo))), clientReadsJSON(oslo), vendorCalls(3),
		vendorGotAt("response_format", `{"type":"json_object"}`), vendorGotAt("messages.0.role", `"system"`),
		func(p *play) { require.Contains(p, gjson.Get(p.last(), "messages.0.content").Str, placeSchema) }),
	row("files", "a file of chat completions is no document in the messages dialect.",
		runEach(claude).clients("chat").flag(noBudget),
		func(p *play) {
			pdf := base64.StdEncoding.EncodeToString([]byte("%PDF-1.4"))
			got := p.gateway().ask("/v1/chat/completions", `{"model":"claude-opus-4-8","messages":[{"role":"user","content":[`+
				`{"type":"text","text":"Read this."},{"type":"file","file":{"filename":"a.pdf","file_data":`+
				`"data:application/pdf;base64,`+pdf+`"}},{"type":"file","file":{"file_data":"data:text/csv;base64,YSxi"}}]}]}`)
			require.Equal(p, 200, got.status, got.body)
			require.JSONEq(p, `[{"type":"text","text":"Read this."},{"type":"document","title":"a.pdf","source":{`+
				`"type":"base64","media_type":"application/pdf","data":"`+pdf+`"}},{"type":"document","source":{"type":"text",`+
				`"media_type":"text/plain","data":"a,b"}}]`, gjson.Get(p.last(), "messages.0.content").Raw)
		}),
}

func clientReadsJSON(want string) turn {
	return func(p *play) { require.JSONEq(p, want, p.text) }
}
