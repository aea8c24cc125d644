package panel

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// words accepts any, and keeps them.
func words(into *string) func(text string) (string, error) {
	return func(text string) (string, error) {
		text = clip(strings.TrimSpace(text), maxPassed)
		if text == "" {
			return "", malformed("answer in words; there are no tools here")
		}
		*into = text
		return text, nil
	}
}

// fenced is an object in a fence of Markdown, which many models put around JSON
// whatever they are told.
var fenced = regexp.MustCompile("(?s)^```(?:json)?\\s*(\\{.*\\})\\s*```$")

// parse reads a text that is one JSON object, alone or in a fence, with no member
// that v does not have and none twice.
func parse(text string, v any) error {
	text = strings.TrimSpace(text)
	if m := fenced.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	return json.Unmarshal([]byte(text), v, json.RejectUnknownMembers(true))
}

// material is what a member is to judge, as JSON: whatever a text in it says, it
// cannot pass for another part of the prompt.
func material(v any) string {
	var b bytes.Buffer
	if err := json.MarshalWrite(&b, v, jsontext.WithIndent("  "), jsontext.AllowInvalidUTF8(true)); err != nil {
		panic("panel: " + err.Error()) // only strings, and lists and structs of them
	}
	return b.String()
}
