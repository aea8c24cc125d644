package httptool_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/memory"
	"mneme/memory/telemetry"
	"mneme/subagent/external"
	"mneme/subagent/httptool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parameters are the schema of some arguments of any type.
func parameters(names ...string) json.RawMessage {
	properties := map[string]any{}
	for _, name := range names {
		properties[name] = map[string]any{}
	}
	raw, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
	return raw
}

// world is a server behind a REST call.
type world struct {
	*httptest.Server
	asked []*http.Request
	body  string // of the last request
}

func newWorld(t *testing.T, answer http.HandlerFunc) *world {
	w := &world{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		w.body = string(raw)
		w.asked = append(w.asked, r)
		if answer != nil {
			answer(rw, r)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func client(t *testing.T) *http.Client {
	c := httptool.NewClient()
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func call(t *testing.T, c httptool.Config, arguments string) (external.Returned, error) {
	t.Helper()
	made, err := httptool.New(c, client(t))
	require.NoError(t, err)
	return made.Call(t.Context(), external.Call{ID: "C", Run: "R", Arguments: json.RawMessage(arguments)})
}

// A server that repeats its request shows no model the call's secrets, however it writes them.
func TestSecretsInAnswers(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if rw.Header().Set("Content-Type", "application/json"); r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = fmt.Fprintf(rw, `{"headers":{"auth":%q},"note":"%s"}`, r.Header.Get("Authorization"),
			`key sesame-sesame c2VzYW1lLXNlc2FtZQ== %73esame-sesame sesame\u002dsesame`)
	})
	for _, path := range []string{"", "/no"} {
		for _, response := range []string{"", "headers"} {
			got, err := call(t, httptool.Config{URL: w.URL + path, Response: response, Secrets: []string{"Bearer sesame-sesame"},
				Headers: map[string]string{"Authorization": "Bearer sesame-sesame"}}, `{}`)
			require.NoError(t, err)
			require.NotContains(t, strings.ToLower(got.Text), "sesame")
			require.NotContains(t, got.Text, "c2VzYW1l")
			require.Contains(t, got.Text, "***")
			require.Equal(t, "Bearer sesame-sesame", w.asked[len(w.asked)-1].Header.Get("Authorization"))
		}
	}
}

// Arguments go where the configuration has their names, whatever is in them.
func TestWhereArgumentsGo(t *testing.T) {
	for name, c := range map[string]struct {
		config    httptool.Config
		arguments string
		method    string
		uri       string
		body      string
	}{
		"in a path": {httptool.Config{URL: "/v1/{city}/now/x-{n}", Parameters: parameters("city", "n")},
			`{"city":"São Paulo/Centro?#&","n":12345678901234567890}`, "GET",
			"/v1/S%C3%A3o%20Paulo%2FCentro%3F%23&/now/x-12345678901234567890", ""},
		"in a query": {httptool.Config{URL: "/q?fixed=1&units={units}&none={none}",
			Query:      map[string]string{"tag": "{tags}", "o": "{o}", "text": "a {units} b", "at": "@host"},
			Parameters: parameters("units", "none", "tags", "o")},
			`{"units":"a&b=c\r\nX: y","tags":["x",2,null,true],"o":{"a":1}}`, "GET",
			"/q?at=%40host&fixed=1&o=%7B%22a%22%3A1%7D&tag=x&tag=2&tag=true&text=a+a%26b%3Dc%0D%0AX%3A+y+b&units=a%26b%3Dc%0D%0AX%3A+y",
			""},
		"what is left of a GET": {httptool.Config{URL: "/q", Parameters: parameters("a", "b")}, `{"b":[1,2],"a":"x"}`, "GET",
			"/q?a=x&b=1&b=2", ""},
		"what is left of a POST": {httptool.Config{URL: "/q/{a}", Method: "post", Parameters: parameters("a", "b", "c")},
			`{"b":[1,{"x":null}],"a":"x"}`, "POST", "/q/x", `{"b":[1,{"x":null}]}`},
		"in a body": {httptool.Config{URL: "/q", Parameters: parameters("id", "lines", "not"),
			Body: json.RawMessage(`{"order":{"id":"{id}","no":"{not}","note":"{id} alone"},"lines":"{lines}","list":["{id}","{not}"],"n":1}`)},
			`{"id":"{lines}","lines":[1,"{id}"]}`, "POST", "/q",
			`{"order":{"id":"{lines}","note":"{id} alone"},"lines":[1,"{id}"],"list":["{lines}"],"n":1}`},
		"without arguments": {httptool.Config{URL: "", Method: "DELETE"}, `{}`, "DELETE", "/", ""},
		"of any name": {httptool.Config{URL: "/q", Parameters: json.RawMessage(
			`{"type":"object","additionalProperties":{"type":"string"}}`)}, `{"x":"y"}`, "GET", "/q?x=y", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c.config.URL = w.URL + c.config.URL
			got, err := call(t, c.config, c.arguments)
			require.NoError(t, err)
			require.Equal(t, "(200 OK; the answer is empty)", got.Text)
			require.Equal(t, c.method, w.asked[0].Method)
			require.Equal(t, c.uri, w.asked[0].RequestURI)
			if c.body != "" {
				require.JSONEq(t, c.body, w.body)
				require.Equal(t, "application/json", w.asked[0].Header.Get("Content-Type"))
			} else {
				require.Empty(t, w.body)
			}
		})
	}
}

// No argument leads to another place than the configuration says.
func TestArgumentsThatLeadElsewhere(t *testing.T) {
	w := newWorld(t, nil)
	c := httptool.Config{URL: w.URL + "/orders/{order}/v{version}", Parameters: parameters("order", "version")}
	for _, order := range []string{
		`""`, `"."`, `".."`, `"../admin"`, `"..\\admin"`, `"a/../../admin"`, `"/admin"`, `"a/"`, `"a//b"`, `"%2e%2e"`,
		`"%2e%2e%2fadmin"`, `"%252e%252e%252fadmin"`, `"..%2fadmin"`, `"..;/admin"`, `"%2525252525252e"`, `" "`,
		`"a\r\nHost: evil.example"`, `"a\u0000"`, `"a\nb"`, `"%0d%0aX: y"`, `null`, `["a"]`, `{"a":1}`,
		`"` + strings.Repeat("x", 4000) + `"`,
	} {
		_, err := call(t, c, `{"order":`+order+`,"version":1}`)
		require.ErrorContains(t, err, "the argument order", order)
	}
	for _, arguments := range []string{`{}`, `{"version":1}`} {
		_, err := call(t, c, arguments)
		require.ErrorContains(t, err, "the argument order is missing")
	}
	_, err := call(t, c, `{"order":1,"version":1,"admin":true}`)
	require.ErrorContains(t, err, `there is no parameter "admin"`)
	require.Empty(t, w.asked)
	// What merely looks like another host is a segment like any other.
	for order, path := range map[string]string{
		`"@evil.example"`: "/orders/@evil.example/v1", `"evil.example:80"`: "/orders/evil.example:80/v1",
		`"http://evil.example"`: "", `"?x=1"`: "/orders/%3Fx=1/v1", `"..."`: "/orders/.../v1", `"100%"`: "/orders/100%25/v1",
	} {
		w.asked = nil
		_, err := call(t, c, `{"order":`+order+`,"version":1}`)
		if path == "" {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, path, w.asked[0].RequestURI)
		require.Equal(t, strings.TrimPrefix(w.URL, "http://"), w.asked[0].Host)
	}
	split := httptool.Config{URL: w.URL + "/{a}{b}", Parameters: parameters("a", "b")}
	_, err = call(t, split, `{"a":".","b":"."}`)
	require.Error(t, err)
	_, err = call(t, httptool.Config{URL: w.URL + "/x{a}", Parameters: parameters("a")}, `{"a":".."}`)
	require.Error(t, err)
}

func TestHeaders(t *testing.T) {
	w := newWorld(t, nil)
	made, err := httptool.New(httptool.Config{
		URL: w.URL + "/", Headers: map[string]string{"authorization": "Bearer key", "Accept": "text/csv"},
	}, client(t))
	require.NoError(t, err)
	trail := telemetry.Take(http.Header{})
	_, err = made.Call(trail.In(t.Context()), external.Call{ID: "CALL", Run: "RUN", Chat: "t/7", User: "Ann\r\nX: y é",
		Arguments: json.RawMessage(`{}`)})
	require.NoError(t, err)
	h := w.asked[0].Header
	for name, want := range map[string]string{
		"Authorization": "Bearer key", "Accept": "text/csv", "Mneme-Run-Id": "RUN", "Mneme-Call-Id": "CALL",
		"Mneme-Chat-Id": "t%2F7", "Mneme-User": "Ann%0D%0AX:%20y%20%C3%A9", "User-Agent": "mneme",
	} {
		require.Equal(t, want, h.Get(name), name)
	}
	require.Regexp(t, "^00-"+trail.Trace+"-[0-9a-f]{16}-0[0-9a-f]$", h.Get("Traceparent"))
	_, err = call(t, httptool.Config{URL: w.URL}, `{}`)
	require.NoError(t, err)
	require.Empty(t, w.asked[1].Header.Get("Mneme-Chat-Id")+w.asked[1].Header.Get("Mneme-User"))
}

func TestAnswers(t *testing.T) {
	answer := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if w.Header()["Content-Type"] = nil; kind != "" {
				w.Header().Set("Content-Type", kind)
			}
			w.Header().Set("Location", "http://169.254.169.254/")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		answer   http.HandlerFunc
		response string
		want     string
		failed   bool
	}{
		"JSON":              {answer(200, "application/json", `{"a": [1]}`), "", `{"a": [1]}`, false},
		"a part of it":      {answer(200, "application/json", `{"a":[{"b":1},{"b":"x"}]}`), "a.#.b", `[1,"x"]`, false},
		"a text of it":      {answer(201, "application/json", `{"a":"x\ny"}`), "a", "x\ny", false},
		"nothing there":     {answer(200, "application/json", `{"a":1}`), "b.c", "(the answer holds nothing at b.c)\n" + `{"a":1}`, false},
		"no JSON":           {answer(200, "text/plain", `a: 1`), "a", "a: 1", false},
		"without a type":    {answer(200, "", `plain`), "", "plain", false},
		"of a wrong type":   {answer(200, "application/octet-stream", `{"a":1}`), "", `{"a":1}`, false},
		"in another letter": {answer(200, "text/plain; charset=windows-1251", "\xef\xf0\xe8\xe2\xe5\xf2"), "", "привет", false},
		"a picture":         {answer(200, "image/png", "\x89PNG\r\n\x1a\n\x00\x00"), "", "(the answer is no text: image/png, 10 bytes)", false},
		"a lie":             {answer(200, "text/plain", "a\x00b"), "", "(the answer is no text: text/plain, 3 bytes)", false},
		"nothing":           {answer(204, "", ""), "", "(204 No Content; the answer is empty)", false},
		"not found":         {answer(404, "application/json", `{"error":"no such city"}`), "a", "the answer is 404 Not Found\n" + `{"error":"no such city"}`, true},
		"a long failure":    {answer(500, "text/plain", strings.Repeat("x", 1<<20)), "", "the answer is 500 Internal Server Error\n" + strings.Repeat("x", 2048) + "…", true},
		"a redirect":        {answer(302, "text/plain", "moved"), "", "the answer is 302 Found: it leads elsewhere, which is not followed", true},
		"another redirect":  {answer(307, "text/plain", "moved"), "", "the answer is 307 Temporary Redirect: it leads elsewhere, which is not followed", true},
		"an own status":     {answer(599, "", "?"), "", "the answer is 599\n?", true},
		"large, a part":     {answer(200, "application/json", `{"x":"`+strings.Repeat("x", 1<<20)+`","a":7}`), "a", "7", false},
		"too large a whole": {answer(200, "application/json", `{"x":"`+strings.Repeat("x", 5<<20)+`","a":7}`), "a",
			"the answer has more than 4194304 bytes, in which a cannot be looked for", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.answer)
			got, err := call(t, httptool.Config{URL: w.URL, Response: c.response}, `{}`)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Text)
			require.Equal(t, c.failed, got.Failed)
			require.Len(t, w.asked, 1)
		})
	}
}

// Of an answer without an end, be it written or packed, no more is read than is kept.
func TestAnswersWithoutAnEnd(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"a stream": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
					return
				}
			}
		},
		"packed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			z := gzip.NewWriter(w)
			for range 30 { // 3 MB
				if _, err := io.WriteString(z, strings.Repeat("x", 100_000)); err != nil {
					return
				}
			}
			_ = z.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := call(t, httptool.Config{URL: newWorld(t, answer).URL}, `{}`)
			require.NoError(t, err)
			require.Len(t, got.Text, memory.MaxToolResult+1)
		})
	}
}

// An answer that does not come ends with the context, also one that drips.
func TestAnswersThatDoNotCome(t *testing.T) {
	begun := make(chan struct{}, 1)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "x")
		_ = http.NewResponseController(rw).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	})
	made, err := httptool.New(httptool.Config{URL: w.URL}, client(t))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	_, err = made.Call(ctx, external.Call{Arguments: json.RawMessage(`{}`)})
	require.ErrorIs(t, err, context.Canceled)
}

// What cannot be reached is said without its address.
func TestNobodyThere(t *testing.T) {
	w := newWorld(t, nil)
	w.Close()
	_, err := call(t, httptool.Config{URL: w.URL + "/?key=sesame"}, `{}`)
	require.EqualError(t, err, "it was not called: its server cannot be reached")
	broken := newWorld(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err = call(t, httptool.Config{URL: broken.URL}, `{}`)
	require.ErrorContains(t, err, "did not answer, or broke off")
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	_, err = call(t, httptool.Config{URL: tls.URL}, `{}`)
	require.EqualError(t, err, "it was not called: the certificate of its server is not valid")
}

func TestWrongConfigurations(t *testing.T) {
	for want, c := range map[string]httptool.Config{
		"url: an address such as":          {URL: "api.example.com/x"},
		"url: an address such as https":    {URL: "ftp://api.example.com/x"},
		"url: an address such":             {URL: "https:///x"},
		"url: an address":                  {URL: "https://api.example.com/x#y"},
		"never the host":                   {URL: "https://{host}/x", Parameters: parameters("host")},
		"never the host; write":            {URL: "https://api.{tld}", Parameters: parameters("tld")},
		"a user or a password":             {URL: "https://ann:sesame@api.example.com/"},
		"valid at \"{a\"":                  {URL: "https://api.example.com/{a", Parameters: parameters("a")},
		"valid at \"{a b}\"":               {URL: "https://api.example.com/{a b}"},
		"valid at \"..\"":                  {URL: "https://api.example.com/../x"},
		"valid at \"%2e%2e\"":              {URL: "https://api.example.com/%2e%2e/x"},
		"valid at \"%zz\"":                 {URL: "https://api.example.com/%zz"},
		"url: there is no parameter \"a\"": {URL: "https://api.example.com/{a}", Parameters: parameters("b")},
		"query: there is no parameter":     {URL: "https://api.example.com/?x={a}"},
		"query: there is no parameter \"b": {URL: "https://api.example.com/", Query: map[string]string{"x": "{b}"}},
		"not names; write":                 {URL: "https://api.example.com/?{a}=1", Parameters: parameters("a")},
		"query: arguments may be":          {URL: "https://api.example.com/", Query: map[string]string{"{a}": "1"}},
		"body: there is no parameter":      {URL: "https://api.example.com/", Body: json.RawMessage(`["{a}"]`)},
		"body: a GET has none":             {URL: "https://api.example.com/", Method: "GET", Body: json.RawMessage(`{}`)},
		"body: JSON is needed":             {URL: "https://api.example.com/", Body: json.RawMessage(`{`)},
		"parameters: b goes nowhere": {URL: "https://api.example.com/{a}", Parameters: parameters("a", "b"),
			Body: json.RawMessage(`{}`)},
		"method: \"FETCH\" is none of": {URL: "https://api.example.com/", Method: "FETCH"},
		"parameters: a JSON schema":    {URL: "https://api.example.com/", Parameters: json.RawMessage(`{"type":"string"}`)},
		"is no name of a header":       {URL: "https://api.example.com/", Headers: map[string]string{"a b": "x"}},
		"Host is set by the service":   {URL: "https://api.example.com/", Headers: map[string]string{"Host": "x"}},
		"mneme-user is set":            {URL: "https://api.example.com/", Headers: map[string]string{"mneme-user": "x"}},
		"holds a line break":           {URL: "https://api.example.com/", Headers: map[string]string{"X": "sesame\r\nY: z"}},
	} {
		t.Run(want, func(t *testing.T) {
			_, err := httptool.New(c, client(t))
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "sesame")
			require.IsType(t, &httptool.Error{}, err)
		})
	}
}

func TestWhatIsRepeatable(t *testing.T) {
	for method, want := range map[string]bool{"": true, "get": true, "HEAD": true, "POST": false, "DELETE": false} {
		made, err := httptool.New(httptool.Config{Name: "x", URL: "https://api.example.com/", Method: method}, client(t))
		require.NoError(t, err)
		require.Equal(t, want, made.Repeatable(), method)
		require.Equal(t, "http/x", made.Definition().ID())
	}
}

// An approval of a REST call covers what it asks of which server; another request is another tool under the same
// name. The values of secret headers change by themselves, and are none of it.
func TestADefinitionCoversTheRequest(t *testing.T) {
	made := func(change func(*httptool.Config)) external.Definition {
		c := httptool.Config{Name: "refund", Description: "Refunds.", URL: "https://shop.test/refunds/{id}", Method: "POST",
			Parameters: parameters("id"), Query: map[string]string{"a": "1"}, Body: json.RawMessage(`{"all":false}`)}
		change(&c)
		call, err := httptool.New(c, client(t))
		require.NoError(t, err)
		return call.Definition()
	}
	was := made(func(*httptool.Config) {}).Approval()
	require.True(t, strings.HasPrefix(was, "http/refund#"), was)
	require.NotContains(t, was, "shop.test", "clients see it")
	for name, change := range map[string]func(*httptool.Config){
		"url":    func(c *httptool.Config) { c.URL = "https://shop.test/orders/{id}" },
		"host":   func(c *httptool.Config) { c.URL = "https://evil.test/refunds/{id}" },
		"method": func(c *httptool.Config) { c.Method = "PUT" },
		"query":  func(c *httptool.Config) { c.Query = map[string]string{"a": "2"} },
		"body":   func(c *httptool.Config) { c.Body = json.RawMessage(`{"all":true}`) },
	} {
		require.NotEqual(t, was, made(change).Approval(), name)
	}
	require.Equal(t, was, made(func(c *httptool.Config) { c.Method = "post" }).Approval())
	require.Equal(t, was, made(func(c *httptool.Config) {
		c.Headers, c.Secrets = map[string]string{"Authorization": "Bearer sesame-two"}, []string{"Bearer sesame-two"}
	}).Approval())
}

// A proxy of the environment is not asked: the configuration alone says where calls go.
func TestNoProxyOfTheEnvironment(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(rw, "here") })
	got, err := call(t, httptool.Config{URL: strings.Replace(w.URL, "127.0.0.1", "localhost", 1)}, `{}`)
	require.NoError(t, err)
	require.Equal(t, "here", got.Text)
	require.Nil(t, httptool.NewClient().Transport.(*http.Transport).Proxy)
}
