package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/wire"
)

// Vendors of Responses and Interactions, and clients of Responses.

const (
	googleThoughts = "https://ai.google.dev/gemini-api/docs/interactions/thinking"
	// invalidArgument is Google's answer to a signature that it cannot read.
	invalidArgument = "Request contains an invalid argument."
)

// ownReasoning has a client of Responses expect encrypted reasoning.
var ownReasoning = client(func(c *responsesClient) { c.any, c.own = false, true })

// loopOnAll queues a tool's step for each time that a vendor of the order is active, and takes the steps.
func loopOnAll(between turn, order ...int) turn {
	return func(p *play) {
		p.me().question("Go")
		for n, i := range order {
			name := p.run.vendors[i].name
			steps(use(i), round(reply(think("thought of "+name+"."), speak("Hm."), look(fmt.Sprint(name, " ", n)))), between)(p)
		}
	}
}

// effort is a mode of thinking in messages and the effort that the vendor must receive, as JSON.
func effort(model, mode, more, want string) transcript {
	return row(fmt.Sprintf("effort of %s, %s%s", model, mode, more),
		"a mode of thinking becomes an effort that the model does not take.",
		runEach(gpt, gptUnknown.named("gpt-unknown")).cite("pydantic/pydantic-ai#2865").
			asking(model).vary(streams),
		judgeAlone, unnamed, thinkingMode(mode), members(more), say("Go"), vendorGotAt("reasoning.effort", want),
		func(p *play) {
			if p.run.vendors[0].name == gpt.name {
				require.Empty(p, p.vendor().Rejections())
			}
		})
}

// accounts returns two accounts of one vendor. The second one has other forms of refusals.
func accounts(name string, b backendCase, rules upstreamtest.ResponsesRules) []backendCase {
	return []backendCase{b, b.with(name, func(c *upstreamtest.Config) { c.Name, c.Responses = "b", rules })}
}

// sdkMembers adds the members that OpenAI's SDKs add to parsed items.
var sdkMembers = replay{items: items("", func(v []byte) []json.RawMessage {
	switch gjson.GetBytes(v, "type").Str {
	case "function_call":
		return with("parsed_arguments", map[string]string{"q": "a"})(v)
	case "message":
		content := json.RawMessage(strings.Replace(gjson.GetBytes(v, "content").Raw, `{`, `{"parsed":null,`, 1))
		return with("content", content)(v)
	}
	return []json.RawMessage{v}
})}

var responsesRows = []transcript{
	row("reasoning items come back", "reasoning is lost or changed in a loop, or parallel calls lose results or order.",
		runEach(gpt, google).cite("openai/codex#8145 "+googleThoughts).clients(all3...).vary(streams, variants{
			{"dropped", nil}, {"kept", keepReasoning}, {"kept, unnamed", steps(keepReasoning, unnamed)},
		}),
		func(p *play) {
			if p.run.vendors[0].name == gpt.name {
				ownReasoning(p)
			}
		},
		say("Go", reply(think("deep thought one"), speak("Let me see."), look("a"), look("b")),
			looking("deep thought two", "c"), saying("deep thought three", "Done.")),
		clientReads("Done."), vendorCalls(3), vendorGotThoughts(2), say("Thanks"), vendorGotThoughts(3),
		func(p *play) {
			if p.run.vendors[0].name == google.name {
				require.Equal(p, "user_input thought model_output function_call function_call function_result function_result "+
					"thought function_call function_result thought model_output user_input",
					strings.Join(strs([]byte(p.last()), "input.#.type"), " "))
			}
		},
		vendorGotAt("store", "false"), vendorGotAt("previous_interaction_id", "")),
	row("reasoning comes back unasked", "a client that does not ask for encrypted reasoning loses all of it.",
		runEach(gpt.asking("gpt-5")).cite("openai/codex#8145").
			clients("responses").vary(streams, variants{{"dropped", nil}, {"kept", keepReasoning}}),
		shareRedis, ownReasoning, client(func(c *responsesClient) { c.leaves = true }), alternate(1, 0),
		func(p *play) {
			p.me().question("Go")
			for i := range 4 {
				steps(round(reply(think(fmt.Sprint("thought ", i)), speak("Hm."), look("a"))), vendorGotThoughts(i),
					vendorGotAt("include", `["reasoning.encrypted_content"]`))(p)
			}
		},
		mended("reasoning_asked")),
	effort("gpt-5", `{"type":"disabled"}`, "", `"minimal"`),
	effort("gpt-5", `{"type":"disabled"}`, `,"output_config":{"effort":"max"}`, `"high"`),
	effort("gpt-5.1", `{"type":"disabled"}`, "", `"none"`),
	effort("o3", `{"type":"disabled"}`, "", `"low"`),
	effort("gpt-5.2-chat-latest", `{"type":"enabled","budget_tokens":9000}`, "", `"medium"`),
	effort("gpt-5.2-chat-latest", `{"type":"disabled"}`, "", `"medium"`),
	effort("gpt-5", `{"type":"enabled","budget_tokens":2000}`, "", `"low"`),
	effort("gpt-5", `{"type":"enabled","budget_tokens":5000}`, "", `"medium"`),
	effort("gpt-5", `{"type":"adaptive"}`, "", `"medium"`),
	effort("gpt-5", `{"type":"adaptive"}`, `,"output_config":{"effort":"max"}`, `"high"`),
	effort("gpt-5.2", `{"type":"adaptive"}`, `,"output_config":{"effort":"max"}`, `"xhigh"`),
	effort("gpt-5.1", `{"type":"adaptive"}`, `,"temperature":0.5`, `"medium"`),
	effort("gpt-5", "", "", ""),
	row("switches between four dialects", "a vendor's own thinking is lost by a switch or restart, or another's is sent.",
		runWith(google, claude, gpt, deepSeekChat).cite("openai/openai-agents-python#2063 "+googleThoughts).
			clients(all3...).asking(claude.model).flag(slow).
			vary(streams, variants{{"one process", later(nothing)}, {"restarts", steps(shareRedis, later(restart))}}),
		thinkingDropped, keepReasoning, func(p *play) {
			next := p.pending[0]
			p.pending = nil
			loopOnAll(steps(through(0), next), 0, 1, 2, 0, 3, 0, 1, 2, 3, 0, 1, 2, 3)(p)
		},
		vendorGotTimes(2, "thought of "), vendorGotTimes(2, "thought of deepseek-chat."),
		atVendor(0, vendorGotThoughts(3), vendorLacks("thought of claude", "thought of gpt", "thought of deepseek")),
		atVendor(1, vendorGotThoughts(2)), atVendor(2, vendorGotThoughts(2))),
	row("two accounts in a tool loop", "after a change of the account the conversation is dead, or costs refusals.",
		runWith(accounts("OpenAI", gpt, upstreamtest.ResponsesRules{})...).
			runWith(accounts("OpenAI, in the stream", gpt, upstreamtest.ResponsesRules{InStream: true})...).
			runWith(accounts("Azure", gpt, upstreamtest.ResponsesRules{Azure: true})...).
			runWith(accounts("in older words", gpt, upstreamtest.ResponsesRules{OldWording: true})...).
			runWith(accounts("Azure, in the stream", gpt,
				upstreamtest.ResponsesRules{Azure: true, InStream: true, FlatErrors: true})...).
			runWith(accounts("Google", google, upstreamtest.ResponsesRules{})...).
			cite("openai/codex#35334").clients("chat", "responses").vary(streams),
		tolerate(2), // one refusal of each account
		keepReasoning, loopOnAll(steps(), 0, 1, 1, 0),
		atVendor(1, vendorGotThoughts(1), // its own reasoning stays
			func(p *play) { require.Len(p, p.vendor().Rejections(), 1, "a refusal is remembered") })),
	row("Responses keep their bytes", "a client of the vendor's own dialect gets, or the vendor is sent, changed bytes.",
		runEach(gpt).clients("responses"),
		ownReasoning, keepReasoning, streamed,
		begin("Go", reply(think("deep"), speak("Hm."), upstreamtest.Use("look", `{"q": "a"}`))), unchanged,
		round(reply(think("deep"), speak("Hm."), upstreamtest.Use("look", `{"q": "a"}`))), unchanged,
		round(), unchanged),
	row("a model of Responses that does not reason", "it is asked for encrypted reasoning and refuses.",
		runEach(gpt.asking("gpt-4o")).cite("openai/openai-python#2194").clients(all3...),
		judgeAlone, unnamed, thinkingMode(""), client(func(c *chatClient) { c.effort = "" }),
		client(func(c *responsesClient) { c.effort = "none" }),
		exchange("Go", "One."), vendorCalls(2),
		exchange("Go on", "Two."), vendorCalls(3), // the refusal is remembered
	),
	row("replays of SDKs of Responses", "the vendor refuses members that SDKs add to items, or foreign reasoning.",
		runWith(gpt, claude, deepSeekChat).cite("openai/openai-node#1567").
			clients("responses").asking(claude.model).vary(streams),
		unnamed, keepReasoning, sdkMembers.turn, loopOnAll(steps(), 0, 1, 2, 0, 1, 2, 0),
		vendorLacks("parsed"), vendorGotThoughts(2), vendorGotAt(`input.#(type=="reasoning")#|#`, "2")),
	row("calls forgotten before a switch of dialects", "calls are put back in their vendor's dialect and refused.",
		runWith(claude.told(budgeted), deepSeekChat).runWith(deepSeekChat, claude.told(budgeted)).runWith(gpt, deepSeekChat).
			asking(claude.model),
		replay{messages: mangles["calls forgotten"].damage}.turn,
		say("Go", reply(think("thought"), speak("I look."), look("a")), saying("thought", "Done.")), clientReads("Done."),
		use(1), exchange("Thanks", "Welcome.")),
	row("answers of Interactions that end badly", "an answer that is cut off, that fails or is refused looks complete.",
		runEach(google).vary(variants{
			ended("failed", "failed", nil, 500, "vendor_failed"),
			ended("blocked", "content_filter", nil, 400, "content_refused"),
			ended("cut", "", &upstreamtest.Cut{Events: 8}, 0, ""),
			ended("clean cut", "", &upstreamtest.Cut{Events: 8, Clean: true}, 0, ""),
			ended("error in the middle", "", &upstreamtest.Cut{Events: 8, Error: 529}, 0, ""),
		}),
		judgeAlone, unnamed, withoutTools, thinkingMode(""), now),
	row("errors before an interaction", "such an error has no status or no retry, or lacks the caller's key.",
		runEach(google.with("google", func(c *upstreamtest.Config) { c.APIKey = "caller" })).
			cite("https://ai.google.dev/gemini-api/docs/api-errors").
			clients(both...).vary(streams),
		judgeAlone, configureVendors(func(c *proxy.BackendConfig) { c.Auth = "passthrough" }),
		unnamed, header("Authorization", ""), header("X-Api-Key", "caller"),
		fail(upstreamtest.ErrorFirst(wire.Interactions, 503, "The model is overloaded.")), begin("hi"), vendorCalls(2),
		func(p *play) {
			require.Equal(p, "caller", p.vendor().Last().Header.Get("X-Goog-Api-Key"))
			require.Empty(p, p.vendor().Last().Header.Get("Authorization"))
		},
		header("X-Api-Key", ""), header("Authorization", "Bearer another"), request("hi", 401),
		clientGotHeader("X-AG-Error", "key_refused"),
		header("X-Api-Key", "caller"), header("Authorization", ""),
		fail(upstreamtest.Canned(403, `[{"error":{"code":403,"message":"Not for you.","status":"PERMISSION_DENIED"}}]`)),
		request("", 403),
		func(p *play) { require.Equal(p, "Not for you.", gjson.Get(p.answer().body, "error.message").Str) }),
	row("a request over Interactions", "the vendor gets other settings than the client asked for, or the counts differ.",
		runEach(google).clients("chat"),
		func(p *play) {
			cut := saying("t", "cut")
			cut.StopReason = "max_tokens"
			p.vendor().Queue(cut)
			got := p.gateway().ask("/v1/chat/completions", `{"model":"gemini-3.8-flash","reasoning_effort":"high",
				"max_completion_tokens":77,"temperature":0.3,"messages":[{"role":"system","content":"Be brief."},{"role":"user",
				"content":[{"type":"text","text":"What is it?"},
					{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}],
				"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{}}}},
				"tools":[{"type":"function","function":{"name":"look","parameters":`+lookSchema+`}}],
				"tool_choice":{"type":"function","function":{"name":"look"}}}`)
			require.Equal(p, 200, got.status, got.body)
			require.Equal(p, "length", gjson.Get(got.body, "choices.0.finish_reason").Str, got.body)
			require.JSONEq(p, `{"model":"gemini-3.8-flash","store":false,"system_instruction":"Be brief.",
				"input":[{"type":"user_input","content":[{"type":"text","text":"What is it?"},
					{"type":"image","data":"aGk=","mime_type":"image/png"}]}],
				"generation_config":{"max_output_tokens":77,"thinking_level":"high",
					"tool_choice":{"allowed_tools":{"mode":"any","tools":["look"]}}},
				"response_format":{"type":"text","mime_type":"application/json","schema":{"type":"object","properties":{}}},
				"tools":[{"type":"function","name":"look","parameters":`+lookSchema+`}]}`, p.last())
			require.Positive(p, gjson.Get(got.body, "usage.completion_tokens_details.reasoning_tokens").Int(), got.body)
			require.Equal(p, 1, p.log.count(`"temperature"`), "the log names ignored members")
		}),
	row("a route over Interactions", "the route sends thinking of the failed vendor elsewhere, or does not stay.",
		runWith(google, claude).clients("chat").asking(claude.model),
		configure(func(c *proxy.Config) {
			c.Active = "main"
			c.Routes = map[string]proxy.RouteConfig{"main": {Use: []string{"google", "claude"}}}
		}),
		streamed, begin("Go", looking("thought of google", "a")),
		fail(upstreamtest.Canned(500, googleFailure), upstreamtest.Canned(500, googleFailure)),
		atVendor(1, round(looking("thought of claude", "a")), vendorLacks("thought of google"),
			round(looking("thought of claude", "a")), vendorCalls(2))),
}

// ended is an answer that ends badly. A stream ends with an error. A whole answer has this status and reason.
func ended(name string, stop string, cut *upstreamtest.Cut, status int, reason string) variant {
	answer := reply(speak("Hello, this is long enough."))
	answer.StopReason, answer.Cut = stop, cut
	five := queue(answer, answer, answer, answer, answer) // for a call and its retries
	return variant{name, later(steps(
		streamed, five, request("hi", 200),
		func(p *play) {
			require.Contains(p, p.answer().body, "event: error")
			require.NotContains(p, p.answer().body, "message_stop")
			if status > 0 {
				steps(whole, five, request("", status), clientGotHeader("X-AG-Error", reason))(p)
				require.Equal(p, "error", gjson.Get(p.answer().body, "type").Str)
			}
		}))}
}

const googleFailure = `{"error":{"code":"api_error","message":"Sorry."}}`

// itemError returns a dialogue with an error about the items of a request in all its forms. It is a message or the
// whole body. thoughts is the number of thoughts in the second attempt. If it is negative, the client gets the error.
func itemError(name string, thoughts int, message string) transcript {
	body := message
	if message[0] != '{' {
		body = fmt.Sprintf(`{"error":{"message":%q,"type":"invalid_request_error","param":null,"code":null}}`, message)
	}
	event := func(data string) turn {
		fault := upstreamtest.Fault{Status: 200, ContentType: "text/event-stream", Body: data + "\n\n"}
		return steps(streamed, later(fail(fault)))
	}
	forms := variants{
		{"a status", later(fail(upstreamtest.Canned(400, body)))}, {"404", later(fail(upstreamtest.Canned(404, body)))},
		{"an event", event(`data: {"type":"error",` + body[1:])},
		{"a failed response", event(`data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress",` +
			`"output":[]}}` + "\n\n" + `data: {"type":"response.failed","response":{"id":"resp_1","status":"failed",` +
			body[1:] + "}")},
	}
	expect := steps(
		exchange("Go", "Done."), vendorCalls(5), vendorGotThoughts(thoughts),
		func(p *play) { require.Equal(p, name != "include", gjson.Get(p.last(), "include").Exists()) },
		exchange("Thanks", "Welcome."), vendorCalls(6)) // it is remembered
	if thoughts < 0 {
		expect = func(p *play) {
			p.me().question("Go")
			require.Equal(p, message, gjson.Get(p.me().post().body, "error.message").Str)
			vendorCalls(4)(p)
		}
	}
	return row("error about items, "+name,
		"an error about items is not recognized in its form, or one that the client must see is cured.",
		runEach(gpt).cite("BerriAI/litellm#13420").clients("responses").vary(forms).flag(sampled),
		judgeAlone, keepReasoning, say("question 0", saying("thought 0", "Said 0.")),
		say("question 1", saying("thought 1", "Said 1.")), say("question 2", saying("thought 2", "Said 2.")), now, expect)
}

var itemRows = []transcript{
	itemError("no follower", 0, "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
	itemError("no reasoning", 3,
		"Item 'msg_1' of type 'message' was provided without its required 'reasoning' item: 'rs_1'."),
	itemError("not found", 0, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try "+
		"again with `store` set to true, or remove this item from your input."),
	itemError("unverified", 0, "The encrypted content gAAA...DQ== could not be verified."),
	itemError("xAI", 0, `{"code":"invalid-argument","error":"Could not decrypt the provided encrypted_content."}`),
	itemError("vLLM", 0, "Encrypted content is not supported."),
	itemError("include", 3, "Encrypted content is not supported with this model."),
	itemError("twice", 0, "Duplicate item found with id rs_1. Remove duplicate items from your input and try again."),
	itemError("foreign id", 0, "Invalid 'input[1].id': 'item_1'. Expected an ID that begins with 'rs'."),
	itemError("no summary", 0, "Missing required parameter: 'input[1].summary'."),
	itemError("status", 0, "Unknown parameter: 'input[1].status'."),
	itemError("readable", 0, "Invalid 'input[1].content': array too long. Expected an array with maximum length 0, but "+
		"got an array with length 1 instead."),
	itemError("compaction", -1, "The encrypted content for item cmp_1 could not be verified. Reason: Encrypted content "+
		"could not be decrypted or parsed."),
	itemError("a tool's", -1, "Encrypted function output content could not be decrypted."),
	itemError("another cause", -1, "Invalid prompt."),
}
