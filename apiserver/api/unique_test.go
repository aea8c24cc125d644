package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A member counts under its exact name alone: encoding/json would take another spelling of it, too, and one part of a
// program the first of two members, another the second.
func TestNamesOfMembersAreExact(t *testing.T) {
	type inner struct {
		Decision string `json:"decision"`
	}
	type embedded struct {
		Size int `json:"size"`
	}
	type body struct {
		embedded
		Message string           `json:"message"`
		Answers []*inner         `json:"answers,omitempty"`
		Named   map[string]inner `json:"named"`
		Meta    Metadata         `json:"meta"`
		Skipped string           `json:"-"`
	}
	decode := func(text string) error {
		return DecodeBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(text)), 1000, new(body))
	}
	for text, want := range map[string]string{
		`{"Message":"x"}`:               `no member "Message"; the nearest one is message`,
		`{"meſſage":"x"}`:               `no member "meſſage"; the nearest one is message`,
		`{"message":"x","MESSAGE":"y"}`: `no member "MESSAGE"; the nearest one is message`,
		`{"SIZE":1}`:                    `no member "SIZE"`,
		`{"answers":[{"decision":"a"},{"DECISION":"b"}]}`: `no member "answers.DECISION"; the nearest one is decision`,
		`{"named":{"A":{"Decision":"b"}}}`:                `no member "named.A.Decision"`,
		`{"message":"x","message":"y"}`:                   `has the member "message" twice`,
		"{\"message\":\"\xff\"}":                          "not valid UTF-8",
		"{\"message\":\"x\"} \xc3\x28":                    "not valid JSON",
	} {
		err := decode(text)
		require.ErrorContains(t, err, want, text)
		var p *Problem
		require.ErrorAs(t, err, &p)
		require.Equal(t, 400, p.Status)
	}
	for _, text := range []string{
		`{"message":"Message","answers":[{"decision":"a"},null],"size":1,"named":{"A":{},"a":{}},"meta":{"A":1,"a":2}}`,
		`{"other":{"Message":1},"answers":[{"more":[{"Decision":1}]}],"Skipped":"","-":1}`, `{"message":"é\ud83d\ude00"}`,
	} {
		require.NoError(t, decode(text), text)
	}
}
