package responseswire

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// maxID is the longest id of an item that vendors take, in bytes.
const maxID = 64

// prefixes begin the ids of items, by type.
var prefixes = map[string]string{reasoningItem: "rs", messageItem: "msg", callItem: "fc", customItem: "ctc"}

// mend makes the items of an input keep the vendors' rules; those that do keep their bytes. Reasoning goes that
// cannot be read (unless it is stored at the vendor) or that nothing follows, and with it the ids of what followed it
// in the same turn, since vendors refuse one without the other. Ids are unique.
func mend(in []jsontext.Value, stored bool) []jsontext.Value {
	out := make([]jsontext.Value, 0, len(in))
	ids := map[string]bool{}
	dropped := false // reasoning of this turn
	for _, v := range in {
		kind, id := kindOf(v), gjson.GetBytes(v, "id").Str
		var drop []string
		if id != "" && (ids[id] || len(id) > maxID || !strings.HasPrefix(id, prefixes[kind])) {
			drop = append(drop, "id")
		}
		switch {
		case kind == reasoningItem:
			if ids[id] && id != "" || !readable(v, stored) {
				dropped = true
				continue
			}
			v, drop = mendReasoning(v, drop)
		case !answered(v):
			dropped = false
		case dropped && prefixes[kind] != "":
			drop = append(drop, "id")
		}
		if v = wire.Without(v, drop...); id != "" && len(drop) == 0 {
			ids[id] = true
		}
		out = append(out, v)
	}
	return followed(out)
}

// readable reports whether the vendor can read reasoning.
func readable(v jsontext.Value, stored bool) bool {
	return stored || gjson.GetBytes(v, "encrypted_content").Str != "" || len(gjson.GetBytes(v, "content").Array()) > 0
}

// mendReasoning has a list of summaries in reasoning, and adds to drop what may not be there.
func mendReasoning(v jsontext.Value, drop []string) (jsontext.Value, []string) {
	for _, name := range []string{"status", "content"} {
		value := gjson.GetBytes(v, name)
		if value.Exists() && (name == "status" || gjson.GetBytes(v, "encrypted_content").Str != "" &&
			len(value.Array()) > 0) {
			drop = append(drop, name)
		}
	}
	if !gjson.GetBytes(v, "summary").IsArray() {
		v = slices.Concat([]byte(`{"summary":[],`), wire.Without(v, "summary")[1:])
	}
	return v, drop
}

// followed leaves out reasoning that nothing of the model's follows, and then the ids before it in that turn may stay.
func followed(in []jsontext.Value) []jsontext.Value {
	out := make([]jsontext.Value, 0, len(in))
	for i, v := range in {
		next := i + 1
		for next < len(in) && kindOf(in[next]) == reasoningItem {
			next++
		}
		if kindOf(v) != reasoningItem || next < len(in) && answered(in[next]) {
			out = append(out, v)
		}
	}
	return out
}

// answered reports whether an item is the model's.
func answered(v jsontext.Value) bool {
	kind := kindOf(v)
	return kind == messageItem && gjson.GetBytes(v, "role").Str == "assistant" ||
		kind != messageItem && !strings.HasSuffix(kind, "_output") && kind != "compaction"
}

func kindOf(v jsontext.Value) string { return cmp.Or(gjson.GetBytes(v, "type").Str, messageItem) }
