package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"mneme/cmd/mneme/services"
	"mneme/memory"
	"mneme/scripts/eval/internal/conversations"
)

// listener is the vendor of a model that says little and keeps what it was shown first.
type listener struct {
	mu   sync.Mutex
	body []byte // guarded by mu
}

// RoundTrip answers a model call.
func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.body == nil {
		l.body = body
	}
	const answer = `data: {"choices":[{"index":0,"delta":{"content":"Good."},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: -1,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(answer)),
	}, nil
}

// take gives what the first call since the last take showed.
func (l *listener) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	body := l.body
	l.body = nil
	return body
}

// turnService is a whole mneme, with a listener as its model.
type turnService struct {
	recallService
	model *listener
	chats int
}

// evalTurns measures what stands in prompts.
func evalTurns(ctx context.Context, set *conversations.Set, tell func(string)) (report, error) {
	t := &turnService{model: &listener{}}
	var stop func()
	var err error
	t.recallService, stop, err = own(ctx, services.Up, func(cfg *services.Config, o *services.Options) {
		cfg.Apiserver.Listen, cfg.Proxy.Listen = "127.0.0.1:0", "127.0.0.1:0"
		cfg.Proxy.Active, cfg.Proxy.TeammateBackend = "listener", "listener"
		cfg.Proxy.Backends = map[string]services.Backend{"listener": {
			Kind: services.OpenAI, BaseURL: "http://listener.invalid/v1", Vendor: "generic",
		}}
		o.Transport = t.model
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	return conversations.RunTurns(ctx, set, t, tell)
}

// Turn imports the conversation into a new chat, posts the message there and erases the chat.
func (s *turnService) Turn(ctx context.Context, c conversations.Conversation, message string) (
	prompt, recalled string, err error) {
	s.chats++
	c.ID = fmt.Sprintf("turn-%d", s.chats)
	if err := s.Import(ctx, c); err != nil {
		return "", "", err
	}
	chat := memory.MustChat(c.ID)
	s.model.take()
	for _, err := range s.client.Say(ctx, chat, message, "") {
		if err != nil {
			return "", "", err
		}
	}
	var request struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(s.model.take(), &request); err != nil {
		return "", "", fmt.Errorf("reading a prompt: %w", err)
	}
	var buf bytes.Buffer
	for _, m := range request.Messages {
		var text string
		var parts []struct{ Text string }
		if m.Role == "system" || json.Unmarshal(m.Content, &text) != nil && json.Unmarshal(m.Content, &parts) != nil {
			continue
		}
		for _, p := range parts {
			text += p.Text + "\n"
		}
		fmt.Fprintln(&buf, text)
	}
	prompt = buf.String()
	if _, tail, ok := strings.Cut(prompt, "What was said earlier in this chat"); ok {
		recalled, _, _ = strings.Cut(tail, "</recalled")
	}
	_, err = s.client.EraseChat(ctx, chat)
	return prompt, recalled, err
}
