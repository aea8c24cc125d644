package offline

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// request is what the model reads of a messages request; unknown fields are accepted and ignored.
type request struct {
	Model      string      `json:"model"`
	Stream     bool        `json:"stream"`
	System     content     `json:"system"`
	Messages   []message   `json:"messages"`
	Tools      []tool      `json:"tools"`
	ToolChoice *toolChoice `json:"tool_choice"`
}

type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is a string or a list of blocks on the wire; a string is read as one text block.
type content []block

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   content         `json:"content"`
	IsError   bool            `json:"is_error"`
}

type tool struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	InputSchema toolSchema `json:"input_schema"`
}

type toolSchema struct {
	Properties map[string]toolProperty `json:"properties"`
	Required   []string                `json:"required"`
}

type toolProperty struct {
	Type schemaType `json:"type"`
	Enum []any      `json:"enum"`
}

// schemaType is the first name of a JSON Schema "type", which may be one name or a list of them.
type schemaType string

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel bool   `json:"disable_parallel_tool_use"`
}

func (c *content) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '[' {
		var blocks []block
		if err := json.Unmarshal(data, &blocks); err != nil {
			return err
		}
		*c = blocks
		return nil
	}
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	if len(data) > 0 && data[0] == '{' {
		// A nested content that is one object (a document source, a server tool's result) is not ours to read.
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errors.New("content must be a string or a list of blocks")
	}
	*c = content{{Type: "text", Text: text}}
	return nil
}

func (t *schemaType) UnmarshalJSON(data []byte) error {
	var one string
	var many []string
	if json.Unmarshal(data, &one) == nil {
		*t = schemaType(one)
	} else if json.Unmarshal(data, &many) == nil && len(many) > 0 {
		*t = schemaType(many[0])
	}
	return nil
}

// The schemas of tools are read as far as they are understood: a schema may be written in forms that say nothing
// here, and none of them makes a request wrong.

func (s *toolSchema) UnmarshalJSON(data []byte) error {
	type plain toolSchema
	var p plain
	if json.Unmarshal(data, &p) == nil {
		*s = toolSchema(p)
	}
	return nil
}

func (p *toolProperty) UnmarshalJSON(data []byte) error {
	type plain toolProperty
	var q plain
	if json.Unmarshal(data, &q) == nil {
		*p = toolProperty(q)
	}
	return nil
}

// text joins the text blocks of c by new lines.
func (c content) text() string {
	var parts []string
	for _, b := range c {
		if b.Type == "text" && b.Text != "" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// parseRequest reads body and checks what the model depends on. Its errors are sentences for the caller.
func parseRequest(body []byte) (*request, error) {
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("the body is not a valid messages request: %w", err)
	}
	if req.Model == "" {
		return nil, errors.New("model: field required")
	}
	if len(req.Messages) == 0 {
		return nil, errors.New("messages: at least one message is required")
	}
	for i, m := range req.Messages {
		if !slices.Contains([]string{"user", "assistant", "system"}, m.Role) {
			return nil, fmt.Errorf("messages.%d.role: must be user, assistant or system, got %q", i, m.Role)
		}
	}
	return &req, nil
}

// countTokens estimates the tokens of the request by its words.
func (r *request) countTokens() int {
	n := countWords(r.System.text())
	for _, m := range r.Messages {
		n += 3 + m.Content.countTokens()
	}
	for _, t := range r.Tools {
		n += 8 + countWords(t.Name) + countWords(t.Description) + 6*len(t.InputSchema.Properties)
	}
	return n
}

func (c content) countTokens() int {
	n := 0
	for _, b := range c {
		n += countWords(b.Text) + countWords(string(b.Input)) + b.Content.countTokens()
	}
	return n
}

// countWords counts a token per started four bytes of each word, which is near what vendors' tokenizers do.
func countWords(s string) int {
	n := 0
	for _, w := range strings.Fields(s) {
		n += (len(w) + 3) / 4
	}
	return n
}

// reply is what the model decided to say: text, or calls of tools.
type reply struct {
	text  string
	calls []call
}

// call is one tool_use before it has an id.
type call struct {
	tool  string
	input arguments
}

// arguments are the properties of a call.
type arguments map[string]json.RawMessage

func (a arguments) text(name, value string) arguments {
	quoted, err := json.Marshal(value)
	if err == nil { // a string always marshals
		a[name] = quoted
	}
	return a
}

func (a arguments) number(name string, value int) {
	a[name] = strconv.AppendInt(nil, int64(value), 10)
}

type tokenCount struct {
	InputTokens int `json:"input_tokens"`
}

type errorReply struct {
	Type  string      `json:"type"`
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// answerMessage is the dialect's message object.
type answerMessage struct {
	ID           string        `json:"id"`
	Type         string        `json:"type"`
	Role         string        `json:"role"`
	Model        string        `json:"model"`
	Content      []answerBlock `json:"content"`
	StopReason   *string       `json:"stop_reason"`
	StopSequence *string       `json:"stop_sequence"`
	Usage        usage         `json:"usage"`
}

type usage struct {
	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
}

// answerBlock is a text or a tool_use block; Text is a pointer so that an empty text is still written.
type answerBlock struct {
	Type  string          `json:"type"`
	Text  *string         `json:"text,omitempty"`
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
}

func newMessage(req *request, rep reply) answerMessage {
	ids := newIDs(req)
	stop := "end_turn"
	var blocks []answerBlock
	out := countWords(rep.text)
	if rep.text != "" || len(rep.calls) == 0 {
		blocks = append(blocks, answerBlock{Type: "text", Text: &rep.text})
	}
	for _, c := range rep.calls {
		stop = "tool_use"
		input, err := json.Marshal(c.input)
		if err != nil || c.input == nil {
			input = []byte("{}")
		}
		out += 8 + countWords(string(input))
		blocks = append(blocks, answerBlock{Type: "tool_use", ID: ids.next("toolu_"), Name: c.tool, Input: input})
	}
	return answerMessage{
		ID: ids.next("msg_"), Type: "message", Role: "assistant", Model: req.Model, Content: blocks,
		StopReason: &stop, Usage: usage{InputTokens: req.countTokens(), OutputTokens: out},
	}
}

// idSource derives identifiers from the conversation, so that equal requests get equal ones, streamed or not, and
// never one that the conversation already holds.
type idSource struct {
	seed  [sha256.Size]byte
	count uint64
	taken map[string]bool
}

func newIDs(req *request) *idSource {
	h := sha256.New()
	taken := map[string]bool{}
	enc := json.NewEncoder(h)
	for _, m := range req.Messages {
		// Raw inputs that are not valid JSON cannot reach here, so encoding does not fail; a shorter seed would do no harm.
		_ = enc.Encode(m)
		for _, b := range m.Content {
			taken[b.ID] = true
			taken[b.ToolUseID] = true
		}
	}
	s := &idSource{taken: taken}
	h.Sum(s.seed[:0])
	return s
}

const (
	idAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	idLength   = 24
)

func (s *idSource) next(prefix string) string {
	for {
		s.count++
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(s.seed[:len(s.seed):len(s.seed)], s.count))
		id := []byte(prefix)
		for _, c := range sum[:idLength] {
			id = append(id, idAlphabet[int(c)%len(idAlphabet)])
		}
		if !s.taken[string(id)] {
			s.taken[string(id)] = true
			return string(id)
		}
	}
}
