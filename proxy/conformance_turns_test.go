package proxy_test

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

var (
	reply = upstreamtest.Reply
	think = upstreamtest.Think
	speak = upstreamtest.Say
)

func look(q string) upstreamtest.Block { return upstreamtest.Use("look", `{"q":"`+q+`"}`) }

func saying(thought, text string) upstreamtest.Answer { return reply(think(thought), speak(text)) }

func looking(thought, q string) upstreamtest.Answer { return reply(think(thought), look(q)) }

// toolTurn queues a turn with one call. The name is in its thinking.
func toolTurn(v *upstreamtest.Server, name string) {
	v.Queue(looking(name+" thinks before", name), saying(name+" thinks after", name+" is done."))
}

// Clients speak. The active vendor answers with the scripted answers, then with its default.

// say is a turn of the user with all rounds of tools.
func say(text string, answers ...upstreamtest.Answer) turn {
	return steps(question(text), finish(answers...))
}

// exchange is a turn of the user with want as the last answer. Without other answers it has no thinking.
func exchange(text, want string, answers ...upstreamtest.Answer) turn {
	if len(answers) == 0 {
		answers = append(answers, reply(speak(want)))
	}
	return steps(say(text, answers...), clientReads(want))
}

// useTool is a turn of the user with one round of tools, see toolTurn.
func useTool(text, name string) turn {
	return func(p *play) {
		toolTurn(p.vendor(), name)
		steps(say(text), clientReads(name+" is done."))(p)
	}
}

// begin is a text of the user with one call of the model. The results of tools are not sent yet.
func begin(text string, answers ...upstreamtest.Answer) turn {
	return steps(question(text), round(answers...))
}

func question(text string) turn { return func(p *play) { p.me().question(text) } }

func queue(answers ...upstreamtest.Answer) turn {
	return func(p *play) { p.vendor().Queue(answers...) }
}

func round(answers ...upstreamtest.Answer) turn {
	return steps(queue(answers...), func(p *play) { _, p.text = p.me().round() })
}

// finish makes calls until the model calls no more tools.
func finish(answers ...upstreamtest.Answer) turn {
	return steps(queue(answers...), func(p *play) { p.text = proceed(p.me()) })
}

// request sends a text of the user, if any. The answer has this status and does not become part of the history.
func request(text string, status int) turn {
	return func(p *play) {
		if text != "" {
			p.me().question(text)
		}
		got := p.me().post()
		require.Equal(p, status, got.status, got.body)
	}
}

// as lets another client speak. The first time it makes the client and sets it up.
func as(name string, setups ...turn) turn {
	return func(p *play) {
		if p.client = p.clients[name]; p.client != nil {
			return
		}
		var m *manners
		p.client, m = p.gateway().anyClient(p.run.client, p.model)
		m.within(p.conversation)
		p.clients[name] = p.client
		for _, setup := range append(p.setups, setups...) {
			setup(p)
		}
	}
}

// setup changes the client that speaks. Before the first client speaks, it changes all of them.
func setup(change turn) turn {
	return func(p *play) {
		if p.client == nil {
			p.setups = append(p.setups, change)
			return
		}
		change(p)
	}
}

func settings(change func(m *manners)) turn {
	return setup(func(p *play) { change(p.me().settings()) })
}

// client changes a client of one dialect.
func client[C agent](change func(c C)) turn {
	return setup(func(p *play) {
		if c, ok := p.me().(C); ok {
			change(c)
		}
	})
}

var (
	streamed        = settings(func(m *manners) { m.stream = true })
	whole           = settings(func(m *manners) { m.stream = false })
	withoutTools    = settings(func(m *manners) { m.tools = false })
	keepReasoning   = settings(func(m *manners) { m.keeps = true })
	thinkingDropped = damaged("thinking dropped")
	faithful        = replay{}.turn
)

// unnamed removes the conversation's name from all requests.
func unnamed(p *play) {
	p.conversation = ""
	settings(func(m *manners) { m.within("") })(p)
}

func route(prefix string) turn { return settings(func(m *manners) { m.prefix = prefix }) }

func model(name string) turn { return settings(func(m *manners) { m.model = name }) }

// header sets a header. An empty value removes it.
func header(name, value string) turn { return settings(func(m *manners) { m.set(name, value) }) }

// members adds members to the requests, each with a comma before it.
func members(more string) turn { return settings(func(m *manners) { m.more = more }) }

// thinkingMode is the member thinking of requests of the messages dialect; JSON, or empty for none.
func thinkingMode(mode string) turn { return client(func(c *messagesClient) { c.thinking = mode }) }

func system(prompt string) turn { return client(func(c *messagesClient) { c.system = prompt }) }

// replay changes the history as it is sent, in each dialect that is not nil.
type replay struct {
	messages func([]message) []message
	chat     func([]chatMessage) []chatMessage
	items    func([]json.RawMessage) []json.RawMessage
}

func (r replay) join(next replay) replay {
	return replay{chain(r.messages, next.messages), chain(r.chat, next.chat), chain(r.items, next.items)}
}

func (r replay) turn(p *play) { setup(func(p *play) { r.apply(p.me()) })(p) }

func (r replay) apply(c agent) {
	switch c := c.(type) {
	case *messagesClient:
		c.damage = r.messages
	case *chatClient:
		c.damage = r.chat
	case *responsesClient:
		c.damage = r.items
	}
}

// damaged has clients of the messages dialect damage what they replay, see damages.
func damaged(name string) turn {
	change, known := damages[name]
	if !known {
		panic("no damage is named " + name)
	}
	return replay{messages: change}.turn
}

func history(messages ...message) turn {
	return func(p *play) { p.messages().history = messages }
}

func edit(change func(c *messagesClient)) turn {
	return func(p *play) { change(p.messages()) }
}

// unknownThinking is a history with thinking that the gateway has not seen.
func unknownThinking(p *play) {
	history(userText("Hi"), assistant(block{Type: "thinking", raw: []byte(forgedBlock)}, textOf("Hello.")))(p)
}

func userText(text string) message { return message{role: "user", content: []block{textOf(text)}} }

func assistant(content ...block) message { return message{role: "assistant", content: content} }

func use(i int) turn {
	return func(p *play) {
		p.active = i
		p.gateway().use(p.run.vendors[i].name)
	}
}

func restart(p *play) {
	p.gateway().stop()
	p.fronts[p.front] = p.world.gateway()
	through(p.front)(p)
}

// through sends the calls of all clients to another gateway.
func through(i int) turn {
	return func(p *play) {
		p.front = i
		for _, c := range p.clients {
			c.settings().gateway = p.gateway()
		}
	}
}

// alternate sends the calls after the next one to these gateways, in turn.
func alternate(order ...int) turn {
	return func(p *play) {
		m := p.me().settings()
		for _, i := range order {
			m.alternate = append(m.alternate, p.gatewayAt(i))
		}
	}
}

// configure changes the gateways that start after it.
func configure(change func(c *proxy.Config)) turn {
	return func(p *play) { change(&p.config) }
}

// configureVendors changes the configuration of all backends before the gateways start.
func configureVendors(change func(c *proxy.BackendConfig)) turn {
	return configure(func(c *proxy.Config) {
		for name, b := range c.Backends {
			change(&b)
			c.Backends[name] = b
		}
	})
}

func fail(faults ...upstreamtest.Fault) turn {
	return func(p *play) { p.vendor().Fail(faults...) }
}

// atVendor plays turns with another vendor in place of the active one, which stays active.
func atVendor(i int, turns ...turn) turn {
	return func(p *play) {
		active := p.active
		p.active = i
		steps(turns...)(p)
		p.active = active
	}
}

func steps(turns ...turn) turn {
	return func(p *play) {
		for _, next := range turns {
			if next != nil {
				next(p)
			}
		}
	}
}

// later is a variant's setup that waits for now. Several of them are played in the order of the row's variants.
func later(t turn) turn { return func(p *play) { p.pending = append(p.pending, t) } }

func now(p *play) {
	next := p.pending[0]
	p.pending = p.pending[1:]
	next(p)
}

func nothing(*play) {}

// tolerate has vendors refuse some requests, which may cost thinking of the latest turn.
func tolerate(refusals int) turn {
	return func(p *play) { p.refusals, p.loses = refusals, true }
}

func costs(refusals int) turn { return func(p *play) { p.refusals = refusals } }

// costsWhenBound has a vendor that binds thinking to what precedes it refuse some requests.
func costsWhenBound(refusals int) turn {
	return func(p *play) {
		if p.run.vendors[0].vendor.Thinking.PrefixCheck {
			p.refusals = refusals
		}
	}
}

// judgeAlone replaces the final check by the checks of the row.
func judgeAlone(p *play) { p.checked = true }

func forgive(p *play) { p.world.forgive() }

func expect(texts []string, check func(p *play, text string)) turn {
	return func(p *play) {
		for _, text := range texts {
			check(p, text)
		}
	}
}

// vendorGot expects texts in the active vendor's newest request.
func vendorGot(texts ...string) turn {
	return expect(texts, func(p *play, text string) { require.Contains(p, p.last(), text) })
}

func vendorLacks(texts ...string) turn {
	return expect(texts, func(p *play, text string) { require.NotContains(p, p.last(), text) })
}

// vendorNeverGot expects that texts are in none of the active vendor's requests.
func vendorNeverGot(texts ...string) turn {
	return expect(texts, func(p *play, text string) {
		for _, r := range p.vendor().Requests() {
			require.NotContains(p, string(r.Body), text)
		}
	})
}

func vendorNeverGotHeader(name string) turn {
	return func(p *play) {
		for _, r := range p.vendor().Requests() {
			require.Empty(p, r.Header.Values(name))
		}
	}
}

func vendorGotTimes(n int, text string) turn {
	return func(p *play) { require.Equal(p, n, strings.Count(p.last(), text), "%q in %s", text, p.last()) }
}

func vendorCalls(n int) turn {
	return func(p *play) { require.Equal(p, n, p.vendor().Count(), "requests") }
}

// vendorGotAt expects a value at a path of the active vendor's newest request: raw JSON, or "" for none.
func vendorGotAt(path, raw string) turn {
	return func(p *play) { require.Equal(p, raw, gjson.Get(p.last(), path).Raw, "%s in %s", path, p.last()) }
}

// vendorGotThoughts expects so many thoughts that the vendor can read in its newest request.
func vendorGotThoughts(n int) turn {
	return func(p *play) { require.Len(p, thoughtsIn([]byte(p.last())), n, p.last()) }
}

// thoughtsIn returns the signatures, encrypted contents and reasoning in a request of any dialect.
func thoughtsIn(body []byte) (found []string) {
	for _, path := range []string{"input.#.encrypted_content", `input.#(type=="thought")#.signature`,
		"messages.#.reasoning_content", "messages.#.content.#.signature|@flatten", "messages.#.content.#.data|@flatten"} {
		found = append(found, strs(body, path)...)
	}
	return slices.DeleteFunc(found, func(s string) bool { return s == "" })
}

// unchanged expects that the newest request left byte for byte as the client sent it.
func unchanged(p *play) {
	require.Equal(p, string(p.me().settings().sent), p.last())
}

func clientReads(text string) turn {
	return func(p *play) { require.Equal(p, text, p.text) }
}

func clientGotHeader(name, value string) turn {
	return func(p *play) { require.Equal(p, value, p.answer().header.Get(name), name) }
}

func clientGotBody(body string) turn {
	return func(p *play) { require.Equal(p, body, p.answer().body) }
}

func (p *play) answer() answered { return p.me().settings().last }

// mended expects that X-AG-Mended of the newest answer names a change.
func mended(name string) turn {
	return func(p *play) {
		require.Contains(p, strings.Split(p.answer().header.Get("X-AG-Mended"), ","), name)
	}
}

// metric expects the metrics that begin so, with their values.
func metric(begin, values string) turn {
	return func(p *play) { require.Equal(p, values, p.gateway().metrics(begin)) }
}

func metricHas(begin, text string) turn {
	return func(p *play) { require.Contains(p, p.gateway().metrics(begin), text) }
}

func logHas(n int, text string) turn {
	return func(p *play) { require.Equal(p, n, p.log.count(text), "lines with %s", text) }
}
