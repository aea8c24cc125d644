package api

import (
	"bytes"
	"context"
	"encoding/json"
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
}

// RecallRequest is the body of POST {MemoryAccess.URL}/recall.
type RecallRequest struct {
	// Subagent is the agent that asks; empty for the master. A subagent's own memory of the
	// chat is searched, for the master the chat's and those of its subagents.
	Subagent memory.Agent `json:"subagent,omitempty"`
	Query    string       `json:"query"`
	From     string       `json:"from,omitempty"`   // see ReadTime; empty for no bound
	To       string       `json:"to,omitempty"`     // the first moment that is too late
	Budget   int          `json:"budget,omitempty"` // tokens of the hits; 0 for the default
	Overhead int          `json:"overhead,omitempty"`
	// Automatic is a search for a prompt that no agent asked for: in the asker's own memory
	// alone, for what its window does not show, the oldest first.
	Automatic bool `json:"automatic,omitempty"`
	Needed    bool `json:"needed,omitempty"` // finds something only for a query that seems to need it
	// Everywhere searches what was said in all chats in which the run's user was alone, and not the memories of
	// subagents. Of a run without a user, and in a chat of several, it is as if it were left out.
	Everywhere bool `json:"everywhere,omitempty"`
}

// Recalled is what a search of a chat's memory found.
type Recalled struct {
	Hits []RecallHit `json:"hits"`
	// Partial: some messages were not searched. The oldest ones are searched a moment later.
	Partial bool `json:"partial"`
	// Unread are chats of a user that could not be searched, because their copy is damaged or unavailable.
	Unread []string `json:"unread,omitempty"`
}

// RecallHit is a message that was found.
type RecallHit struct {
	ID       string       `json:"id"`
	TS       float64      `json:"ts"` // Unix seconds
	Role     string       `json:"role"`
	Name     string       `json:"name,omitempty"`
	Chat     string       `json:"chat,omitempty"` // in which it was said; empty for the one that was asked about
	Subagent memory.Agent `json:"subagent"`       // whose memory it is; empty for the chat's own
	Score    float64      `json:"score"`          // more is better; only hits of one answer compare
	Text     string       `json:"text"`           // a literal piece of the message
	Messages []string     `json:"messages"`       // ids of the exchange that it is of
	memory.Origin
	// Newer says that it was said later than one of the best hits and has a rare name in common with it.
	Newer bool `json:"newer,omitempty"`
}

// Recall searches the chat's memory, by h.
func (m MemoryAccess) Recall(ctx context.Context, h *http.Client, r RecallRequest) (Recalled, error) {
	var out Recalled
	err := m.post(ctx, h, "/recall", r, &out)
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
	raw, err := json.Marshal(EmbedRequest{texts})
	if err != nil {
		return nil, err
	}
	var out Embedded
	if err := c.call(ctx, http.MethodPost, "/v1/embeddings", bytes.NewReader(raw), &out); err != nil {
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

// RememberRequest is the body of POST {MemoryAccess.URL}/notes, which answers with the
// memory.Note. It is active if Quote is made of whole sentences of the run's message, or of their first clauses,
// in which the user tells something; whatever else it may be, it is proposed.
type RememberRequest struct {
	// Subagent is the note's owner, empty for the chat.
	Subagent memory.Agent `json:"subagent,omitempty"`
	// OfUser makes it the note of the run's user instead, over chats.
	OfUser   bool   `json:"of_user,omitempty"`
	Quote    string `json:"quote"`
	Replaces string `json:"replaces,omitempty"` // id of the note that it supersedes
}

// Remember makes a note, by h.
func (m MemoryAccess) Remember(ctx context.Context, h *http.Client, r RememberRequest) (memory.Note, error) {
	var out memory.Note
	err := m.post(ctx, h, "/notes", r, &out)
	return out, err
}

// ClaimRequest is the body of POST {MemoryAccess.URL}/calls: an agent is about to call a tool
// outside of this service.
type ClaimRequest struct {
	Subagent  memory.Agent    `json:"subagent,omitempty"` // the tool's owner; empty for the master
	Tool      string          `json:"tool"`               // server and name, also if the name alone is unique
	Arguments json.RawMessage `json:"arguments"`
	N         int             `json:"n"` // 1 for the first call of the run with these arguments, 2 for the next
	// After is the number of the event that tells of the call. The claim is granted once that is
	// stored.
	After int64 `json:"after"`
	// Repeatable: the tool may be called again where it is not known whether it was.
	Repeatable bool `json:"repeatable,omitempty"`
}

// Claimed answers a ClaimRequest. Of all callers that ask for one call, in whatever process and
// whatever attempt at the run's post, one is granted it.
type Claimed struct {
	CallID string `json:"call_id"` // of the call, the same in every attempt at it
	State  string `json:"state"`   // one of the states below
	Result string `json:"result,omitempty"`
	Failed bool   `json:"failed,omitempty"` // the result is an error
}

// States of a Claimed.
const (
	CallGranted = "granted" // call it, and settle it then
	CallDone    = "done"    // it was called; this is what it returned
	CallUnknown = "unknown" // it was granted before, and what became of it is not known
)

// SettleRequest is the body of POST {MemoryAccess.URL}/calls/{call}: what a granted call returned.
type SettleRequest struct {
	Result string `json:"result"`
	Failed bool   `json:"failed,omitempty"`
}

// Claim asks for a call, by h.
func (m MemoryAccess) Claim(ctx context.Context, h *http.Client, r ClaimRequest) (Claimed, error) {
	var out Claimed
	err := m.post(ctx, h, "/calls", r, &out)
	return out, err
}

// Settle says what a granted call returned, by h.
func (m MemoryAccess) Settle(ctx context.Context, h *http.Client, call string, r SettleRequest) error {
	return m.post(ctx, h, "/calls/"+url.PathEscape(call), r, nil)
}

// post calls a route below URL. Its errors are those of a Client.
func (m MemoryAccess) post(ctx context.Context, h *http.Client, path string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	at := &Client{base: m.URL, http: h, token: m.Token}
	return at.call(ctx, http.MethodPost, path, bytes.NewReader(raw), into)
}
