package api

import (
	"bufio"
	"bytes"
	"cmp"
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
	maxAnswer   = 80 << 20 // bytes of one JSON answer, such as the events of a run
	callTimeout = time.Minute
	pageSize    = 100 // messages or chats asked for at once
)

// Client is a client of one webmemory. What that refuses is an *api.Problem in the
// error. Safe for concurrent use.
type Client struct {
	base string
	http *http.Client

	// Pause is the wait before a broken stream is opened again; it doubles with
	// each failure in a row.
	Pause time.Duration
	// Idle is how long a stream may be silent before it is opened again; it is
	// longer than the server's heartbeat.
	Idle time.Duration

	// Of a copy of the client, for the walks of one run; nil for none. Run is told the run's id, before its first event.
	// Quiet is called when no event is there for the moment.
	Run   func(id string)
	Quiet func()
	// Inside: the client is a part of the process that it asks, and does not wait for that to come back.
	Inside bool
}

// New takes webmemory's base URL, such as http://127.0.0.1:8080.
func New(base string) (*Client, error) {
	return NewOver(base, &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()})
}

// NewOver is New by an HTTP client without a Timeout, which would cut streams.
func NewOver(base string, h *http.Client) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of webmemory; give one such as http://127.0.0.1:8080", base)
	}
	return &Client{
		base: strings.TrimRight(base, "/"), http: h, Pause: 250 * time.Millisecond, Idle: 45 * time.Second,
	}, nil
}

// Base is the URL that the client was made with.
func (c *Client) Base() string { return c.base }

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// notListening says that the connection to a base URL was refused.
type notListening string

func (base notListening) Error() string {
	return "nothing listens on " + string(base) + ": start `mneme up`"
}

func (notListening) Unwrap() error { return syscall.ECONNREFUSED }

// Chats walks all chats.
func (c *Client) Chats(ctx context.Context) iter.Seq2[memory.Chat, error] {
	return func(yield func(memory.Chat, error) bool) {
		for cursor := ""; ; {
			query := url.Values{"cursor": {cursor}, "limit": {strconv.Itoa(pageSize)}}
			page, err := ask[ChatList](ctx, c, http.MethodGet, chatsPath+"?"+query.Encode(), nil)
			if err != nil {
				yield(memory.Chat{}, err)
				return
			}
			for _, chat := range page.Chats {
				if !yield(chat.ChatID, nil) {
					return
				}
			}
			if page.NextCursor == "" || page.NextCursor == cursor {
				return
			}
			cursor = page.NextCursor
		}
	}
}

// ChangeChat changes what a list says of a chat.
func (c *Client) ChangeChat(ctx context.Context, chat memory.Chat, change ChatChange) (ChatEntry, error) {
	return ask[ChatEntry](ctx, c, http.MethodPatch, ChatPath(chat), change)
}

// Chat describes one chat.
func (c *Client) Chat(ctx context.Context, chat memory.Chat) (ChatInfo, error) {
	return ask[ChatInfo](ctx, c, http.MethodGet, ChatPath(chat), nil)
}

// Page reads up to limit messages of a history; a negative offset counts from
// its end.
func (c *Client) Page(ctx context.Context, key memory.Key, offset, limit int) (HistoryPage, error) {
	return c.PageOf(ctx, key, PageQuery{Offset: offset, Limit: limit})
}

// PageQuery says which part of a history is read.
type PageQuery struct {
	Offset  int  // of the first message; negative: from the end
	Limit   int  // messages; 0 for 100
	Archive bool // what trims cut off counts too, as the beginning
	Runs    bool // with HistoryPage.Runs
}

// PageOf reads a part of a history.
func (c *Client) PageOf(ctx context.Context, key memory.Key, q PageQuery) (HistoryPage, error) {
	query := url.Values{"offset": {strconv.Itoa(q.Offset)}, "limit": {strconv.Itoa(cmp.Or(q.Limit, pageSize))},
		"archive": {strconv.FormatBool(q.Archive)}, "runs": {strconv.FormatBool(q.Runs)}}
	return ask[HistoryPage](ctx, c, http.MethodGet, HistoryPath(key)+"?"+query.Encode(), nil)
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
			if page.NextOffset == 0 || len(page.Messages) == 0 {
				return
			}
			offset = page.NextOffset
		}
	}
}

// EraseChat erases everything of a chat and names the keys that were erased.
func (c *Client) EraseChat(ctx context.Context, chat memory.Chat) ([]string, error) {
	return c.erase(ctx, ChatPath(chat))
}

// ScanAndErase is EraseChat that also looks through all keys of Redis for what no
// index of the chat names.
func (c *Client) ScanAndErase(ctx context.Context, chat memory.Chat) ([]string, error) {
	return c.erase(ctx, ChatPath(chat)+"?scan=true")
}

// EraseHistory erases one history and names the keys that were erased.
func (c *Client) EraseHistory(ctx context.Context, key memory.Key) ([]string, error) {
	return c.erase(ctx, HistoryPath(key))
}

func (c *Client) erase(ctx context.Context, path string) ([]string, error) {
	out, err := ask[Erased](ctx, c, http.MethodDelete, path, nil)
	return out.Erased, err
}

// Redact takes the text of a message away, and unless whole is false that of its exchange. dry only says what
// it would do.
func (c *Client) Redact(ctx context.Context, key memory.Key, id string, exchange, dry bool) (Redacted, error) {
	query := url.Values{"scope": {Exchange}, "dry_run": {strconv.FormatBool(dry)}}
	if !exchange {
		query.Set("scope", Message)
	}
	return ask[Redacted](ctx, c, http.MethodDelete, MessagePath(key, id)+"?"+query.Encode(), nil)
}

// Recall searches a chat's memory; query has the parameters of GET …/recall.
func (c *Client) Recall(ctx context.Context, chat memory.Chat, query url.Values) (Recalled, error) {
	return ask[Recalled](ctx, c, http.MethodGet, ChatPath(chat)+"/recall?"+query.Encode(), nil)
}

// Export copies all of a chat's memory as lines of ExportLine. An answer that is not whole
// is an error.
func (c *Client) Export(ctx context.Context, chat memory.Chat, dst io.Writer) error {
	return c.export(ctx, ChatPath(chat), dst, func(line []byte, count int) bool {
		var end ExportLine
		return bytes.HasPrefix(line, []byte(`{"messages":`)) && json.Unmarshal(line, &end) == nil && end.Messages != nil &&
			*end.Messages+end.Notes == count
	})
}

// export copies lines up to the last one, which counts those before it.
func (c *Client) export(ctx context.Context, path string, dst io.Writer, last func(line []byte, count int) bool) error {
	resp, err := c.Send(ctx, http.MethodGet, path+"/export", nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines, count := bufio.NewReaderSize(resp.Body, 64<<10), 0; ; count++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return &BrokenError{fmt.Errorf("the export broke off after %d lines", count)}
		}
		if _, err := dst.Write(line); err != nil || last(line, count) {
			return err
		}
	}
}

// Import fills a chat that has no memory with what Export gave.
func (c *Client) Import(ctx context.Context, chat memory.Chat, src io.Reader) (Imported, error) {
	var out Imported
	resp, err := c.Send(ctx, http.MethodPost, ChatPath(chat)+"/import", nil, src)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out)
	return out, err
}

// Notes lists the notes at a NotesPath or a UserNotesPath.
func (c *Client) Notes(ctx context.Context, path string) ([]memory.Note, error) {
	out, err := ask[NoteList](ctx, c, http.MethodGet, path, nil)
	return out.Notes, err
}

// AddNote adds an operator's note.
func (c *Client) AddNote(ctx context.Context, path string, n NoteRequest) (memory.Note, error) {
	return ask[memory.Note](ctx, c, http.MethodPost, path, n)
}

// ChangeNote changes a note.
func (c *Client) ChangeNote(ctx context.Context, path, id string, n NoteChange) (memory.Note, error) {
	return ask[memory.Note](ctx, c, http.MethodPatch, path+"/"+url.PathEscape(id), n)
}

// RemoveNote removes a note.
func (c *Client) RemoveNote(ctx context.Context, path, id string) error {
	return c.Call(ctx, http.MethodDelete, path+"/"+url.PathEscape(id), nil)
}

// EraseUser erases the notes of a user and, if it is asked to, some of the chats that were posted under this user
// alone: as long as Left says that there are more it is to be called again.
func (c *Client) EraseUser(ctx context.Context, u memory.User, chats bool) (ErasedUser, error) {
	path := userPath(u)
	if chats {
		path += "?chats=true"
	}
	return ask[ErasedUser](ctx, c, http.MethodDelete, path, nil)
}

// Collections lists the collections of documents that there are, by name.
func (c *Client) Collections(ctx context.Context) ([]string, error) {
	var out struct {
		Collections []struct{ Name string }
	}
	err := c.Call(ctx, http.MethodGet, CollectionsPath, &out)
	names := make([]string, len(out.Collections))
	for i, one := range out.Collections {
		names[i] = one.Name
	}
	return names, err
}

// Search gives the passages of a collection that match a query best.
func (c *Client) Search(ctx context.Context, collection string, r api.SearchRequest) (api.SearchResult, error) {
	return ask[api.SearchResult](ctx, c, http.MethodPost, CollectionsPath+"/"+url.PathEscape(collection)+"/search", r)
}

// Stop asks for the end of a run; its events tell when it has ended.
func (c *Client) Stop(ctx context.Context, chat memory.Chat, run string) error {
	return c.Call(ctx, http.MethodPost, RunPath(chat, run)+"/stop", nil)
}

// Call does one request without a body and reads its JSON into answer, unless that is
// nil. path, with its query, is what follows the base URL. It takes a minute at most.
func (c *Client) Call(ctx context.Context, method, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.CallWith(ctx, method, path, nil, answer)
}

// CallWith is Call with a JSON body, unless that is nil, for as long as ctx.
func (c *Client) CallWith(ctx context.Context, method, path string, body, answer any) error {
	var header http.Header
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		header, content = http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(raw)
	}
	resp, err := c.Send(ctx, method, path, header, content)
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

// ask returns the answer to a request, which takes a minute at most.
func ask[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return askLong[T](ctx, c, method, path, body)
}

// askLong is ask for as long as ctx.
func askLong[T any](ctx context.Context, c *Client, method, path string, body any) (answer T, err error) {
	err = c.CallWith(ctx, method, path, body, &answer)
	return answer, err
}

// Send does one request, for as long as ctx. It gives the response, which the caller
// closes, if its status is 2xx, else an *api.Problem, or a BrokenError if there was none.
func (c *Client) Send(
	ctx context.Context, method, path string, header http.Header, body io.Reader,
) (*http.Response, error) {
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
		if request, ok := errors.AsType[*url.Error](err); ok {
			err = request.Err
		}
		return nil, &BrokenError{fmt.Errorf("reaching %s: %w", c.base, err)}
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
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Retryable
	}
	var broken *BrokenError
	return errors.As(err, &broken) || errors.Is(err, syscall.ECONNREFUSED)
}

// BrokenError is a connection that could not be made or that broke before the answer was
// whole. What was asked for may be done or not.
type BrokenError struct{ Err error }

func (e *BrokenError) Error() string { return e.Err.Error() }
func (e *BrokenError) Unwrap() error { return e.Err }

// IsUnauthorized says whether webmemory refused because there was no key or a wrong one.
func IsUnauthorized(err error) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Status == http.StatusUnauthorized
}

// IsNotFound says whether webmemory refused because there is no such thing.
func IsNotFound(err error) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Status == http.StatusNotFound
}
