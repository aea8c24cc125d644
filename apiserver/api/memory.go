package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"mneme/memory"
)

// MemoryAccess is how the agents of one run reach their chat's memory: routes below URL, of
// the very process that holds the run, which take Token as bearer for as long as it does.
type MemoryAccess struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	// CallsOnly: the run has no chat, so nothing is searched or noted there; calls of tools are granted.
	CallsOnly bool `json:"calls_only,omitempty"`

	Client *http.Client `json:"-"` // nil for http.DefaultClient
}

// Recall searches the chat's memory.
func (m MemoryAccess) Recall(ctx context.Context, r memory.RecallRequest) (out memory.Recalled, err error) {
	err = m.post(ctx, "/recall", r, &out)
	return out, err
}

// MaxEmbedTexts is how many texts an EmbedRequest has at most.
const MaxEmbedTexts = 64

// EmbedRequest is the body of POST /v1/embeddings: what is to be placed by the embedding model
// that searches of documents use.
type EmbedRequest struct {
	Texts []string `json:"texts"`
}

// Embedded answers an EmbedRequest: a vector for each text, in their order, all of one length;
// null for a text that the model refuses.
type Embedded struct {
	Vectors [][]float32 `json:"vectors"`
}

// Embed places texts.
func (c *Client) Embed(ctx context.Context, texts ...string) ([][]float32, error) {
	var out Embedded
	if err := c.call(ctx, http.MethodPost, "/v1/embeddings", EmbedRequest{texts}, &out); err != nil {
		return nil, err
	}
	if len(out.Vectors) != len(texts) {
		return nil, fmt.Errorf("%d vectors came for %d texts", len(out.Vectors), len(texts))
	}
	return out.Vectors, nil
}

// RunNotes are the notes that the agents of a run are shown, those that are active.
type RunNotes struct {
	UserNotes     []memory.Note                  `json:"user_notes,omitempty"` // of RunRequest.User, for all of them
	Notes         []memory.Note                  `json:"notes,omitempty"`      // the chat's, for all of them
	SubagentNotes map[memory.Agent][]memory.Note `json:"subagent_notes,omitempty"`
}

// Remember makes a note.
func (m MemoryAccess) Remember(ctx context.Context, r memory.RememberRequest) (out memory.Note, err error) {
	err = m.change(ctx, "/notes", r, &out)
	return out, err
}

// Forget hides words from models.
func (m MemoryAccess) Forget(ctx context.Context, r memory.ForgetRequest) (out memory.Forgotten, err error) {
	err = m.change(ctx, "/forget", r, &out)
	return out, err
}

// change posts body. If the memory does not respond, it returns an error that the model can read.
func (m MemoryAccess) change(ctx context.Context, path string, body, into any) error {
	err := m.post(ctx, path, body, into)
	if _, ok := errors.AsType[*Problem](err); err != nil && !ok && ctx.Err() == nil {
		return errors.New("the chat's memory is unavailable; the change may not have been stored")
	}
	return err
}

// SettleRequest is the body of POST {MemoryAccess.URL}/calls/{call}: what a granted call returned.
type SettleRequest struct {
	Result string `json:"result"`
	Failed bool   `json:"failed,omitempty"`
}

// Claim asks the webmemory that holds the run for a call of a tool outside.
func (m MemoryAccess) Claim(ctx context.Context, r memory.ClaimRequest) (out memory.Claimed, err error) {
	err = m.post(ctx, "/calls", r, &out)
	return out, err
}

// Settle reports the result of a granted call.
func (m MemoryAccess) Settle(ctx context.Context, call, result string, failed bool) error {
	return m.post(ctx, "/calls/"+url.PathEscape(call), SettleRequest{Result: result, Failed: failed}, nil)
}

// post calls a route below URL. Its errors are those of a Client.
func (m MemoryAccess) post(ctx context.Context, path string, body, into any) error {
	client := &Client{base: m.URL, http: cmp.Or(m.Client, http.DefaultClient), token: m.Token}
	return client.call(ctx, http.MethodPost, path, body, into)
}
