package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

const (
	ephemeralHeader = "X-Ag-Ephemeral-Parts"
	recalled        = "Zwischenruf" // in every text that was recalled, and in nothing else
)

// recallOf is what the client recalls for a turn, the same in all requests of the turn.
func recallOf(turn int) string {
	return fmt.Sprintf("<memory>%s %d: \"a & b\"</memory>", recalled, turn)
}

// recalls reports whether a client that recalls something in every so many turns does so
// in this one, and says it.
func (m *manners) recalls(turn, every int) bool {
	if turn%every != 0 {
		m.header.Del(ephemeralHeader)
		return false
	}
	m.header.Set(ephemeralHeader, "1")
	return true
}

// recall has a client put a part of its own before what the user says, in all requests of
// every so many turns.
func (c *messagesClient) recall(every int) {
	before := c.damage
	c.damage = func(history []message) []message {
		turn := len(starts(history))
		if before != nil {
			history = before(history)
		}
		if at := starts(history); c.recalls(turn, every) {
			m := &history[at[len(at)-1]]
			m.content = append([]block{textOf(recallOf(turn))}, m.content...)
		}
		return history
	}
}

func (c *chatClient) recall(every int) {
	before := c.damage
	c.damage = func(history []chatMessage) []chatMessage {
		turn, newest := 0, 0
		for _, m := range history {
			if m.Role == "user" {
				turn++
			}
		}
		if before != nil {
			history = before(history)
		}
		for i, m := range history {
			if m.Role == "user" {
				newest = i
			}
		}
		if !c.recalls(turn, every) {
			return history
		}
		m := &history[newest]
		for _, s := range []string{recallOf(turn), *m.Content} {
			m.parts = append(m.parts, json.RawMessage(`{"type":"text","text":`+string(wire.Quote(s))+`}`))
		}
		return history
	}
}

// recalling leads conversations of a client, with recall or without.
type recalling struct {
	*testing.T
	world   *world
	backend backendCase
	model   string
	client  string
	prefix  string
	every   int // so many turns it recalls something; 0 for never

	saved   *savedTurns
	fronts  []*front
	calls   int
	metrics map[string]int // of all gateways that there were

	mu       sync.Mutex // guards what vendors saw
	requests []string   // as skeletons
	refused  []string
	lost     int
	recalls  int    // requests with what is recalled
	told     int    // requests with the header
	before   string // the messages of the request before, of the same conversation
	common   int    // bytes at the front of messages that those before had, too
	size     int    // of all requests that had one before
}

// savedTurns keeps what the gateways store.
type savedTurns struct {
	ledger.Remote
	mu  sync.Mutex // guards all
	all strings.Builder
}

func (s *savedTurns) Save(ctx context.Context, entries []ledger.Entry) ([]ledger.Mark, error) {
	s.mu.Lock()
	for _, e := range entries {
		fmt.Fprintf(&s.all, "%+v %q\n", e, e.Keys)
		if t := e.Turn; t != nil {
			fmt.Fprintf(&s.all, "%+v %s\n", *t, t.Content)
			if t.Place != nil {
				fmt.Fprintf(&s.all, "%+v %s\n", *t.Place, t.Place.Input)
			}
		}
	}
	s.mu.Unlock()
	return s.Remote.Save(ctx, entries)
}

var recalledText = regexp.MustCompile(`<memory>` + recalled + ` [0-9]+: "a & b"</memory>\n*`)

// skeleton is what a request says, whatever its layout, with all thinking or with the
// current turn's.
func skeleton(body []byte, all bool) string {
	var out strings.Builder
	messages := gjson.GetBytes(body, "messages").Array()
	newest := 0
	for i, m := range messages {
		if m.Get("role").Str == "user" && m.Get("content.0.type").Str != "tool_result" {
			newest = i
		}
	}
	for i, m := range messages {
		fmt.Fprintf(&out, "%s:", m.Get("role").Str)
		content, thinking := m.Get("content"), all || i > newest
		if content.Type == gjson.String {
			fmt.Fprintf(&out, " text %q", recalledText.ReplaceAllString(content.Str, ""))
		}
		for _, b := range content.Array() {
			switch kind := b.Get("type").Str; kind {
			case "text":
				if text := recalledText.ReplaceAllString(b.Get("text").Str, ""); text != "" {
					fmt.Fprintf(&out, " text %q", text)
				}
			case "thinking", "redacted_thinking":
				if thinking {
					fmt.Fprintf(&out, " %s %s", kind, b.Get("thinking").Str)
				}
			case "tool_use":
				fmt.Fprintf(&out, " call %s", b.Get("input").Raw)
			case "tool_result":
				fmt.Fprintf(&out, " result %s", b.Get("content").Raw)
			}
		}
		if thinking {
			fmt.Fprintf(&out, " %s", m.Get("reasoning_content").Raw)
		}
		for _, call := range m.Get("tool_calls").Array() {
			fmt.Fprintf(&out, " call %s", call.Get("function.arguments").Str)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// saw looks at a request as the vendor got it.
func (c *recalling) saw(r upstreamtest.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, skeleton(r.Body, c.backend.vendor.Vendor != ""))
	if r.Rejection != "" {
		c.refused = append(c.refused, r.Rejection)
	}
	c.lost += r.Lost
	c.recalls += strings.Count(string(r.Body), recalled)
	c.told += len(r.Header.Values(ephemeralHeader))
	messages := strings.TrimSuffix(gjson.GetBytes(r.Body, "messages").Raw, "]")
	if c.before != "" {
		n := 0
		for n < len(messages) && n < len(c.before) && messages[n] == c.before[n] {
			n++
		}
		c.common, c.size = c.common+n, c.size+len(messages)
	}
	c.before = messages
}

// count adds up what a gateway counted before it ends.
func (c *recalling) count(g *front) {
	for _, name := range []string{"conversation_", "thinking_retries"} {
		for line := range strings.Lines(g.metrics(name)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.Atoi(value)
			require.NoError(c, err, line)
			c.metrics[name] += n
		}
	}
}

// restart ends one of the gateways and starts another in its place.
func (c *recalling) restart() {
	c.count(c.fronts[0])
	c.fronts[0].stop()
	c.fronts = append(c.fronts[1:], c.world.gateway())
}

// answers is a turn of the model: rounds of one call or of two at a time, and a text.
func (c *recalling) answers(r *rand.Rand, turn int) {
	v := c.world.vendors[c.backend.name]
	for round := range r.IntN(3) {
		blocks := []upstreamtest.Block{upstreamtest.Think(fmt.Sprintf("turn %d, round %d", turn, round))}
		if r.IntN(2) == 0 {
			blocks = append(blocks, upstreamtest.Say("Let me see. "))
		}
		for call := range 1 + r.IntN(2) {
			blocks = append(blocks, upstreamtest.Use("look", fmt.Sprintf(`{"q":"%d.%d.%d"}`, turn, round, call)))
		}
		v.Queue(upstreamtest.Reply(blocks...))
	}
	v.Queue(upstreamtest.Reply(upstreamtest.Think(fmt.Sprintf("turn %d, end", turn)),
		upstreamtest.Say([]string{"yes", "It is so.", fmt.Sprintf("Answer %d\n\n- a", turn)}[r.IntN(3)])))
}

// conversation leads one of so many turns. The client shows of older turns what was said
// alone, and everything but the newest message with other spaces.
func (c *recalling) conversation(name string, turns int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, seed))
	c.before = ""
	var say func(string) string
	var of *manners
	switch c.client {
	case "messages":
		m := c.fronts[0].messages(c.model)
		m.damage = func(history []message) []message {
			history = mangles["rounds forgotten"].replay(nil, history, 0)
			return texts(strings.TrimSpace)(nil, history, len(history)-1)
		}
		if c.every > 0 {
			m.recall(c.every)
		}
		say, of = m.say, &m.manners
	case "chat":
		m := c.fronts[0].chat(c.model)
		m.damage = roundsForgottenByChat
		if c.every > 0 {
			m.recall(c.every)
		}
		say, of = m.say, &m.manners
	}
	of.within(name)
	of.prefix = c.prefix
	for turn := range turns {
		if turn%7 == 6 {
			c.restart()
		}
		of.stream = r.IntN(2) == 0
		of.calls, of.gateway, of.alternate = c.calls, c.fronts[0], []*front{c.fronts[1], c.fronts[0]}
		c.answers(r, turn)
		say([]string{"yes", " and then?\n", fmt.Sprintf("Question %d", turn)}[r.IntN(3)])
		c.calls = of.calls
	}
}

// roundsForgottenByChat keeps of older turns what was said in the end, and trims all but
// the newest message.
func roundsForgottenByChat(history []chatMessage) (out []chatMessage) {
	current := 0
	for i, m := range history {
		if m.Role == "user" {
			current = i
		}
	}
	for i, m := range history {
		if i < len(history)-1 && m.Content != nil {
			m.Content = pointer(strings.TrimSpace(*m.Content))
		}
		if i >= current || m.Role != "tool" && len(m.ToolCalls) == 0 {
			out = append(out, m)
		}
	}
	return out
}

// lead has the client lead its conversations through two gateways in turn, over one
// Redis, of which one is started anew every few turns.
func (c *recalling) lead(turns int) {
	const each = 25
	watched := c.backend.with(c.backend.name, func(v *upstreamtest.Config) { v.Observe = c.saw })
	c.world = newWorld(c.T, watched.told(budgeted))
	redis := redistest.Start(c.T)
	c.world.shares(redis)
	c.saved = &savedTurns{Remote: c.world.turns.Remote}
	c.world.turns.Remote = c.saved
	c.metrics = map[string]int{}
	c.fronts = []*front{c.world.gateway(), c.world.gateway()}
	for i := 0; i*each < turns; i++ {
		c.conversation(fmt.Sprint("c", i), min(each, turns-i*each), uint64(i))
	}
	for _, g := range c.fronts {
		c.count(g)
		g.stop()
	}
	c.world.conforms(0)
	require.Empty(c, c.refused)
	require.Zero(c, c.lost, "thinking of the current turn")
	require.Len(c, c.requests, c.calls, "no second calls")
	require.Zero(c, c.told, "the header is the gateway's")
	switch c.every {
	case 0:
		require.Zero(c, c.recalls)
	case 1:
		require.Equal(c, c.calls, c.recalls)
	default:
		require.Positive(c, c.recalls)
	}
	require.NotContains(c, c.saved.all.String(), recalled)
	require.NotContains(c, everything(c.T, redis), recalled)
}

// everything is all that lies in a Redis, as bytes.
func everything(t *testing.T, redis *redistest.Server) string {
	t.Helper()
	var all strings.Builder
	client := redis.Client()
	keys := client.Keys(t.Context(), "*").Val()
	require.NotEmpty(t, keys)
	for _, key := range keys {
		all.WriteString(key + "\n")
		switch kind := client.Type(t.Context(), key).Val(); kind {
		case "string":
			all.WriteString(client.Get(t.Context(), key).Val())
		case "hash":
			for field, value := range client.HGetAll(t.Context(), key).Val() {
				all.WriteString(field + " " + value + "\n")
			}
		case "set":
			all.WriteString(strings.Join(client.SMembers(t.Context(), key).Val(), "\n"))
		case "zset":
			all.WriteString(strings.Join(client.ZRange(t.Context(), key, 0, -1).Val(), "\n"))
		case "list":
			all.WriteString(strings.Join(client.LRange(t.Context(), key, 0, -1).Val(), "\n"))
		default:
			require.Fail(t, "what is a "+kind+"?")
		}
	}
	return all.String()
}

var genericChat = backendCase{name: "generic-chat", vendor: upstreamtest.Config{
	Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{TextOnly: true},
},
	config: proxy.BackendConfig{Kind: proxy.KindOpenAI}}

// Fault: a client puts what it recalled for this request before what the user says. The
// next request does not have it, so that nothing before its answer is what it was: the
// conversation is not found, its rounds of tools are forgotten, the vendor refuses its
// thinking, or what was recalled lies in Redis for good. MNEME_TURNS says how many turns
// each conversation has; with the race detector every third way to lead one is tried.
func ephemeralPartsChangeNothing(t *testing.T) {
	testtier.Slow(t)
	var tried part
	for _, of := range []struct {
		backendCase
		model string
	}{
		{claude, "claude-opus-4-8"}, {claude, "claude-sonnet-4-5"},
		{prefixChecking, "claude-opus-5-5"}, {prefixChecking, "claude-opus-4-8"}, {prefixChecking, "claude-sonnet-4-5"},
		{kimi, "kimi-k2-thinking"}, {kimiChat, "kimi-k2-thinking"},
		{deepSeek, "deepseek-reasoner"}, {deepSeekChat, "deepseek-reasoner"}, {genericChat, "m"},
	} {
		for _, client := range []string{"messages", "chat"} {
			for _, prefix := range []string{"", "/teammate/analytic"} {
				if prefix != "" && of.name != "bound" && of.name != "deepseek-chat" {
					continue // as at the root
				}
				if !tried.next(3) {
					continue
				}
				t.Run(fmt.Sprint(of.name, ", ", of.model, ", ", client, prefix), func(t *testing.T) {
					turns := 20
					if raced || testing.Short() {
						turns = 7
					}
					if n, err := strconv.Atoi(os.Getenv("MNEME_TURNS")); err == nil {
						turns = n
					}
					var all []*recalling
					for _, every := range []int{0, 1, 3} {
						c := &recalling{T: t, backend: of.backendCase, model: of.model, client: client, prefix: prefix, every: every}
						c.lead(turns)
						all = append(all, c)
						require.Equal(t, all[0].metrics, c.metrics)
						require.Len(t, c.requests, len(all[0].requests))
						for i, r := range c.requests {
							require.Equal(t, all[0].requests[i], r, "request %d", i)
						}
					}
					t.Logf("%d turns, %d calls; the messages of a request begin with the bytes of those before: %.1f %%, with recall "+
						"%.1f %%, with recall in every third turn %.1f %%; %v", turns, all[0].calls, all[0].share(), all[1].share(),
						all[2].share(), all[0].metrics)
				})
			}
		}
	}
}

// share is the cached share of the prefix, in percent.
func (c *recalling) share() float64 { return 100 * float64(c.common) / float64(c.size) }

const (
	recalledPart  = `{"type":"text","text":"<memory>"}`
	questionPart  = `{"type":"text","text":"What is it?"}`
	anyTool       = `{"type":"tool_use","id":"toolu_0000000000000000000001","name":"look","input":{"q":"x"}}`
	anyResult     = `{"type":"tool_result","tool_use_id":"toolu_0000000000000000000001","content":"found"}`
	cacheMark     = `"cache_control":{"type":"ephemeral"}`
	chatImage     = `{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}`
	messagesImage = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}`
)

func userSays(content string) string { return `{"role":"user","content":` + content + `}` }

// Fault: what was recalled is lost, torn off its question, sent as a list to a vendor that
// takes a text only, or comes back out of the gateway's own memory.
func TestConformanceEphemeralPartsAsTheyAreSent(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	type backends []backendCase
	openAI := backendCase{name: "openai", vendor: upstreamtest.Config{Vendor: upstreamtest.Chat},
		config: proxy.BackendConfig{Kind: proxy.KindOpenAI, Vendor: "openai"}}
	question, parts := userSays(`"What is it?"`), `[`+recalledPart+`,`+questionPart+`]`
	joined := `"<memory>\n\nWhat is it?"`
	for name, c := range map[string]struct {
		endpoint string
		to       backends
		n        string
		messages string // as they are sent to the gateway, and
		content  string // the content of the last as the vendor gets it
		then     string // the message as a later request shows it
	}{
		"messages, as it came":  {"messages", backends{claude, kimi}, "1", userSays(parts), parts, question},
		"chat, as it came":      {"chat", backends{openAI, kimiChat}, "1", userSays(parts), parts, question},
		"one text":              {"chat", backends{genericChat, deepSeekChat}, "1", userSays(parts), joined, question},
		"one text, in messages": {"messages", backends{deepSeek}, "1", userSays(parts), joined, question},
		"one text of three": {"chat", backends{genericChat}, "2",
			userSays(`[` + recalledPart + `,{"type":"text","text":"<notes>"},` + questionPart + `]`),
			`"<memory>\n\n<notes>\n\nWhat is it?"`, question},
		"translated to chat":     {"messages", backends{kimiChat, deepSeekChat}, "1", userSays(parts), joined, question},
		"translated to messages": {"chat", backends{claude, kimi}, "1", userSays(parts), parts, question},
		"translated to one text": {"chat", backends{deepSeek}, "1", userSays(parts), joined, question},
		"an image, to messages": {"chat", backends{claude}, "1", userSays(`[` + recalledPart + `,` + chatImage + `,` + questionPart + `]`),
			`[` + recalledPart + `,` + messagesImage + `,` + questionPart + `]`, userSays(`[` + chatImage + `,` + questionPart + `]`)},
		"an image, to chat": {"messages", backends{openAI}, "1",
			userSays(`[` + recalledPart + `,` + messagesImage + `,` + questionPart + `]`),
			`[` + recalledPart + `,` + chatImage + `,` + questionPart + `]`, userSays(`[` + messagesImage + `,` + questionPart + `]`)},
		"a recalled image, to chat": {"messages", backends{openAI}, "2",
			userSays(`[` + recalledPart + `,` + messagesImage + `,` + questionPart + `]`),
			`[` + recalledPart + `,` + chatImage + `,` + questionPart + `]`, question},
		"cache markers": {"messages", backends{claude}, "1",
			userSays(`[{"type":"text","text":"<memory>",` + cacheMark + `},{"type":"text","text":"What is it?",` + cacheMark + `}]`),
			`[{"type":"text","text":"<memory>",` + cacheMark + `},{"type":"text","text":"What is it?",` + cacheMark + `}]`, question},
		"cache markers, in one text": {"messages", backends{deepSeek}, "1",
			userSays(`[` + recalledPart + `,{"type":"text","text":"What is it?",` + cacheMark + `}]`),
			`[{"type":"text","text":"<memory>\n\nWhat is it?",` + cacheMark + `}]`, question},
		"five cache markers": {"messages", backends{claude}, "1",
			userSays(`[` + strings.Repeat(`{"type":"text","text":"a",`+cacheMark+`},`, 4) + `{"type":"text","text":"a",` + cacheMark + `}]`),
			`[{"type":"text","text":"a"},` + strings.Repeat(`{"type":"text","text":"a",`+cacheMark+`},`, 3) +
				`{"type":"text","text":"a",` + cacheMark + `}]`, userSays(`"aaaa"`)},
		"behind a result": {"messages", backends{claude}, "1",
			question + `,{"role":"assistant","content":[` + anyTool + `]},` +
				userSays(`[`+anyResult+`,`+recalledPart+`,`+questionPart+`]`),
			`[` + anyResult + `,` + recalledPart + `,` + questionPart + `]`, userSays(`[` + anyResult + `,` + questionPart + `]`)},
	} {
		for _, backend := range c.to {
			t.Run(name+", "+backend.name, func(t *testing.T) {
				w := newWorld(t, backend.told(budgeted))
				w.shares(redistest.Start(t))
				saved := &savedTurns{Remote: w.turns.Remote}
				w.turns.Remote = saved
				v, g := w.vendors[backend.name], w.gateway()
				header := http.Header{"Authorization": {"Bearer caller"}, "X-Ag-Conversation-Id": {"c1"}, ephemeralHeader: {c.n}}
				path, model := "/v1/messages", "claude-opus-4-8"
				if c.endpoint == "chat" {
					path = "/v1/chat/completions"
				}
				send := func(messages string) answered {
					got := g.send(t.Context(), path, header, []byte(`{"model":"`+model+`","max_tokens":4000,"messages":[`+messages+`]}`))
					require.Equal(t, 200, got.status, got.body)
					return got
				}
				v.Queue(upstreamtest.Reply(upstreamtest.Say("It is so.")))
				send(c.messages)
				last := gjson.GetBytes(v.Last().Body, "messages.@reverse.0.content").Raw
				require.Equal(t, c.content, last)
				require.NotContains(t, v.Last().Header, ephemeralHeader)

				header.Del(ephemeralHeader)
				before := c.messages[:strings.LastIndex(c.messages, `{"role":"user"`)]
				send(before + c.then + `,{"role":"assistant","content":"It is so."},` + userSays(`"And?"`))
				require.Contains(t, g.metrics("conversation_requests"), `outcome="hit"`)
				require.NotContains(t, string(v.Last().Body), "memory")
				g.stop()
				require.NotContains(t, saved.all.String(), "memory")
				w.conforms(0)
			})
		}
	}
}

// Fault: a header that means nothing is taken for something, and what the user said is
// not recorded.
func TestConformanceEphemeralPartsThatAreNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	v, g := w.vendors["claude"], w.gateway()
	two := userSays(`[` + recalledPart + `,` + questionPart + `]`)
	try := func(path, messages string, values ...string) {
		header := http.Header{"X-Ag-Conversation-Id": {"c1"}, ephemeralHeader: values}
		got := g.send(t.Context(), path, header, []byte(`{"model":"m","max_tokens":10,"messages":[`+messages+`]}`))
		require.Equal(t, 400, got.status, "%q with %s", values, messages)
		said := gjson.Get(got.body, "error.message").Str
		require.Contains(t, said, "X-AG-Ephemeral-Parts must be the number of content parts, 1 to 16")
	}
	for _, path := range []string{"/v1/messages", "/v1/chat/completions", "/teammate/analytic/v1/messages",
		"/v1/messages/count_tokens"} {
		for _, value := range []string{"", "0", "17", "-1", "+1", "01", "1.0", "x", "true", "1,1", "٣"} {
			try(path, two, value)
		}
		try(path, two, "1", "1")
		try(path, two, "2")
		try(path, two, "3")
		try(path, userSays(`"What is it?"`), "1")
		try(path, two+`,{"role":"assistant","content":"So."},`+userSays(`"And?"`), "1")
		try(path, `{"role":"assistant","content":[`+anyTool+`]},`+userSays(`[`+anyResult+`]`), "1")
		try(path, "", "1")
	}
	require.Zero(t, v.Count())
	w.conforms(0)
}

// Fault: a client without a conversation's id gets its thinking refused, request after
// request, since it was bound to what was recalled.
func TestConformanceEphemeralPartsWithoutAConversation(t *testing.T) {
	t.Parallel()
	for _, stateless := range []bool{false, true} {
		w := newWorld(t, prefixChecking)
		w.config.Stateless = stateless
		v := w.vendors["bound"]
		c := w.gateway().messages("claude-opus-5-5")
		c.recall(1)
		for turn := range 4 {
			toolTurn(v, fmt.Sprint("turn ", turn))
			c.say(fmt.Sprint("Question ", turn))
			require.Contains(t, string(v.Last().Body), fmt.Sprintf("turn %d thinks before", turn))
			require.Equal(t, 1, strings.Count(string(v.Last().Body), recalled))
		}
		w.conforms(0)
	}
}

// Fault: a client recalls something for the first turn, and the vendor gets none of what
// was thought in all turns after it.
func TestConformanceThinkingBehindEphemeralPartsStays(t *testing.T) {
	t.Parallel()
	for _, of := range []backendCase{claude, prefixChecking} {
		for _, endpoint := range []string{"messages", "chat"} {
			w := newWorld(t, of.told(budgeted))
			v := w.vendors[of.name]
			c := agents(w.gateway(), "claude-opus-5-5", "c1")[endpoint]
			switch c := c.(type) {
			case *messagesClient:
				c.recall(2)
			case *chatClient:
				c.recall(2)
			}
			for turn := range 4 {
				toolTurn(v, fmt.Sprint("turn ", turn+1))
				c.say(fmt.Sprint("Question ", turn+1))
			}
			body := string(v.Last().Body) // something was recalled for the turns 2 and 4
			for turn, stays := range []bool{false, false, true, true} {
				require.Equal(t, stays, strings.Contains(body, fmt.Sprintf("turn %d thinks before", turn+1)), "turn %d", turn+1)
			}
			w.conforms(0)
		}
	}
}

// Fault: a client that holds no history recalls something for its question, and that goes to
// the front of the history, or into it.
func TestConformanceEphemeralPartsOfAThinClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, prefixChecking)
	v := w.vendors["bound"]
	c := w.gateway().messages("claude-opus-5-5")
	c.within("c1")
	toolTurn(v, "one")
	c.say("First question")
	c.header.Set("X-AG-Continue", "true")
	c.damage = func(history []message) []message {
		last := history[len(history)-1:]
		c.header.Del(ephemeralHeader)
		if !isResult(last[0]) {
			c.header.Set(ephemeralHeader, "1")
			last[0].content = append([]block{textOf(recallOf(2))}, last[0].content...)
		}
		return last
	}
	v.Queue(upstreamtest.Reply(upstreamtest.Say("two is done.")))
	require.Equal(t, "two is done.", c.say("Second question"))
	last := gjson.GetBytes(v.Last().Body, "messages.@reverse.0.content").Array()
	require.Len(t, last, 2)
	require.Equal(t, recallOf(2), last[0].Get("text").Str)
	require.Contains(t, string(v.Last().Body), "First question")
	toolTurn(v, "three") // results alone: what was recalled is nowhere
	require.Equal(t, "three is done.", c.say("Third question"))
	require.Contains(t, string(v.Last().Body), "Second question")
	require.NotContains(t, string(v.Last().Body), recalled)
	w.refusedAtMost(0)
}

// Fault: a client recalls something else in the middle of a turn, and the vendor refuses what it
// thought before.
func TestConformanceEphemeralPartsThatChangeInATurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, prefixChecking)
	v := w.vendors["bound"]
	g := w.gateway()
	c := g.messages("claude-opus-5-5")
	c.within("c1")
	n := 0
	c.header.Set(ephemeralHeader, "1")
	c.damage = func(history []message) []message {
		n++
		at := starts(history)
		m := &history[at[len(at)-1]]
		m.content = append([]block{textOf(recallOf(n))}, m.content...)
		return history
	}
	for turn := range 3 {
		toolTurn(v, fmt.Sprint("turn ", turn))
		require.Equal(t, fmt.Sprintf("turn %d is done.", turn), c.say("Go on"))
	}
	require.Contains(t, g.metrics("conversation_requests"), `{outcome="hit",pipeline="main"} 5`)
	w.refusedAtMost(0)
}
