package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy"
)

const seenImage = `{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}`

func said(message string) string { return `{"error":{"message":"` + message + `"}}` }

// imageRefusals are refusals by models without vision. A row names its source, if one is known.
var imageRefusals = []struct {
	status int64
	body   string
}{
	{400, said("Failed to deserialize the JSON body into the target type: messages[0]: unknown variant `image_url`, " +
		"expected `text` at line 1 column 92")},
	{400, said("Invalid content type. image_url is only supported by certain models.")},
	{400, said("this model does not support image input (ref: b8bd630e)")},
	{400, `{"object":"error","message":"facebook/opt-125m is not a multimodal model None","type":"BadRequestError","code":400}`},
	{400, said("At most 0 image(s) may be provided in one request.")},
	{404, said("No endpoints found that support image input")},
	{400, said("Unsupported content part type for text-only server: image_url")},
	{400, said("Image inputs are not supported by this model.")},
	{400, said("Image input is not enabled for this model")},
	{400, said("Model do not support image input.")},
	{500, said("image input is not supported - hint: if this is unexpected, you may need to provide the mmproj")},
	{500, said("this model is missing data required for image input")},
	{400, said("This model doesn't support the image content block that you provided.")},
	{400, `{"error":{"code":"1210","message":"messages.content.type 参数非法，取值范围 ['text']"}}`},
	{400, said("'messages.0' : for 'role:user' the following must be satisfied[('messages.0.content' : value must be a string)]")},
	{422, `{"detail":[{"type":"literal_error","loc":["body","messages"],"msg":"Input should be 'text'"}]}`},
	// https://github.com/ollama/ollama/issues/18055
	{400, said("Input should be a valid string (ref: a9065c14-5a11-4d60-a4ac-31554a0b8e35)")},
	// https://github.com/BerriAI/litellm/issues/7908
	{400, said("The provided model is not a vision model. Please provide a vision model.")},
	// https://github.com/deepseek-ai/DeepSeek-V3/issues/1026
	{400, said("Failed to deserialize the JSON body into the target type: messages[66].content: unknown variant `image`, " +
		"expected one of `text`, `tool_use`, `tool_result`, `thinking`")},
	{400, said("Only text content type is supported")},
	{400, said("Unsupported content type: image_url")},
	{400, said("Multimodal input is not supported")},
	{400, said("messages.content.type is invalid, allowed values: ['text']")},
}

// All wordings for a model without vision give one code. Errors about an image that is broken or too
// large, and the same words about a request without an image, is not that.
func TestRefusalsOfImages(t *testing.T) {
	t.Parallel()
	var body atomic.Value
	var status, calls atomic.Int64
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte(body.Load().(string)))
	}))
	defer vendor.Close()
	url, _ := logged(t, proxy.Config{Backends: map[string]proxy.BackendConfig{
		"v": {Kind: proxy.KindOpenAI, BaseURL: vendor.URL + "/v1"}}})
	ask := func(code int64, answer, part string) *http.Response {
		status.Store(code)
		body.Store(answer)
		calls.Store(0)
		resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},`+part+`]}]}`))
		require.NoError(t, err)
		resp.Body.Close()
		return resp
	}
	text := `{"type":"text","text":"And that?"}`
	for _, c := range imageRefusals {
		resp := ask(c.status, c.body, seenImage)
		require.Equal(t, "image_not_supported", resp.Header.Get("X-AG-Error"), c.body)
		require.Equal(t, "v", resp.Header.Get("X-AG-Backend"))
		require.Equal(t, "m", resp.Header.Get("X-AG-Model"))
		require.EqualValues(t, 1, calls.Load(), "no second call could help: %s", c.body)
		require.NotEqual(t, "image_not_supported", ask(c.status, c.body, text).Header.Get("X-AG-Error"), c.body)
	}
	for _, other := range []string{
		"Provided image is not valid.", "Could not process image", "image exceeds 5 MB maximum: 5316000 bytes > 5242880 bytes",
		"The image format is not supported: use PNG", "Error while downloading https://x.example/a.png", "Unsupported image type",
		"Invalid base64 image_url.", "Unsupported parameter: 'x' is not supported with this model.",
	} {
		require.NotEqual(t, "image_not_supported", ask(400, said(other), seenImage).Header.Get("X-AG-Error"), other)
	}
}

// After a backend has refused content of an older message, a text replaces it, and the gateway remembers that for
// the model. A message that was refused for its own content does not refuse the next one.
func TestRefusedContentIsRemembered(t *testing.T) {
	t.Parallel()
	type row struct{ kind, status, said, refuses, content, becomes string }
	const chat, messages = proxy.KindOpenAI, proxy.KindAnthropic
	rows := []row{
		// https://github.com/QwenLM/qwen-code/pull/1838
		{chat, "400", said("Invalid value: file. Supported values are: 'text','image_url','video_url' and 'video'."), `"file"`,
			`{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}}`, "[a PDF, a.pdf"},
		// https://github.com/MoonshotAI/Kimi-K2.5/issues/27
		{messages, "400", said("messages.8.content.4: Input tag 'document' found using 'type' does not match any of the expected " +
			"tags: 'image', 'server_tool_use', 'text', 'thinking', 'tool_result', 'tool_use', 'web_search_tool_result'"),
			`"document"`, `{"type":"document",` + pdfSource + `}`, "[a PDF, 5 bytes"},
		{messages, "400", said("PDF documents are not supported by this model"), `"document"`,
			`{"type":"document",` + pdfSource + `}`, "[a PDF, 5 bytes"},
		{messages, "422", said("unknown variant `later_type`, expected one of `text`, `thinking`"), `later_type"`,
			`{"type":"later_type","x":"SEEN"}`, "SEEN"},
		// ollama/ollama, openai/openai.go
		{chat, "400", said("image URLs are not currently supported, please use base64 encoded data instead"), `"https://x`,
			`{"type":"image_url","image_url":{"url":"https://x.example/a.png"}},` + seenImage, "[an image, https://x.example/a.png"},
	}
	for _, r := range imageRefusals {
		rows = append(rows, row{chat, strconv.FormatInt(r.status, 10), r.body, "image_url", seenImage,
			"[an image, image/png"})
	}
	for _, c := range rows {
		t.Run(c.said, func(t *testing.T) {
			t.Parallel()
			v := vendor(t, nil)
			v.answer = func(w http.ResponseWriter, r *http.Request) {
				if body := v.last(t).body; !strings.Contains(strings.ReplaceAll(body, "[later_type", ""), c.refuses) {
					acceptReport(w, r, body)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				status, _ := strconv.Atoi(c.status)
				w.WriteHeader(status)
				_, _ = w.Write([]byte(c.said))
			}
			url, _ := logged(t, to(v, c.kind))
			url += map[string]string{chat: "/v1/chat/completions", messages: "/v1/messages"}[c.kind]
			refused := userSays(`[` + c.content + `,{"type":"text","text":"What is it?"}]`)
			ask := func(messages ...string) (answered, int) {
				before := v.count()
				got := post(t, url, `{"model":"m","max_tokens":99,"messages":[`+strings.Join(messages, ",")+`]}`)
				return got, v.count() - before
			}
			got, calls := ask(refused)
			require.NotEqual(t, 200, got.status)
			require.Equal(t, 1, calls)
			got, calls = ask(refused, userSays(`"Then without it."`))
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, 2, calls)
			require.Contains(t, v.last(t).body, c.becomes)
			require.Contains(t, got.header.Get("X-Ag-Mended"), "content_replaced")
			sent := v.last(t).body
			got, calls = ask(refused, userSays(`"Then without it."`))
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, 1, calls, "the gateway remembers")
			require.Equal(t, sent, v.last(t).body)
			got, calls = ask(refused)
			require.Equal(t, 400, got.status)
			require.Zero(t, calls)
		})
	}
}

// A backend that is known to take no images is not asked, in either dialect and on either pipeline, with an image in the
// newest message; counting tokens is not the gateway's to refuse.
func TestImagesForABackendThatTakesNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, deepSeekChat)
	g := w.gateway()
	const block = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}`
	send := func(path, messages string, header http.Header) answered {
		return g.send(t.Context(), path, header, []byte(`{"model":"m-1","max_tokens":10,"messages":[`+messages+`]}`))
	}
	for path, part := range map[string]string{
		"/v1/chat/completions": seenImage, "/v1/messages": block, "/teammate/analytic/v1/chat/completions": seenImage,
	} {
		for n, header := range map[string]http.Header{"0": {}, "1": {ephemeralHeader: {"1"}}} {
			got := send(path, userSays(`[`+part+`,`+questionPart+`]`), header)
			require.Equal(t, 400, got.status, n)
			require.Equal(t, "image_not_supported", got.header.Get("X-Ag-Error"))
			require.Contains(t, gjson.Get(got.body, "error.message").Str, `m-1 of backend "deepseek`)
		}
	}
	require.Zero(t, w.vendors[deepSeekChat.name].Count())
	require.Equal(t, 200, send("/v1/messages/count_tokens", userSays(`[`+block+`,`+questionPart+`]`), http.Header{}).status)
	w.conforms(0)
}

// Up to 16 parts belong to a request alone.
func TestConformanceSixteenEphemeralParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	header := http.Header{"X-Ag-Conversation-Id": {"c1"}, ephemeralHeader: {"16"}}
	got := w.gateway().send(t.Context(), "/v1/messages", header, []byte(`{"model":"claude-opus-4-8","max_tokens":10,`+
		`"messages":[`+userSays(`[`+strings.Repeat(recalledPart+",", 16)+questionPart+`]`)+`]}`))
	require.Equal(t, 200, got.status, got.body)
	require.EqualValues(t, 17, gjson.GetBytes(w.vendors["claude"].Last().Body, "messages.0.content.#").Int())
	w.conforms(0)
}

// An item that a vendor of Responses does not know goes as a text, beside items that keep their bytes.
func TestARefusedItemIsRemembered(t *testing.T) {
	t.Parallel()
	v := vendor(t, nil)
	v.answer = func(w http.ResponseWriter, r *http.Request) {
		body := v.last(t).body
		if !strings.Contains(body, `"type":"later_item"`) {
			acceptReport(w, r, body)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		_, _ = w.Write([]byte(`{"error":{"message":"Invalid value: 'later_item'. Supported values are: 'message', 'reasoning'.",` +
			`"param":"input[1]","code":"invalid_value"}}`))
	}
	url, _ := logged(t, to(v, proxy.KindResponses))
	const first, last = `{"role":"user","content":[{"type":"input_text","text":"Go."}],"x":1}`, `{"role":"user","content":"And?"}`
	for _, calls := range []int{2, 3} {
		got := post(t, url+"/v1/responses", `{"model":"m","store":false,"input":[`+first+
			`,{"type":"later_item","x":"SEEN"},`+last+`]}`)
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, calls, v.count())
		require.Contains(t, v.last(t).body, `[later_item: {\"x\":\"SEEN\"}]`)
		require.Contains(t, v.last(t).body, first)
		require.Contains(t, v.last(t).body, last)
	}
}

// A backend that refuses the result of a vendor's own tool gets the call and the result as texts, now and later.
func TestARefusedResultOfAVendorsToolIsRemembered(t *testing.T) {
	t.Parallel()
	for kind, call := range map[string]string{
		"mcp_tool_result":        `{"type":"mcp_tool_use","id":"m","name":"n","server_name":"s","input":{}}`,
		"web_search_tool_result": `{"type":"server_tool_use","id":"m","name":"web_search","input":{"query":"q"}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			v := vendor(t, nil)
			v.answer = func(w http.ResponseWriter, r *http.Request) {
				body := v.last(t).body
				if !strings.Contains(body, `"type":"`+kind) {
					acceptReport(w, r, body)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(400)
				// https://github.com/MoonshotAI/Kimi-K2.5/issues/27
				_, _ = w.Write([]byte(said("messages.1.content.1: Input tag '" + kind + "' found using 'type' does not match any " +
					"of the expected tags: 'text', 'tool_result', 'tool_use'")))
			}
			url, _ := logged(t, to(v, proxy.KindAnthropic))
			for _, calls := range []int{2, 3} {
				got := post(t, url+"/v1/messages", `{"model":"m","max_tokens":99,"messages":[`+userSays(`"Look."`)+
					`,{"role":"assistant","content":[`+call+`,{"type":"`+kind+`","tool_use_id":"m",`+
					`"content":[{"type":"text","text":"SEEN"}]},{"type":"text","text":"Done."}]},`+userSays(`"And?"`)+`]}`)
				require.Equal(t, 200, got.status, got.body)
				require.Equal(t, calls, v.count())
				require.Contains(t, v.last(t).body, "SEEN")
				require.NotContains(t, v.last(t).body, `"type":"mcp_tool_use"`)
				require.NotContains(t, v.last(t).body, `"type":"server_tool_use"`)
			}
		})
	}
}
