// Package openaimodel is a loop.Model that speaks chat completions with the gateway, by go-openai, and an Embedder
// that asks it for embeddings. What that client loses is made up for here: headers travel through its HTTPDoer, a
// stream that ends without a finish_reason is an error, and contents that it would leave out get a placeholder.
//
// It owns nothing but what the gateway has told of context windows. It never reaches a vendor by itself: its address
// is the gateway's.
package openaimodel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
)

// placeholder stands for an empty content: the client would leave the field
// out, and a message without content is refused.
const placeholder = "(empty)"

// Config says which model to call and how.
type Config struct {
	BaseURL         string   // the gateway's root, or its /teammate/<name>
	Model           string   // an alias; the gateway's model_map decides
	ReasoningEffort string   // EffortAuto, or a level; empty and EffortNone leave it out
	Temperature     *float64 // nil leaves it out
	MaxTokens       int      // of an answer; 0 leaves it to the gateway
	HTTP            *http.Client
}

// Values of Config.ReasoningEffort that are no levels.
const (
	EffortAuto = "auto" // the gateway chooses, by what it knows of the model
	EffortNone = "none" // nothing is sent
)

// Model calls one model. It is safe for concurrent use.
type Model struct {
	client *openai.Client
	config Config
	window window
}

// New makes a Model. It connects to nothing; a nil HTTP is http.DefaultClient.
func New(c Config) *Model {
	return &Model{client: newClient(c.BaseURL, c.HTTP), config: c}
}

func newClient(baseURL string, h *http.Client) *openai.Client {
	c := openai.DefaultConfig("")
	c.BaseURL = strings.TrimRight(baseURL, "/") + "/v1"
	c.HTTPClient = doer{cmp.Or(h, http.DefaultClient)}
	return openai.NewClientWithConfig(c)
}

// Generate streams one answer: text as it comes, then the tool calls, then what
// the call used. Failures are an *Error, or the end of ctx. A request that is refused is made once more without what a
// vendor may take none of, see ease.
func (m *Model) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		for form := r.Format; m.refused(ctx, &r, yield); {
			if form != nil && r.Format == nil && len(r.Tools) > 0 {
				m.formLast(ctx, r, form, yield)
				return
			}
		}
	}
}

// refused makes a call and says whether the request was refused, and eased; nothing is yielded then.
func (m *Model) refused(ctx context.Context, r *loop.Request, yield func(loop.Delta, error) bool) (retry bool) {
	started := false
	m.generate(ctx, *r)(func(d loop.Delta, err error) bool {
		e := new(Error)
		retry = !started && errors.As(err, &e) && ease(r, e.Code)
		started = true
		return !retry && yield(d, err)
	})
	return retry
}

// ease takes out of a request that was refused what a vendor may take none of: images of earlier messages, which may be
// gone, too; a call that is forced; the form of the answer. Of the newest message's own images the refusal stands. It
// says whether there was any of it.
func ease(r *loop.Request, code string) bool {
	switch {
	case len(r.Images.Previous) > 0 && (code == event.Rejected || code == event.NoImages && len(r.Images.Own) == 0):
		r.Images.Previous = nil
	case code == event.Rejected && len(r.First) > 0:
		r.First = nil
	case code == event.Rejected && r.Format != nil:
		r.Format = nil
	default:
		return false
	}
	return true
}

// formLast answers where a vendor takes no form beside tools, as Google's and Groq's do not: without a form, and once
// the model calls no tool any more by one more call, which has the form and no tools. Where that is refused, too, the
// answer is the one that there is.
func (m *Model) formLast(ctx context.Context, r loop.Request, form json.RawMessage,
	yield func(loop.Delta, error) bool) {
	var draft []loop.Delta
	calls := false
	for d, err := range m.Generate(ctx, r) {
		if err != nil || d.Usage != (event.Usage{}) {
			if !yield(d, err) || err != nil {
				return
			}
			continue
		}
		draft, calls = append(draft, d), calls || len(d.Calls) > 0
	}
	r.Tools, r.Format = nil, form
	if !calls && !m.refused(ctx, &r, yield) {
		return
	}
	for _, d := range draft {
		if !yield(d, nil) {
			return
		}
	}
}

func (m *Model) generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		// The end of the iteration, however it comes, ends the call.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		call := &exchange{
			conversation: r.Conversation, final: r.Final, auto: m.config.ReasoningEffort == EffortAuto,
			ephemeral: len(ephemeral(r)), began: time.Now(), end: loop.BeginCall(ctx), model: m.config.Model,
			failure: codeCanceled, // until it has come to another end
		}
		defer call.note()
		stream, err := m.start(context.WithValue(ctx, exchangeKey{}, call), &r)
		m.window.tell(call)
		if err != nil {
			yield(loop.Delta{}, call.failed(explain(ctx, err, call)))
			return
		}
		defer func() { _ = stream.Close() }()
		a := &call.answer
		for {
			chunk, err := receive(stream)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				a.fail(yield, call.failed(explain(ctx, err, call)))
				return
			}
			if text := a.add(chunk); text != "" && !yield(loop.Delta{Text: text}, nil) {
				return
			}
		}
		call.readCost()
		calls, err := a.end()
		if ctx.Err() != nil { // a stream that was stopped looks like one that ended
			err = context.Cause(ctx)
		}
		if err != nil {
			a.fail(yield, call.failed(err))
			return
		}
		call.failure = ""
		if len(calls) > 0 && !yield(loop.Delta{Calls: calls}, nil) {
			return
		}
		if finish := a.cut(); finish != "" && !yield(loop.Delta{Finish: finish}, nil) {
			return
		}
		yield(loop.Delta{Usage: a.usage}, nil)
	}
}

// start asks for the answer. It is not inlined: the request would be in the frame in which
// Generate waits for the answer's parts.
//
//go:noinline
func (m *Model) start(ctx context.Context, r *loop.Request) (*openai.ChatCompletionStream, error) {
	return m.client.CreateChatCompletionStream(ctx, m.request(r))
}

func (m *Model) request(r *loop.Request) openai.ChatCompletionRequest {
	out := openai.ChatCompletionRequest{
		Model:               m.config.Model,
		MaxCompletionTokens: m.config.MaxTokens,
		StreamOptions:       &openai.StreamOptions{IncludeUsage: true},
	}
	if e := m.config.ReasoningEffort; e != EffortAuto && e != EffortNone {
		out.ReasoningEffort = e
	}
	if t := m.config.Temperature; t != nil {
		// The client leaves a zero out; this is what its documentation gives for one.
		out.Temperature = max(float32(*t), math.SmallestNonzeroFloat32)
	}
	if r.System != "" {
		out.Messages = append(out.Messages, openai.ChatCompletionMessage{
			Role: openai.ChatMessageRoleSystem, Content: plain(r.System),
		})
	}
	newest, front := newestUser(*r), ephemeral(*r)
	for i, msg := range r.Messages {
		m := message(msg)
		if i == newest && len(front) > 0 {
			m.MultiContent = append(front, textPart(m.Content))
			m.Content = ""
		}
		out.Messages = append(out.Messages, m)
	}
	if len(r.Format) > 0 {
		out.ResponseFormat = &openai.ChatCompletionResponseFormat{}
		_ = json.Unmarshal(r.Format, out.ResponseFormat) // what does not fit is refused, and the request eased
		if form := out.ResponseFormat.JSONSchema; form != nil {
			form.Name = cmp.Or(form.Name, "answer") // which vendors require
		}
	}
	switch len(r.First) {
	case 0:
	case 1:
		out.ToolChoice = openai.ToolChoice{Type: openai.ToolTypeFunction, Function: openai.ToolFunction{Name: r.First[0]}}
	default: // of all tools no vendor can be asked for one of some
		out.ToolChoice = "required"
	}
	for _, s := range r.Tools {
		if len(r.First) > 1 && !slices.Contains(r.First, s.Name) {
			continue
		}
		parameters := s.Parameters
		if len(parameters) == 0 {
			parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out.Tools = append(out.Tools, openai.Tool{
			Type:     openai.ToolTypeFunction,
			Function: &openai.FunctionDefinition{Name: s.Name, Description: s.Description, Parameters: parameters},
		})
	}
	return out
}

// newestUser is where what is of this request alone goes, -1 for nowhere.
func newestUser(r loop.Request) int {
	i := len(r.Messages) - 1
	for i >= 0 && r.Messages[i].Role != memory.RoleUser {
		i--
	}
	return i
}

// What stands before images.
const (
	imagesBefore = "Images of the user's earlier messages, the oldest first:"
	imagesOwn    = "Images of the user's message that follows:"
	imagesLost   = "Images of the user's message that follows were shown before and cannot be shown again (%d of them)."
)

// ephemeral are the parts before the newest message of the user that are of this request alone: what
// is recalled, and images.
func ephemeral(r loop.Request) (parts []openai.ChatMessagePart) {
	if newestUser(r) < 0 {
		return nil
	}
	say := func(text string, really bool) {
		if really {
			parts = append(parts, textPart(text))
		}
	}
	show := func(images []string) {
		for _, imageURL := range images {
			parts = append(parts, openai.ChatMessagePart{Type: openai.ChatMessagePartTypeImageURL,
				ImageURL: &openai.ChatMessageImageURL{URL: imageURL}})
		}
	}
	images := r.Images
	say(r.Recalled, r.Recalled != "")
	say(imagesBefore, len(images.Previous) > 0)
	show(images.Previous)
	say(imagesOwn, len(images.Previous) > 0 && len(images.Own) > 0)
	show(images.Own)
	say(fmt.Sprintf(imagesLost, images.Missing), images.Missing > 0)
	return parts
}

func textPart(text string) openai.ChatMessagePart {
	return openai.ChatMessagePart{Type: openai.ChatMessagePartTypeText, Text: plain(text)}
}

// plain returns text without U+0000, which files and tools may give and the gateway refuses.
func plain(text string) string { return strings.ReplaceAll(text, "\x00", "") }

func message(m memory.Message) openai.ChatCompletionMessage {
	out := openai.ChatCompletionMessage{Role: m.Role, Content: plain(m.Content), ToolCallID: m.ToolCallID}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, openai.ToolCall{
			ID: c.ID, Type: openai.ToolTypeFunction,
			Function: openai.FunctionCall{Name: c.Function.Name, Arguments: orObject(c.Function.Arguments)},
		})
	}
	if out.Content == "" && len(out.ToolCalls) == 0 {
		out.Content = placeholder
	}
	return out
}

func orObject(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	return arguments
}
