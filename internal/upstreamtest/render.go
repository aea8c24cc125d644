package upstreamtest

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object while it is written: the empty one is ready, end ends
// it. Answers are written by hand, so that they share no fault with the code
// under test.
type object []byte

func (o object) raw(name string, value []byte) object {
	if len(o) == 0 {
		o = append(o, '{')
	} else {
		o = append(o, ',')
	}
	return append(append(append(o, quoted(name)...), ':'), value...)
}

func (o object) text(name, s string) object { return o.raw(name, quoted(s)) }

func (o object) number(name string, n int) object {
	return o.raw(name, strconv.AppendInt(nil, int64(n), 10))
}

func (o object) end() []byte {
	if len(o) == 0 {
		return []byte("{}")
	}
	return append(o, '}')
}

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

// pieces cuts s into parts of n characters; an empty s has none.
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
