package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// agent is a client that leads a dialogue and runs tools.
type agent interface {
	settings() *manners
	// question adds a text of the user to the history.
	question(text string)
	// post sends the history and returns the answer, which does not become part of it.
	post() answered
	// round makes one call of the model and runs the tools that it calls. It returns their number and the model's text.
	round() (calls int, text string)
	// say adds a text of the user and proceeds.
	say(text string) string
}

// proceed makes calls until the model calls no more tools. It returns the last text.
func proceed(c agent) string {
	for range 20 {
		if calls, text := c.round(); calls == 0 {
			return text
		}
	}
	require.Fail(c.settings().gateway.world, "the model does not come to an end")
	return ""
}

// manners are the settings of a client in any dialect.
type manners struct {
	self    agent
	gateway *front
	prefix  string // of the route: empty, /teammate, /teammate/<name>
	model   string
	stream  bool
	header  http.Header
	more    string // members of a request, each with a comma before it
	tools   bool   // the client offers the tool "look"
	keeps   bool   // clients of chat completions and Responses send reasoning back

	alternate []*front // the gateways of the next calls, in turn
	calls     int
	again     func(answered) bool // reports whether the client repeats the request; nil: never
	sent      []byte              // the newest request
	last      answered            // its answer
	seen      []string            // the reasoning that clients of chat completions and Responses were shown
}

func newManners(g *front, model string) manners {
	return manners{gateway: g, model: model, header: http.Header{"X-Api-Key": {"caller"}}, tools: true}
}

func (m *manners) settings() *manners { return m }

func (m *manners) say(text string) string {
	m.self.question(text)
	return proceed(m.self)
}

func (m *manners) send(endpoint string, body []byte) answered {
	m.sent = body
	for {
		m.last = m.gateway.send(m.gateway.world.Context(), m.prefix+endpoint, m.header, body)
		m.calls++
		repeats := m.again != nil && m.again(m.last)
		if len(m.alternate) > 0 {
			m.gateway, m.alternate = m.alternate[0], append(m.alternate[1:], m.alternate[0])
		}
		if !repeats {
			return m.last
		}
	}
}

// answer posts the history. The answer must not be an error.
func (m *manners) answer() answered {
	got := m.self.post()
	require.Equal(m.gateway.world, 200, got.status, "%s\nwas answered with\n%s", m.sent, got.body)
	return got
}

// set sets a header of all calls. An empty value removes it.
func (m *manners) set(name, value string) {
	if m.header.Del(name); value != "" {
		m.header.Set(name, value)
	}
}

// within names the conversation of all calls. An empty name removes it.
func (m *manners) within(conversation string) { m.set("X-AG-Conversation-Id", conversation) }

func (g *front) anyClient(dialect, model string) (agent, *manners) {
	switch dialect {
	case "messages":
		c := g.messages(model)
		return c, &c.manners
	case "chat":
		c := g.chat(model)
		return c, &c.manners
	}
	c := g.responses(model)
	c.any = true
	return c, &c.manners
}

const lookSchema = `{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`

func looked(input string) string { return "found " + input }

// block is a content block of the messages dialect with the members that SDKs know.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature *string         `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   string          `json:"content"`
	marked    bool            // for the cache
	raw       json.RawMessage // if not nil, the block as it is
}

// MarshalJSON writes the members that a block of the type has.
func (b block) MarshalJSON() ([]byte, error) {
	if b.raw != nil {
		return b.raw, nil
	}
	out := fmt.Appendf(nil, `{"type":%q`, b.Type)
	switch b.Type {
	case "text":
		out = fmt.Appendf(out, `,"text":%s`, wire.Quote(b.Text))
	case "thinking":
		out = fmt.Appendf(out, `,"thinking":%s`, wire.Quote(b.Thinking))
		if b.Signature != nil {
			out = fmt.Appendf(out, `,"signature":%s`, wire.Quote(*b.Signature))
		}
	case "redacted_thinking":
		out = fmt.Appendf(out, `,"data":%s`, wire.Quote(b.Data))
	case "tool_use":
		out = fmt.Appendf(out, `,"id":%q,"name":%q,"input":%s`, b.ID, b.Name, b.Input)
	case "tool_result":
		out = fmt.Appendf(out, `,"tool_use_id":%q,"content":%s`, b.ToolUseID, wire.Quote(b.Content))
	}
	if b.marked {
		out = append(out, `,"cache_control":{"type":"ephemeral"}`...)
	}
	return append(out, '}'), nil
}

func (b block) thinks() bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }

func textOf(s string) block { return block{Type: "text", Text: s} }

// message is one of the messages dialect. Plain sends a single text as a string.
type message struct {
	role    string
	content []block
	plain   bool
}

func (m message) MarshalJSON() ([]byte, error) {
	content := marshal(m.content)
	if m.plain && len(m.content) == 1 && m.content[0].Type == "text" {
		content = wire.Quote(m.content[0].Text)
	}
	return fmt.Appendf(nil, `{"role":%q,"content":%s}`, m.role, content), nil
}

// marshal encodes JSON like JavaScript, without escapes for HTML.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

type messagesClient struct {
	manners
	thinking  string // JSON; empty for none
	maxTokens int
	system    string // JSON; empty for none
	history   []message
	damage    func([]message) []message // of the history as it is sent; may change its argument
}

// messages returns a client that asks Claude to think as models of today do.
func (g *front) messages(model string) *messagesClient {
	c := &messagesClient{manners: newManners(g, model), maxTokens: 20000}
	c.self = c
	c.header.Set("Anthropic-Version", "2023-06-01")
	c.thinking = `{"type":"adaptive"}`
	if strings.Contains(model, "4-5") {
		c.manual(8000)
	}
	return c
}

// manual has a budget of thinking, also between calls.
func (c *messagesClient) manual(budget int) {
	c.thinking = fmt.Sprintf(`{"type":"enabled","budget_tokens":%d}`, budget)
	c.header.Set("Anthropic-Beta", "interleaved-thinking-2025-05-14")
}

func (c *messagesClient) body() []byte {
	history := slices.Clone(c.history)
	for i, m := range history {
		history[i].content = slices.Clone(m.content)
	}
	b := fmt.Sprintf(`{"model":%q,"max_tokens":%d`, c.model, c.maxTokens)
	if c.system != "" {
		b += `,"system":` + c.system
	}
	if c.thinking != "" {
		b += `,"thinking":` + c.thinking
	}
	if c.tools {
		b += `,"tools":[{"name":"look","input_schema":` + lookSchema + `}]`
	}
	if c.stream {
		b += `,"stream":true`
	}
	return append([]byte(b+c.more+`,"messages":`), string(marshal(chain(c.damage)(history)))+"}"...)
}

func (c *messagesClient) post() answered { return c.send("/v1/messages", c.body()) }

// count has the tokens of the history counted.
func (c *messagesClient) count(history ...message) answered {
	counting := *c
	counting.history, counting.stream = append(slices.Clone(c.history), history...), false
	return counting.send("/v1/messages/count_tokens", counting.body())
}

func (c *messagesClient) user(content ...block) {
	c.history = append(c.history, message{role: "user", content: content})
}

func (c *messagesClient) question(text string) { c.user(textOf(text)) }

func (c *messagesClient) round() (calls int, text string) {
	got := c.step()
	results := resultsOf(got)
	if len(results) > 0 {
		c.user(results...)
	}
	return len(results), spoken(got)
}

func resultsOf(answer []block) (results []block) {
	for _, b := range answer {
		if b.Type == "tool_use" {
			results = append(results, block{Type: "tool_result", ToolUseID: b.ID, Content: looked(string(b.Input))})
		}
	}
	return results
}

// step is one call; its answer becomes part of the history.
func (c *messagesClient) step() []block {
	blocks := readMessages(c.gateway.world, c.answer())
	c.history = append(c.history, message{role: "assistant", content: blocks})
	return blocks
}

func spoken(blocks []block) (s string) {
	for _, b := range blocks {
		if b.Type == "text" {
			s += b.Text
		}
	}
	return s
}

func readMessages(t require.TestingT, got answered) (blocks []block) {
	if got.header.Get("Content-Type") == "text/event-stream" {
		blocks, complete := readMessagesStream(t, got.body)
		require.True(t, complete, "the stream ended early: %s", got.body)
		return blocks
	}
	require.True(t, gjson.Get(got.body, "content").IsArray(), got.body)
	for _, b := range gjson.Get(got.body, "content").Array() {
		blocks = append(blocks, readBlock(t, json.RawMessage(b.Raw)))
	}
	return blocks
}

func readBlock(t require.TestingT, raw json.RawMessage) (b block) {
	require.NoError(t, json.Unmarshal(raw, &b))
	if !slices.Contains([]string{"text", "thinking", "redacted_thinking", "tool_use"}, b.Type) {
		b.raw = raw
	}
	return b
}

// readMessagesStream returns the blocks of a stream and reports whether the stream is complete.
func readMessagesStream(t require.TestingT, stream string) (blocks []block, complete bool) {
	for data := range events(stream) {
		var e struct {
			Type  string
			Index int
			Block json.RawMessage `json:"content_block"`
			Delta struct {
				Type, Text, Thinking, Signature string
				PartialJSON                     string `json:"partial_json"`
			}
		}
		require.NoError(t, json.Unmarshal(data, &e), "%s", data)
		switch e.Type {
		case "content_block_start":
			require.Equal(t, len(blocks), e.Index, "blocks come one after another")
			blocks = append(blocks, readBlock(t, e.Block))
			blocks[e.Index].Input = nil
		case "content_block_delta":
			b := &blocks[e.Index]
			b.Text += e.Delta.Text
			b.Thinking += e.Delta.Thinking
			b.Input = append(b.Input, e.Delta.PartialJSON...)
			if e.Delta.Type == "signature_delta" {
				b.Signature = &e.Delta.Signature
			}
		case "content_block_stop":
			if b := &blocks[e.Index]; b.Type == "tool_use" && len(b.Input) == 0 {
				b.Input = json.RawMessage("{}")
			}
		case "message_stop":
			complete = true
		}
	}
	return blocks, complete
}

// events returns the data of a stream's events.
func events(stream string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range strings.Lines(stream) {
			if data, found := strings.CutPrefix(line, "data:"); found && !yield([]byte(strings.TrimSpace(data))) {
				return
			}
		}
	}
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    *string    `json:"content"`
	Reasoning  *string    `json:"reasoning_content,omitempty"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`

	parts []json.RawMessage // if not nil, the content
}

func (m chatMessage) MarshalJSON() ([]byte, error) {
	type plain chatMessage
	if m.parts == nil {
		return marshal(plain(m)), nil
	}
	return marshal(struct {
		plain
		Content []json.RawMessage `json:"content"`
	}{plain(m), m.parts}), nil
}

type chatCall struct {
	Index    *int   `json:"index,omitempty"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatClient struct {
	manners
	effort  string
	history []chatMessage
	damage  func([]chatMessage) []chatMessage
}

func (g *front) chat(model string) *chatClient {
	c := &chatClient{manners: newManners(g, model), effort: "medium"}
	c.self = c
	c.header = http.Header{"Authorization": {"Bearer caller"}}
	return c
}

func (c *chatClient) body() []byte {
	history := slices.Clone(c.history)
	for i, m := range history {
		history[i].ToolCalls = slices.Clone(m.ToolCalls)
	}
	b := fmt.Sprintf(`{"model":%q,"messages":%s`, c.model, marshal(chain(c.damage)(history)))
	if c.effort != "" {
		b += fmt.Sprintf(`,"reasoning_effort":%q`, c.effort)
	}
	if c.tools {
		b += `,"tools":[{"type":"function","function":{"name":"look","parameters":` + lookSchema + `}}]`
	}
	if c.stream {
		b += `,"stream":true`
	}
	return []byte(b + c.more + "}")
}

func (c *chatClient) post() answered { return c.send("/v1/chat/completions", c.body()) }

func (c *chatClient) question(text string) {
	c.history = append(c.history, chatMessage{Role: "user", Content: &text})
}

func (c *chatClient) round() (calls int, text string) {
	m := readChat(c.gateway.world, c.answer())
	if m.Reasoning != nil {
		c.seen = append(c.seen, *m.Reasoning)
	}
	if !c.keeps {
		m.Reasoning = nil
	}
	c.history = append(c.history, m)
	for _, call := range m.ToolCalls {
		result := pointer(looked(call.Function.Arguments))
		c.history = append(c.history, chatMessage{Role: "tool", Content: result, ToolCallID: call.ID})
	}
	require.True(c.gateway.world, m.Content != nil || len(m.ToolCalls) > 0, "an answer without content")
	return len(m.ToolCalls), deref(m.Content)
}

func deref(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func readChat(t require.TestingT, got answered) (m chatMessage) {
	type choice struct {
		Message, Delta chatMessage
		FinishReason   *string `json:"finish_reason"`
	}
	var answer struct{ Choices []choice }
	if got.header.Get("Content-Type") != "text/event-stream" {
		require.NoError(t, json.Unmarshal([]byte(got.body), &answer), got.body)
		require.NotEmpty(t, answer.Choices, got.body)
		return answer.Choices[0].Message
	}
	finished := false
	join := func(to **string, more *string) {
		if more != nil {
			*to = pointer(deref(*to) + *more)
		}
	}
	for data := range events(got.body) {
		if string(data) == "[DONE]" {
			finished = true
			continue
		}
		answer.Choices = nil
		require.NoError(t, json.Unmarshal(data, &answer), "%s", data)
		for _, c := range answer.Choices {
			m.Role = "assistant"
			join(&m.Content, c.Delta.Content)
			join(&m.Reasoning, c.Delta.Reasoning)
			for _, part := range c.Delta.ToolCalls {
				require.NotNil(t, part.Index, "%s", data)
				if part.ID != "" {
					require.Len(t, m.ToolCalls, *part.Index)
					m.ToolCalls = append(m.ToolCalls, chatCall{ID: part.ID, Type: part.Type})
					m.ToolCalls[*part.Index].Function.Name = part.Function.Name
				}
				m.ToolCalls[*part.Index].Function.Arguments += part.Function.Arguments
			}
		}
	}
	require.True(t, finished, "the stream ended early: %s", got.body)
	return m
}
