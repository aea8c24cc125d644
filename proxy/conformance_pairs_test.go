package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// items changes items of a type in an input of Responses that is not new; nil drops one.
func items(kind string, change func(item []byte) []json.RawMessage) func([]json.RawMessage) []json.RawMessage {
	return func(input []json.RawMessage) (out []json.RawMessage) {
		for _, v := range input {
			if kind != "" && gjson.GetBytes(v, "type").Str != kind {
				out = append(out, v)
				continue
			}
			out = append(out, change(v)...)
		}
		return out
	}
}

// with is an item with another value of a member; nil takes the member out.
func with(name string, value any) func([]byte) []json.RawMessage {
	return func(v []byte) []json.RawMessage {
		var item map[string]any
		if err := json.Unmarshal(v, &item); err != nil {
			panic(err)
		}
		if delete(item, name); value != nil {
			item[name] = value
		}
		out, err := marshal(item)
		if err != nil {
			panic(err)
		}
		return []json.RawMessage{out}
	}
}

// itemMangles are ways in which clients of Responses send back what they got.
var itemMangles = map[string]func([]json.RawMessage) []json.RawMessage{
	"nothing":           nil,
	"reasoning dropped": items("reasoning", func([]byte) []json.RawMessage { return nil }),
	"unencrypted":       items("reasoning", with("encrypted_content", nil)),
	"another's":         items("reasoning", with("encrypted_content", "gAAAAnotherAccount==")),
	"without summaries": items("reasoning", with("summary", nil)),
	"readable":          items("reasoning", with("content", []any{map[string]any{"type": "reasoning_text", "text": "x"}})),
	"with status":       items("reasoning", with("status", "completed")),
	"doubled":           items("reasoning", func(v []byte) []json.RawMessage { return []json.RawMessage{v, v} }),
	"without ids":       items("", with("id", nil)),
	"foreign ids":       items("reasoning", with("id", "item_df7e40c3f04fc8ade5c3800e")),
	"long ids": items("", func(v []byte) []json.RawMessage {
		id := gjson.GetBytes(v, "id").Str
		if id == "" {
			return []json.RawMessage{v}
		}
		return with("id", id+strings.Repeat("x", 80))(v)
	}),
	"followers dropped": items("message", func(v []byte) []json.RawMessage {
		if gjson.GetBytes(v, "role").Str == "assistant" {
			return nil
		}
		return []json.RawMessage{v}
	}),
	"reasoning last": func(input []json.RawMessage) []json.RawMessage {
		isReasoning := func(v json.RawMessage) bool { return gjson.GetBytes(v, "type").Str == "reasoning" }
		for i := 0; i+1 < len(input); i++ {
			if isReasoning(input[i]) && !isReasoning(input[i+1]) {
				input[i], input[i+1] = input[i+1], input[i]
				i++
			}
		}
		return input
	},
	"call ids altered": items("", func(v []byte) []json.RawMessage {
		if id := gjson.GetBytes(v, "call_id").Str; id != "" {
			return with("call_id", "mine_"+id[len(id)-12:])(v)
		}
		return []json.RawMessage{v}
	}),
}

// chatMangles are those of chat completions, which cannot carry signed thinking anyway.
var chatMangles = map[string]func([]chatMessage) []chatMessage{
	"nothing": nil,
	"ids altered": func(history []chatMessage) []chatMessage {
		mine := func(id string) string { return "mine_" + id[len(id)-12:] }
		for i := range history {
			for j := range history[i].ToolCalls {
				history[i].ToolCalls[j].ID = mine(history[i].ToolCalls[j].ID)
			}
			if history[i].ToolCallID != "" {
				history[i].ToolCallID = mine(history[i].ToolCallID)
			}
		}
		return history
	},
	"texts padded": func(history []chatMessage) []chatMessage {
		for i := range history[:max(0, len(history)-1)] {
			if c := history[i].Content; c != nil {
				padded := pad(*c)
				history[i].Content = &padded
			}
		}
		return history
	},
	"reasoning invented": func(history []chatMessage) []chatMessage {
		invented := "I thought of something else."
		for i := range history {
			if history[i].Role == "assistant" {
				history[i].Reasoning = &invented
			}
		}
		return history
	},
}

// pairs plays conversations of one client in one way, on vendors of four dialects that are switched between.
type pairs struct {
	*testing.T
	r      *rand.Rand
	world  *world
	front  *front
	active string
	count  int

	mu   sync.Mutex // guards seen
	seen []upstreamtest.Request

	given, lost   map[string]int // thinking of the vendor's own in current turns, by vendor
	calls, extra  int
	conversations int
}

// vendorsOfPairs are one of each dialect.
var vendorsOfPairs = []backendCase{claude, gpt, deepSeekChat, google}

func (p *pairs) start(redis *redistest.Server) {
	var cases []backendCase
	for _, b := range vendorsOfPairs {
		cases = append(cases, b.with(b.name, func(c *upstreamtest.Config) {
			c.Remember = 1000
			c.Observe = func(r upstreamtest.Request) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.seen = append(p.seen, r)
			}
		}).told(budgeted))
	}
	p.world = newWorld(p.T, cases...)
	p.world.shares(redis)
	p.front = p.world.gateway()
}

// client is one of a kind, mangled in a way: what it says, and a call of the model, which gives how many calls of
// tools were answered.
func (p *pairs) client(kind, mangle, conversation string) (say func(string), step func() int) {
	switch kind {
	case "messages":
		c := p.front.messages("claude-opus-4-8")
		c.within(conversation)
		m := mangles[mangle]
		if m.replay != nil {
			c.damage = func(history []message) []message {
				newest := len(history)
				for newest > 0 && history[newest-1].role == "user" {
					newest--
				}
				return m.replay(p.r, history, newest)
			}
		}
		return func(text string) { c.user(textOf(text)) }, func() int {
			c.stream = p.r.IntN(2) == 0
			var results []block
			for _, b := range c.step() {
				if b.Type == "tool_use" {
					results = append(results, block{Type: "tool_result", ToolUseID: b.ID, Content: looked(string(b.Input))})
				}
			}
			if len(results) > 0 {
				c.user(results...)
			}
			return len(results)
		}
	case "chat":
		c := p.front.chat("claude-opus-4-8")
		c.within(conversation)
		c.damage = chatMangles[mangle]
		return c.user, func() int {
			c.stream = p.r.IntN(2) == 0
			calls := c.step().ToolCalls
			for _, call := range calls {
				result := looked(call.Function.Arguments)
				c.history = append(c.history, chatMessage{Role: "tool", Content: &result, ToolCallID: call.ID})
			}
			return len(calls)
		}
	}
	c := p.front.responses("claude-opus-4-8")
	c.within(conversation)
	c.any, c.keeps, c.damage = true, true, itemMangles[mangle]
	return func(text string) { c.add(map[string]string{"role": "user", "content": text}) }, func() int {
		c.stream = p.r.IntN(2) == 0
		calls, _ := c.step()
		return calls
	}
}

// play is one conversation.
func (p *pairs) play(kind, mangle string) {
	p.count++
	say, step := p.client(kind, mangle, fmt.Sprintf("%s.%d.%d", kind, p.count, p.r.Uint32()))
	for turn := range 2 + p.r.IntN(3) {
		say(fmt.Sprintf("question %d of %d", turn, p.count))
		given := map[string]int{} // in this turn
		for rounds := p.r.IntN(4); ; rounds-- {
			if p.r.IntN(3) == 0 {
				p.active = vendorsOfPairs[p.r.IntN(len(vendorsOfPairs))].name
				p.front.use(p.active)
			}
			blocks := []upstreamtest.Block{upstreamtest.Think(fmt.Sprintf("thought %d of %d", p.calls, p.count))}
			if rounds <= 0 || p.r.IntN(3) == 0 {
				blocks = append(blocks, upstreamtest.Say(fmt.Sprintf("said %d of %d", p.calls, p.count)))
			}
			for range min(max(rounds, 0), 1+p.r.IntN(2)) {
				blocks = append(blocks, upstreamtest.Use("look", fmt.Sprintf(`{"q":"%d"}`, p.r.IntN(50))))
			}
			p.world.vendors[p.active].Queue(upstreamtest.Reply(blocks...))
			p.mu.Lock()
			p.seen = nil
			p.mu.Unlock()
			calls := step()
			p.judge(given)
			given[p.active]++
			if calls == 0 {
				break
			}
		}
	}
	p.conversations++
}

// judge looks at what the vendor saw of the newest call.
func (p *pairs) judge(given map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotEmpty(p, p.seen)
	require.LessOrEqual(p, len(p.seen), 2, "one call more at most")
	accepted := p.seen[len(p.seen)-1]
	require.Empty(p, accepted.Rejection)
	p.calls++
	p.extra += len(p.seen) - 1
	p.given[p.active] += given[p.active]
	p.lost[p.active] += min(accepted.Lost, given[p.active])
}

// A client of any dialect may replay its history as it likes, while its model moves between vendors of four dialects in
// the middle of tool loops. The conversation must go on.
func TestConformanceMangledPairs(t *testing.T) {
	conversations, seed := manyConversations(t, 7)
	kinds := map[string][]string{
		"chat":      slices.Sorted(maps.Keys(chatMangles)),
		"responses": slices.Sorted(maps.Keys(itemMangles)),
	}
	for _, name := range slices.Sorted(maps.Keys(mangles)) {
		if mangles[name].turn == nil && !mangles[name].loses {
			kinds["messages"] = append(kinds["messages"], name)
		}
	}
	redis := redistest.Start(t)
	var mu sync.Mutex // guards the totals
	given, lost := map[string]int{}, map[string]int{}
	calls, extra, played := 0, 0, 0
	t.Run("by", func(t *testing.T) {
		for i, kind := range slices.Sorted(maps.Keys(kinds)) {
			each := (conversations + 3*len(kinds[kind]) - 1) / (3 * len(kinds[kind]))
			for j, mangle := range kinds[kind] {
				t.Run(kind+", "+mangle, func(t *testing.T) {
					t.Parallel()
					p := &pairs{T: t, r: rand.New(rand.NewPCG(seed, uint64(1000*i+j))), active: claude.name,
						given: map[string]int{}, lost: map[string]int{}}
					p.start(redis)
					p.front.use(p.active)
					for p.conversations < each {
						p.play(kind, mangle)
					}
					p.world.checked = true
					require.Empty(t, p.world.refused, "clients heard of thinking")
					mu.Lock()
					defer mu.Unlock()
					for _, b := range vendorsOfPairs {
						for _, row := range []string{kind + " on " + b.name, kind + " on " + b.name + ", " + mangle} {
							given[row] += p.given[b.name]
							lost[row] += p.lost[b.name]
						}
					}
					calls, extra, played = calls+p.calls, extra+p.extra, played+p.conversations
					t.Logf("%d conversations, %d calls, %d more to vendors; own thinking given %v, lost %v", p.conversations, p.calls,
						p.extra, p.given, p.lost)
				})
			}
		}
	})
	t.Logf("%d conversations, %d calls, %d more to vendors", played, calls, extra)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		t.Logf("%-56s own thinking of the current turn kept: %.3f (%d of %d)", name,
			1-float64(lost[name])/float64(max(1, given[name])), given[name]-lost[name], given[name])
	}
}

// Fault: calls that a client forgot are put back in the dialect of the vendor that made them, which another one refuses.
func TestConformanceForgottenCallsThroughASwitchOfDialects(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]backendCase{
		{claude.told(budgeted), deepSeekChat}, {deepSeekChat, claude.told(budgeted)}, {gpt, deepSeekChat},
	} {
		t.Run(pair[0].name+" to "+pair[1].name, func(t *testing.T) {
			w := newWorld(t, pair[0], pair[1])
			w.vendors[pair[0].name].Queue(
				upstreamtest.Reply(upstreamtest.Think("thought"), upstreamtest.Say("I look."),
					upstreamtest.Use("look", `{"q":"a"}`)),
				upstreamtest.Reply(upstreamtest.Think("thought"), upstreamtest.Say("Done.")))
			w.vendors[pair[1].name].Queue(upstreamtest.Reply(upstreamtest.Say("Welcome.")))
			g := w.gateway()
			g.use(pair[0].name)
			c := g.messages("claude-opus-4-8")
			c.within("c1")
			c.damage = func(history []message) []message {
				at := starts(history)
				current := at[len(at)-1]
				return append(callsForgotten(history[:current]), history[current:]...)
			}
			require.Equal(t, "Done.", c.say("Go"))
			g.use(pair[1].name)
			require.Equal(t, "Welcome.", c.say("Thanks"))
			w.conforms(0)
		})
	}
}
