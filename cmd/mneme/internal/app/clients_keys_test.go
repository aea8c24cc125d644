package app_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/internal/copilottest"
)

// openAI is go-openai's client of a base URL with a key as its api_key.
func openAI(base, key string) *openai.Client {
	cfg := openai.DefaultConfig(key)
	cfg.BaseURL = base
	return openai.NewClientWithConfig(cfg)
}

// mcpKeyed is a client of /mcp with a key.
func mcpKeyed(u *up, key string) mcp.Transport {
	return &mcp.StreamableClientTransport{Endpoint: u.url("/mcp"), MaxRetries: -1,
		HTTPClient: &http.Client{Transport: access.Bearer{Base: http.DefaultTransport, Key: key}}}
}

// toolsByKey calls the tools of mneme by what each key may.
func toolsByKey(t *testing.T, connect func(key string) *mcp.ClientSession, all, chat, documents, stranger string) {
	t.Helper()
	say := map[string]any{"chat": "c", "message": "My locker number is 4711."}
	find := map[string]any{"chat": "c", "query": "locker"}
	look := map[string]any{"collection": "docs", "query": "ferry"}
	s := connect(all)
	require.Contains(t, mcpText(t, s, "ask", say), "4711")
	require.Contains(t, mcpText(t, s, "recall", find), "4711")
	require.Contains(t, mcpText(t, s, "search_documents", look), "14 crowns")
	s = connect(chat)
	require.Contains(t, mcpText(t, s, "ask", map[string]any{"chat": "c", "message": "What is my locker number?"}), "4711")
	require.Contains(t, mcpText(t, s, "recall", find), "memory:read")
	require.Contains(t, mcpText(t, s, "search_documents", look), "it needs the scope documents")
	s = connect(documents)
	require.Contains(t, mcpText(t, s, "ask", say), "it needs the scope chat")
	require.Contains(t, mcpText(t, s, "search_documents", look), "14 crowns")
	s = connect(stranger)
	require.Equal(t, "Nothing was found.", mcpText(t, s, "recall", find), "another tenant's chat")
	say["message"] = "What is my locker number?"
	require.NotContains(t, mcpText(t, s, "ask", say), "4711")
	require.Contains(t, mcpText(t, s, "search_documents", look), "There are: none")
}

// An agent that speaks MCP, over HTTP or by mneme mcp, may do what its key may, and is told in words what it may not.
func TestMCPWithKeys(t *testing.T) {
	t.Parallel()
	s := withKeys(t)
	all := s.key("acme", access.Chat, access.MemoryRead, access.Documents)
	chat, documents := s.key("acme", access.Chat), s.key("acme", access.Documents)
	stranger := func(tenant string) string { return s.key(tenant, access.Chat, access.MemoryRead, access.Documents) }
	s.keys["acme"] = all
	s.must("acme", "PUT", "/v1/collections/docs", "")
	s.must("acme", "PUT", "/v1/collections/docs/documents/1", `{"text":"The ferry costs 14 crowns."}`)
	for _, version := range []string{"2025-06-18", "2026-07-28"} {
		toolsByKey(t, func(key string) *mcp.ClientSession { return mcpConnect(t, mcpKeyed(s.up, key), version) },
			all, chat, documents, stranger("of-"+version))
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		_, err := client.Connect(t.Context(), mcpKeyed(s.up, all+"x"), &mcp.ClientSessionOptions{ProtocolVersion: version})
		require.ErrorContains(t, err, "Unauthorized")
	}
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for key, says := range map[string]string{all + "x": "This key is not known", "": "mneme keys create"} {
		status, body := ask(t, "POST", s.url("/mcp"), key, list)
		require.Equal(t, http.StatusUnauthorized, status, body)
		require.Contains(t, body, says)
	}

	home := t.TempDir()
	stdio := func(key string) *mcp.ClientSession {
		cmd := exec.Command(program(t), "mcp", "--url", s.url(""))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
		if key != "" {
			cmd.Env = append(cmd.Env, "MNEME_KEY="+key)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return mcpConnect(t, &mcp.CommandTransport{Command: cmd}, "2026-07-28")
	}
	toolsByKey(t, stdio, all, chat, documents, stranger("on-stdio"))
	find := map[string]any{"chat": "c", "query": "locker"}
	require.Contains(t, mcpText(t, stdio(all+"x"), "recall", find), "This key is not known")
	require.Contains(t, mcpText(t, stdio(""), "recall", find), "mneme keys create")
	// The key that is kept for the address is taken, too.
	use := exec.Command(program(t), "keys", "use", "--url", s.url(""))
	use.Env, use.Stdin = []string{"HOME=" + home}, strings.NewReader(all+"\n")
	said, err := use.CombinedOutput()
	require.NoError(t, err, string(said))
	require.FileExists(t, filepath.Join(home, ".config", "mneme", "key"))
	require.Contains(t, mcpText(t, stdio(""), "recall", find), "4711")
}

// Clients of OpenAI's endpoint have mneme's key as their api_key, with and without a chat in the base URL; the scope
// chat is enough, also to go on with a chat. What they may not do is told as OpenAI tells it.
func TestCompletionsWithKeys(t *testing.T) {
	t.Parallel()
	s := withKeys(t)
	key, models, stranger := s.key("acme", access.Chat), s.key("acme", access.Models), s.key("beta", access.Chat)
	c := openAI(s.url("/c/42/v1"), key)
	list, err := c.ListModels(t.Context())
	require.NoError(t, err)
	require.Equal(t, "mneme", list.Models[0].ID)
	_, err = c.GetModel(t.Context(), "mneme/analytic")
	require.NoError(t, err)
	first := complete(t, c, user("My name is Aliya."))
	second := complete(t, c, user("My name is Aliya."), first.Message, user("What is my name?"))
	require.Contains(t, second.Message.Content, "Aliya")
	alone := complete(t, c, user("What is my name?"))
	require.Contains(t, alone.Message.Content, "Aliya", "the memory is not the client's")
	other := complete(t, c, user("My name is Bolat."), first.Message, user("What is 17 * 3?"))
	require.Contains(t, other.Message.Content, "51", "a transcript of another conversation is answered")
	// The same chat id in another tenant is another chat.
	alone = complete(t, openAI(s.url("/c/42/v1"), stranger), user("What is my name?"))
	require.NotContains(t, alone.Message.Content, "Aliya")
	// Without a chat nothing is remembered.
	require.Contains(t, complete(t, openAI(s.url("/v1"), key), user("What is 17 * 3?")).Message.Content, "51")

	for _, base := range []string{s.url("/v1"), s.url("/c/42/v1")} {
		for _, want := range []struct {
			key    string
			status int
			kind   string
			says   string
		}{
			{key + "x", 401, "authentication_error", "This key is not known"},
			{"sk-of-another-vendor", 401, "authentication_error", "mneme keys create"},
			{models, 403, "permission_error", "it needs the scope chat"},
			{key, 404, "invalid_request_error", "does not exist"},
		} {
			c, refused := openAI(base, want.key), new(openai.APIError)
			_, err := c.CreateChatCompletion(t.Context(), openai.ChatCompletionRequest{Model: "no-such-model",
				Messages: []openai.ChatCompletionMessage{user("Hello")}})
			require.True(t, errors.As(err, &refused), err)
			require.Equal(t, want.status, refused.HTTPStatusCode, refused)
			require.Equal(t, want.kind, refused.Type)
			require.Contains(t, refused.Message, want.says)
			_, err = c.GetModel(t.Context(), "no-such-model")
			require.True(t, errors.As(err, &refused), err)
			require.Equal(t, want.status, refused.HTTPStatusCode, refused)
		}
	}
}

// A Copilot CLI has a session for each tenant's chat, though their chats have one id; whichever key asks goes on in it.
func TestACopilotCLIWithKeys(t *testing.T) {
	t.Parallel()
	cli := copilottest.Start(t)
	s := withKeys(t, "MNEME_PROXY_ACTIVE=cli", "MNEME_PROXY_TEAMMATE_BACKEND=off",
		backend("off", "offline", ""),
		backend("cli", "copilot", "", "provider_backend: off", fmt.Sprintf("addr: %q", cli.Addr())))
	for round, message := range []string{"hello", "world"} {
		for i, tenant := range []string{"acme", "beta", "default"} {
			s.keys[tenant] = s.key(tenant, access.Chat)
			said := s.must(tenant, "POST", "/v1/chats/1/messages", `{"message":"`+message+` of `+tenant+`"}`)
			require.Contains(t, said.body, "echo: "+message+" of "+tenant)
			made := cli.Calls("session.create")
			require.Len(t, made, max(i+1, 3*round))
			for _, prompt := range cli.Transcript(made[i].Session()) {
				require.Contains(t, prompt, tenant)
			}
		}
	}
}

// What mneme up prints to try works with keys as it stands there.
func TestTheWelcomeWithKeys(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_AUTH_MODE=keys")
	welcome := u.out.String()
	require.Contains(t, welcome,
		"export MNEME_KEY=$(mneme keys create --name me --scopes admin --url "+u.url("")+")")
	require.Contains(t, welcome, `/messages -H "Authorization: Bearer $MNEME_KEY" -H 'Accept`)
	require.Contains(t, welcome, "claude mcp add --transport http mneme "+u.url("/mcp")+` --header "Authorization: Bearer $MNEME_KEY"`)
}

// Clients of the gateway come with mneme's key in the header of their dialect, and what they may not do is told in it.
func TestGatewaysWithKeys(t *testing.T) {
	t.Parallel()
	s := withKeys(t)
	key, chat := s.key("acme", access.Models), s.key("acme", access.Chat)
	messages := `{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"What is 17 * 3?"}]}`
	responses := `{"model":"m","input":"What is 17 * 3?"}`
	for _, c := range []struct{ path, body, answer string }{
		{"/v1/messages", messages, "content.0.text"},
		{"/v1/messages/count_tokens", messages, "input_tokens"},
		{"/v1/chat/completions", messages, "choices.0.message.content"},
		{"/v1/responses", responses, "output.0.content.0.text"},
		{"/teammate/v1/chat/completions", messages, "choices.0.message.content"},
		{"/teammate/analytic/v1/messages", messages, "content.0.text"},
	} {
		ask := func(header ...string) (int, gjson.Result) {
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.gateway(c.path), strings.NewReader(c.body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			for i := 0; i+1 < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			raw, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, gjson.ParseBytes(raw)
		}
		for _, header := range [][]string{{"X-Api-Key", key}, {"Authorization", "Bearer " + key},
			{"Authorization", "Bearer " + key, "X-Api-Key", "another"}, {"X-Api-Key", key, "Authorization", "Bearer another"}} {
			status, body := ask(header...)
			require.Equal(t, http.StatusOK, status, "%s %v: %s", c.path, header, body.Raw)
			require.True(t, body.Get(c.answer).Exists(), "%s: %s", c.path, body.Raw)
		}
		for _, want := range []struct {
			key    string
			status int
			kind   string
			says   string
		}{
			{"", 401, "authentication_error", "mneme keys create"},
			{key + "x", 401, "authentication_error", "This key is not known"},
			{chat, 403, "permission_error", "it needs the scope models"},
		} {
			status, body := ask("X-Api-Key", want.key)
			require.Equal(t, want.status, status, body.Raw)
			require.Equal(t, want.kind, body.Get("error.type").Str, body.Raw)
			require.Contains(t, body.Get("error.message").Str, want.says)
			require.Equal(t, strings.Contains(c.path, "/messages"), body.Get("type").Str == "error",
				"in its dialect: %s", body.Raw)
		}
	}
}
