package jsonbound_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/access/jsonbound"
)

func TestWhatIsCounted(t *testing.T) {
	for text, fits := range map[string]bool{
		`{}`:                           true,
		`{"a":[1,2,3]}`:                true, // two brackets, two commas
		`{"a":[1,2,3,4]}`:              false,
		`[[[]]]`:                       true,
		`[[[[]]]]`:                     false, // too deep
		`{"a":"[[[[[[,,,,,,{{{{{{"}`:   true,
		`{"a":"\"[[[[[[,,,,,,{{{{{{"}`: true,
		`{"a":"\\","b":[[[1]]]}`:       false, // the string ends behind its backslash
		`{"a":"\\\"[[[[[[,,,,,,"}`:     true,
		`{"a":"no end [[[[[`:           true, // which the decoder refuses
		` [ 1 , 2 , 3 , 4 ] `:          true,
		` [ 1 , 2 , 3 , 4 , 5 ] `:      false,
		"":                             true,
		`[{},{}]`:                      true,
		`[{},{},{}]`:                   false,
		`{"a":"` + strings.Repeat(`\"`, 100) + `[[[[[[["}`: true,
	} {
		err := jsonbound.Check([]byte(text), 3, 4)
		if fits {
			require.NoError(t, err, text)
		} else {
			require.Error(t, err, text)
		}
	}
	deep := new(jsonbound.Refusal)
	require.ErrorAs(t, jsonbound.Check([]byte(`[[`), 1, 9), &deep)
	require.Equal(t, http.StatusBadRequest, deep.Status)
	require.ErrorAs(t, jsonbound.Check([]byte(`[1,2`), 1, 1), &deep)
	require.Equal(t, http.StatusRequestEntityTooLarge, deep.Status)
}

// FuzzCheck compares with a decoder that makes all values.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\\",{"b":"\""}]}`, `[[],{},"[",",",null]`, `"x"`, `{"\"":{"{":1,",":2}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return
		}
		depth, members := measured(v)
		require.NoError(t, jsonbound.Check([]byte(text), depth, 2*len(text)))
		if depth > 0 {
			require.Error(t, jsonbound.Check([]byte(text), depth-1, 2*len(text)))
		}
		if members > 0 {
			require.Error(t, jsonbound.Check([]byte(text), depth, members-1))
		}
	})
}

func measured(v any) (depth, members int) {
	var parts []any
	switch v := v.(type) {
	case []any:
		parts = v
	case map[string]any:
		for _, one := range v {
			parts = append(parts, one)
		}
	default:
		return 0, 0
	}
	for _, one := range parts {
		d, m := measured(one)
		depth, members = max(depth, d), members+m
	}
	return depth + 1, members + len(parts)
}

func BenchmarkCheck(b *testing.B) {
	for name, text := range map[string]string{
		"small": `{"model":"m","messages":[{"role":"user","content":"Which month sold the most, and why?"}],"stream":true}`,
		"text":  `{"content":"` + strings.Repeat(`A line of a program.\n`, 50_000) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			body := []byte(text)
			for b.Loop() {
				_ = jsonbound.Check(body, jsonbound.Depth, jsonbound.Transcript)
			}
		})
	}
}
