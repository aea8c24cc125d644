package proxy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// endingReports are the cases about the ends and the shapes of answers.
var endingReports = map[string]report{
	"count-404": {quotes: true, check: func(t *testing.T, _ []received, answers []answered) {
		require.Greater(t, gjson.Get(answers[0].body, "input_tokens").Int(), int64(100))
	}},
	"end-window-glm": {quotes: true, check: gets("stop_reason", `"model_context_window_exceeded"`)},
	"err-200-base":   {quotes: true, status: 429, check: gets("error.type", `"rate_limit_error"`)},
	"sse-empty-data": {quotes: true, check: func(t *testing.T, _ []received, answers []answered) {
		for _, a := range answers {
			require.NotRegexp(t, `(?m)^data: *$`, a.body)
			require.Contains(t, a.body, `"ok"`)
		}
	}},
	"sse-though-json": {quotes: true, check: func(t *testing.T, _ []received, answers []answered) {
		require.Equal(t, "ab", gjson.Get(answers[0].body, "content.0.text").Str)
		require.Equal(t, "ab", gjson.Get(answers[1].body, "choices.0.message.content").Str, answers[1].body)
	}},
	"tc-finish-endturn": {quotes: true, check: gets("choices.0.finish_reason", `"tool_calls"`)},
	"tc-index0-chat": {quotes: true, check: func(t *testing.T, _ []received, answers []answered) {
		require.Regexp(t, `(?s)"index": ?0, "id": "call_.*"index": ?1, "id": "call_`, answers[0].body)
	}},
	"tc-late-name": {quotes: true, check: func(t *testing.T, _ []received, answers []answered) {
		require.Contains(t, answers[0].body, `"name":"read_file","input":{}`)
		require.NotContains(t, answers[0].body, `"name":""`)
	}},
	"think-array": {quotes: true, check: func(t *testing.T, _ []received, answers []answered) {
		for _, piece := range []string{`"thinking":"hmm "`, `"thinking":"so"`, `"text":"An"`, `"text":"swer"`} {
			require.Contains(t, answers[0].body, piece)
		}
	}},
	"think-tags": {quotes: true, check: func(t *testing.T, accepted []received, answers []answered) {
		require.Equal(t, "true", gjson.Get(accepted[0].body, "reasoning_split").Raw, "asked for separate reasoning")
		require.Equal(t, "hmm", gjson.Get(answers[0].body, "content.0.thinking").Str)
		require.Equal(t, "Answer", gjson.Get(answers[0].body, "content.1.text").Str)
	}},
}

// reportsElsewhere names the tests of cases without requests, or with several answers of a vendor.
var reportsElsewhere = map[string]string{
	"base-query":     "TestTheQueryOfTheBaseURLIsKept in proxy/upstream",
	"http-proxy":     "TestVendorsAreReachedThroughTheProxyOfTheEnvironment",
	"models-claude":  "TestContextTokensAreTold",
	"ping-responses": "TestQuietStreamsShowThatTheyGoOn",
	"req-gzip":       "TestCompressedRequestsAreRead",
	"resp-gzip-json": "TestCompressedAnswersAreDecoded",
	"resp-gzip-sse":  "TestCompressedAnswersAreDecoded",
	"route-srv":      "TestARouteSkipsAChoiceThatCannotTakeTheRequest",
	"route-srvtool":  "TestARouteSkipsAChoiceThatCannotTakeTheRequest",
	"tls-ca":         "TestAnUntrustedCertificateIsNamed",
}

// gets requires a value of each answer.
func gets(path, raw string) func(*testing.T, []received, []answered) {
	return func(t *testing.T, _ []received, answers []answered) {
		t.Helper()
		for _, a := range answers {
			require.Equal(t, raw, gjson.Get(a.body, path).Raw, a.body)
		}
	}
}
