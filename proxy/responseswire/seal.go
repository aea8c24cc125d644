package responseswire

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// tail is what the last block of an answered turn holds, a thinking block without a text: what the items behind the
// reasoning say beyond their blocks. It is thinking, so that it goes and comes back with the reasoning.
type tail struct {
	Thoughts int        `json:"thoughts"` // reasoning items in the turn
	Blocks   int        `json:"blocks"`   // of the turn, without the tail
	Items    []tailItem `json:"items"`
}

// tailItem is an item without what its block says.
type tailItem struct {
	Index int            `json:"at"` // index of its block
	Is    jsontext.Value `json:"is"`
}

// said are the members of an item that its block has, and the status, which vendors refuse in an input.
var blockMembers = []string{"arguments", "call_id", "content", "input", "status"}

// plainMembers are those that translation writes by itself; an id alone is worth nothing without reasoning.
var plainMembers = []string{"id", "name", "role", "type"}

// add takes an item with a block of the index at.
func (t *tail) add(index int, raw string) {
	names := slices.Clone(blockMembers)
	gjson.Parse(raw).ForEach(func(name, value gjson.Result) bool {
		if value.Type == gjson.Null {
			names = append(names, name.Str)
		}
		return true
	})
	t.Items = append(t.Items, tailItem{Index: index, Is: wire.Without([]byte(raw), names...)})
}

// signature seals the tail of a turn of so many blocks; it is empty if nothing in it is worth keeping.
func (t *tail) signature(blocks int) string {
	worth := t.Thoughts > 0
	for _, it := range t.Items {
		gjson.ParseBytes(it.Is).ForEach(func(name, value gjson.Result) bool {
			worth = worth || !slices.Contains(plainMembers, name.Str) || name.Str == "type" && value.Str == customItem
			return !worth
		})
	}
	if !worth || len(t.Items) == 0 {
		return ""
	}
	t.Blocks = blocks
	v, err := wire.Marshal(t)
	if err != nil { // what is in it was JSON before
		return ""
	}
	return wire.Seal(v)
}

// readTail is the tail that a block holds; ok is false for any other block.
func readTail(b wire.Block) (t tail, ok bool) {
	if b.Type != wire.ThinkingBlock || b.Thinking != "" {
		return t, false
	}
	v, ok := wire.Unseal(b.Signature)
	return t, ok && gjson.GetBytes(v, "type").Str == "" && wire.Unmarshal(v, &t) == nil
}
