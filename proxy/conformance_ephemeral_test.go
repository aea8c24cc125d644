package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

const (
	ephemeralHeader = "X-Ag-Ephemeral-Parts"
	recalled        = "Zwischenruf" // in every text that was recalled, and in nothing else
)

// recallOf returns the text that the client recalls for a turn. It is the same in all requests of the turn.
func recallOf(turn int) string {
	return fmt.Sprintf("<memory>%s %d: \"a & b\"</memory>", recalled, turn)
}

// recalling returns a damage that puts a recalled text into the user's newest message in every nth turn.
func recalling[M any](
	m *manners, n int, before func([]M) []M, starts func([]M) []int, put func(*M, string),
) func([]M) []M {
	return func(history []M) []M {
		turn := len(starts(history))
		history = chain(before)(history)
		m.header.Del(ephemeralHeader)
		if at := starts(history); turn%n == 0 {
			m.header.Set(ephemeralHeader, "1")
			put(&history[at[len(at)-1]], recallOf(turn))
		}
		return history
	}
}

// recallEvery has clients of both dialects put a recalled part before the user's text in every nth turn.
func recallEvery(n int) turn {
	return steps(
		client(func(c *messagesClient) { c.damage = recalling(&c.manners, n, c.damage, starts, putText) }),
		client(func(c *chatClient) {
			c.damage = recalling(&c.manners, n, c.damage, chatStarts, func(m *chatMessage, text string) {
				for _, s := range []string{text, *m.Content} {
					m.parts = append(m.parts, marshal(map[string]string{"type": "text", "text": s}))
				}
			})
		}))
}

// putText puts a text before the content of a message.
func putText(m *message, text string) { m.content = append([]block{textOf(text)}, m.content...) }

var recalledText = regexp.MustCompile(`<memory>` + recalled + ` [0-9]+: "a & b"</memory>\n*`)

// skeleton returns the content of a request without its layout, with all thinking or with the current turn's.
func skeleton(body []byte, all bool) string {
	var out strings.Builder
	history := messagesOf(body)
	at := starts(history)
	for i, m := range history {
		thinking := all || i > at[len(at)-1]
		fmt.Fprintf(&out, "\n%s:", m.role)
		for _, b := range m.content {
			b.Text = recalledText.ReplaceAllString(b.Text, "")
			if (b.Type != "text" || b.Text != "") && (thinking || !b.thinks()) {
				fmt.Fprintf(&out, " %s%q %s %s %s", b.Type, b.Text, b.Thinking, b.Input, b.Content)
			}
		}
		of := gjson.GetBytes(body, fmt.Sprint("messages.", i))
		if thinking {
			fmt.Fprint(&out, " ", of.Get("reasoning_content"))
		}
		fmt.Fprint(&out, of.Get("tool_calls.#.function.arguments"))
	}
	return out.String()
}

// addMetrics adds the counters of a gateway that is about to end.
func (g *front) addMetrics(sums map[string]int) {
	for line := range strings.Lines(g.metrics("conversation_") + g.metrics("thinking_retries")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(value)
		require.NoError(g.world, err, line)
		sums[name] += n
	}
}

// plainAnswers returns a turn of the model: rounds of one or two calls, and a text without spaces at its ends.
func plainAnswers(r *rand.Rand, turn int) (answers []upstreamtest.Answer) {
	for round := range r.IntN(3) {
		blocks := []upstreamtest.Block{think(fmt.Sprintf("turn %d, round %d", turn, round))}
		if r.IntN(2) == 0 {
			blocks = append(blocks, speak("Let me see. "))
		}
		for call := range 1 + r.IntN(2) {
			blocks = append(blocks, look(fmt.Sprintf("%d.%d.%d", turn, round, call)))
		}
		answers = append(answers, reply(blocks...))
	}
	text := pick(r, "yes", "It is so.", fmt.Sprintf("Answer %d\n\n- a", turn))
	return append(answers, saying(fmt.Sprintf("turn %d, end", turn), text))
}

// finalTexts has a client show only the final texts of older turns. It changes spaces in all but the newest message.
var finalTexts = replay{
	messages: chain(mangles["rounds forgotten"].damage, texts(strings.TrimSpace)),
	chat:     chain(chatTexts(strings.TrimSpace), finalAnswersOnly),
}

// recallRun plays a random dialogue with a recall every n turns, or none if n is 0. The calls alternate between two
// gateways, of which one restarts. It returns the vendor's requests without recalled parts, and the gateways' metrics.
func recallRun(t *testing.T, c run, redis *redistest.Server, id string, n int) (sent []string, sums map[string]int) {
	const turns = 8
	p := newPlay(t, c)
	p.conversation = fmt.Sprint(id, "-", n)
	p.shares(redis)
	finalTexts.turn(p)
	if n > 0 {
		recallEvery(n)(p)
	}
	for _, v := range c.variants {
		v.setup(p)
	}
	m, sums := p.me().settings(), map[string]int{}
	r := rand.New(rand.NewPCG(0, 0))
	for turn := range turns {
		if turn == 6 {
			p.fronts[0].addMetrics(sums)
			p.fronts[0].stop()
			p.fronts = append(p.fronts[1:], p.world.gateway())
		}
		m.stream = r.IntN(2) == 0
		m.gateway, m.alternate = p.gatewayAt(0), []*front{p.gatewayAt(1), p.gatewayAt(0)}
		say(pick(r, "yes", " and then?\n", fmt.Sprintf("Question %d", turn)), plainAnswers(r, turn)...)(p)
	}
	for _, g := range p.fronts {
		g.addMetrics(sums)
		g.stop()
	}
	vendorNeverGotHeader(ephemeralHeader)(p)
	recalls := 0
	for _, request := range p.vendor().Requests() {
		sent = append(sent, skeleton(request.Body, c.vendors[0].vendor.Vendor != ""))
		recalls += strings.Count(string(request.Body), recalled)
	}
	require.Len(t, sent, m.calls, "no second calls")
	require.True(t, n == 0 && recalls == 0 || n == 1 && recalls == m.calls || n > 1 && recalls > 0, "%d recalls", recalls)
	p.conforms(0)
	return sent, sums
}

// Fault: a client puts recalled text before the user's text, and the next request does not have it. The conversation is
// not found, its rounds of tools are forgotten, the vendor refuses its thinking, or the recalled text stays in Redis.
// Each vendor has one client that recalls in every turn and one that recalls in every third. With the race detector
// every third combination is tried.
func TestConformanceEphemeralPartsChangeNothing(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	other, older := prefixChecking.asking(claude.model), prefixChecking.asking(manual.model)
	main := runEach(claude, manual, prefixChecking, other, older, kimi, kimiChat, deepSeek, deepSeekChat, genericChat).
		clients(both...).vary(variants{{"main", nothing}})
	mates := runEach(prefixChecking, other, older, deepSeekChat).clients(both...).vary(routes[1:])
	redis := redistest.Start(t)
	t.Run("runs", func(t *testing.T) {
		for _, runs := range [][]run{main.runs(), mates.runs()} {
			for i, c := range runs {
				every := 1
				if (i < len(runs)/2) == (i%2 == 0) {
					every = 3
				}
				if !selects(i) {
					continue
				}
				t.Run(c.name(), func(t *testing.T) {
					t.Parallel()
					id := fmt.Sprint(len(runs), "-", i)
					requests, metrics := recallRun(t, c, redis, id, 0)
					recalledRequests, recalledMetrics := recallRun(t, c, redis, id, every)
					require.Equal(t, requests, recalledRequests)
					require.Equal(t, metrics, recalledMetrics)
				})
			}
		}
	})
	require.NotContains(t, kept(t, redis), recalled)
}

const (
	recalledPart  = `{"type":"text","text":"<memory>"}`
	questionPart  = `{"type":"text","text":"What is it?"}`
	anyTool       = `{"type":"tool_use","id":"toolu_0000000000000000000001","name":"look","input":{"q":"x"}}`
	anyResult     = `{"type":"tool_result","tool_use_id":"toolu_0000000000000000000001","content":"found"}`
	chatImage     = `{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}`
	messagesImage = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}`
)

func userSays(content string) string { return `{"role":"user","content":` + content + `}` }

func parts(all ...string) string { return "[" + strings.Join(all, ",") + "]" }

// marked returns a text part with a mark for the vendor's cache.
func marked(text string) string {
	return `{"type":"text","text":"` + text + `","cache_control":{"type":"ephemeral"}}`
}

// Fault: a recalled part is lost, separated from its question, sent as a list to a vendor that takes only a text, or
// comes back from the gateway's own memory.
func TestConformanceEphemeralPartsAsTheyAreSent(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	type backends []backendCase
	question, joined := userSays(`"What is it?"`), `"<memory>\n\nWhat is it?"`
	two := parts(recalledPart, questionPart)
	three := parts(recalledPart, `{"type":"text","text":"<notes>"}`, questionPart)
	messagesImages := parts(recalledPart, messagesImage, questionPart)
	chatImages := parts(recalledPart, chatImage, questionPart)
	marks := []string{marked("a"), marked("a"), marked("a"), marked("a")}
	redis := redistest.Start(t)
	for name, c := range map[string]struct {
		endpoint string
		to       backends
		n        string
		messages string // as they are sent to the gateway
		content  string // the content of the last one as the vendor gets it
		then     string // the message as a later request shows it
	}{
		"messages, as it came":  {"messages", backends{claude, kimi}, "1", userSays(two), two, question},
		"chat, as it came":      {"chat", backends{openAI, kimiChat}, "1", userSays(two), two, question},
		"one text":              {"chat", backends{genericChat, deepSeekChat}, "1", userSays(two), joined, question},
		"one text, in messages": {"messages", backends{deepSeek}, "1", userSays(two), joined, question},
		"one text of three": {"chat", backends{genericChat}, "2", userSays(three),
			`"<memory>\n\n<notes>\n\nWhat is it?"`, question},
		"translated to chat":     {"messages", backends{kimiChat, deepSeekChat}, "1", userSays(two), joined, question},
		"translated to messages": {"chat", backends{claude, kimi}, "1", userSays(two), two, question},
		"translated to one text": {"chat", backends{deepSeek}, "1", userSays(two), joined, question},
		"an image, to messages": {"chat", backends{claude}, "1", userSays(chatImages), messagesImages,
			userSays(parts(chatImage, questionPart))},
		"an image, to chat": {"messages", backends{openAI}, "1", userSays(messagesImages), chatImages,
			userSays(parts(messagesImage, questionPart))},
		"a recalled image, to chat": {"messages", backends{openAI}, "2", userSays(messagesImages), chatImages, question},
		"cache markers": {"messages", backends{claude}, "1", userSays(parts(marked("<memory>"), marked("What is it?"))),
			parts(marked("<memory>"), marked("What is it?")), question},
		"cache markers, in one text": {"messages", backends{deepSeek}, "1",
			userSays(parts(recalledPart, marked("What is it?"))), parts(marked(`<memory>\n\nWhat is it?`)), question},
		"five cache markers": {"messages", backends{claude}, "1", userSays(parts(append(marks, marked("a"))...)),
			parts(append([]string{`{"type":"text","text":"a"}`}, marks...)...), userSays(`"aaaa"`)},
		"after a result": {"messages", backends{claude}, "1",
			question + `,{"role":"assistant","content":[` + anyTool + `]},` +
				userSays(parts(anyResult, recalledPart, questionPart)),
			parts(anyResult, recalledPart, questionPart), userSays(parts(anyResult, questionPart))},
	} {
		for _, backend := range c.to {
			t.Run(name+", "+backend.name, func(t *testing.T) {
				w := newWorld(t, backend.told(budgeted))
				w.shares(redis)
				v, g := w.vendors[backend.name], w.gateway()
				id := strings.NewReplacer(" ", "-", ",", "").Replace(name + " " + backend.name)
				header := http.Header{"Authorization": {"Bearer caller"}, "X-Ag-Conversation-Id": {id}, ephemeralHeader: {c.n}}
				path := map[string]string{"messages": "/v1/messages", "chat": "/v1/chat/completions"}[c.endpoint]
				send := func(messages string) {
					body := `{"model":"claude-opus-4-8","max_tokens":4000,"messages":[` + messages + `]}`
					got := g.send(t.Context(), path, header, []byte(body))
					require.Equal(t, 200, got.status, got.body)
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
				w.conforms(0)
			})
		}
	}
	require.NotContains(t, kept(t, redis), "memory")
}

// recallBeforeQuestion has a thin client put a recalled part before its question, but not before results.
func recallBeforeQuestion(p *play) {
	c := p.messages()
	c.damage = func(history []message) []message {
		newest := history[len(history)-1:]
		c.header.Del(ephemeralHeader)
		if !isResult(newest[0]) {
			c.header.Set(ephemeralHeader, "1")
			putText(&newest[0], recallOf(2))
		}
		return newest
	}
}

// recallAnew has a client recall something else in each request.
func recallAnew(c *messagesClient) {
	c.damage = recalling(&c.manners, 1, nil, starts, func(m *message, _ string) { putText(m, recallOf(c.calls)) })
}

var ephemeralRows = []transcript{
	row("malformed ephemeral parts", "a malformed header counts, and the user's text is not recorded.",
		runEach(claude),
		func(p *play) {
			two := userSays(parts(recalledPart, questionPart))
			try := func(path, messages string, values ...string) {
				header := http.Header{"X-Ag-Conversation-Id": {"c1"}, ephemeralHeader: values}
				body := []byte(`{"model":"m","max_tokens":10,"messages":[` + messages + `]}`)
				got := p.gateway().send(p.Context(), path, header, body)
				require.Equal(p, 400, got.status, "%q with %s", values, messages)
				require.Contains(p, gjson.Get(got.body, "error.message").Str,
					"X-AG-Ephemeral-Parts must be the number of content parts, 1 to 16")
			}
			for _, path := range []string{"/v1/messages", "/v1/chat/completions", "/teammate/analytic/v1/messages",
				"/v1/messages/count_tokens"} {
				for _, value := range []string{"", "0", "17", "-1", "+1", "01", "1.0", "x", "true", "1,1", "٣", "2", "3"} {
					try(path, two, value)
				}
				try(path, two, "1", "1")
				for _, messages := range []string{
					userSays(`"What is it?"`), two + `,{"role":"assistant","content":"So."},` + userSays(`"And?"`),
					`{"role":"assistant","content":[` + anyTool + `]},` + userSays(`[`+anyResult+`]`), "",
				} {
					try(path, messages, "1")
				}
			}
		}, vendorCalls(0)),
	row("recall without a conversation", "a nameless client's thinking is bound to the recalled part and refused.",
		runEach(prefixChecking).cite(boundThinking).vary(variants{
			{"with state", nil}, {"stateless", configure(func(c *proxy.Config) { c.Stateless = true })},
		}),
		unnamed, recallEvery(1), func(p *play) {
			for turn := range 4 {
				name := fmt.Sprint("turn ", turn)
				steps(useTool("Question", name), vendorGot(name+" thinks before"), vendorGotTimes(1, recalled))(p)
			}
		}),
	row("thinking after a recall", "after a recall in one turn the vendor gets no thinking of later turns.",
		runEach(claude, prefixChecking).clients(both...).asking(prefixChecking.model),
		recallEvery(2), useTool("Question 1", "turn 1"), useTool("Question 2", "turn 2"),
		useTool("Question 3", "turn 3"), useTool("Question 4", "turn 4"), // recalls in turns 2 and 4
		vendorLacks("turn 1 thinks before", "turn 2 thinks before"),
		vendorGot("turn 3 thinks before", "turn 4 thinks before")),
	row("recall of a thin client", "a recall without a history moves to the front of the history or into it.",
		runEach(prefixChecking),
		tolerate(0), useTool("First question", "one"), header("X-AG-Continue", "true"), recallBeforeQuestion,
		exchange("Second question", "two is done."),
		func(p *play) {
			content := gjson.Get(p.last(), "messages.@reverse.0.content").Array()
			require.Len(p, content, 2)
			require.Equal(p, recallOf(2), content[0].Get("text").Str)
		},
		vendorGot("First question"),
		useTool("Third question", "three"), // ends with results alone, without a recalled part
		vendorGot("Second question"), vendorLacks(recalled)),
	row("recall that changes in a turn", "the vendor refuses thinking from before the second recall of a turn.",
		runEach(prefixChecking).cite(boundThinking),
		tolerate(0), client(recallAnew), useTool("Go on", "turn 0"), useTool("Go on", "turn 1"), useTool("Go on", "turn 2"),
		metricHas("conversation_requests", `{outcome="hit",pipeline="main"} 5`)),
}
