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
	maxItems    = 20 // of one request
	mostListed  = 100
	fewestLines = 20 // of a list without a limit
)

// conversation is a chat as the Conversations API describes it. Its metadata is that of the chat, which PATCH
// /v1/chats/{chat} sets.
type conversation struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	CreatedAt int64             `json:"created_at"` // Unix seconds, of its first message
	Metadata  map[string]string `json:"metadata"`
}

// item is a message of a chat as the Conversations API shows it. Its id is msg_RUN.N_CHAT_PLACE, where PLACE is the
// message's place in the history.
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
			refuse(w, notFound(http.StatusNotFound, "conversation", "conversation_not_found",
				"Conversation with id '%.200s' not found.", r.PathValue("conversation")))
			return
		}
		out, err := answer(r, chat)
		if err != nil {
			refuse(w, inResponses(err))
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
	count, err := h.addItems(r, chat)
	if err != nil || count == 0 {
		return listOf(nil, false), err
	}
	newest := webapi.PageQuery{Offset: -count, Archive: true}
	page, err := h.Memory.PageOf(goingOn(r.Context()), memory.ChatKey(chat), newest)
	return listOf(itemsOf(chat, page), false), err
}

// getItems serves GET /v1/conversations/{conversation}/items.
func (h *Handler) getItems(r *http.Request, chat memory.Chat) (any, error) {
	query := r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), fmt.Sprint(fewestLines)))
	if err != nil || limit < 1 || limit > mostListed {
		return nil, invalid("limit", "limit must be 1 to %d.", mostListed)
	}
	ascending := query.Get("order") == "asc"
	after, err := placeOf(query.Get("after"))
	if err != nil {
		return nil, err
	}
	q := webapi.PageQuery{Offset: after + 1, Limit: limit, Archive: true}
	switch {
	case ascending:
	case after < 0:
		q.Offset = -limit
	default:
		q.Offset = max(after-limit, 0)
		q.Limit = after - q.Offset
	}
	if q.Limit == 0 {
		return listOf(nil, false), nil
	}
	page, err := h.Memory.PageOf(r.Context(), memory.ChatKey(chat), q)
	if err != nil {
		return nil, err
	}
	items := itemsOf(chat, page)
	if ascending {
		return listOf(items, page.Offset+len(page.Messages) < page.Total), nil
	}
	slices.Reverse(items)
	return listOf(items, page.Offset > 0), nil
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
	return h.getConversation(r, chat)
}

// placeOf returns the place at the end of an item's id, or -1 without an id.
func placeOf(id string) (int, error) {
	if id == "" {
		return -1, nil
	}
	place, err := strconv.Atoi(id[strings.LastIndexByte(id, '_')+1:])
	if err != nil || place < 0 {
		return 0, noItem(id)
	}
	return place, nil
}

func listOf(items []item, more bool) itemList {
	out := itemList{Object: "list", Data: slices.Concat([]item{}, items), HasMore: more}
	if len(items) > 0 {
		out.FirstID, out.LastID = items[0].ID, items[len(items)-1].ID
	}
	return out
}

// itemsOf returns the items of a page of a chat. Redacted messages have none.
func itemsOf(chat memory.Chat, page webapi.HistoryPage) (all []item) {
	for i, raw := range page.Messages {
		var m memory.Message
		if json.Unmarshal(raw, &m) != nil || m.Content == memory.RedactedText || m.Failure != "" {
			continue
		}
		id := fmt.Sprintf("_%s_%s_%d", m.ID, chat.ID(), page.Offset+i)
		switch text := m.Content; {
		case m.Role == memory.RoleTool:
			all = append(all, item{ID: "fco" + id, Type: "function_call_output", Status: "completed", CallID: m.ToolCallID,
				Output: &text})
		case text != "":
			kind := map[string]string{memory.RoleUser: "input_text"}[m.Role]
			all = append(all, item{ID: "msg" + id, Type: "message", Status: "completed", Role: m.Role,
				Content: []itemPart{{cmp.Or(kind, "output_text"), text, []any{}}}})
		}
		for _, c := range m.ToolCalls {
			all = append(all, item{ID: "fc" + id, Type: "function_call", Status: "completed", CallID: c.ID,
				Name: c.Function.Name, Arguments: &c.Function.Arguments})
		}
	}
	return all
}

// addItems appends the items of a request to a chat, without those that the chat's newest run has stored already: the
// Agents SDK adds each turn that it had answered. It returns how many messages the request has.
func (h *Handler) addItems(r *http.Request, chat memory.Chat) (count int, err error) {
	raw, err := api.ReadBody(nil, r, maxBody, jsonbound.Transcript)
	if err != nil {
		return 0, err
	}
	var body struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := api.Unmarshal(raw, &body); err != nil || len(body.Items) == 0 {
		return 0, err
	}
	if len(body.Items) > maxItems {
		return 0, invalid("items", "items has %d items, at most %d are taken.", len(body.Items), maxItems)
	}
	input, err := json.Marshal(map[string]any{"model": masterModel, "input": body.Items})
	if err != nil {
		return 0, err
	}
	_, request, err := translated(input)
	if err != nil {
		return 0, err
	}
	system := func(m chatMessage) bool { return m.Role == wire.RoleSystem }
	messages := contextOf(slices.DeleteFunc(request.Messages, system))
	newest := webapi.PageQuery{Offset: -maxItems, Limit: maxItems}
	page, err := h.Memory.PageOf(goingOn(r.Context()), memory.ChatKey(chat), newest)
	if err != nil {
		return 0, err
	}
	fresh := messages[storedBefore(messages, page.Messages):]
	for turn := 0; len(fresh) > 0; turn++ {
		end := 1
		for end < len(fresh) && !messageOf(fresh[end]).User {
			end++
		}
		if err := h.remember(r.Context(), chat, fresh[:end]); err != nil {
			return 0, err
		}
		fresh = fresh[end:]
	}
	return len(messages), nil
}

// storedBefore returns how many of the first messages are the newest ones of the chat, as its newest run stored them.
func storedBefore(messages, newest []json.RawMessage) int {
	if len(newest) == 0 {
		return 0
	}
	run, from := messageOf(newest[len(newest)-1]).Run, len(newest)
	if run == "" || strings.HasPrefix(run, itemRun) {
		return 0
	}
	for from > 0 && messageOf(newest[from-1]).Run == run {
		from--
	}
	stored := newest[from:]
	if len(stored) > len(messages) {
		return 0
	}
	for i, raw := range stored {
		if a, b := messageOf(raw), messageOf(messages[i]); a.User != b.User || a.Text != b.Text {
			return 0
		}
	}
	return len(stored)
}

// itemRun begins the ids of messages that came as items.
const itemRun = "items-"

// remember stores an exchange without an answer of an agent.
func (h *Handler) remember(ctx context.Context, chat memory.Chat, messages []json.RawMessage) error {
	body, err := json.Marshal(map[string]any{"session": strings.TrimSuffix(itemRun, "-"), "turn": rand.Text(),
		"began": time.Now().UnixMilli(), "messages": messages})
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	resp, err := h.Memory.Send(ctx, http.MethodPost, "/internal/v1/chats/"+url.PathEscape(chat.ID())+"/heard", header,
		bytes.NewReader(body))
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}
