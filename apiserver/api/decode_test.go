package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// encoding/json accepts a name in any case, and the last of two members. Some parsers read the first one.
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
		`{"answers":[{"decision":"a"},{"DECISION":"b"}]}`: `no member "answers.1.DECISION"; the nearest one is decision`,
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
		`{"message":"cut inside a surrogate pair \ud83d"}`,
	} {
		require.NoError(t, decode(text), text)
	}
}

func TestUnmarshalKnownRejectsUnknownMembersOfTheObject(t *testing.T) {
	type body struct {
		OnBusy string       `json:"on_busy"`
		Tools  []ClientTool `json:"tools"`
	}
	for text, want := range map[string]string{
		`{"on_bussy":"queue"}`:                           `no member "on_bussy"; the nearest one is on_busy`,
		`{"ON_BUSY":"queue"}`:                            `no member "ON_BUSY"; the nearest one is on_busy`,
		`{"colour":"red"}`:                               `no member "colour"; there are on_busy, tools`,
		`{"tools":[{"strict":true}],"on_bussy":"queue"}`: `no member "on_bussy"`,
		`{"tools":[{"name":5}]}`:                         "tools.0.name must be a string, not a number",
		`[1]`:                                            "must be a JSON object, not an array",
	} {
		require.ErrorContains(t, UnmarshalKnown([]byte(text), new(body)), want, text)
	}
	var b body
	require.NoError(t, UnmarshalKnown([]byte(`{"on_busy":"queue","tools":[{"name":"a","strict":true}]}`), &b))
	require.Equal(t, "queue", b.OnBusy)
	require.Equal(t, "a", b.Tools[0].Name, "an object inside may have unknown members")
}

func TestDecodeRunAcceptsStoredMessages(t *testing.T) {
	decode := func(text string) (RunRequest, error) {
		return DecodeRun(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(text)), 1<<20)
	}
	message := `{"role":"user","role":"user","content":"cut \ud83d"}`
	run, err := decode(`{"context":[` + message + `]}`)
	require.NoError(t, err)
	require.Equal(t, message, string(run.Context[0]))
	_, err = decode(`{"context":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`)
	require.ErrorContains(t, err, "nested more than 256 deep")
}
