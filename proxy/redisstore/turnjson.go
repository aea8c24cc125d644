package redisstore

import (
	"fmt"
	"slices"
	"time"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// entryVersion is of the JSON below. An entry with another one is passed over.
const entryVersion = 1

// entryJSON is an entry without its content.
type entryJSON struct {
	V         int          `json:"v"`
	Timestamp int64        `json:"at"` // Unix µs
	Backend   string       `json:"backend"`
	Vendor    string       `json:"vendor,omitzero"`
	Model     string       `json:"model"`
	Dialect   wire.Dialect `json:"dialect,omitzero"`

	Tools       []ledger.ToolID `json:"tools,omitempty"`
	Predecessor string          `json:"predecessor,omitzero"`
	Context     string          `json:"context,omitzero"`
	ResponseID  string          `json:"asked,omitzero"`
	Cut         bool            `json:"cut,omitzero"`
	Place       *ledger.Place   `json:"place,omitzero"`
	Keys        []string        `json:"keys,omitempty"`

	Response *ledger.Response `json:"response,omitzero"`

	Refused []string `json:"refused,omitempty"`
}

// Members that are not in entryJSON.
const (
	contentMember = "content"
	inputMember   = "input" // of a turn with a place: the messages that it answers
)

// encodeEntry puts content and input behind the rest as they are: an encoder would
// write them in its own way.
func encodeEntry(e ledger.Entry) ([]byte, error) {
	j := entryJSON{V: entryVersion, Timestamp: e.Time.UnixMicro(), Keys: e.Keys, Refused: e.Refused,
		Backend: e.Origin.Backend, Model: e.Origin.Model}
	if t := e.Turn; t != nil {
		j.Backend, j.Vendor, j.Model, j.Dialect = t.Origin.Backend, t.Origin.Vendor, t.Origin.Model, t.Dialect
		j.Predecessor, j.Context, j.ResponseID, j.Cut = t.Predecessor, t.Context, t.ResponseID, t.Cut
		j.Tools, j.Place, j.Response = t.Tools, t.Place, t.Response
	}
	var input []byte
	if j.Place != nil {
		input = slices.Concat([]byte(`,"`+inputMember+`":`), j.Place.Input)
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
	e := ledger.Entry{Scope: s, Time: time.UnixMicro(j.Timestamp), Keys: j.Keys}
	if !spans[0].Exists() {
		e.Origin, e.Refused = origin, j.Refused
		return e, nil
	}
	e.Turn = &ledger.Turn{
		Scope: s, Origin: origin, Dialect: j.Dialect, Content: b[spans[0].Start:spans[0].End],
		Predecessor: j.Predecessor, Context: j.Context, ResponseID: j.ResponseID, Cut: j.Cut, Time: e.Time,
		Tools: j.Tools, Response: j.Response,
	}
	if spans[1].Exists() && j.Place != nil {
		e.Turn.Place = j.Place
		e.Turn.Place.Input = b[spans[1].Start:spans[1].End]
	}
	return e, nil
}
