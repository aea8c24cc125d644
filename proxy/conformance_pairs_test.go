package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
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
			if kind == "" || gjson.GetBytes(v, "type").Str == kind {
				out = append(out, change(v)...)
			} else {
				out = append(out, v)
			}
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

// changeMember returns a change of one member of the items that have it.
func changeMember(name string, change func(string) string) func([]byte) []json.RawMessage {
	return func(v []byte) []json.RawMessage {
		if s := gjson.GetBytes(v, name).Str; s != "" {
			return with(name, change(s))(v)
		}
		return []json.RawMessage{v}
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
	"long ids":          items("", changeMember("id", func(s string) string { return s + strings.Repeat("x", 80) })),
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
	"call ids altered": items("", changeMember("call_id", func(s string) string { return "mine_" + s[len(s)-12:] })),
}

// playPair leads a conversation of a client of any dialect, while the backend switches between vendorsOfPairs.
func (m *mangled) playPair(dialect string) {
	m.conversations++
	c, settings := m.front.anyClient(dialect, "claude-opus-4-8")
	settings.within(fmt.Sprintf("%s.%d.%d", dialect, m.conversations, m.r.Uint32()))
	settings.keeps = dialect == "responses"
	replay{m.kind.damage, chatDamages[m.name], itemMangles[m.name]}.apply(c)
	model := &randomModel{chooser: m.r}
	for turn := range 2 + m.r.IntN(3) {
		c.question(fmt.Sprintf("question %d of %d", turn, m.conversations))
		for rounds, calls := m.r.IntN(4), 1; calls > 0; rounds-- {
			if m.r.IntN(3) == 0 {
				m.active = pick(m.r, vendorsOfPairs...).name
				m.front.use(m.active)
			}
			m.world.vendors[m.active].Queue(model.answer(rounds <= 0))
			settings.stream = m.r.IntN(2) == 0
			m.call(func() { calls, _ = c.round() })
		}
	}
}

// vendorsOfPairs has one vendor per dialect.
var vendorsOfPairs = []backendCase{claude.told(budgeted), gpt, deepSeekChat, google}

// A client of any dialect may replay its history in any way while its model moves between vendors of four dialects in
// tool loops. The conversation must continue.
func TestConformanceMangledPairs(t *testing.T) {
	conversations, seed := manyConversations(t, 7)
	kinds := map[string][]string{
		"chat":      slices.Sorted(maps.Keys(chatDamages)),
		"responses": slices.Sorted(maps.Keys(itemMangles)),
		"messages": slices.DeleteFunc(slices.Sorted(maps.Keys(mangles)), func(name string) bool {
			return mangles[name].turn != nil || mangles[name].loses
		}),
	}
	redis := redistest.Start(t)
	for i, dialect := range all3 {
		each := (conversations + 3*len(kinds[dialect]) - 1) / (3 * len(kinds[dialect]))
		for j, mangle := range kinds[dialect] {
			t.Run(dialect+", "+mangle, func(t *testing.T) {
				t.Parallel()
				m := newMangled(t, mangle, redis, seed, uint64(1000*i+j), vendorsOfPairs...)
				for m.conversations < each {
					m.playPair(dialect)
				}
				m.finish()
			})
		}
	}
}
