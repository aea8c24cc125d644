package thinking

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// growing is a JSON object that a stream sends in pieces. Its members are in the order in which
// they first came, as the vendor would have sent them.
type growing []grown

// grown is one member. It has either a value, or text that is still growing.
type grown struct {
	name  string
	value jsontext.Value
	text  []byte // the inside of a JSON string, in raw form
}

// member is the member with a name, which is added with the value null if there is none.
func (g *growing) member(name string) *grown {
	i := slices.IndexFunc(*g, func(m grown) bool { return m.name == name })
	if i < 0 {
		i = len(*g)
		*g = append(*g, grown{name: name, value: jsontext.Value("null")})
	}
	return &(*g)[i]
}

// set gives a member a value. An empty one (null or "") does not overwrite what came before.
func (g *growing) set(name string, v jsontext.Value) {
	m := g.member(name)
	if empty := v.Kind() == 'n' || string(v) == `""`; !empty || len(m.text) == 0 && m.value.Kind() == 'n' {
		m.value, m.text = v.Clone(), nil
	}
}

// add appends a piece to a member's string.
func (g *growing) add(name string, v jsontext.Value) {
	m := g.member(name)
	if v.Kind() != '"' {
		if v.Kind() != 'n' {
			g.set(name, v)
		}
		return
	}
	if m.value != nil {
		m.text = append(m.text, inner(m.value)...)
		m.value = nil
	}
	m.text = append(m.text, inner(v)...)
}

// text is a member's string as far as it came; "" if there is none.
func (g *growing) text(name string) string {
	for _, m := range *g {
		if m.name == name {
			return gjson.Parse(string(m.json())).Str
		}
	}
	return ""
}

func (m grown) json() jsontext.Value {
	if m.value != nil {
		return m.value
	}
	return slices.Concat([]byte(`"`), m.text, []byte(`"`))
}

// json is the object put together.
func (g growing) json() jsontext.Value {
	size := len("{}")
	for _, m := range g {
		size += len(m.name) + len(m.value) + len(m.text) + len(`"":"",`)
	}
	out := append(make([]byte, 0, size), '{')
	for i, m := range g {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, wire.Quote(m.name)...), ':'), m.json()...)
	}
	return append(out, '}')
}

// pieces is an array of objects that come in pieces, as in reasoning_details and thinking_blocks.
type pieces []*piece

// piece is one object of the array, with the fields by which later pieces find it.
type piece struct {
	index string // raw; "" if the vendor gave none
	kind  string
	id    string
	growing
}

// growingText are the members of a piece that come in several parts and are joined.
var growingText = []string{"text", "summary", "data", "thinking"}

// add takes a piece: it continues an open object or begins a new one.
func (p *pieces) add(o *wire.Outline, span wire.Span) {
	members := o.Object(span)
	next := piece{index: string(o.Raw(members.Get("index")))}
	next.kind, _ = o.Text(members.Get("type"))
	next.id, _ = o.Text(members.Get("id"))
	target := p.open(next)
	if target == nil {
		target = &next
		*p = append(*p, target)
	}
	target.id = cmp.Or(target.id, next.id)
	for _, m := range members {
		if slices.Contains(growingText, m.Name) {
			target.growing.add(m.Name, o.Raw(m.Value))
		} else {
			target.set(m.Name, o.Raw(m.Value))
		}
	}
}

// open finds the object that a piece continues: the one with the same index, type and id; among
// those without an index the last one, until that has its signature.
func (p *pieces) open(next piece) *piece {
	for _, q := range slices.Backward(*p) {
		same := q.index == next.index && q.kind == next.kind && (q.id == next.id || q.id == "" || next.id == "")
		if next.index != "" && same {
			return q
		}
		if next.index == "" {
			if same && q.kind != wire.RedactedBlock && q.text(signatureKey) == "" {
				return q
			}
			return nil
		}
	}
	return nil
}

func (p pieces) json() jsontext.Value {
	values := make([]jsontext.Value, len(p))
	for i, q := range p {
		values[i] = q.growing.json()
	}
	return wire.Array(values)
}
