package app_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
)

// completions is go-openai's client of a chat.
func (u *up) completions(chat string) *openai.Client {
	cfg := openai.DefaultConfig("no-key")
	cfg.BaseURL = u.url("/c/" + chat + "/v1")
	return openai.NewClientWithConfig(cfg)
}

// complete asks for a completion and gives its text.
func complete(t *testing.T, c *openai.Client, messages ...openai.ChatCompletionMessage) openai.ChatCompletionChoice {
	t.Helper()
	got, err := c.CreateChatCompletion(t.Context(), openai.ChatCompletionRequest{Model: "mneme", Messages: messages})
	require.NoError(t, err)
	return got.Choices[0]
}

func user(text string) openai.ChatCompletionMessage {
	return openai.ChatCompletionMessage{Role: openai.ChatMessageRoleUser, Content: text}
}

// mneme as it comes serves chat completions, over any replica, with what the chat remembers; what
// a client's system message says holds for its run.
func TestCompletionsOverTwoReplicas(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	redis := redistest.Start(t)
	replica := func() *up {
		return start(t, "MNEME_REDIS_URL="+redis.URL(), "MNEME_DATA_DIR="+t.TempDir())
	}
	a, b := replica(), replica()
	models, err := a.completions("x").ListModels(t.Context())
	require.NoError(t, err)
	require.Len(t, models.Models, 3)
	first := complete(t, a.completions("c"), user("My name is Aliya."))
	require.Contains(t, first.Message.Content, "Aliya")
	second := complete(t, b.completions("c"), user("My name is Aliya."), first.Message, user("What is my name?"))
	require.Contains(t, second.Message.Content, "Aliya")
	alone := complete(t, a.completions("c"), user("What is my name?"))
	require.Contains(t, alone.Message.Content, "Aliya", "the memory is not the client's")
	stream, err := b.completions("c").CreateChatCompletionStream(t.Context(), openai.ChatCompletionRequest{Model: "mneme",
		Messages:      []openai.ChatCompletionMessage{user("What is my name?")},
		StreamOptions: &openai.StreamOptions{IncludeUsage: true}})
	require.NoError(t, err)
	text, used := "", 0
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if chunk.Usage != nil {
			used = chunk.Usage.TotalTokens
			continue
		}
		text += chunk.Choices[0].Delta.Content
	}
	require.Contains(t, text, "Aliya")
	require.Positive(t, used)
	resp, err := http.Get(b.url("/metrics"))
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(raw), "\nmneme_openai_completions_total{memory=\"chat\"} 2\n")
}

// A tool of the client's own, by the master of mneme as it comes.
func TestCompletionsWithAClientsTool(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	request := openai.ChatCompletionRequest{Model: "mneme", Messages: []openai.ChatCompletionMessage{user(`use light {"room":"hall"}`)},
		Tools: []openai.Tool{{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{Name: "light",
			Description: "Turns a light on.", Parameters: json.RawMessage(`{"type":"object","properties":{"room":{"type":"string"}}}`)}}}}
	got, err := u.completions("9").CreateChatCompletion(t.Context(), request)
	require.NoError(t, err)
	said := got.Choices[0].Message
	require.Equal(t, openai.FinishReasonToolCalls, got.Choices[0].FinishReason)
	require.JSONEq(t, `{"room":"hall"}`, said.ToolCalls[0].Function.Arguments)
	request.Messages = append(request.Messages, said, openai.ChatCompletionMessage{Role: openai.ChatMessageRoleTool,
		ToolCallID: said.ToolCalls[0].ID, Content: "it shines"})
	got, err = u.completions("9").CreateChatCompletion(t.Context(), request)
	require.NoError(t, err)
	require.Contains(t, got.Choices[0].Message.Content, "it shines")
	request.Messages = append(request.Messages, got.Choices[0].Message, user("Thank you."))
	_, err = u.completions("9").CreateChatCompletion(t.Context(), request)
	require.NoError(t, err)
	_, history := u.request(http.MethodGet, "/v1/chats/9/history", "", "")
	require.Equal(t, 4, strings.Count(history, `"role"`), history)
}

// A chat page asks for a title, tags and the like in the same chat: its history grows by the user's
// turn alone. Without a chat nothing is kept.
func TestCompletionsOfAChatPage(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	first := complete(t, u.completions("page"), user("My name is Aliya."))
	for range 4 {
		task := complete(t, u.completions("page"),
			user("### Task:\nGenerate a title.\n<chat_history>\nMy name is Aliya.\n</chat_history>"))
		require.NotEmpty(t, task.Message.Content)
	}
	_, history := u.request(http.MethodGet, "/v1/chats/page/history", "", "")
	require.Equal(t, 2, strings.Count(history, `"role"`), history)

	cfg := openai.DefaultConfig("no-key")
	cfg.BaseURL = u.url("/v1")
	alone := complete(t, openai.NewClientWithConfig(cfg), user("My name is Aliya."), first.Message, user("Thank you."))
	require.NotEmpty(t, alone.Message.Content)
	_, chats := u.request(http.MethodGet, "/v1/chats", "", "")
	require.Equal(t, 1, strings.Count(chats, `"chat_id"`), chats)
}

// Without it there are no such routes.
func TestCompletionsAreOff(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_OPENAI_ENABLED=false")
	status, body := u.request(http.MethodGet, "/v1/models", "", "")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "unknown_route")
}
