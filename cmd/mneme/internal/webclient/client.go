// Package webclient talks to webmemory's public routes, as the commands need it.
// What webmemory refuses is an *api.Problem in the error.
package webclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
)

const (
	maxAnswer   = 64 << 20 // bytes of one JSON answer
	callTimeout = time.Minute
	pageSize    = 100 // messages or chats asked for at once
)

// Client is a client of one webmemory. Safe for concurrent use.
type Client struct {
	base string
	http *http.Client

	// Pause is the wait before a broken stream is opened again; it doubles with
	// each failure in a row.
	Pause time.Duration
	// Idle is how long a stream may be silent before it is opened again; it is
	// longer than the server's heartbeat.
	Idle time.Duration
}

// New takes webmemory's base URL, such as http://127.0.0.1:8080.
func New(base string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of webmemory; give one such as http://127.0.0.1:8080", base)
	}
	return &Client{base: strings.TrimRight(base, "/"), http: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}, Pause: 250 * time.Millisecond, Idle: 45 * time.Second}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// notListening says that the connection to a base URL was refused.
type notListening string

func (base notListening) Error() string {
	return "nothing listens on " + string(base) + ": start `mneme up`"
}

func (notListening) Unwrap() error { return syscall.ECONNREFUSED }

// History is what webmemory says of one history without its messages.
type History struct {
	Key      string       `json:"key"`
	Subagent memory.Agent `json:"subagent"` // empty for the chat's own
	Messages int          `json:"messages"`
	Bytes    int64        `json:"bytes"`
}

// Chat is what webmemory says of one chat.
type Chat struct {
	Histories []History `json:"histories"`
	Run       string    `json:"run"` // id of a live run, empty for none
}

// Page is a part of a history, the messages as stored.
type Page struct {
	Total      int               `json:"total"`
	Messages   []json.RawMessage `json:"messages"`
	NextOffset *int              `json:"next_offset"` // nil at the end
}

// Chats walks all chats.
func (c *Client) Chats(ctx context.Context) iter.Seq2[memory.Chat, error] {
	return func(yield func(memory.Chat, error) bool) {
		for cursor := ""; ; {
			var page struct {
				Chats []struct {
					ID memory.Chat `json:"chat_id"`
				} `json:"chats"`
				Next string `json:"next_cursor"`
			}
			query := url.Values{"cursor": {cursor}, "limit": {strconv.Itoa(pageSize)}}
			if err := c.call(ctx, http.MethodGet, "/v1/chats?"+query.Encode(), &page); err != nil {
				yield(memory.Chat{}, err)
				return
			}
			for _, chat := range page.Chats {
				if !yield(chat.ID, nil) {
					return
				}
			}
			if page.Next == "" || page.Next == cursor {
				return
			}
			cursor = page.Next
		}
	}
}

// Chat describes one chat.
func (c *Client) Chat(ctx context.Context, chat memory.Chat) (Chat, error) {
	var info Chat
	err := c.call(ctx, http.MethodGet, chatPath(chat), &info)
	return info, err
}

// Page reads up to limit messages of a history; a negative offset counts from
// its end.
func (c *Client) Page(ctx context.Context, key memory.Key, offset, limit int) (Page, error) {
	var page Page
	query := url.Values{"offset": {strconv.Itoa(offset)}, "limit": {strconv.Itoa(limit)}}
	err := c.call(ctx, http.MethodGet, historyPath(key)+"?"+query.Encode(), &page)
	return page, err
}

// Messages walks a history from an offset, which may be negative, to its end.
func (c *Client) Messages(ctx context.Context, key memory.Key, offset int) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for {
			page, err := c.Page(ctx, key, offset, pageSize)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, m := range page.Messages {
				if !yield(m, nil) {
					return
				}
			}
			if page.NextOffset == nil || len(page.Messages) == 0 {
				return
			}
			offset = *page.NextOffset
		}
	}
}

// EraseChat erases everything of a chat and names the keys that were erased.
func (c *Client) EraseChat(ctx context.Context, chat memory.Chat) ([]string, error) {
	return c.erase(ctx, chatPath(chat))
}

// ScanAndErase is EraseChat that also looks through all keys of Redis for what no
// index of the chat names.
func (c *Client) ScanAndErase(ctx context.Context, chat memory.Chat) ([]string, error) {
	return c.erase(ctx, chatPath(chat)+"?scan=true")
}

// EraseHistory erases one history and names the keys that were erased.
func (c *Client) EraseHistory(ctx context.Context, key memory.Key) ([]string, error) {
	return c.erase(ctx, historyPath(key))
}

func (c *Client) erase(ctx context.Context, path string) ([]string, error) {
	var answer struct {
		Erased []string `json:"erased"`
	}
	err := c.call(ctx, http.MethodDelete, path, &answer)
	return answer.Erased, err
}

// Stop asks for the end of a run; its events tell when it has ended.
func (c *Client) Stop(ctx context.Context, chat memory.Chat, run string) error {
	return c.call(ctx, http.MethodPost, runPath(chat, run)+"/stop", nil)
}

func chatPath(chat memory.Chat) string { return "/v1/chats/" + url.PathEscape(chat.String()) }

func runPath(chat memory.Chat, run string) string {
	return chatPath(chat) + "/runs/" + url.PathEscape(run)
}

func historyPath(key memory.Key) string {
	if key.Agent() == "" {
		return chatPath(key.Chat()) + "/history"
	}
	return chatPath(key.Chat()) + "/subagents/" + url.PathEscape(string(key.Agent())) + "/history"
}

// call does one request and reads its JSON into answer, unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(answer); err != nil {
		return fmt.Errorf("%s did not answer as webmemory does; is --url right? (%w)", c.base, err)
	}
	return nil
}

// send gives the response if its status is 2xx, else an *api.Problem.
func (c *Client) send(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := c.http.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, notListening(c.base)
	case err != nil:
		var request *url.Error
		if errors.As(err, &request) {
			err = request.Err
		}
		return nil, &lost{fmt.Errorf("reaching %s: %w", c.base, err)}
	case resp.StatusCode/100 != 2:
		defer resp.Body.Close()
		return nil, refusal(api.ReadProblem(resp))
	}
	return resp, nil
}

// refusal is a Problem that also says how long to wait.
func refusal(p *api.Problem) error {
	if p.RetryAfter == 0 {
		return p
	}
	return fmt.Errorf("%w; try again in %s", p, p.RetryAfter)
}

// Retryable says whether the same request may be taken a little later: the server is
// away, restarts, has too much to do, or the connection broke.
func Retryable(err error) bool {
	var p *api.Problem
	if errors.As(err, &p) {
		return p.Retryable
	}
	var broken *lost
	return errors.As(err, &broken) || errors.Is(err, syscall.ECONNREFUSED)
}

// lost is a connection that could not be made or that broke.
type lost struct{ error }

func (l *lost) Unwrap() error { return l.error }

// IsNotFound says whether webmemory refused because there is no such thing.
func IsNotFound(err error) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Status == http.StatusNotFound
}
