package upstreamtest

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object. It is written without an encoder, so that answers share no fault with the code under test.
type object []byte

// obj returns an object of alternating names and values: strings, numbers, JSON, or nil for null.
func obj(pairs ...any) object { return object("{}").with(pairs...) }

// with returns o with more members.
func (o object) with(pairs ...any) object {
	o = o[:len(o)-1]
	for i := 0; i < len(pairs); i += 2 {
		if len(o) > 1 {
			o = append(o, ',')
		}
		o = append(append(o, quoted(pairs[i].(string))...), ':')
		switch value := pairs[i+1].(type) {
		case string:
			o = append(o, quoted(value)...)
		case int:
			o = strconv.AppendInt(o, int64(value), 10)
		case nil:
			o = append(o, "null"...)
		case []byte:
			o = append(o, value...)
		case object:
			o = append(o, value...)
		}
	}
	return append(o, '}')
}

// orNull returns nil for an empty string, else s.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

var emptyArray = []byte("[]")

func array[T ~[]byte](values []T) []byte {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

func quoted(s string) []byte {
	// The error only reports that broken UTF-8 was replaced.
	b, _ := jsontext.AppendQuote(nil, s)
	return b
}

// pieces splits s into parts of n characters. An empty s has none.
func pieces(s string, n int) []string {
	var out []string
	start, count := 0, 0
	for i := range s {
		if count == n {
			out = append(out, s[start:i])
			start, count = i, 0
		}
		count++
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}
