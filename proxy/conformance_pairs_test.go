package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
)

// items returns a change of all items of a type in an input of Responses; an empty type means all types.
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

// with returns a change of one member of an item. The value nil removes it.
func with(name string, value any) func([]byte) []json.RawMessage {
	return func(v []byte) []json.RawMessage {
		var item map[string]any
		if err := json.Unmarshal(v, &item); err != nil {
			panic(err)
		}
		if delete(item, name); value != nil {
			item[name] = value
		}
		return []json.RawMessage{marshal(item)}
	}
}

// itemMangles are changes that clients of Responses make to the items in their history, by name.
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
	"followers dropped": dropped("message"),
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

// pairs plays conversations of one client that replays in one way, while the backend switches between four dialects.
type pairs struct {
	lead
	llm    *randomModel
	active string
}

// vendorsOfPairs has one vendor per dialect.
var vendorsOfPairs = []backendCase{claude.told(budgeted), gpt, deepSeekChat, google}

// play leads one conversation.
func (p *pairs) play(dialect, mangle string) {
	p.conversations++
	c, m := p.front.anyClient(dialect, "claude-opus-4-8")
	m.within(fmt.Sprintf("%s.%d.%d", dialect, p.conversations, p.r.Uint32()))
	m.keeps = dialect == "responses"
	replay{mangles[mangle].damage, chatDamages[mangle], itemMangles[mangle]}.by(c)
	for turn := range 2 + p.r.IntN(3) {
		c.question(fmt.Sprintf("question %d of %d", turn, p.conversations))
		for rounds, calls := p.r.IntN(4), 1; calls > 0; rounds-- {
			if p.r.IntN(3) == 0 {
				p.active = pick(p.r, vendorsOfPairs...).name
				p.front.use(p.active)
			}
			p.world.vendors[p.active].Queue(p.llm.answer(rounds <= 0))
			m.stream = p.r.IntN(2) == 0
			p.call(func() { calls, _ = c.round() })
		}
	}
}

// A client of any dialect may replay its history in any way while its model moves between vendors of four dialects in
// tool loops. The conversation must continue.
func TestConformanceMangledPairs(t *testing.T) {
	conversations, seed := manyConversations(t, 7)
	kinds := map[string][]string{
		"chat":      slices.Sorted(maps.Keys(chatDamages)),
		"responses": slices.Sorted(maps.Keys(itemMangles)),
	}
	for _, name := range slices.Sorted(maps.Keys(mangles)) {
		if mangles[name].turn == nil && !mangles[name].loses {
			kinds["messages"] = append(kinds["messages"], name)
		}
	}
	redis := redistest.Start(t)
	for i, dialect := range all3 {
		each := (conversations + 3*len(kinds[dialect]) - 1) / (3 * len(kinds[dialect]))
		for j, mangle := range kinds[dialect] {
			t.Run(dialect+", "+mangle, func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(seed, uint64(1000*i+j)))
				p := &pairs{lead: lead{T: t, r: r}, llm: &randomModel{chooser: r}, active: claude.name}
				p.start(redis, slices.Clone(vendorsOfPairs)...)
				for p.conversations < each {
					p.play(dialect, mangle)
				}
				p.finish()
			})
		}
	}
}
