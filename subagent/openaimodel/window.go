package openaimodel

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// window is what the gateway tells of the model's context window.
type window struct {
	mu        sync.Mutex
	tokens    int       // guarded by mu; 0 if unknown
	checkedAt time.Time // when the gateway was last asked or told something; guarded by mu
}

// Asking is bounded, and not done again soon: an answer tells it too.
const (
	askTimeout = 2 * time.Second
	askAgain   = time.Minute
)

// tell notes what came with an answer. One that says nothing says that the gateway
// does not know.
func (w *window) tell(call *exchange) {
	if !call.answered {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens, w.checkedAt = call.window, time.Now()
}

// ContextTokens is the model's context window, prompt and answer together, as the
// gateway tells it with every answer. Before the first one it asks; 0 if it is unknown.
func (m *Model) ContextTokens(ctx context.Context) int {
	w := &m.window
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tokens == 0 && (w.checkedAt.IsZero() || time.Since(w.checkedAt) > askAgain) {
		w.tokens, w.checkedAt = m.ask(ctx), time.Now()
	}
	return w.tokens
}

// ask reads the gateway's description of the model.
func (m *Model) ask(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var model struct {
		Tokens int `json:"context_tokens"`
	}
	path := "/v1/models/" + url.PathEscape(m.config.Model)
	if ask(ctx, m.config.HTTP, http.MethodGet, m.config.BaseURL, path, nil, &model) != nil {
		return 0 // the call that follows says it
	}
	return max(model.Tokens, 0)
}
