package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy"
)

// Content of all types, each with a text "SEEN" that a model must still get to see.
const (
	pngSource = `"source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}`
	pdfSource = `"source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}`
)

var (
	userBlocks = []string{
		`{"type":"image",` + pngSource + `}`,
		`{"type":"image","source":{"type":"url","url":"https://x.example/SEEN.png"}}`,
		`{"type":"image","source":{"type":"file","file_id":"file_SEEN"}}`,
		`{"type":"document","title":"SEEN.pdf",` + pdfSource + `}`,
		`{"type":"document","source":{"type":"url","url":"https://x.example/SEEN.pdf"}}`,
		`{"type":"document","source":{"type":"file","file_id":"file_SEEN"}}`,
		`{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"SEEN"}}`,
		`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"SEEN"}]}}`,
		`{"type":"search_result","source":"doc","title":"T","content":[{"type":"text","text":"SEEN"}]}`,
	}
	onlyMessages = []string{`{"type":"container_upload","file_id":"file_SEEN"}`, `{"type":"later_type","x":"SEEN"}`}
	onlyResults  = []string{`{"type":"tool_reference","tool_name":"SEEN"}`}
	serverBlocks = []string{
		serverTool("web_search", `[{"type":"web_search_result","url":"u","title":"SEEN","encrypted_content":"E"}]`),
		serverTool("web_search", `{"type":"web_search_tool_result_error","error_code":"SEEN"}`),
		serverTool("web_fetch", `{"type":"web_fetch_result","url":"SEEN","content":{"type":"document",`+pdfSource+`}}`),
		serverTool("code_execution", `{"type":"code_execution_result","stdout":"SEEN","return_code":0,"content":[]}`),
		serverTool("bash_code_execution", `{"type":"bash_code_execution_result","stdout":"SEEN"}`),
		serverTool("text_editor_code_execution", `{"type":"text_editor_code_execution_view_result","content":"SEEN"}`),
		serverTool("tool_search", `{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference",`+
			`"tool_name":"SEEN"}]}`),
		`{"type":"mcp_tool_use","id":"mcptoolu_1","name":"n","server_name":"s","input":{}},{"type":"mcp_tool_result",` +
			`"tool_use_id":"mcptoolu_1","is_error":false,"content":[{"type":"text","text":"SEEN"}]}`,
		`{"type":"compaction","content":"SEEN"}`,
	}
	chatParts = []string{
		seenImage,
		`{"type":"image_url","image_url":{"url":"ftp://x.example/SEEN.png"}}`,
		`{"type":"file","file":{"filename":"SEEN.pdf","file_data":"data:application/pdf;base64,JVBERi0="}}`,
		`{"type":"file","file":{"filename":"SEEN.zip","file_data":"data:application/zip;base64,UEsDBAA="}}`,
		`{"type":"file","file":{"file_id":"file-SEEN"}}`,
		`{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}`,
		`{"type":"video_url","video_url":{"url":"https://x.example/SEEN.mp4"}}`,
	}
	inputParts = []string{
		`{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}`,
		`{"type":"input_image","file_id":"file-SEEN"}`,
		`{"type":"input_file","filename":"SEEN.pdf","file_data":"data:application/pdf;base64,JVBERi0="}`,
		`{"type":"input_file","file_id":"file-SEEN"}`,
		`{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}`,
	}
	vendorInputs = []string{
		`{"type":"additional_tools","role":"developer","id":"at_1","tools":[{"type":"function","name":"SEEN"}]}`,
		inputCall("local_shell_call", `"action":{"type":"exec","command":["ls"]}`, `"output":"SEEN"`),
		inputCall("shell_call", `"action":{"commands":["ls"]}`, `"output":[{"stdout":"SEEN","stderr":"","outcome":{}}]`),
		inputCall("apply_patch_call", `"operation":{"type":"delete_file","path":"SEEN"}`, `"output":"done"`),
		inputCall("computer_call", `"action":{"type":"screenshot"}`,
			`"output":{"type":"computer_screenshot","image_url":"data:image/png;base64,iVBORw0KGgo="}`),
		`{"type":"compaction","id":"cmp_1","encrypted_content":"E"}`,
		`{"type":"compaction_summary","id":"cmp_1","encrypted_content":"E"}`,
		`{"type":"ghost_snapshot","ghost_commit":{"id":"c"}}`,
		`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}`,
		`{"type":"image_generation_call","id":"ig_1","result":"iVBORw0KGgo="}`,
		`{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[{"name":"n","input_schema":{}}]}`,
		`{"type":"tool_search_output","id":"ts_1","tools":["n"]}`,
		`{"type":"later_item","x":"SEEN"}`,
	}
)

func serverTool(name, result string) string {
	return fmt.Sprintf(`{"type":"server_tool_use","id":"srvtoolu_1","name":%q,"input":{}},{"type":"%s_tool_result",`+
		`"tool_use_id":"srvtoolu_1","content":%s}`, name, name, result)
}

func inputCall(kind, call, output string) string {
	return fmt.Sprintf(`{"type":%q,"call_id":"call_1","status":"completed",%s},{"type":"%s_output","call_id":"call_1",%s}`,
		kind, call, kind, output)
}

// A historyOf puts content into an older place of a request of an endpoint.
type historyOf struct {
	path, frame string // with %s for the content
	contents    []string
}

var histories = map[string]historyOf{
	"a message": {"/v1/messages", `"max_tokens":99,"messages":[{"role":"user","content":[%s]},{"role":"assistant",` +
		`"content":"ok"},{"role":"user","content":"And?"}]`, append(onlyMessages, userBlocks...)},
	"a message before another": {"/v1/messages", `"max_tokens":99,"messages":[{"role":"user","content":[%s]},{"role":"user",` +
		`"content":"And?"}]`, userBlocks},
	"a result": {"/v1/messages", `"max_tokens":99,"tools":[{"name":"f","input_schema":{"type":"object"}}],"messages":[` +
		`{"role":"user","content":"Go."},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[%s]}]}]`,
		append(onlyResults, userBlocks...)},
	"an answer": {"/v1/messages", `"max_tokens":99,"messages":[{"role":"user","content":"Go."},{"role":"assistant","content":[%s,` +
		`{"type":"text","text":"ok"}]},{"role":"user","content":"And?"}]`, serverBlocks},
	"a chat message": {"/v1/chat/completions", `"messages":[{"role":"user","content":[%s]},{"role":"user","content":"And?"}]`,
		chatParts},
	"a chat result": {"/v1/chat/completions", `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],` +
		`"messages":[{"role":"user","content":"Go."},{"role":"assistant","tool_calls":[{"id":"call_1","type":"function",` +
		`"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":[%s]}]`, chatParts},
	"an input": {"/v1/responses", `"store":false,"input":[{"role":"user","content":[%s]},{"role":"user","content":"And?"}]`,
		inputParts},
	"an output": {"/v1/responses", `"store":false,"input":[{"role":"user","content":"Go."},{"type":"function_call","call_id":` +
		`"call_1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"call_1","output":[%s]}]`, inputParts},
	"items": {"/v1/responses", `"store":false,"input":[{"role":"user","content":"Go."},%s,{"role":"user","content":"And?"}]`,
		vendorInputs},
}

// The gateway refuses no request for content outside the user's very last message, and strict vendors take what it
// sends. The model still sees what a text can say, and results stay with their calls.
func TestContentOfAnyTypeAtAnyBackend(t *testing.T) {
	t.Parallel()
	backends := []backendCase{claude, kimi, deepSeek, glm, kimiChat, deepSeekChat, openAI, genericChat, gpt, google}
	for _, b := range backends {
		w := knocked(t, b)
		g := w.gateway()
		for place, h := range histories {
			for _, content := range h.contents {
				about := fmt.Sprintf("%s in %s at %s", content, place, b.name)
				own := h.path == map[string]string{proxy.KindOpenAI: "/v1/chat/completions",
					proxy.KindResponses: "/v1/responses"}[b.config.Kind]
				if own && !strings.Contains(content, "data:image") {
					continue // the vendor's own content is its own to judge
				}
				got := g.send(t.Context(), h.path, http.Header{}, []byte(`{"model":"`+b.model+`",`+fmt.Sprintf(h.frame, content)+`}`))
				require.Equal(t, 200, got.status, "%s: %s", about, got.body)
				sent := string(w.vendors[b.name].Last().Body)
				carried := !strings.Contains(content, "SEEN") || strings.Contains(sent, "JVBERi0=") // a PDF itself
				require.True(t, carried || strings.Contains(sent, "SEEN"), "%s: %s", about, sent)
			}
		}
	}
}

// The same content gets the same text in a message, in a result, and in each dialect.
func TestTheTextForAnImage(t *testing.T) {
	t.Parallel()
	w := knocked(t, deepSeekChat)
	g := w.gateway()
	texts := map[string]bool{}
	for _, place := range []string{"a message", "a result", "a chat message", "a chat result", "an input", "an output"} {
		h := histories[place]
		content := map[string]string{"/v1/messages": userBlocks[0], "/v1/chat/completions": seenImage,
			"/v1/responses": inputParts[0]}[h.path]
		got := g.send(t.Context(), h.path, http.Header{}, []byte(`{"model":"m-1",`+fmt.Sprintf(h.frame, content)+`}`))
		require.Equal(t, 200, got.status, got.body)
		require.Contains(t, got.header.Get("X-Ag-Mended"), "content_replaced")
		gjson.GetBytes(w.vendors[deepSeekChat.name].Last().Body, "messages.#.content").ForEach(func(_, c gjson.Result) bool {
			for line := range strings.Lines(c.Str) {
				if strings.Contains(line, "image") {
					texts[strings.TrimSpace(line)] = true
				}
			}
			return true
		})
	}
	require.Equal(t, map[string]bool{"[an image, image/png, 8 bytes, which this model cannot read]": true}, texts)
}
