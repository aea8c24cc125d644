package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/wire"
)

func TestWithModelChangesNothingElse(t *testing.T) {
	for name, body := range map[string]string{
		"plain":          `{"model":"a","max_tokens":1}`,
		"spaces":         "\n { \"x\" : 1.0e+05 ,\t\"model\" :  \"a\"  , \"y\":[ ] }\r\n ",
		"escaped key":    `{"mod\u0065l":"a"}`,
		"unknown fields": `{"zeta":{"model":"inner"},"model":"a","alpha":[{"model":"other"}],"n":1e400,"deep":-0.0}`,
		"half surrogate": `{"model":"a","s":"\ud83d"}`,
		"doubled inside": `{"model":"a","input":{"k":1,"k":2}}`,
		"text with it":   `{"t":"\"model\":\"a\"","model":"a"}`,
	} {
		t.Run(name, func(t *testing.T) {
			before := strings.Clone(body)
			h, err := wire.ReadOutline([]byte(body))
			require.NoError(t, err)
			require.Equal(t, "a", h.Model)
			i := strings.LastIndex(body, `"a"`)
			want := body[:i] + `"b \"q\" я"` + body[i+3:]
			require.Equal(t, want, string(h.WithModel(`b "q" я`).Body))
			require.Equal(t, before, body)
		})
	}
}

func TestReadOutline(t *testing.T) {
	h, err := wire.ReadOutline([]byte(`{"model":"m","stream":true}`))
	require.NoError(t, err)
	require.True(t, h.Stream)
	h, err = wire.ReadOutline([]byte(`{"model":"m","stream":null}`))
	require.NoError(t, err)
	require.False(t, h.Stream)

	for body, says := range map[string]string{
		``:                               "is empty",
		`{`:                              "not valid JSON",
		`[1]`:                            "must be a JSON object",
		`{"model":"a"} x`:                "follows",
		`{"model":"a",}`:                 "not valid JSON at byte",
		`{}`:                             `"model" is missing`,
		`{"model":7}`:                    "non-empty string",
		`{"model":""}`:                   "non-empty string",
		`{"model":"a","stream":"yes"}`:   `"stream" must be`,
		`{"model":"a","model":"b"}`:      `"model" comes twice`,
		`{"model":"a","messages":[}`:     "not valid JSON",
		"{\"model\":\"a\",\"s\":\"\n\"}": "not valid JSON",
	} {
		_, err := wire.ReadOutline([]byte(body))
		require.ErrorIs(t, err, wire.ErrBadJSON, body)
		require.ErrorContains(t, err, says, body)
	}
}

func FuzzReadOutline(f *testing.F) {
	for _, s := range []string{`{"model":"a","stream":true}`, `{"a":{"model":1},"model":"\ud800"}`, `{`,
		`{"model":"a"}{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := wire.ReadOutline(body)
		if err != nil {
			require.ErrorIs(t, err, wire.ErrBadJSON)
			return
		}
		again, err := wire.ReadOutline(h.WithModel("other").Body)
		require.NoError(t, err)
		require.Equal(t, "other", again.Model)
		require.Equal(t, h.Stream, again.Stream)
	})
}

func TestFailureInBothDialects(t *testing.T) {
	f := wire.Failure{Status: 429, Message: "slow <down>"}
	require.JSONEq(t, `{"type":"error","error":{"type":"rate_limit_error","message":"slow <down>"}}`,
		string(f.Body(wire.Messages)))
	require.JSONEq(t, `{"error":{"type":"rate_limit_error","message":"slow <down>","code":"rate_limit_exceeded"}}`,
		string(f.Body(wire.Chat)))
	require.True(t, json.Valid(wire.Failure{Status: 599, Message: "\xff"}.Body(wire.Chat)))
	require.Equal(t, "event: error\ndata: "+string(f.Body(wire.Messages))+"\n\n", string(f.Frame(wire.Messages)))
}

func TestReadFailureFindsTheVendorsWords(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`: "Overloaded",
		`{"error":{"message":"bad key","type":"x","code":1210}}`:                      "bad key",
		`{"error":"just text"}`:               "just text",
		`{"message":"on top"}`:                "on top",
		`{"error":{"message":7},"message":1}`: `{"error":{"message":7},"message":1}`,
		`no JSON at all`:                      "no JSON at all",
		``:                                    "Bad Request",
	} {
		require.Equal(t, want, wire.ReadFailure(400, []byte(body)).Message, body)
	}
	for body, want := range map[string]int{
		`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`:                   529,
		`{"error":{"type":"server_error","message":"The server had an error","code":null}}`:    500,
		`{"error":{"type":"tokens","message":"x","code":"rate_limit_exceeded"}}`:               429,
		`{"error":{"type":"invalid_request_error","message":"x","code":"invalid_api_key"}}`:    401,
		`{"error":{"type":"invalid_request_error","message":"x","code":"insufficient_quota"}}`: 429,
		`{"error":{"code":503,"message":"The model is busy","status":"UNAVAILABLE"}}`:          503,
		`{"error":{"code":"429","message":"x"}}`:                                               429,
		`{"error":{"code":1210,"message":"x"}}`:                                                502,
		`{"error":{"message":"The engine is currently overloaded"}}`:                           529,
		`{"error":{"type":"odd","message":"x"}}`:                                               502,
	} {
		require.Equal(t, want, wire.ReadFailure(0, []byte(body)).Status, body)
	}
	long := wire.ReadFailure(500, []byte(strings.Repeat("я", 5000)))
	require.Less(t, len(long.Message), 3000)
}
