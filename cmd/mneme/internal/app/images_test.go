package app_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// pngOf is an image of so many bytes, of which no two with another mark are the same, as a data: URL.
func pngOf(mark string, size int) string {
	raw := append([]byte("\x89PNG\r\n\x1a\n"), mark...)
	raw = append(raw, bytes.Repeat([]byte{7}, max(0, size-len(raw)))...)
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(raw)
}

// seeing is a vendor that answers "I see." to whatever its rules take, and mneme over it.
func seeing(t *testing.T, kind string, cfg upstreamtest.Config, members ...string) (*upstreamtest.Server, *up) {
	t.Helper()
	cfg.Answer = func(*upstreamtest.Request) *upstreamtest.Answer {
		answer := upstreamtest.Reply(upstreamtest.Say("I see."))
		return &answer
	}
	vendor := upstreamtest.New(cfg)
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	base := server.URL
	switch kind {
	case "offline":
		return vendor, start(t, "MNEME_DATA_DIR="+t.TempDir())
	case "openai":
		base += "/v1"
	}
	return vendor, start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=v",
		backend("v", kind, base, append(members, `model_map: {"*": blind-1}`)...))
}

// post sends a message, and gives its answer.
func (u *up) post(path string, body map[string]any) (int, string) {
	u.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(u.t, err)
	return u.request(http.MethodPost, path, "application/json", string(raw))
}

// lastContent is what the vendor was last sent of the user's newest message.
func lastContent(v *upstreamtest.Server) string {
	return gjson.GetBytes(v.Last().Body, "messages.@reverse.0.content").Raw
}

// imagesIn are those of a request, as data: URLs and addresses.
func imagesIn(body []byte) (found []string) {
	for _, m := range gjson.GetBytes(body, "messages").Array() {
		for _, p := range m.Get("content").Array() {
			switch p.Get("type").Str {
			case "image_url":
				found = append(found, p.Get("image_url.url").Str)
			case "image":
				s := p.Get("source")
				if s.Get("type").Str == "url" {
					found = append(found, s.Get("url").Str)
				} else {
					found = append(found, "data:"+s.Get("media_type").Str+";base64,"+s.Get("data").Str)
				}
			}
		}
	}
	return found
}

// A vendor of either dialect gets the bytes that were posted, once; what is stored is a reference, and the
// next turn shows the model the same text without them.
func TestAnImageIsSeenOnceAndKeptAsAReference(t *testing.T) {
	t.Parallel()
	for kind, cfg := range map[string]upstreamtest.Config{
		"openai": {Vendor: upstreamtest.Chat}, "anthropic": {Vendor: upstreamtest.Anthropic},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			vendor, u := seeing(t, kind, cfg)
			car := pngOf("car", 12_345)
			const address = "https://x.example/cat.jpg?sig=s3cr3t"
			const text = `What is it?\n\n[image: image/png, 12 kB]\n[image: https://x.example/cat.jpg]`
			status, got := u.post("/v1/chats/7/messages", map[string]any{"message": "What is it?",
				"images": []string{car, address}})
			require.Equal(t, 200, status, got)
			require.Equal(t, []string{car, address}, imagesIn(vendor.Last().Body))
			require.Contains(t, lastContent(vendor), `"`+text+`"`)

			status, got = u.post("/v1/chats/7/messages", map[string]any{"message": "Thank you."})
			require.Equal(t, 200, status, got)
			require.Empty(t, imagesIn(vendor.Last().Body))
			require.Contains(t, string(vendor.Last().Body), `"`+text+`"`)
			require.Empty(t, vendor.Rejections())

			_, history := u.request(http.MethodGet, "/v1/chats/7/history", "", "")
			said := gjson.Get(history, "messages.0")
			require.Equal(t, `"`+text+`"`, said.Get("content").Raw)
			require.Equal(t, "image/png", said.Get("images.0.media_type").Str)
			require.Equal(t, int64(12_345), said.Get("images.0.bytes").Int())
			require.Len(t, said.Get("images.0.sha256").Str, 64)
			require.Equal(t, address, said.Get("images.1.url").Str)
			require.NotContains(t, history, "iVBOR")
			_, export := u.request(http.MethodGet, "/v1/chats/7/export", "", "")
			require.Contains(t, export, said.Get("images.0.sha256").Str)

			status, got = u.request(http.MethodDelete, "/v1/chats/7/messages/"+said.Get("id").Str, "", "")
			require.Equal(t, 200, status, got)
			_, history = u.request(http.MethodGet, "/v1/chats/7/history", "", "")
			require.NotContains(t, history, "sha256")
			require.NotContains(t, history, "x.example")
		})
	}
}

// The agent that the user talks to sees the images: a subagent, and the master without a chat. A message may be an
// image alone.
func TestWhoeverAnswersSeesTheImages(t *testing.T) {
	t.Parallel()
	vendor, u := seeing(t, "openai", upstreamtest.Config{Vendor: upstreamtest.Chat})
	car := pngOf("car", 600)
	for path, body := range map[string]map[string]any{
		"/v1/chats/1/messages": {"message": "", "agent_version": "analytic", "images": []string{car}},
		"/v1/chats/2/messages": {"message": "", "images": []string{car}},
		"/v1/oneshot":          {"message": "", "images": []string{car}},
	} {
		status, got := u.post(path, body)
		require.Equal(t, 200, status, got)
		require.Equal(t, []string{car}, imagesIn(vendor.Last().Body), path)
		require.Contains(t, lastContent(vendor), `"[image: image/png, 600 B]"`, path)
	}
	require.Empty(t, vendor.Rejections())
}

// picture is a message of the user with an image.
func picture(text, url string) openai.ChatCompletionMessage {
	m := openai.ChatCompletionMessage{Role: openai.ChatMessageRoleUser, MultiContent: []openai.ChatMessagePart{
		{Type: openai.ChatMessagePartTypeImageURL, ImageURL: &openai.ChatMessageImageURL{URL: url}}}}
	if text != "" {
		m.MultiContent = append(m.MultiContent, openai.ChatMessagePart{Type: openai.ChatMessagePartTypeText, Text: text})
	}
	return m
}

// A client that sends its whole transcript shows its old images to the model again, in whatever turn, and the chat
// grows by the new message alone; the text of the turns before stays as it was.
func TestImagesOfATranscript(t *testing.T) {
	t.Parallel()
	vendor, u := seeing(t, "openai", upstreamtest.Config{Vendor: upstreamtest.Chat})
	c := u.completions("9")
	car, cat := pngOf("car", 900), pngOf("cat", 900)
	first := complete(t, c, picture("What is it?", car))
	require.Equal(t, []string{car}, imagesIn(vendor.Last().Body))
	told := gjson.GetBytes(vendor.Last().Body, "messages.@reverse.0.content.1.text").Str

	second := complete(t, c, picture("What is it?", car), first.Message, user("And what colour is the car?"))
	require.Equal(t, []string{car}, imagesIn(vendor.Last().Body))
	require.Contains(t, lastContent(vendor), "And what colour is the car?")
	require.Equal(t, told, gjson.GetBytes(vendor.Last().Body, `messages.#(role=="user").content`).Str)

	third := complete(t, c, picture("What is it?", car), first.Message, user("And what colour is the car?"),
		second.Message, picture("", cat))
	require.Equal(t, []string{car, cat}, imagesIn(vendor.Last().Body))
	complete(t, c, picture("What is it?", car), first.Message, user("And what colour is the car?"),
		second.Message, picture("", cat), third.Message, user("Thank you."))
	require.Equal(t, []string{car, cat}, imagesIn(vendor.Last().Body))
	require.Empty(t, vendor.Rejections())

	_, history := u.request(http.MethodGet, "/v1/chats/9/history", "", "")
	require.Equal(t, int64(8), gjson.Get(history, "messages.#").Int(), history)
	require.Equal(t, int64(1), gjson.Get(history, "messages.4.images.#").Int(), history)
	require.False(t, gjson.Get(history, "messages.6.images").Exists(), history)

	// An older answer that is requested again, without ids, is appended.
	complete(t, c, picture("What is it?", car), first.Message, user("And what colour is the car?"),
		second.Message, picture("", cat))
	_, history = u.request(http.MethodGet, "/v1/chats/9/history", "", "")
	require.Equal(t, int64(10), gjson.Get(history, "messages.#").Int(), history)
}

// A model that takes no images: the request is a 400 that names it, whole and as a stream, and by every way; the
// chat goes on with text, also for a client that sends the image along in its transcript.
func TestAModelThatTakesNoImages(t *testing.T) {
	t.Parallel()
	openAIs := upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{NoImages: true}}
	for name, c := range map[string]struct {
		kind    string
		vendor  upstreamtest.Config
		members []string
		asked   bool // the vendor is, since mneme did not know
		names   []string
	}{
		"by the vendor's words":   {"openai", openAIs, nil, true, []string{"blind-1", "backend v"}},
		"by DeepSeek's words":     {"openai", upstreamtest.Config{Vendor: upstreamtest.DeepSeek}, nil, true, []string{"blind-1"}},
		"as it is known":          {"openai", openAIs, []string{"vendor: deepseek"}, false, []string{"blind-1"}},
		"as it is configured":     {"openai", openAIs, []string{"profile: {no_images: true}"}, false, []string{"blind-1"}},
		"the offline model":       {"offline", openAIs, nil, false, []string{"backend offline"}},
		"a model that looks away": {"anthropic", upstreamtest.Config{Vendor: upstreamtest.DeepSeek}, nil, true, []string{"blind-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vendor, u := seeing(t, c.kind, c.vendor, c.members...)
			car := pngOf("car", 900)
			for _, path := range []string{"/v1/chats/1/messages", "/v1/oneshot"} {
				for _, agent := range []string{"master", "analytic"} {
					status, got := u.post(path, map[string]any{"message": "What is it?", "images": []string{car},
						"agent_version": agent})
					require.Equal(t, 400, status, got)
					require.Equal(t, "image_not_supported", gjson.Get(got, "error.code").Str, got)
					require.False(t, gjson.Get(got, "error.retryable").Bool(), got)
					for _, n := range c.names {
						require.Contains(t, gjson.Get(got, "error.message").Str, n)
					}
				}
			}
			for _, stream := range []bool{false, true} {
				for _, base := range []string{"/c/2", ""} {
					for _, model := range []string{"mneme", "mneme/analytic"} {
						status, got := u.post(base+"/v1/chat/completions", map[string]any{"model": model, "stream": stream,
							"messages": []any{picture("What is it?", car)}})
						require.Equal(t, 400, status, got)
						require.Equal(t, "image_not_supported", gjson.Get(got, "error.code").Str, got)
						require.Equal(t, "invalid_request_error", gjson.Get(got, "error.type").Str, got)
						require.Contains(t, gjson.Get(got, "error.message").Str, c.names[0])
					}
				}
			}
			if !c.asked {
				require.Zero(t, vendor.Count(), "no vendor is asked what is known")
			}
			got := complete(t, u.completions("3"), user("Hello"))
			require.NotEmpty(t, got.Message.Content)
			_, err := u.completions("3").CreateChatCompletion(t.Context(), openai.ChatCompletionRequest{Model: "mneme",
				Messages: []openai.ChatCompletionMessage{user("Hello"), got.Message, picture("What is it?", car)}})
			require.ErrorContains(t, err, c.names[0])
			last := complete(t, u.completions("3"), user("Hello"), got.Message, picture("What is it?", car),
				user("Never mind. What is two plus two?"))
			require.NotEmpty(t, last.Message.Content)
			_, history := u.request(http.MethodGet, "/v1/chats/3/history", "", "")
			require.Equal(t, int64(6), gjson.Get(history, "messages.#").Int(), history)
			require.Equal(t, "image_not_supported", gjson.Get(history, "messages.3.failure").Str, history)
		})
	}
}

// Repeated with its Idempotency-Key a post with an image is one message; with another image it is refused.
func TestAnImageAndAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	vendor, u := seeing(t, "openai", upstreamtest.Config{Vendor: upstreamtest.Chat})
	post := func(image string) (int, string) {
		raw, err := json.Marshal(map[string]any{"message": "What is it?", "images": []string{image}})
		require.NoError(t, err)
		req, err := http.NewRequest(http.MethodPost, u.url("/v1/chats/5/messages"), bytes.NewReader(raw))
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", "k")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		var b strings.Builder
		require.NoError(t, resp.Write(&b))
		return resp.StatusCode, b.String()
	}
	for range 2 {
		status, got := post(pngOf("car", 900))
		require.Equal(t, 200, status, got)
	}
	require.Equal(t, 1, vendor.Count())
	status, got := post(pngOf("cat", 900))
	require.Equal(t, 422, status, got)
	require.Contains(t, got, "idempotency_key_reused")
}

// refusal is what is said of images that are not taken.
type refusal struct {
	images []string
	status int
	says   string
}

// refused posts the images of each refusal, and looks for what was stored of them.
func refused(t *testing.T, vendor *upstreamtest.Server, u *up, all map[string]refusal) {
	t.Helper()
	for name, c := range all {
		for _, path := range []string{"/v1/chats/4/messages", "/v1/oneshot"} {
			status, got := u.post(path, map[string]any{"message": "What is it?", "images": c.images})
			require.Equal(t, c.status, status, "%s: %.300s", name, got)
			require.Contains(t, gjson.Get(got, "error.message").Str, c.says, name)
			require.NotContains(t, got, "secret")
		}
	}
	require.Zero(t, vendor.Count())
	_, got := u.request(http.MethodGet, "/v1/chats", "", "")
	require.NotContains(t, got, "chat_id")
}

// What is no image, or none that is taken, is refused before anything is stored.
func TestWhatIsNoImage(t *testing.T) {
	t.Parallel()
	vendor, u := seeing(t, "openai", upstreamtest.Config{Vendor: upstreamtest.Chat})
	good := pngOf("car", 900)
	nine := make([]string, 9)
	for i := range nine {
		nine[i] = good
	}
	status, got := u.post("/v1/chats/4/messages", map[string]any{"message": "What is it?", "images": []string{good},
		"images_before": nine[:8]})
	require.Equal(t, 413, status, got)
	refused(t, vendor, u, map[string]refusal{
		"broken base64":    {[]string{good + "!"}, 400, "number 1 is not in base64"},
		"no padding":       {[]string{good, strings.TrimRight(pngOf("cars", 901), "=")}, 400, "number 2 is not in base64"},
		"lines":            {[]string{good[:60] + "\n" + good[60:]}, 400, "line breaks"},
		"another type":     {[]string{strings.Replace(good, "png", "gif", 1)}, 400, "first bytes"},
		"no type":          {[]string{strings.Replace(good, "image/png", "", 1)}, 400, "image/png, image/jpeg"},
		"SVG":              {[]string{"data:image/svg+xml;base64,PHN2Zy8+"}, 400, "svg"},
		"no base64 at all": {[]string{"data:image/png,abc"}, 400, ";base64,"},
		"nothing":          {[]string{""}, 400, "https://"},
		"http":             {[]string{"http://x.example/a.png"}, 400, "https://"},
		"a file":           {[]string{"file:///etc/passwd"}, 400, "https://"},
		"a password":       {[]string{"https://me:secret@x.example/a.png"}, 400, "password"},
		"a long address":   {[]string{"https://x.example/" + strings.Repeat("a", 3000)}, 413, "2048"},
		"too many":         {nine, 413, "there are 9, at most 8"},
	})
}

// A run that waits for its client's tool keeps no bytes of an image: its model is told that they are gone, and an
// address goes on. What is said of the message stays the same.
func TestARunWithImagesWaits(t *testing.T) {
	t.Parallel()
	vendor := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: func(r *upstreamtest.Request,
	) *upstreamtest.Answer {
		answer := upstreamtest.Reply(upstreamtest.Say("It is lit."))
		if len(r.Results) == 0 {
			answer = upstreamtest.Reply(upstreamtest.Use("light", `{"room":"hall"}`))
		}
		return &answer
	}})
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	redis := redistest.Start(t)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_REDIS_URL="+redis.URL(), "MNEME_PROXY_ACTIVE=v",
		backend("v", "openai", server.URL+"/v1"))
	car, address := pngOf("car", 9_000), "https://x.example/cat.jpg"
	status, got := u.post("/v1/chats/1/messages", map[string]any{"message": "Light what you see.",
		"images": []string{car, address},
		"tools":  []any{map[string]any{"name": "light", "description": "Lights.", "parameters": map[string]any{"type": "object"}}}})
	require.Equal(t, 202, status, got)
	kept, err := redis.Client().HGetAll(t.Context(), "{chat_history:1}:waiting").Result()
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(kept), address, "the pending run is stored")
	require.NotContains(t, fmt.Sprint(kept), "iVBOR")
	text := gjson.GetBytes(vendor.Last().Body, "messages.@reverse.0.content.@reverse.0.text").Str
	require.Contains(t, text, "[image: image/png, 9 kB]")
	light := map[string]any{"id": gjson.Get(got, "waits.0.id").Str, "decision": "approve", "result": "lit"}
	path := "/v1/chats/1/runs/" + gjson.Get(got, "run_id").Str + "/resume"
	status, got = u.post(path, map[string]any{"answers": []any{light}})
	require.Equal(t, 200, status, got)
	require.Equal(t, []string{address}, imagesIn(vendor.Last().Body))
	message := gjson.GetBytes(vendor.Last().Body, `messages.#(role=="user").content`)
	require.Contains(t, message.Raw, "cannot be shown again (1 of them)")
	require.Equal(t, text, message.Get("@reverse.0.text").Str)
	require.Empty(t, vendor.Rejections())
}

// What an address of an old message led to is gone, and the vendor refuses the request for it: the chat goes on
// without that image. A new message's own is refused.
func TestAnAddressThatIsGone(t *testing.T) {
	t.Parallel()
	const gone = "https://x.example/gone.png"
	vendor := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat,
		Answer: func(*upstreamtest.Request) *upstreamtest.Answer {
			answer := upstreamtest.Reply(upstreamtest.Say("I see."))
			return &answer
		}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if r.Body = io.NopCloser(bytes.NewReader(raw)); bytes.Contains(raw, []byte(`"`+gone+`"`)) {
			w.WriteHeader(400)
			_, _ = w.Write([]byte(`{"error":{"message":"Error while downloading ` + gone + `","type":"invalid_request_error"}}`))
			return
		}
		vendor.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=v", backend("v", "openai", server.URL+"/v1"))
	car := pngOf("car", 900)
	status, got := u.post("/v1/chats/1/messages", map[string]any{"message": "And this?", "images": []string{car},
		"images_before": []string{gone}})
	require.Equal(t, 200, status, got)
	require.Equal(t, []string{car}, imagesIn(vendor.Last().Body))
	status, got = u.post("/v1/chats/1/messages", map[string]any{"message": "And this?", "images": []string{gone}})
	require.Equal(t, 502, status, got)
	require.Equal(t, "model_rejected", gjson.Get(got, "error.code").Str)
}

// The stream of an answer to an image has what any other has, though its head waits for the model.
func TestTheStreamOfAnAnswerToAnImage(t *testing.T) {
	t.Parallel()
	_, u := seeing(t, "openai", upstreamtest.Config{Vendor: upstreamtest.Chat})
	for _, model := range []string{"mneme", "mneme/analytic"} {
		status, got := u.post("/c/1/v1/chat/completions", map[string]any{"model": model, "stream": true,
			"messages": []any{picture("What is it?", pngOf("car", 900))}})
		require.Equal(t, 200, status, got)
		require.True(t, strings.HasPrefix(got, "data: "), got)
		require.Contains(t, strings.SplitN(got, "\n", 2)[0], `"role":"assistant","content":""`)
		require.Equal(t, 1, strings.Count(got, `"role":"assistant"`), got)
		require.True(t, strings.HasSuffix(got, "data: [DONE]\n\n"), got)
		text := ""
		for _, line := range strings.Split(got, "\n\n") {
			text += gjson.Get(strings.TrimPrefix(line, "data: "), "choices.0.delta.content").Str
		}
		require.Equal(t, "I see.", text)
		require.Equal(t, model != "mneme", strings.Contains(got, "analytic is asked"), got)
	}
}
