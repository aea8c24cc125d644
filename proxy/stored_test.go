package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/ledger"
)

// storer is a client of stored responses: it holds nothing but the id of the last one.
type storer struct {
	front  *front
	prefix string
	header http.Header
	stream bool
}

func (g *front) storer() storer {
	return storer{front: g, header: http.Header{"Authorization": {"Bearer caller"}}}
}

// post sends members of a request beside its model, and gives the response, which must be one.
func (c storer) post(members string) gjson.Result {
	w := c.front.world
	w.Helper()
	got := c.front.send(w.Context(), c.prefix+"/v1/responses", c.header,
		fmt.Appendf(nil, `{"model":"claude-opus-4-8","stream":%t,%s}`, c.stream, members))
	require.Equal(w, 200, got.status, got.body)
	if !c.stream {
		return gjson.Parse(got.body)
	}
	_, last, ok := strings.Cut(got.body, "event: response.completed\ndata: ")
	require.True(w, ok, got.body)
	last, _, _ = strings.Cut(last, "\n\n")
	return gjson.Get(last, "response")
}

// say goes on from a response, or begins with an empty id.
func (c storer) say(previous, text string) gjson.Result {
	c.front.world.Helper()
	return c.post(fmt.Sprintf(`"previous_response_id":%s,"input":%q`, orNull(previous), text))
}

func orNull(id string) string {
	if id == "" {
		return "null"
	}
	return strconv.Quote(id)
}

func (c storer) call(method, path string) answered {
	return c.front.call(c.front.world.Context(), method, c.prefix+"/v1/responses/"+path, c.header, nil)
}

// notFound is what a request hears that goes on from a response that is not there.
func (c storer) notFound(id string) {
	w := c.front.world
	w.Helper()
	got := c.front.send(w.Context(), c.prefix+"/v1/responses", c.header,
		fmt.Appendf(nil, `{"model":"m","previous_response_id":%q,"input":"x"}`, id))
	require.Equal(w, 400, got.status, got.body)
	require.JSONEq(w, fmt.Sprintf(`{"error":{"message":"Previous response with id '%s' not found.","type":
		"invalid_request_error","param":"previous_response_id","code":"previous_response_not_found"}}`, id), got.body)
	for _, path := range []string{id, id + "/input_items"} {
		got = c.call(http.MethodGet, path)
		require.Equal(w, 404, got.status, got.body)
		require.JSONEq(w, fmt.Sprintf(`{"error":{"message":"Response with id '%s' not found.","type":
			"invalid_request_error","param":null,"code":null}}`, id), got.body)
	}
	require.Equal(w, 404, c.call(http.MethodDelete, id).status)
}

// heard is what a vendor was last told, text by text.
func heard(v *upstreamtest.Server) (said []string) {
	body := gjson.ParseBytes(v.Last().Body)
	if input := body.Get("input"); input.Type == gjson.String {
		return []string{input.Str}
	}
	for _, m := range append(body.Get("messages").Array(), body.Get("input").Array()...) {
		if m.Get("role").Str == "system" {
			said = append(said, "system: "+m.Get("content").String())
			continue
		}
		if c := m.Get("content"); c.Type == gjson.String {
			said = append(said, c.Str)
		}
		for _, b := range m.Get("content").Array() {
			if strings.HasSuffix(b.Get("type").Str, "text") {
				said = append(said, b.Get("text").Str)
			}
		}
	}
	return said
}

// echoing is b with answers that say how many messages they were given.
func echoing(b backendCase) backendCase {
	b.vendor.Answer = func(r *upstreamtest.Request) *upstreamtest.Answer {
		said := fmt.Sprintf("answer to %d", len(gjson.GetBytes(r.Body, "messages").Array()))
		a := upstreamtest.Reply(upstreamtest.Say(said))
		return &a
	}
	return b
}

// Fault: a client that holds nothing but an id loses what was said, in another process, or once one was killed.
func TestConformanceAChainOfStoredResponsesOverTwoGateways(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, b := range []backendCase{claude, kimiChat, gpt} {
		for _, prefix := range []string{"", "/teammate", "/teammate/analytic"} {
			t.Run(b.name+prefix, func(t *testing.T) {
				w := newWorld(t, echoing(b))
				w.shares(redistest.Start(t))
				gates := []*front{w.gateway(), w.gateway()}
				previous, want := "", []string(nil)
				for i := range 10 {
					c := gates[i%2].storer()
					c.prefix, c.stream = prefix, i%3 == 0
					text := fmt.Sprintf("message %d", i)
					got := c.say(previous, text)
					require.Equal(t, previous, got.Get("previous_response_id").Str)
					require.True(t, got.Get("store").Bool())
					want = append(want, text)
					require.Equal(t, want, heard(w.vendors[b.name]))
					want = append(want, got.Get("output.#(type==message).content.0.text").Str)
					previous = got.Get("id").Str
					if i == 5 { // its memory is gone
						gates[0].stop()
						gates[0] = w.gateway()
					}
				}
				w.conforms(0)
			})
		}
	}
}

// Fault: after a switch of backends what was said to the other one is gone, since it is kept in another dialect.
func TestConformanceStoredResponsesThroughSwitchesOfBackends(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echoing(claude), echoing(deepSeekChat))
	w.shares(redistest.Start(t))
	g, other := w.gateway(), w.gateway()
	previous, want := "", []string(nil)
	for i, backend := range []string{"claude", "deepseek-chat", "deepseek-chat", "claude", "deepseek-chat", "claude"} {
		g.use(backend)
		text := fmt.Sprintf("message %d", i)
		if i%2 == 1 {
			g, other = other, g
			g.use(backend)
		}
		got := g.storer().say(previous, text)
		want = append(want, text)
		require.Equal(t, want, heard(w.vendors[backend]))
		want = append(want, got.Get("output.#(type==message).content.0.text").Str)
		previous = got.Get("id").Str
	}
	w.conforms(0)
}

// Fault: a client shows the result of a call and nothing else, so that the call and the thinking before it are lost.
func TestConformanceAToolLoopByStoredResponses(t *testing.T) {
	t.Parallel()
	const tools = `"reasoning":{"effort":"medium"},"tools":[{"type":"function","name":"look","parameters":` + lookSchema + `}]`
	for _, b := range []backendCase{claude, kimi, deepSeek, kimiChat, deepSeekChat, gpt} {
		t.Run(b.name, func(t *testing.T) {
			w := newWorld(t, b.told(budgeted))
			w.shares(redistest.Start(t))
			v := w.vendors[b.name]
			v.Queue(
				upstreamtest.Reply(upstreamtest.Think("thought one"), upstreamtest.Use("look", `{"q":"a"}`)),
				upstreamtest.Reply(upstreamtest.Think("thought two"), upstreamtest.Use("look", `{"q":"b"}`),
					upstreamtest.Use("look", `{"q":"c"}`)),
				upstreamtest.Reply(upstreamtest.Think("thought three"), upstreamtest.Say("Done.")),
			)
			gates := []*front{w.gateway(), w.gateway()}
			got := gates[0].storer().post(tools + `,"input":"Go"`)
			for i := 1; got.Get("output.#(type==function_call)").Exists(); i++ {
				var results []string
				for _, call := range got.Get("output.#(type==function_call)#").Array() {
					results = append(results, fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":"found"}`,
						call.Get("call_id").Str))
				}
				got = gates[i%2].storer().post(fmt.Sprintf(`%s,"previous_response_id":%q,"input":[%s]`, tools,
					got.Get("id").Str, strings.Join(results, ",")))
			}
			require.Equal(t, "Done.", got.Get("output.#(type==message).content.0.text").Str)
			thoughts := []string{"thought one", "thought two"}
			if b.name == gpt.name { // which keeps them by their ids
				thoughts = []string{`"id":"rs_`}
				require.Len(t, gjson.GetBytes(v.Last().Body, `input.#(type=="reasoning")#`).Array(), 2)
				require.Zero(t, v.Last().Missing)
			}
			for _, thought := range thoughts {
				require.Contains(t, string(v.Last().Body), thought)
			}
			w.conforms(0)
		})
	}
}

// Fault: instructions are told to requests that go on, or developers' messages are not.
func TestWhatGoesOnFromAStoredResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echoing(deepSeekChat))
	g := w.gateway()
	first := g.storer().post(`"instructions":"be brief","metadata":{"a":"b"},"input":[
		{"role":"developer","content":"speak Latin"},{"role":"user","content":"one"}]`)
	require.Equal(t, []string{"system: be brief\n\nspeak Latin", "one"}, heard(w.vendors["deepseek-chat"]))
	second := g.storer().post(fmt.Sprintf(`"previous_response_id":%q,"input":"two"`, first.Get("id").Str))
	require.Equal(t, []string{"system: speak Latin", "one", "answer to 2", "two"}, heard(w.vendors["deepseek-chat"]))

	got := g.storer().call(http.MethodGet, first.Get("id").Str)
	require.Equal(t, 200, got.status)
	require.Equal(t, first.Raw, got.body, "as it was answered")
	got = g.storer().call(http.MethodGet, second.Get("id").Str)
	require.Equal(t, first.Get("id").Str, gjson.Get(got.body, "previous_response_id").Str)
	require.Equal(t, 501, g.storer().call(http.MethodGet, first.Get("id").Str+"?stream=true").status)
	w.conforms(0)
}

// Fault: of several requests that go on from one response, all but some are lost, or one hears of another.
func TestConformanceManyRequestsGoOnFromOneResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echoing(claude))
	w.shares(redistest.Start(t))
	gates := []*front{w.gateway(), w.gateway()}
	root := gates[0].storer().say("", "root").Get("id").Str
	const many = 40 // more than a conversation has branches
	ids := make([]string, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() { ids[i] = gates[i%2].storer().say(root, "the same").Get("id").Str })
	}
	all.Wait()
	for i, id := range ids {
		gates[(i+1)%2].storer().say(id, fmt.Sprintf("then %d", i))
		require.Equal(t, []string{"root", "answer to 1", "the same", "answer to 3", fmt.Sprintf("then %d", i)},
			heard(w.vendors["claude"]))
	}
	w.conforms(0)
}

// Fault: the oldest of a long chain are displaced, and the model no longer knows what was said.
func TestConformanceAChainThatIsLongerThanAConversationMayBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echoing(claude))
	w.config.MaxTurns = 8
	w.shares(redistest.Start(t))
	gates := []*front{w.gateway(), w.gateway()}
	previous, want := "", []string(nil)
	for i := range 40 {
		got := gates[i%2].storer().say(previous, fmt.Sprintf("message %d", i))
		want = append(want, fmt.Sprintf("message %d", i))
		require.Equal(t, want, heard(w.vendors["claude"]))
		want = append(want, got.Get("output.0.content.0.text").Str)
		previous = got.Get("id").Str
		items := gates[i%2].storer().call(http.MethodGet, previous+"/input_items")
		require.Equal(t, int64(1), gjson.Get(items.body, "data.#").Int(), "only what the response was given itself")
	}
	w.conforms(0)
}

// Fault: what was deleted is still there in another process, or with it goes what others went on from.
func TestConformanceAStoredResponseIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echoing(claude))
	redis := redistest.Start(t)
	w.shares(redis)
	here, there := w.gateway().storer(), w.gateway().storer()
	first := here.say("", "a secret").Get("id").Str
	second := there.say(first, "more").Get("id").Str // both processes know the conversation
	got := here.call(http.MethodDelete, first)
	require.Equal(t, 200, got.status, got.body)
	require.JSONEq(t, fmt.Sprintf(`{"id":%q,"object":"response","deleted":true}`, first), got.body)
	for _, c := range []storer{there, here, w.gateway().storer()} {
		c.notFound(first)
	}
	third := here.say(second, "what was it?").Get("id").Str
	require.Equal(t, []string{"a secret", "answer to 1", "more", "answer to 3", "what was it?"},
		heard(w.vendors["claude"]))

	for _, id := range []string{second, third} {
		require.Equal(t, 200, there.call(http.MethodDelete, id).status)
		there.notFound(id)
		here.notFound(id) // at once, and also when the whole conversation goes with it
	}
	require.NotContains(t, kept(t, redis), "a secret", "nothing is left that anybody could go on from")

	here.header, there.header = here.header.Clone(), there.header.Clone()
	here.header.Set("X-AG-Conversation-ID", "named")
	there.header.Set("X-AG-Conversation-ID", "named")
	only := there.say("", "the only one").Get("id").Str
	require.Equal(t, 200, here.call(http.MethodDelete, only).status)
	here.say("", "the conversation begins anew")
	there.notFound(only)
	w.conforms(0)
}

// Fault: a caller gets at the responses of another caller, or at those of another route.
func TestAStoredResponseOfSomebodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echoing(claude))
	w.shares(redistest.Start(t))
	g := w.gateway()
	mine := g.storer()
	id := mine.say("", "mine").Get("id").Str
	require.Len(t, id, len("resp_")+26, "so that nobody guesses it")
	foreign := g.storer()
	foreign.header = http.Header{"Authorization": {"Bearer another"}}
	teammate := g.storer()
	teammate.prefix = "/teammate"
	for _, c := range []storer{foreign, teammate} {
		c.notFound(id)
	}
	mine.notFound("resp_unknown")
	mine.say(id, "still there")
	w.conforms(0)
}

// Fault: what a client does not want stored can be had, or it says store though it cannot.
func TestAResponseThatIsNotStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echoing(claude))
	redis := redistest.Start(t)
	w.shares(redis)
	c := w.gateway().storer()
	got := c.post(`"store":false,"input":"off the record"`)
	require.False(t, got.Get("store").Bool())
	c.notFound(got.Get("id").Str)
	first := c.say("", "on the record").Get("id").Str
	got = c.post(fmt.Sprintf(`"store":false,"previous_response_id":%q,"input":"off the record"`, first))
	require.Equal(t, []string{"on the record", "answer to 1", "off the record"}, heard(w.vendors["claude"]))
	require.False(t, got.Get("store").Bool())
	c.notFound(got.Get("id").Str)
	require.NotContains(t, kept(t, redis), "off the record")

	w.vendors["claude"].Queue(upstreamtest.Reply(upstreamtest.Say("This breaks off.")).CutAfter(3, false))
	c.stream = true
	cut := c.front.send(context.Background(), "/v1/responses", c.header,
		[]byte(`{"model":"claude-opus-4-8","stream":true,"input":"x"}`))
	_, created, _ := strings.Cut(cut.body, "data: ")
	created, _, _ = strings.Cut(created, "\n\n")
	c.notFound(gjson.Get(created, "response.id").Str)

	w.config.Stateless = true
	off := w.gateway().storer()
	require.False(t, off.say("", "x").Get("store").Bool())
	refused := off.front.send(t.Context(), "/v1/responses", off.header,
		fmt.Appendf(nil, `{"model":"m","previous_response_id":%q,"input":"x"}`, first))
	require.Equal(t, 501, refused.status)
	w.checked = true // the vendor broke an answer off
}

// Fault: a conversation that the client names does not know what was said by its responses.
func TestConformanceStoredResponsesOfANamedConversation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echoing(claude))
	w.shares(redistest.Start(t))
	g, other := w.gateway(), w.gateway()
	named := g.storer()
	named.header.Set("X-AG-Conversation-Id", "c1")
	id := named.say("", "one").Get("id").Str
	unnamed := other.storer()
	second := unnamed.say(id, "two").Get("id").Str
	require.Equal(t, []string{"one", "answer to 1", "two"}, heard(w.vendors["claude"]))
	elsewhere := other.storer() // a copy of it
	elsewhere.header.Set("X-AG-Conversation-Id", "c2")
	third := elsewhere.say(second, "three").Get("id").Str
	require.Equal(t, 204, g.call(t.Context(), http.MethodDelete, "/v1/conversations/c1", g.storer().header, nil).status)
	g.storer().notFound(second)
	g.storer().say(third, "four")
	require.Equal(t, []string{"one", "answer to 1", "two", "answer to 3", "three", "answer to 5", "four"},
		heard(w.vendors["claude"]))
	w.conforms(0)
}

func TestTheInputItemsOfAStoredResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echoing(claude))
	c := w.gateway().storer()
	first := c.say("", "first").Get("id").Str
	id := c.post(fmt.Sprintf(`"previous_response_id":%q,"input":[{"role":"user","content":"a"},
		{"id":"msg_own","type":"message","role":"user","content":[{"type":"input_text","text":"b"}]},
		{"role":"assistant","content":"c"},{"role":"user","content":"d"}]`, first)).Get("id").Str
	list := func(query string) gjson.Result {
		got := c.call(http.MethodGet, id+"/input_items"+query)
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, "list", gjson.Get(got.body, "object").Str)
		return gjson.Parse(got.body)
	}
	texts := func(l gjson.Result) string { return l.Get("data.#.content.0.text").Raw }
	all := list("")
	require.Equal(t, `["d","c","b","a"]`, texts(all))
	require.Equal(t, `["message","message","message","message"]`, all.Get("data.#.type").Raw)
	require.Equal(t, `["input_text","output_text","input_text","input_text"]`, all.Get("data.#.content.0.type").Raw)
	require.Equal(t, "msg_own", all.Get("data.2.id").Str)
	require.False(t, all.Get("has_more").Bool())
	page := list("?order=asc&limit=2")
	require.Equal(t, `["a","b"]`, texts(page))
	require.True(t, page.Get("has_more").Bool())
	require.Equal(t, page.Get("data.0.id").Str, page.Get("first_id").Str)
	require.Equal(t, "msg_own", page.Get("last_id").Str)
	page = list("?order=asc&limit=2&after=" + page.Get("last_id").Str)
	require.Equal(t, `["c","d"]`, texts(page))
	require.False(t, page.Get("has_more").Bool())
	page = list("?order=asc&after=" + page.Get("last_id").Str)
	require.Equal(t, "[]", page.Get("data").Raw)
	require.Equal(t, gjson.Null, page.Get("first_id").Type)
	for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=nobody"} {
		got := c.call(http.MethodGet, id+"/input_items"+query)
		require.Equal(t, 400, got.status, query)
		require.NotEmpty(t, gjson.Get(got.body, "error.message").Str)
	}
	w.conforms(0)
}

// turnsAway fails while it is away.
type turnsAway struct {
	ledger.Remote
	away atomic.Bool
}

func (t *turnsAway) Load(ctx context.Context, q ledger.Query) (ledger.Loaded, error) {
	if t.away.Load() {
		return ledger.Loaded{}, io.ErrClosedPipe
	}
	return t.Remote.Load(ctx, q)
}

func (t *turnsAway) Save(ctx context.Context, entries []ledger.Entry) ([]ledger.Mark, error) {
	if t.away.Load() {
		return nil, io.ErrClosedPipe
	}
	return t.Remote.Save(ctx, entries)
}

// Fault: while Redis is away a client is told that its history does not exist, and gives it up.
func TestConformanceStoredResponsesWhileRedisIsAway(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, echoing(claude))
	w.shares(redistest.Start(t))
	turns := &turnsAway{Remote: w.config.Shared.Turns}
	w.config.Shared.Turns = turns
	here, there := w.gateway().storer(), w.gateway().storer()
	id := here.say("", "one").Get("id").Str
	turns.away.Store(true)
	here.say(id, "two")
	require.Equal(t, []string{"one", "answer to 1", "two"}, heard(w.vendors["claude"]))
	got := there.front.send(t.Context(), "/v1/responses", there.header,
		fmt.Appendf(nil, `{"model":"m","previous_response_id":%q,"input":"x"}`, id))
	require.Equal(t, 503, got.status, got.body)
	require.Equal(t, 503, there.call(http.MethodGet, id).status)
	require.Equal(t, 503, here.call(http.MethodDelete, id).status, "others would still find it")
	require.Equal(t, 200, here.call(http.MethodGet, id).status)
	turns.away.Store(false) // so that what waits can be saved
	w.conforms(0)
}

func TestWhatOfStoredResponsesIsRefused(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	url, _ := gateway(t, to(v, proxy.KindAnthropic))
	got := post(t, url+"/v1/responses", `{"model":"m","input":"x","previous_response_id":"resp_1","conversation":"conv_1"}`)
	require.Equal(t, 400, got.status)
	require.Contains(t, got.body, "exclude each other")
	require.Equal(t, 400, post(t, url+"/v1/responses", `{"model":"m","input":"x","previous_response_id":7}`).status)
	for _, path := range []string{"/v1/responses/compact", "/v1/responses/resp_1/cancel", "/teammate/v1/conversations"} {
		got := post(t, url+path, `{}`)
		require.Equal(t, 501, got.status, path)
		require.Contains(t, gjson.Get(got.body, "error.message").Str, "is not served yet")
	}
	require.Zero(t, v.count())
}

// Fault: a response that its vendor gave in this dialect cannot be gone on from elsewhere, or the other way round.
func TestConformanceStoredResponsesBetweenABackendOfResponsesAndOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude, gpt, kimiChat)
	w.shares(redistest.Start(t))
	gates := []*front{w.gateway(), w.gateway()}
	previous := ""
	for i, backend := range []string{"claude", gpt.name, gpt.name, "kimi-chat", gpt.name, "claude", gpt.name} {
		g := gates[i%2]
		g.use(backend)
		c := g.storer()
		c.stream = i%3 == 0
		previous = c.say(previous, fmt.Sprintf("message %d", i)).Get("id").Str
		for j := range i + 1 {
			require.Contains(t, string(w.vendors[backend].Last().Body), fmt.Sprintf("message %d", j))
		}
		require.Equal(t, 200, gates[(i+1)%2].storer().call(http.MethodGet, previous).status)
	}
	w.conforms(0)
}

// Fault: a client that shows stored items by their ids alone loses them, or the thinking before them.
func TestConformanceItemsByTheirIDs(t *testing.T) {
	t.Parallel()
	const tools = `"reasoning":{"effort":"medium"},"tools":[{"type":"function","name":"look","parameters":` + lookSchema + `}]`
	for _, b := range []backendCase{claude, kimiChat, deepSeekChat, gpt} {
		t.Run(b.name, func(t *testing.T) {
			w := newWorld(t, b.told(budgeted))
			w.shares(redistest.Start(t))
			v := w.vendors[b.name]
			v.Queue(
				upstreamtest.Reply(upstreamtest.Think("thought one"), upstreamtest.Say("I look."),
					upstreamtest.Use("look", `{"q":"a"}`)),
				upstreamtest.Reply(upstreamtest.Think("thought two"), upstreamtest.Use("look", `{"q":"b"}`)),
				upstreamtest.Reply(upstreamtest.Think("thought three"), upstreamtest.Say("Done.")),
			)
			gates := []*front{w.gateway(), w.gateway()}
			input := `{"role":"user","content":"Go"}`
			got := gates[0].storer().post(tools + `,"input":[` + input + `]`)
			for i := 1; i < 3; i++ {
				for _, item := range got.Get("output").Array() {
					input += fmt.Sprintf(`,{"type":"item_reference","id":%q}`, item.Get("id").Str)
				}
				input += fmt.Sprintf(`,{"type":"function_call_output","call_id":%q,"output":"found"}`,
					got.Get("output.#(type==function_call).call_id").Str)
				got = gates[i%2].storer().post(tools + `,"input":[` + input + `]`)
			}
			require.Equal(t, "Done.", got.Get("output.#(type==message).content.0.text").Str)
			thoughts := []string{"thought one", "thought two"}
			if b.name == gpt.name { // which keeps them by their ids
				thoughts = []string{`"id":"rs_`}
				require.Len(t, gjson.GetBytes(v.Last().Body, `input.#(type=="reasoning")#`).Array(), 2)
			}
			for _, thought := range append(thoughts, "I look.") {
				require.Contains(t, string(v.Last().Body), thought)
			}
			require.Zero(t, v.Last().Missing)
			w.conforms(0)

			if b.name != gpt.name { // its vendor is asked
				stranger := gates[0].storer()
				stranger.header = http.Header{"Authorization": {"Bearer other"}}
				for _, c := range []struct {
					storer
					id string
				}{{stranger, got.Get("output.0.id").Str}, {gates[0].storer(), got.Get("id").Str}, {gates[0].storer(), "msg_no"}} {
					refused := c.front.send(t.Context(), "/v1/responses", c.header,
						fmt.Appendf(nil, `{"model":"m","input":[{"type":"item_reference","id":%q}]}`, c.id))
					require.Equal(t, 404, refused.status, refused.body)
					require.Equal(t, fmt.Sprintf("Item with id '%s' not found.", c.id), gjson.Get(refused.body, "error.message").Str)
				}
				require.Equal(t, 404, gates[0].storer().call(http.MethodGet, got.Get("output.0.id").Str).status)
			}
		})
	}
}
