package redisstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// entryVersion is of the JSON below. An entry with another one is passed over.
const entryVersion = 1

// entryJSON is an entry without its content.
type entryJSON struct {
	V       int          `json:"v"`
	At      int64        `json:"at"` // Unix µs
	Backend string       `json:"backend"`
	Vendor  string       `json:"vendor,omitzero"`
	Model   string       `json:"model"`
	Dialect wire.Dialect `json:"dialect,omitzero"`

	Tools       []toolJSON `json:"tools,omitempty"`
	Predecessor string     `json:"predecessor,omitzero"`
	Context     string     `json:"context,omitzero"`
	Asked       string     `json:"asked,omitzero"`
	Cut         bool       `json:"cut,omitzero"`
	Place       *placeJSON `json:"place,omitzero"`
	Keys        []string   `json:"keys,omitempty"`

	Response *responseJSON `json:"response,omitzero"`

	Refused []string `json:"refused,omitempty"`
}

// placeJSON is a turn's place in its conversation's tree, without its input.
type placeJSON struct {
	Parent string `json:"parent,omitzero"`
	Depth  int    `json:"depth,omitzero"`
	Front  int    `json:"front,omitzero"`

	Ephemeral string `json:"ephemeral,omitzero"`
}

// responseJSON is a stored response.
type responseJSON struct {
	ID       string         `json:"id"`
	Previous string         `json:"previous,omitzero"`
	Own      int            `json:"own,omitzero"`
	Input    jsontext.Value `json:"input"`
	Body     jsontext.Value `json:"body"`
}

type toolJSON struct {
	Vendor string `json:"vendor"`
	Client string `json:"client"`
}

// Members that are not in entryJSON.
const (
	contentMember = "content"
	inputMember   = "input" // of a turn with a place: the messages that it answers
)

// encodeEntry puts content and input behind the rest as they are: an encoder would
// write them in its own way.
func encodeEntry(e ledger.Entry) ([]byte, error) {
	j := entryJSON{V: entryVersion, At: e.At.UnixMicro(), Keys: e.Keys, Refused: e.Refused, Backend: e.By.Backend,
		Model: e.By.Model}
	if t := e.Turn; t != nil {
		j.Backend, j.Vendor, j.Model, j.Dialect = t.Origin.Backend, t.Origin.Vendor, t.Origin.Model, t.Dialect
		j.Predecessor, j.Context, j.Asked, j.Cut = t.Predecessor, t.Context, t.Asked, t.Cut
		for _, id := range t.Tools {
			j.Tools = append(j.Tools, toolJSON(id))
		}
		if r := t.Response; r != nil {
			j.Response = &responseJSON{r.ID, r.Previous, r.Own, r.Input, r.Body}
		}
	}
	var input []byte
	if e.Turn != nil && e.Turn.Place != nil {
		p := e.Turn.Place
		j.Place = &placeJSON{p.Parent, p.Depth, p.Front, p.Ephemeral}
		input = slices.Concat([]byte(`,"`+inputMember+`":`), p.Input)
	}
	b, err := wire.Marshal(j)
	if err != nil || e.Turn == nil {
		return b, err
	}
	return slices.Concat(b[:len(b)-1], input, []byte(`,"`+contentMember+`":`), e.Turn.Content, []byte("}")), nil
}

// decodeEntries reads what is stored; what cannot be read is passed over, since
// another version may have written it.
func decodeEntries(s ledger.Scope, stored []string) []ledger.Entry {
	var entries []ledger.Entry
	for _, text := range stored {
		if e, err := decodeEntry(s, []byte(text)); err == nil {
			entries = append(entries, e)
		}
	}
	return entries
}

func decodeEntry(s ledger.Scope, b []byte) (ledger.Entry, error) {
	spans, err := wire.Members(b, contentMember, inputMember)
	if err != nil {
		return ledger.Entry{}, err
	}
	var j entryJSON
	if err := wire.Unmarshal(b, &j); err != nil {
		return ledger.Entry{}, err
	}
	if j.V != entryVersion {
		return ledger.Entry{}, fmt.Errorf("an entry of version %d", j.V)
	}
	origin := ledger.Origin{Backend: j.Backend, Vendor: j.Vendor, Model: j.Model}
	e := ledger.Entry{Scope: s, At: time.UnixMicro(j.At), Keys: j.Keys}
	if !spans[0].Found() {
		e.By, e.Refused = origin, j.Refused
		return e, nil
	}
	e.Turn = &ledger.Turn{
		Scope: s, Origin: origin, Dialect: j.Dialect, Content: b[spans[0].Start:spans[0].End],
		Predecessor: j.Predecessor, Context: j.Context, Asked: j.Asked, Cut: j.Cut, At: e.At,
	}
	if p := j.Place; p != nil && spans[1].Found() {
		e.Turn.Place = &ledger.Place{
			Parent: p.Parent, Depth: p.Depth, Front: p.Front, Ephemeral: p.Ephemeral, Input: b[spans[1].Start:spans[1].End],
		}
	}
	if r := j.Response; r != nil {
		e.Turn.Response = &ledger.Response{ID: r.ID, Previous: r.Previous, Own: r.Own, Input: r.Input, Body: r.Body}
	}
	for _, id := range j.Tools {
		e.Turn.Tools = append(e.Turn.Tools, ledger.ToolID(id))
	}
	return e, nil
}
