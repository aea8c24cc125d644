package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

func TestStandIn(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("QUJD", 1000)
	for _, c := range []struct{ content, kind, text string }{
		{`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + long + `"}}`, "image",
			"[an image, image/png, 3 kB, which this model cannot read]"},
		{`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + long + `"}}`, "image",
			"[an image, image/png, 3 kB, which this model cannot read]"},
		{`{"type":"input_image","image_url":"https://x.example/a.png"}`, "image/url",
			"[an image, https://x.example/a.png, which this model cannot read]"},
		{`{"type":"image","source":{"type":"file","file_id":"file_1"}}`, "image/file",
			"[an image, file_1, which this model cannot read]"},
		{`{"type":"document","title":"n.pdf","source":{"type":"base64","media_type":"application/pdf","data":"QUJD"}}`,
			"document", "[a PDF, n.pdf, 3 bytes, which this model cannot read]"},
		{`{"type":"file","file":{"filename":"n.pdf","file_data":"data:application/pdf;base64,QUJD"}}`, "file",
			"[a PDF, n.pdf, 3 bytes, which this model cannot read]"},
		{`{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"D"}}`, "document/text", "T\nD"},
		{`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}`,
			"document/content", "a\nb"},
		{`{"type":"search_result","source":"doc","title":"T","content":[{"type":"text","text":"F"}]}`, "search_result", "T\ndoc\nF"},
		{`{"type":"tool_reference","tool_name":"send"}`, "tool_reference", "[The tool send can be called now.]"},
		{`{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"tea"}}`,
			"server_tool_use/web_search", `[server_tool_use: {"name":"web_search","input":{"query":"tea"}}]`},
		{`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"u",` +
			`"title":"T","encrypted_content":"E","page_age":null}]}`, "server_tool_use/web_search",
			`[web_search_tool_result: {"content":[{"type":"web_search_result","url":"u","title":"T"}]}]`},
		{`{"type":"mcp_tool_result","tool_use_id":"m","is_error":false,"content":[{"type":"text","text":"r"}]}`, "mcp_tool_use",
			`[mcp_tool_result: {"is_error":false,"content":[{"type":"text","text":"r"}]}]`},
		{`{"type":"input_audio","input_audio":{"data":"` + long + `","format":"wav"}}`, "input_audio",
			`[input_audio: {"input_audio":{"format":"wav"}}]`},
		{`{"type":"compaction","encrypted_content":"E"}`, "compaction", "[compaction]"},
	} {
		v := gjson.Parse(c.content)
		require.Equal(t, c.kind, wire.ContentKind(v), c.content)
		require.Equal(t, c.text, wire.StandIn(v))
	}
}
