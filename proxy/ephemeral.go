package proxy

import (
	"errors"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// ephemeralHeader says how many content parts at the front of the newest user message
// belong to this request alone, such as what the client's memory recalled for it. They
// are sent, and neither compared nor stored: no later request has them.
const ephemeralHeader = "X-Ag-Ephemeral-Parts"

const maxEphemeral = 16

// ephemeral are the parts of a request that belong to it alone.
type ephemeral struct {
	parts      []jsontext.Value // in the dialect that the request is in
	full, bare *wire.Outline    // the request as it was named, with them and without
}

// print tells parts from others; empty for none.
func (e ephemeral) print() string { return ledger.PartsPrint(e.parts) }

// takeEphemeral takes out what the request alone has. From here until it is put back the
// request is the one that a client without such parts would have sent.
func (x *scopedRequest) takeEphemeral() error {
	values := x.in.header[ephemeralHeader]
	if len(values) == 0 {
		return nil
	}
	bad := func(why string) error {
		return wire.Failure{Status: 400, Message: "X-AG-Ephemeral-Parts must be the number of content parts, 1 to 16, " +
			"at the front of the newest user message, with more behind them: " + why}
	}
	n, err := strconv.Atoi(values[0])
	if err != nil || len(values) > 1 || n < 1 || n > maxEphemeral || values[0] != strconv.Itoa(n) {
		return bad("it is no such number")
	}
	bare, parts, err := x.outline.TakeEphemeral(n)
	switch {
	case errors.Is(err, wire.ErrBadJSON):
		return err
	case err != nil:
		return bad(err.Error())
	}
	x.ephemeral = ephemeral{parts, x.outline, bare}
	x.outline = bare
	return nil
}

// translated are the parts in the other dialect.
func (e ephemeral) translated(x scopedRequest) (ephemeral, error) {
	var out []jsontext.Value
	for _, p := range e.parts {
		if text := gjson.GetBytes(p, "text"); text.Type == gjson.String && text.Str == "" {
			continue
		}
		body := slices.Concat([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[`), p, []byte("]}]}"))
		translate := chatwire.MessagesRequest
		if x.backend.dialect == wire.Chat {
			translate = chatwire.ChatRequest
		}
		t, err := translate(body, chatwire.Options{})
		if err != nil {
			return e, err
		}
		o, err := wire.ReadOutline(t.Body)
		if err != nil {
			return e, err
		}
		for i := range o.Messages {
			m := &o.Messages[i]
			if text := o.Raw(m.Content); text.Kind() == '"' {
				out = append(out, slices.Concat([]byte(`{"type":"text","text":`), text, []byte("}")))
			}
			for _, b := range m.Blocks {
				out = append(out, o.Raw(b.Span))
			}
		}
	}
	e.parts = out
	return e, nil
}

// withEphemeral puts back what the request alone has, into the request that says what
// its conversation was. One that is as it came gets its own bytes.
func (x resolvedRequest) withEphemeral() (resolvedRequest, error) {
	if len(x.ephemeral.parts) == 0 {
		return x, nil
	}
	if x.outline == x.ephemeral.bare {
		x.outline = x.ephemeral.full
		return x, nil
	}
	var err error
	x.outline, err = x.outline.PutEphemeral(x.ephemeral.parts)
	return x, err
}
