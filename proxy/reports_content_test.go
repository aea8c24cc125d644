package proxy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// contentReports are the cases about content that a backend does not take.
var contentReports = map[string]report{
	"codex-addtools": {check: sent("", "additional_tools")},
	"defer-chat": {
		refuses: has("defer_loading", "eager_input_streaming", "tool_reference"),
		check:   sent("mcp__slack__send can be called", "tool_reference"),
	},
	"defer-resp":    {refuses: has("defer_loading", "tool_reference"), check: sent("mcp__slack__send can be called", "")},
	"doc-old-chat":  {refuses: has(`"file"`, "JVBERi0"), check: sent("[a PDF, 124 bytes, which this model cannot read]", "")},
	"doc-text-kimi": {refuses: has(`"document"`), check: sent("SECRET-42 stands here", "")},
	"file-text-claude": {
		refuses: func(r received) bool {
			return gjson.Get(r.body, "messages.0.content.0.source.type").Str != "text"
		},
		check: sent("SECRET-42 ключ", ""),
	},
	"img-jpg":        {refuses: has("image/jpg"), check: sent("image/jpeg", "")},
	"img-old-blind":  {refuses: has("image_url"), check: sent("[an image, image/png", "")},
	"img-out-blind":  {refuses: has("image_url"), check: imagesOfResults},
	"img-then-text":  {refuses: has("image_url"), check: sent("[an image, image/png", "")},
	"pdf-then-text":  {refuses: has("JVBERi0"), own: 1, check: sent("[a PDF, 15 bytes, which this model cannot read]", "")},
	"search-result":  {check: sent(`T\ndoc\nFACT-5`, "search_result")},
	"srv-hist-chat":  {check: sent("TEA-42", "encrypted_content")},
	"srv-hist-third": {refuses: has(`"type":"server_tool_use"`), calls: 2, check: sent("TEA-42", "")},
	"cch-chat":       {check: samePrefix},
	"cch-third":      {check: samePrefix},
}

// has refuses requests that contain any of the words.
func has(words ...string) func(received) bool {
	return func(r received) bool {
		for _, w := range words {
			if strings.Contains(r.body, w) {
				return true
			}
		}
		return false
	}
}

// sent requires requests with words and without others. Changes of content must be named.
func sent(words, others string) func(*testing.T, []received, []answered) {
	return func(t *testing.T, accepted []received, answers []answered) {
		t.Helper()
		require.NotEmpty(t, accepted)
		for i, r := range accepted {
			require.Contains(t, r.body, words)
			if others != "" {
				require.NotContains(t, r.body, others)
			}
			if strings.HasPrefix(words, "[") {
				require.Contains(t, answers[len(answers)-len(accepted)+i].header.Get("X-Ag-Mended"), "content_replaced")
			}
		}
	}
}

// imagesOfResults requires that each call keeps its result, with a text in it.
func imagesOfResults(t *testing.T, accepted []received, _ []answered) {
	for _, r := range accepted {
		for i, id := range []string{"call_aaaaaaaaaaaa", "call_bbbbbbbbbbbb"} {
			result := gjson.Get(r.body, "messages").Array()[2+i]
			require.Equal(t, id, result.Get("tool_call_id").Str, r.body)
			require.Contains(t, result.Get("content").Str, "[an image, image/png")
		}
	}
}

// samePrefix requires that all requests are the same, without the line of the client that differs.
func samePrefix(t *testing.T, accepted []received, _ []answered) {
	for _, r := range accepted {
		require.Equal(t, accepted[0].body, r.body)
		require.NotContains(t, r.body, "x-anthropic-billing-header")
		require.Contains(t, r.body, "You are a coding agent.")
	}
}
