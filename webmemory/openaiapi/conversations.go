package openaiapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"mneme/access/jsonbound"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/proxy/wire"
	webapi "mneme/webmemory/api"
)

// Limits of OpenAI's Conversations API, https://developers.openai.com/api/reference/resources/conversations.
const (
	maxItems     = 20 // of one request
	maxLimit     = 100
	defaultLimit = 20
)

// conversation is a chat as the Conversations API describes it. Metadata is always empty.
type conversation struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	CreatedAt int64             `json:"created_at"` // Unix seconds of the first message, 0 without one; the current time in the answer to a POST
	Metadata  map[string]string `json:"metadata"`
}

// item is a message of a chat, or one of its tool calls, as the Conversations API shows it. Its id is
// KIND_RUN.N_CHAT_atPLACE: KIND is msg, fco, or fc with the number of the call, and PLACE is the place in the history.
// The answer to a POST has "new" instead of atPLACE; getItems does not accept such an id as after.
type item struct {
	ID        string     `json:"id"`
	Type      string     `json:"type"`
	Status    string     `json:"status"`
	Role      string     `json:"role,omitempty"`
	Content   []itemPart `json:"content,omitempty"`
	CallID    string     `json:"call_id,omitempty"`
	Name      string     `json:"name,omitempty"`
	Arguments *string    `json:"arguments,omitempty"`
	Output    *string    `json:"output,omitempty"`
}

type itemPart struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
}

// itemList is a page of items.
type itemList struct {
	Object  string `json:"object"`
	Data    []item `json:"data"`
	FirstID string `json:"first_id"`
	LastID  string `json:"last_id"`
	HasMore bool   `json:"has_more"`
}

// conversations serves one route of the Conversations API.
func (h *Handler) conversations(answer func(r *http.Request, chat memory.Chat) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		chat, err := memory.Tenant{}.Chat(cmp.Or(r.PathValue("conversation"), "conv_"+rand.Text()))
		if err != nil {
			Refuse(w, refusal(http.StatusNotFound, "conversation", "conversation_not_found",
				"Conversation with id '%.200s' not found.", r.PathValue("conversation")))
			return
		}
		out, err := answer(r, chat)
		if err != nil {
			Refuse(w, inResponses(err))
			return
		}
		api.WriteJSON(w, http.StatusOK, out)
	}
}

// postConversation serves POST /v1/conversations.
func (h *Handler) postConversation(r *http.Request, chat memory.Chat) (any, error) {
	_, err := h.addItems(r, chat)
	return conversation{chat.ID(), "conversation", time.Now().Unix(), map[string]string{}}, err
}

// getConversation serves GET /v1/conversations/{conversation}.
func (h *Handler) getConversation(r *http.Request, chat memory.Chat) (any, error) {
	out := conversation{chat.ID(), "conversation", 0, map[string]string{}}
	page, err := h.Memory.PageOf(r.Context(), memory.ChatKey(chat), webapi.PageQuery{Limit: 1, Archive: true})
	if err == nil && len(page.Messages) > 0 {
		var first memory.Message
		_ = json.Unmarshal(page.Messages[0], &first) // a damaged one has no time
		out.CreatedAt = int64(first.Timestamp)
	}
	return out, err
}

// deleteConversation serves DELETE /v1/conversations/{conversation}. It erases the chat.
func (h *Handler) deleteConversation(r *http.Request, chat memory.Chat) (any, error) {
	_, err := h.Memory.EraseChat(r.Context(), chat)
	return map[string]any{"id": chat.ID(), "object": "conversation.deleted", "deleted": true}, err
}

// postItems serves POST /v1/conversations/{conversation}/items.
func (h *Handler) postItems(r *http.Request, chat memory.Chat) (any, error) {
	stored, err := h.addItems(r, chat)
	var items []item
	for _, raw := range stored {
		items = append(items, itemsOf(chat, raw, "new")...)
	}
	return listOf(items, false), err
}

// getItems serves GET /v1/conversations/{conversation}/items.
func (h *Handler) getItems(r *http.Request, chat memory.Chat) (any, error) {
	query := r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), fmt.Sprint(defaultLimit)))
	if err != nil || limit < 1 || limit > maxLimit {
		return nil, invalid("limit", "limit must be 1 to %d.", maxLimit)
	}
	order := cmp.Or(query.Get("order"), "desc")
	if order != "asc" && order != "desc" {
		return nil, invalid("order", "order must be asc or desc, not %.20q.", order)
	}
	cursor, err := placeOf(query.Get("after"), chat)
	if err != nil {
		return nil, err
	}
	var items []item
	for {
		page, hasMore, err := h.pageAfter(r.Context(), chat, cursor, limit, order == "asc")
		if err != nil {
			return nil, err
		}
		for i, raw := range page.Messages {
			place := page.Offset + i
			if order == "desc" {
				place = page.Offset + len(page.Messages) - 1 - i
				raw = page.Messages[len(page.Messages)-1-i]
			}
			msgItems := itemsOf(chat, raw, fmt.Sprint("at", place))
			if len(items)+len(msgItems) > limit && len(items) > 0 {
				return listOf(items, true), nil
			}
			items, cursor = append(items, msgItems...), place
		}
		if len(items) >= limit || !hasMore {
			return listOf(items, hasMore), nil
		}
	}
}

// pageAfter reads up to limit messages of a chat from the one after a place on, -1 for the first, in the order of the
// history. more reports that others follow.
func (h *Handler) pageAfter(ctx context.Context, chat memory.Chat, cursor, limit int, ascending bool) (
	page webapi.HistoryPage, hasMore bool, err error) {
	q := webapi.PageQuery{Offset: cursor + 1, Limit: limit, Archive: true}
	switch {
	case ascending:
	case cursor < 0:
		q.Offset = -limit
	case cursor == 0:
		return page, false, nil
	default:
		q.Offset = max(cursor-limit, 0)
		q.Limit = cursor - q.Offset
	}
	page, err = h.Memory.PageOf(ctx, memory.ChatKey(chat), q)
	if ascending {
		return page, page.Offset+len(page.Messages) < page.Total, err
	}
	return page, page.Offset > 0, err
}

// deleteItem serves DELETE /v1/conversations/{conversation}/items/{item}. It redacts the message.
func (h *Handler) deleteItem(r *http.Request, chat memory.Chat) (any, error) {
	id := r.PathValue("item")
	_, rest, _ := strings.Cut(id, "_")
	message, _, _ := strings.Cut(rest, "_")
	if _, _, ok := memory.SplitID(message); !ok {
		return nil, noItem(id)
	}
	if _, err := h.Memory.Redact(r.Context(), memory.ChatKey(chat), message, false, false); err != nil {
		return nil, err
	}
	return h.getConversation(r.WithContext(WithMemoryScopes(r.Context())), chat)
}

// placeOf returns the place at the end of an item's id, or -1 without an id.
func placeOf(id string, chat memory.Chat) (int, error) {
	if id == "" {
		return -1, nil
	}
	_, text, ok := strings.Cut(id, "_"+chat.ID()+"_at")
	place, err := strconv.Atoi(text)
	if !ok || err != nil || place < 0 {
		return 0, noItem(id)
	}
	return place, nil
}

func listOf(items []item, hasMore bool) itemList {
	out := itemList{Object: "list", Data: append([]item{}, items...), HasMore: hasMore}
	if len(items) > 0 {
		out.FirstID, out.LastID = items[0].ID, items[len(items)-1].ID
	}
	return out
}

// itemsOf returns the items of a message. A redacted message and a failure have none.
func itemsOf(chat memory.Chat, raw json.RawMessage, place string) (items []item) {
	var m memory.Message
	if json.Unmarshal(raw, &m) != nil || m.Content == memory.RedactedText || m.Failure != "" {
		return nil
	}
	id := fmt.Sprintf("_%s_%s_%s", m.ID, chat.ID(), place)
	switch text := m.Content; {
	case m.Role == memory.RoleTool:
		items = append(items, item{ID: "fco" + id, Type: "function_call_output", Status: "completed", CallID: m.ToolCallID,
			Output: &text})
	case text != "":
		kind := "output_text"
		if m.Role == memory.RoleUser {
			kind = "input_text"
		}
		items = append(items, item{ID: "msg" + id, Type: "message", Status: "completed", Role: m.Role,
			Content: []itemPart{{kind, text, []any{}}}})
	}
	for i, c := range m.ToolCalls {
		items = append(items, item{ID: fmt.Sprint("fc", i+1) + id, Type: "function_call", Status: "completed", CallID: c.ID,
			Name: c.Function.Name, Arguments: &c.Function.Arguments})
	}
	return items
}

// addItems appends the items of a request to a chat and returns the stored messages. The Agents SDK adds each turn that
// mneme has answered: of the messages that the chat's newest run has stored none is stored again.
func (h *Handler) addItems(r *http.Request, chat memory.Chat) ([]json.RawMessage, error) {
	raw, err := api.ReadBody(nil, r, MaxBody, jsonbound.Transcript)
	if err != nil {
		return nil, err
	}
	var body struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := api.Unmarshal(raw, &body); err != nil || len(body.Items) == 0 {
		return nil, err
	}
	if len(body.Items) > maxItems {
		return nil, invalid("items", "items has %d items, at most %d are taken.", len(body.Items), maxItems)
	}
	input, err := json.Marshal(map[string]any{"model": masterModel, "input": body.Items})
	if err != nil {
		return nil, err
	}
	_, request, err := translated(input)
	if err != nil {
		return nil, err
	}
	system := func(m ChatMessage) bool { return m.Role == wire.RoleSystem }
	messages := contextOf(slices.DeleteFunc(request.Messages, system))
	newest := webapi.PageQuery{Offset: -maxItems, Limit: maxItems}
	page, err := h.Memory.PageOf(WithMemoryScopes(r.Context()), memory.ChatKey(chat), newest)
	if err != nil {
		return nil, err
	}
	stored, fresh := storedBefore(messages, page.Messages, isRetry(r))
	if len(fresh) == 0 {
		return stored, nil
	}
	turn := requestID(r, chat.ID())
	return append(stored, identified(fresh, itemRun+turn)...), h.remember(r.Context(), chat, turn, fresh)
}

// storedBefore splits messages into the stored messages of the chat's newest run and new messages. Calls of
// tools and their results before the run's answer count as stored. So do the newest items, if the request is a retry.
func storedBefore(messages, newest []json.RawMessage, retry bool) (stored, fresh []json.RawMessage) {
	if len(newest) == 0 {
		return nil, messages
	}
	run, start := messageOf(newest[len(newest)-1]).Run, len(newest)
	if run == "" || strings.HasPrefix(run, itemRun) && !retry {
		return nil, messages
	}
	for start > 0 && messageOf(newest[start-1]).Run == run {
		start--
	}
	stored = newest[start:]
	matched := 0
	for i, raw := range messages {
		var m memory.Message
		_ = json.Unmarshal(raw, &m) // which contextOf has written
		if len(m.ToolCalls) > 0 || m.Role == memory.RoleTool {
			continue
		}
		want, got := messageOf(stored[matched]), messageOf(raw)
		if got.User != want.User || got.Text != want.Text {
			return nil, messages
		}
		if matched++; matched == len(stored) {
			return stored, messages[i+1:]
		}
	}
	return nil, messages
}

// identified returns messages with the ids that they are stored with.
func identified(messages []json.RawMessage, run string) (out []json.RawMessage) {
	for i, raw := range messages {
		var m memory.Message
		_ = json.Unmarshal(raw, &m) // which contextOf has written
		m.ID = memory.MessageID(run, int64(i)+1)
		out = append(out, m.Encode())
	}
	return out
}

// itemSession is the session of messages that came as items. Their ids begin with itemRun.
const (
	itemSession = "items"
	itemRun     = itemSession + "-"
)

// remember stores messages without an answer of an agent.
func (h *Handler) remember(ctx context.Context, chat memory.Chat, turn string, messages []json.RawMessage) error {
	body, err := json.Marshal(map[string]any{"session": itemSession, "turn": turn,
		"began": time.Now().UnixMilli(), "messages": messages})
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	path := "/internal/v1/chats/" + url.PathEscape(chat.ID()) + "/heard"
	resp, err := h.Memory.Send(ctx, http.MethodPost, path, header, bytes.NewReader(body))
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}
