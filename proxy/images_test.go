package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy"
)

const seenImage = `{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}`

// What vendors say when a model takes no images is told by one code; what they say about an image that is broken or too
// large, and the same words about a request without an image, is not that.
func TestRefusalsOfImages(t *testing.T) {
	t.Parallel()
	said := func(message string) string { return `{"error":{"message":"` + message + `"}}` }
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
	for _, c := range []struct {
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
	} {
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

// A backend that is known to take no images is not asked, in either dialect and on either pipeline; what an earlier
// message or a tool's result shows, and counting tokens, is not the gateway's to refuse.
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
