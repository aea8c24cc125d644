package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"mneme/memory"
)

// Rewind takes back what was said in a chat behind the message with an id, nil for all of it. It lasts until a
// run that goes on has stopped.
func (c *Client) Rewind(ctx context.Context, chat memory.Chat, to *string) (SetAside, error) {
	var out SetAside
	err := c.post(ctx, ChatPath(chat)+"/rewind", RewindRequest{To: to}, &out)
	return out, err
}

// SetAside lists what rewinds took back of a chat, the oldest first.
func (c *Client) SetAside(ctx context.Context, chat memory.Chat) ([]SetAside, error) {
	var out SetAsides
	err := c.Call(ctx, http.MethodGet, ChatPath(chat)+"/set-aside", &out)
	return out.SetAside, err
}

// Restore puts back what a rewind took back.
func (c *Client) Restore(ctx context.Context, chat memory.Chat, id string) (SetAside, error) {
	var out SetAside
	err := c.post(ctx, ChatPath(chat)+"/set-aside/"+url.PathEscape(id)+"/restore", nil, &out)
	return out, err
}

// Fork makes a chat that begins with what this one remembers.
func (c *Client) Fork(ctx context.Context, chat memory.Chat, r ForkRequest) (Imported, error) {
	var out Imported
	err := c.post(ctx, ChatPath(chat)+"/fork", r, &out)
	return out, err
}

// post sends a body, for as long as ctx, and reads the answer.
func (c *Client) post(ctx context.Context, path string, body, answer any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	resp, err := c.Send(ctx, http.MethodPost, path, nil, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(answer)
}
