package api

import (
	"context"
	"net/http"
	"net/url"

	"mneme/memory"
)

// Rewind takes back what was said in a chat behind the message with an id, nil for all of it. It lasts until a
// run that goes on has stopped.
func (c *Client) Rewind(ctx context.Context, chat memory.Chat, target *string) (SetAside, error) {
	return askLong[SetAside](ctx, c, http.MethodPost, ChatPath(chat)+"/rewind", RewindRequest{Target: target})
}

// SetAside lists what rewinds took back of a chat, the oldest first.
func (c *Client) SetAside(ctx context.Context, chat memory.Chat) ([]SetAside, error) {
	out, err := ask[SetAsides](ctx, c, http.MethodGet, ChatPath(chat)+"/set-aside", nil)
	return out.SetAside, err
}

// Restore puts back what a rewind took back.
func (c *Client) Restore(ctx context.Context, chat memory.Chat, id string) (SetAside, error) {
	return askLong[SetAside](ctx, c, http.MethodPost, ChatPath(chat)+"/set-aside/"+url.PathEscape(id)+"/restore", nil)
}

// Fork makes a chat that begins with what this one remembers.
func (c *Client) Fork(ctx context.Context, chat memory.Chat, r ForkRequest) (Imported, error) {
	return askLong[Imported](ctx, c, http.MethodPost, ChatPath(chat)+"/fork", r)
}
