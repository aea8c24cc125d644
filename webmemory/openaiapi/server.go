package openaiapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/secrets"
	webapi "mneme/webmemory/api"
)

// Config says what a Handler serves.
type Config struct {
	Memory *webapi.Client        // of the webmemory whose agents answer
	Agents func() []memory.Agent // subagents of the moment, each of them a model beside the master
	Log    zerolog.Logger
	// Gateway is the base URL of the gateway, which serves embeddings, and ToGateway the way there as the caller of a
	// request.
	Gateway   string
	ToGateway http.RoundTripper
	Settings
	// Heartbeat is how long a stream is silent before it gets a comment; 0: 15 s.
	Heartbeat time.Duration
	// Hold is how long the head of a stream waits for something to show; 0: 20 s. Proxies cut connections on which
	// nothing comes after a minute.
	Hold time.Duration
	// Answered, if it is not nil, is told of each completion that has begun what is remembered of
	// it: one of the values of memoryHeader.
	Answered func(memory string)
}

// Settings are the operator's settings. Package config reads the tags.
type Settings struct {
	Enabled bool `yaml:"enabled"` // the service has the endpoint
	// ChatHeaders name the chat. The first header of the request counts.
	ChatHeaders []string `yaml:"chat_headers" check:"dive,header"`
	// MessageHeaders name a message of the user, AnswerHeaders its answer, and ParentHeaders what it follows.
	MessageHeaders []string `yaml:"message_headers" check:"dive,header"`
	AnswerHeaders  []string `yaml:"answer_headers" check:"dive,header"`
	ParentHeaders  []string `yaml:"parent_headers" check:"dive,header"`
	// TaskHeaders mark a task of the client's own.
	TaskHeaders  []string `yaml:"task_headers" check:"dive,header"`
	Progress     string   `yaml:"progress" check:"oneof=reasoning none"`
	OnDisconnect string   `yaml:"on_disconnect" check:"oneof=stop continue"`
	OnMismatch   string   `yaml:"on_mismatch" check:"oneof=append transcript"`
}

// Values of Settings.
const (
	Reasoning   = "reasoning" // delegations and tools show as reasoning_content
	NoReasoning = "none"      // they do not show

	Stop     = "stop"     // a client that leaves stops its run
	Continue = "continue" // the run goes on

	Append     = "append"     // store the message and its answer, and answer from the client's transcript
	Transcript = "transcript" // answer from the client's transcript, and store nothing
)

// Defaults are the Settings of a service without a configuration.
func Defaults() Settings {
	return Settings{
		Enabled:        true,
		ChatHeaders:    []string{"Mneme-Chat-Id", openWebUIChat, "X-Conversation-Id", "X-Chat-Id", "X-Session-Id"},
		MessageHeaders: []string{"Mneme-Message-Id", "X-OpenWebUI-User-Message-Id"},
		AnswerHeaders:  []string{"Mneme-Answer-Id", "X-OpenWebUI-Message-Id"},
		ParentHeaders:  []string{"Mneme-Parent-Id", "X-OpenWebUI-User-Message-Parent-Id"},
		TaskHeaders:    []string{"Mneme-Task", "X-OpenWebUI-Task"},
		Progress:       Reasoning, OnDisconnect: Stop, OnMismatch: Append,
	}
}

// Headers of an answer, beside webapi.RunID.
const (
	chatHeader   = "Mneme-Chat-Id" // the chat that the answer is of
	memoryHeader = "Mneme-Memory"  // one of the values below
)

// What is remembered of a request and its answer.
const (
	MemoryChat = "chat" // message and answer are stored in the chat
	MemoryNone = "none" // nothing is stored: the request names no chat, or is a task of the client
	// MemoryMismatch: nothing is stored. The transcript does not end where the chat does, or it ends with results of
	// another service's calls.
	MemoryMismatch = "mismatch"
)

// Handler serves the endpoint.
type Handler struct {
	Config
	routes  *http.ServeMux
	life    context.Context
	end     context.CancelFunc
	created int64     // Unix seconds, of the models
	noChat  sync.Once // logs that a request names no chat
	// taskByID logs that a request is a task by its id.
	taskByID sync.Once
	// abandoned are runs whose clients left before they had the answer.
	abandoned runSet
}

// Bound returns a context that Close cancels too.
func (h *Handler) Bound(ctx context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.life, func() { end(errShutdown) })
	return ctx, func() { stop(); end(nil) }
}

// errShutdown ends answers that are not over when the handler is closed.
var errShutdown = &api.Problem{
	Status: http.StatusServiceUnavailable, Code: webapi.CodeShuttingDown, Retryable: true,
	Message: "The service is shutting down. A message that a chat has taken is answered all the same; read its history.",
}

// Close ends the answers that are not over. Their clients are told so; the runs of chats go on.
func (h *Handler) Close() { h.end() }

// New makes the handler. Close it.
func New(c Config) *Handler {
	c.Heartbeat, c.Hold = cmp.Or(c.Heartbeat, 15*time.Second), cmp.Or(c.Hold, 20*time.Second)
	h := &Handler{Config: c, routes: http.NewServeMux(), created: time.Now().Unix()}
	h.life, h.end = context.WithCancel(context.Background())
	for _, base := range []string{"", "/c/{chat}"} {
		for path, read := range map[string]reader{"/v1/chat/completions": read, "/v1/responses": readResponse} {
			h.routes.HandleFunc("POST "+base+path, func(w http.ResponseWriter, r *http.Request) { answerTo(h, w, r, read) })
		}
		h.routes.HandleFunc("GET "+base+"/v1/responses/{response}", h.getResponse)
		h.routes.HandleFunc("DELETE "+base+"/v1/responses/{response}", h.deleteResponse)
		h.routes.HandleFunc("POST "+base+"/v1/embeddings", h.embed)
		h.routes.HandleFunc("GET "+base+"/v1/models", h.listModels)
		h.routes.HandleFunc("GET "+base+"/v1/models/{model...}", h.getModel)
	}
	for route, answer := range map[string]func(*http.Request, memory.Chat) (any, error){
		"POST /v1/conversations":                               h.postConversation,
		"GET /v1/conversations/{conversation}":                 h.getConversation,
		"DELETE /v1/conversations/{conversation}":              h.deleteConversation,
		"POST /v1/conversations/{conversation}/items":          h.postItems,
		"GET /v1/conversations/{conversation}/items":           h.getItems,
		"DELETE /v1/conversations/{conversation}/items/{item}": h.deleteItem,
	} {
		h.routes.HandleFunc(route, h.conversations(answer))
	}
	return h
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.routes.ServeHTTP(w, r) }

// model is an entry of GET /v1/models.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// masterModel is the model that the master is; a subagent's name stands behind it and a slash.
const masterModel = "mneme"

func (h *Handler) models() []model {
	models := []model{{masterModel, "model", h.created, masterModel}}
	for _, a := range h.Agents() {
		models = append(models, model{masterModel + "/" + string(a), "model", h.created, masterModel})
	}
	return models
}

func (h *Handler) listModels(w http.ResponseWriter, _ *http.Request) {
	api.WriteJSON(w, http.StatusOK, struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", h.models()})
}

func (h *Handler) getModel(w http.ResponseWriter, r *http.Request) {
	models := h.models()
	i := slices.IndexFunc(models, func(m model) bool { return m.ID == r.PathValue("model") })
	if i < 0 {
		Refuse(w, noModel(r.PathValue("model")))
		return
	}
	api.WriteJSON(w, http.StatusOK, models[i])
}

// agentOf is the agent_version that a model stands for.
func (h *Handler) agentOf(name string) (string, error) {
	switch agent, ok := strings.CutPrefix(name, masterModel+"/"); {
	case name == "":
		return "", invalid("model", "model is missing: GET /v1/models lists the models.")
	case name == masterModel:
		return webapi.Master, nil
	case ok && slices.Contains(h.Agents(), memory.Agent(agent)):
		return agent, nil
	}
	return "", noModel(name)
}

func noModel(name string) error {
	return refusal(http.StatusNotFound, "model", "model_not_found",
		"The model '%.80s' does not exist; GET /v1/models lists those that do.", name)
}

// firstOf returns the value of the first of some headers that has one. A placeholder that a client did not fill in, such as
// {{CHAT_ID}} or null, does not count.
func firstOf(r *http.Request, names []string) (value, name string) {
	for _, name := range names {
		value := strings.TrimSpace(r.Header.Get(name))
		if value != "" && value != "null" && value != "undefined" && !strings.Contains(value, "{{") {
			return value, name
		}
	}
	return "", ""
}

// chatOf is the chat that a request names; nil for none.
func (h *Handler) chatOf(r *http.Request, conversation, inMetadata string) (*memory.Chat, error) {
	id, place := r.PathValue("chat"), "The path"
	if id == "" {
		id, place = firstOf(r, h.ChatHeaders)
		if strings.EqualFold(place, openWebUIChat) && strings.HasPrefix(id, temporaryChat) {
			return nil, nil
		}
	}
	if id == "" {
		id, place = conversation, "conversation"
	}
	if id == "" {
		id, place = inMetadata, "metadata.chat_id"
	}
	if id == "" {
		return nil, nil
	}
	chat, err := memory.Tenant{}.Chat(id)
	if err != nil {
		return nil, invalid("", "%s names no chat: %s", place, api.BadRequest(err).Message)
	}
	return &chat, nil
}

// failure is an error as OpenAI says it.
type failure struct {
	api.Problem
	Param string // the member of the request that is wrong; empty for none
}

func (f *failure) Error() string { return f.Message }

// Unwrap gives the Problem.
func (f *failure) Unwrap() error { return &f.Problem }

// refusal returns a failure about a member of the request; param is empty for none.
func refusal(status int, param, code, format string, args ...any) error {
	return &failure{Param: param, Problem: api.Problem{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}}
}

func invalid(param, format string, args ...any) error {
	return refusal(http.StatusBadRequest, param, webapi.CodeBadRequest, format, args...)
}

func unsupportedPart(param, format string, args ...any) error {
	return refusal(http.StatusBadRequest, param, "part_not_supported", format, args...)
}

// failureOf is any error as OpenAI says it.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return &failure{Problem: *p}
	}
	if errors.Is(err, fair.ErrFull) {
		return &failure{Problem: *api.ProblemOf(event.Fail(webapi.CodeTooManyChats, "", 2*time.Second))}
	}
	broken := &failure{Problem: *api.ProblemOf(event.Fail("webmemory_unavailable", "", 0))}
	broken.Retryable = webapi.Retryable(err)
	return broken
}

// ProblemOf returns the Problem of any error.
func ProblemOf(err error) *api.Problem { return &failureOf(err).Problem }

// errorBody is an error's JSON.
type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
	RunID   string  `json:"run_id,omitempty"`
}

func (f *failure) body() errorBody {
	d := errorDetail{Message: secrets.Keyless(f.Message), Type: "invalid_request_error", Code: f.Code,
		RunID: secrets.Keyless(f.RunID)}
	switch {
	case f.Status == http.StatusUnauthorized:
		d.Type = "authentication_error"
	case f.Status == http.StatusForbidden:
		d.Type = "permission_error"
	case f.Status == http.StatusTooManyRequests:
		d.Type = "rate_limit_error"
	case f.Status >= http.StatusInternalServerError, f.Status == 0:
		d.Type = "server_error"
	}
	if f.Param != "" {
		d.Param = &f.Param
	}
	return errorBody{d}
}

// Refuse answers with an error. OpenAI's own clients try again by themselves after some statuses;
// they are told where that cannot help.
func Refuse(w http.ResponseWriter, err error) {
	f := failureOf(err)
	if !f.Retryable {
		w.Header().Set("X-Should-Retry", "false")
	} else {
		f.RetryAfter = max(f.RetryAfter, 2*time.Second)
		f.SetHeader(w.Header())
	}
	api.WriteJSON(w, cmp.Or(f.Status, http.StatusInternalServerError), f.body())
}
