package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// scanned are values of all kinds, and what is none.
var scanned = []string{
	``, ` `, `{}`, `[]`, ` [ ] `, `null`, `true`, `false`, `nul`, `tru e`, `nulll`, `0`, `-0`, `01`, `-`, `1.`, `1.5`,
	`.5`, `1e5`, `1E+05`, `1e`, `1e+`,
	`-12.25e-3,`, `1x`, `""`, `"`, `"a`, `"a\"b"`, `"\u00e9\ud83d"`, `"\u12"`, `"\u12g4"`, `"\x"`, `"\`, "\"\n\"",
	"\"\x7f\"", "\"\xff\xfe\"",
	`"Привет, мир: долгая строка"`, "\"eight by\x1f\"", "\"a quote after more than eight bytes\"",
	`{"a":1,"b":[true,{"c":null}]}`, `{"a":1,}`,
	`{,}`, `{"a"}`, `{"a":}`, `{"a" : 1 , "a" : 2 }`, `{a:1}`, `[1,2,]`, `[,1]`, `[1 2]`, `[1}`, `{"a":1]`, `[[[]]]`,
	"\ufeff{}", "{\x00}", "[1]\x00",
	"[1,\f2]", strings.Repeat("[", 40) + strings.Repeat("]", 40),
}

func FuzzScanner(f *testing.F) {
	for _, s := range scanned {
		f.Add([]byte(s))
	}
	f.Add([]byte(outlined))
	f.Fuzz(func(t *testing.T, body []byte) { requireAsJSONText(t, body) })
}

// requireAsJSONText checks that the spans of a value and its parts are those of jsontext, also behind other bytes.
func requireAsJSONText(t *testing.T, body []byte) {
	r := outline(body, 0)
	defer r.done()
	got, failure := r.value()
	d := jsontext.NewDecoder(bytes.NewReader(body), lenient)
	v, err := d.ReadValue()
	if err != nil {
		require.Error(t, failure, "%s: %v", body, err)
		return
	}
	require.NoError(t, failure, "%s", body)
	end := int(d.InputOffset())
	require.Equal(t, Span{end - len(v), end}, got, "%s", body)

	o := &Outline{Body: body}
	names, values := partsOf(t, body, got)
	switch v.Kind() {
	case '[':
		require.Equal(t, values, o.Elements(got), "%s", body)
		require.Nil(t, o.Object(got))
	case '{':
		members := o.Object(got)
		require.NotNil(t, members)
		require.Len(t, members, len(values))
		for i, m := range members {
			require.Equal(t, names[i], m.Key)
			require.Equal(t, values[i], m.Value)
			name, _ := jsontext.AppendUnquote(nil, body[names[i].Start:names[i].End])
			require.Equal(t, string(name), m.Name)
		}
	default:
		require.Nil(t, o.Object(got))
		require.Nil(t, o.Elements(got))
	}
}

// partsOf are the elements of the array at a span, or the names and values of the
// object, as jsontext reads them; none for any other value.
func partsOf(t *testing.T, body []byte, at Span) (names, values []Span) {
	if c := body[at.Start]; c != '[' && c != '{' {
		return nil, nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(body[at.Start:at.End]), lenient)
	object := d.PeekKind() == '{'
	_, err := d.ReadToken()
	require.NoError(t, err)
	for n := 0; d.PeekKind() != ']' && d.PeekKind() != '}'; n++ {
		v, err := d.ReadValue()
		require.NoError(t, err)
		end := at.Start + int(d.InputOffset())
		span := Span{end - len(v), end}
		if object && n%2 == 0 {
			names = append(names, span)
		} else {
			values = append(values, span)
		}
	}
	return names, values
}
