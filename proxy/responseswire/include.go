package responseswire

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// WithEncrypted is a request of this dialect that asks for encrypted reasoning if its answer is not stored: without it
// nothing could give the vendor back what its model thought. It is body itself where the client asks for that.
func WithEncrypted(body []byte) ([]byte, error) {
	values := gjson.GetManyBytes(body, "store", "include")
	listed := values[1].IsArray()
	if values[0].Type != gjson.False || values[1].Exists() && !listed && values[1].Type != gjson.Null ||
		listed && slices.ContainsFunc(values[1].Array(), isEncrypted) {
		return body, nil
	}
	o, err := wire.ReadOutline(body)
	if err != nil {
		return nil, err
	}
	var list []jsontext.Value
	for _, v := range values[1].Array() {
		list = append(list, jsontext.Value(v.Raw))
	}
	var e wire.Edits
	e.Set(o.Members, "include", wire.Array(append(list, wire.Quote(encryptedReasoning))))
	return e.Apply(body), nil
}

// WithoutEncrypted is a request that does not ask for encrypted reasoning, which models refuse that do not reason.
func WithoutEncrypted(o *wire.Outline) []byte {
	var e wire.Edits
	spans := o.Elements(o.Members.Get("include"))
	other := func(s wire.Span) bool { return !isEncrypted(gjson.ParseBytes(o.Raw(s))) }
	if slices.ContainsFunc(spans, other) {
		e.Keep(spans, func(i int) bool { return other(spans[i]) })
	} else {
		e.RemoveMembers(o.Members, "include")
	}
	return e.Apply(o.Body)
}

func isEncrypted(v gjson.Result) bool { return v.Str == encryptedReasoning }
