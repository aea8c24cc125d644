package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"

	"mneme/proxy/wire"
)

// way is how a client speaks with the gateway.
type way struct {
	messages bool // the messages dialect, else chat completions
	stream   bool
}

var ways = map[string]way{
	"chat": {}, "chat, streamed": {stream: true}, "messages": {messages: true}, "messages, streamed": {true, true},
}

// said is a message, whatever the dialect.
type said struct {
	role  string // user, assistant, tool
	text  string
	calls []use
	id    string // of the call that this is the result of
}

type use struct{ id, name, input string }

// client leads a conversation.
type client struct {
	gateway      *gateway
	way          way
	prefix       string // of the route
	conversation string
	key          string
	model        string
	system       string
	tools        []string
	more         string // members of the request, each with a comma behind it
	over         bool   // no request goes on from the answer
	history      []said
}

func (g *gateway) client(w way, conversation string, tools ...string) *client {
	return &client{gateway: g, way: w, conversation: conversation, model: "m", key: "caller", system: "Be brief.",
		tools: tools}
}

// answered is what came of a request.
type answered struct {
	said
	status       int
	header       http.Header
	body         string
	finish       string
	conversation string
	usage        string
	cut          bool // a stream that ended with an error
}

// say adds the user's words and has them answered.
func (c *client) say(text string) answered {
	c.gateway.t.Helper()
	c.history = append(c.history, said{role: "user", text: text})
	return c.ask()
}

// give adds results, by pairs of id and text, and goes on.
func (c *client) give(results ...string) answered {
	c.gateway.t.Helper()
	for i := 0; i < len(results); i += 2 {
		c.history = append(c.history, said{role: "tool", id: results[i], text: results[i+1]})
	}
	return c.ask()
}

// ask has the history answered, which must succeed.
func (c *client) ask() answered {
	t := c.gateway.t
	t.Helper()
	got := c.post(t.Context())
	require.Equal(t, 200, got.status, got.body)
	require.False(t, got.cut, got.body)
	c.history = append(c.history, got.said)
	return got
}

func (c *client) post(ctx context.Context) answered {
	t := c.gateway.t
	t.Helper()
	resp, err := c.open(ctx)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	got := answered{status: resp.StatusCode, header: resp.Header, body: string(body),
		conversation: resp.Header.Get("X-AG-Conversation-Id")}
	if got.status == 200 {
		c.read(&got)
	}
	return got
}

// open sends the history and gives the answer as it comes.
func (c *client) open(ctx context.Context) (*http.Response, error) {
	path, body := "/v1/chat/completions", c.chatBody()
	if c.way.messages {
		path, body = "/v1/messages", c.messagesBody()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.gateway.url+c.prefix+path, bytes.NewReader(body))
	require.NoError(c.gateway.t, err)
	r.Header.Set("X-Api-Key", c.key)
	if c.conversation != "" {
		r.Header.Set("X-AG-Conversation-Id", c.conversation)
	}
	if c.over {
		r.Header.Set("X-AG-Conversation-Over", "true")
	}
	return c.gateway.http.Do(r)
}

type chatFunction struct {
	Name       string          `json:"name"`
	Arguments  string          `json:"arguments,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

type chatCall struct {
	Index    int          `json:"index"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatMessage struct {
	Role    string     `json:"role,omitempty"`
	Content string     `json:"content"`
	Calls   []chatCall `json:"tool_calls,omitempty"`
	ID      string     `json:"tool_call_id,omitempty"`
}

func (c *client) chatBody() []byte {
	messages := []chatMessage{{Role: "system", Content: c.system}}
	for _, m := range c.history {
		out := chatMessage{Role: m.role, Content: m.text, ID: m.id}
		for _, u := range m.calls {
			out.Calls = append(out.Calls, chatCall{ID: u.id, Type: "function", Function: chatFunction{
				Name: u.name, Arguments: u.input,
			}})
		}
		messages = append(messages, out)
	}
	var tools []chatCall
	for _, name := range c.tools {
		tools = append(tools, chatCall{
			Type: "function", Function: chatFunction{Name: name, Parameters: json.RawMessage(`{"type":"object"}`)},
		})
	}
	return c.join(messages, tools)
}

type block struct {
	Type   string          `json:"type"`
	Text   string          `json:"text,omitempty"`
	ID     string          `json:"id,omitempty"`
	Name   string          `json:"name,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	Use    string          `json:"tool_use_id,omitempty"`
	Result string          `json:"content,omitempty"`
}

type blocks struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

type toolSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"input_schema"`
}

func (c *client) messagesBody() []byte {
	var messages []blocks
	for _, m := range c.history {
		out := blocks{Role: m.role}
		if m.text != "" && m.role != "tool" {
			out.Content = append(out.Content, block{Type: "text", Text: m.text})
		}
		for _, u := range m.calls {
			out.Content = append(out.Content, block{Type: "tool_use", ID: u.id, Name: u.name, Input: json.RawMessage(u.input)})
		}
		if m.role == "tool" {
			out = blocks{"user", []block{{Type: "tool_result", Use: m.id, Result: m.text}}}
			if last := len(messages) - 1; messages[last].Role == "user" {
				messages[last].Content = append(messages[last].Content, out.Content...)
				continue
			}
		}
		messages = append(messages, out)
	}
	var tools []toolSchema
	for _, name := range c.tools {
		tools = append(tools, toolSchema{name, json.RawMessage(`{"type":"object"}`)})
	}
	return c.join(messages, tools)
}

func (c *client) join(messages, tools any) []byte {
	body := []byte(`{"model":` + string(wire.Quote(c.model)) + `,"max_tokens":1000,` + c.more)
	if c.way.messages {
		body = append(body, `"system":`+string(wire.Quote(c.system))+`,`...)
	}
	if c.way.stream {
		body = append(body, `"stream":true,`...)
		if !c.way.messages {
			body = append(body, `"stream_options":{"include_usage":true},`...)
		}
	}
	if len(c.tools) > 0 {
		body = append(append(append(body, `"tools":`...), c.json(tools)...), ',')
	}
	return append(append(append(body, `"messages":`...), c.json(messages)...), '}')
}

func (c *client) json(v any) []byte {
	b, err := json.Marshal(v)
	require.NoError(c.gateway.t, err)
	return b
}

// read takes an answer apart.
func (c *client) read(got *answered) {
	got.role = "assistant"
	switch c.way {
	case way{}:
		var a struct {
			Choices []struct {
				Message chatMessage
				Finish  string `json:"finish_reason"`
			}
			Usage json.RawMessage
		}
		require.NoError(c.gateway.t, json.Unmarshal([]byte(got.body), &a), got.body)
		got.text, got.finish, got.usage = a.Choices[0].Message.Content, a.Choices[0].Finish, string(a.Usage)
		for _, call := range a.Choices[0].Message.Calls {
			got.calls = append(got.calls, use{call.ID, call.Function.Name, call.Function.Arguments})
		}
	case way{messages: true}:
		var a struct {
			Content []block
			Stop    string `json:"stop_reason"`
			Usage   json.RawMessage
		}
		require.NoError(c.gateway.t, json.Unmarshal([]byte(got.body), &a), got.body)
		got.finish, got.usage = a.Stop, string(a.Usage)
		for _, b := range a.Content {
			got.text += b.Text
			if b.Type == "tool_use" {
				got.calls = append(got.calls, use{b.ID, b.Name, string(b.Input)})
			}
		}
	default:
		frames := wire.NewFrameReader(strings.NewReader(got.body))
		for {
			f, err := frames.Next()
			if len(f.Data) > 0 && string(f.Data) != "[DONE]" {
				if c.way.messages {
					c.readEvent(got, f.Data)
				} else {
					c.readChunk(got, f.Data)
				}
			}
			if err != nil {
				require.Equal(c.gateway.t, io.EOF, err)
				return
			}
		}
	}
}

func (c *client) readChunk(got *answered, data []byte) {
	var a struct {
		Choices []struct {
			Delta  chatMessage
			Finish string `json:"finish_reason"`
		}
		Usage json.RawMessage
		Error json.RawMessage
	}
	require.NoError(c.gateway.t, json.Unmarshal(data, &a), "%s", data)
	got.cut = got.cut || a.Error != nil
	if len(a.Usage) > 0 {
		got.usage = string(a.Usage)
	}
	for _, choice := range a.Choices {
		got.text += choice.Delta.Content
		got.finish += choice.Finish
		for _, call := range choice.Delta.Calls {
			require.Len(c.gateway.t, got.calls, call.Index)
			got.calls = append(got.calls, use{call.ID, call.Function.Name, call.Function.Arguments})
		}
	}
}

func (c *client) readEvent(got *answered, data []byte) {
	var e struct {
		Type  string
		Block block `json:"content_block"`
		Delta struct {
			Text    string
			Partial string `json:"partial_json"`
			Stop    string `json:"stop_reason"`
		}
		Usage json.RawMessage
	}
	require.NoError(c.gateway.t, json.Unmarshal(data, &e), "%s", data)
	got.cut = got.cut || e.Type == "error"
	got.text += e.Delta.Text
	got.finish += e.Delta.Stop
	if e.Type == "message_delta" {
		got.usage = string(e.Usage)
	}
	if e.Block.Type == "tool_use" {
		got.calls = append(got.calls, use{e.Block.ID, e.Block.Name, ""})
	}
	if e.Delta.Partial != "" {
		got.calls[len(got.calls)-1].input += e.Delta.Partial
	}
}
