package bench

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Marks stand in what is sent where a number of the same width is put: no two
// calls are the same, as no two are in life.
const (
	callMark = "....call...." // the call's number
	lineMark = "....line...." // the number of the connection
)

// benchModel is one that thinks within a budget that the request names.
const benchModel = "claude-sonnet-4-5"

// part is a content block of the messages dialect.
type part struct {
	Type      string     `json:"type"`
	Thinking  string     `json:"thinking,omitempty"`
	Signature string     `json:"signature,omitempty"`
	Text      string     `json:"text,omitempty"`
	ID        string     `json:"id,omitempty"`
	Name      string     `json:"name,omitempty"`
	Input     *toolInput `json:"input,omitempty"`
	ToolUseID string     `json:"tool_use_id,omitempty"`
	Content   string     `json:"content,omitempty"`
}

type toolInput struct {
	Query string `json:"query"`
	Limit int    `json:"limit"`
}

// utterance is a message of the messages dialect.
type utterance struct {
	Role    string `json:"role"`
	Content []part `json:"content"`
}

// messagesBody is the body of a request in the messages dialect.
type messagesBody struct {
	Model     string      `json:"model"`
	MaxTokens int         `json:"max_tokens"`
	Thinking  thinking    `json:"thinking"`
	System    []part      `json:"system,omitempty"`
	Tools     []toolSpec  `json:"tools,omitempty"`
	Messages  []utterance `json:"messages"`
	Stream    bool        `json:"stream,omitempty"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens"`
}

type toolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

func newBody(messages ...utterance) messagesBody {
	return messagesBody{Model: benchModel, MaxTokens: 8192, Thinking: thinking{"enabled", 2048}, Messages: messages}
}

// question is a request of one short message.
func question() messagesBody {
	return newBody(utterance{"user", []part{{Type: "text", Text: "Order " + callMark + ": what should be checked first, the returns or the stock levels?"}}})
}

// chatBody is the body of a request in the chat dialect.
type chatBody struct {
	Model     string     `json:"model"`
	Messages  []chatLine `json:"messages"`
	Effort    string     `json:"reasoning_effort"`
	MaxTokens int        `json:"max_completion_tokens"`
	Stream    bool       `json:"stream"`
}

type chatLine struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatQuestion asks the same in the chat dialect, for a stream.
func chatQuestion() chatBody {
	return chatBody{
		Model: benchModel, Effort: "low", MaxTokens: 8192, Stream: true,
		Messages: []chatLine{{"user", question().Messages[0].Content[0].Text}},
	}
}

// How long the agent's conversation is: whole turns of six messages and a last
// one that ends in the middle of its tool loop.
const (
	wholeTurns    = 9
	lastTurn      = 5 // messages
	historyLength = wholeTurns*6 + lastTurn
)

// history is an agent's conversation of about 115 kB: questions, thinking, tool
// calls, their results, answers. It is the same in every process. The last result
// holds the call's number.
func history() messagesBody {
	rng := rand.New(rand.NewPCG(115, 59))
	c := newBody()
	c.System = []part{{Type: "text", Text: prose(rng, 4000)}}
	for _, name := range []string{"search_orders", "run_query", "read_report", "list_tables", "fetch_page", "write_note"} {
		c.Tools = append(c.Tools, toolSpec{name, prose(rng, 600), json.RawMessage(
			`{"type":"object","properties":{"query":{"type":"string","description":"what to look for"},` +
				`"limit":{"type":"integer","minimum":1,"maximum":100}},"required":["query"],"additionalProperties":false}`)})
	}
	for i := range historyLength {
		var u utterance
		switch step := i % 6; step {
		case 0:
			u = utterance{"user", []part{{Type: "text", Text: prose(rng, 250)}}}
		case 1, 3:
			u = utterance{"assistant", []part{thought(rng), {
				Type: "tool_use", ID: toolID(i), Name: c.Tools[rng.IntN(len(c.Tools))].Name,
				Input: &toolInput{prose(rng, 80), 20},
			}}}
			if step == 1 {
				said := part{Type: "text", Text: prose(rng, 120)}
				u.Content = []part{u.Content[0], said, u.Content[1]}
			}
		case 2, 4:
			u = utterance{"user", []part{{Type: "tool_result", ToolUseID: toolID(i - 1), Content: prose(rng, 1300+rng.IntN(1800))}}}
		case 5:
			u = utterance{"assistant", []part{thought(rng), {Type: "text", Text: prose(rng, 700)}}}
		}
		c.Messages = append(c.Messages, u)
	}
	c.Messages[historyLength-1].Content[0].Content += " Rows of order " + callMark + "."
	return c
}

// long is a conversation of so many turns of a question and an answer that the
// model has thought about, and one more question, which holds the call's number.
func long(turns int) messagesBody {
	rng := rand.New(rand.NewPCG(1000, uint64(turns)))
	c := newBody()
	for range turns {
		t := thought(rng)
		t.Thinking = t.Thinking[:200]
		c.Messages = append(c.Messages,
			utterance{"user", []part{{Type: "text", Text: prose(rng, 100)}}},
			utterance{"assistant", []part{t, {Type: "text", Text: prose(rng, 250)}}})
	}
	c.Messages = append(c.Messages, utterance{"user", []part{{Type: "text", Text: "Order " + callMark + "?"}}})
	return c
}

// prose is a text of about so many bytes.
func prose(rng *rand.Rand, size int) string {
	var text strings.Builder
	for text.Len() < size {
		if text.Len() > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(phrases[rng.IntN(len(phrases))])
	}
	return text.String()
}

func thought(rng *rand.Rand) part {
	sealed := make([]byte, 480+rng.IntN(120))
	for i := range sealed {
		sealed[i] = byte(rng.Uint32())
	}
	return part{Type: "thinking", Thinking: prose(rng, 500+rng.IntN(300)), Signature: "E" + base64.StdEncoding.EncodeToString(sealed)}
}

func toolID(message int) string { return fmt.Sprintf("toolu_01Qx7Yw%015d", message) }

// encode is v as JSON. Nothing that the benchmark sends can fail to encode.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// template is what is sent again and again with another number.
type template struct {
	bytes []byte
	at    []int // where the number stands
}

func newTemplate(b []byte) template {
	t := template{bytes: b}
	for from := 0; ; from += len(callMark) {
		i := bytes.Index(b[from:], []byte(callMark))
		if i < 0 {
			return t
		}
		from += i
		t.at = append(t.at, from)
	}
}

// numbered appends the template with a number in it to dst.
func (t template) numbered(dst []byte, n int64) []byte {
	start := len(dst)
	dst = append(dst, t.bytes...)
	for _, at := range t.at {
		digits(dst[start+at:][:len(callMark)], n)
	}
	return dst
}

// digits fills b with a number.
func digits(b []byte, n int64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = '0' + byte(n%10)
		n /= 10
	}
}

// post is a whole HTTP request with the header of a usual client; extra is more of
// the header, each line with its end.
func post(path, conversation, extra string, body []byte) []byte {
	head := "POST " + path + " HTTP/1.1\r\nHost: gateway\r\nUser-Agent: mneme-bench/1\r\nAccept: application/json\r\n" +
		"Content-Type: application/json\r\nAnthropic-Version: 2023-06-01\r\nX-Api-Key: sk-of-the-caller\r\n" +
		"X-AG-Conversation-Id: " + conversation + "\r\n" + extra +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	return append([]byte(head), body...)
}
