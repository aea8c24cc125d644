package openaiapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"mneme/access"
	"mneme/access/jsonbound"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/proxy/chatwire"
	"mneme/proxy/responseswire"
	"mneme/proxy/wire"
	webapi "mneme/webmemory/api"
)

// This file is about requests of Responses: each becomes one for a chat completion by the gateway's translation, and
// its ids say where in which chat it goes on.

// place is where in a chat a request of Responses goes on.
type place struct {
	run    string // whose answer the message follows; empty for none
	begins bool   // with a chat of its own, since nothing names one
	// missing answers a request whose place is not there; nil: it has all that was said, and begins a chat.
	missing error
}

// read understands a request of Responses.
func readResponse(h *Handler, w http.ResponseWriter, r *http.Request) (*call, error) {
	raw, err := api.ReadBody(w, r, maxBody, jsonbound.Transcript)
	if err != nil {
		return nil, err
	}
	var also struct { // what a chat completion has elsewhere, or not at all
		Input    json.RawMessage `json:"input"`
		Metadata json.RawMessage `json:"metadata"`
		User     string          `json:"user"`
		Safety   string          `json:"safety_identifier"`
		Text     struct {
			Format json.RawMessage `json:"format"`
		} `json:"text"`
	}
	if err := json.Unmarshal(raw, &also); err != nil {
		return nil, invalid("", "The body is no request of Responses: %v.", err)
	}
	if err := api.CheckMembers(raw, &also); err != nil {
		return nil, err
	}
	body, newest, refers, err := withoutReferences(raw, also.Input)
	if err != nil {
		return nil, err
	}
	t, err := responseswire.MessagesRequest(body, chatwire.Options{Through: true})
	var chat chatwire.Translated
	if err == nil {
		chat, err = chatwire.ChatRequest(t.Body, chatwire.Options{Files: true})
	}
	if err != nil {
		return nil, invalid("", "%s", err)
	}
	c := &call{asked: &t.Asked}
	if err := json.Unmarshal(chat.Body, &c.request); err != nil {
		return nil, err
	}
	c.Metadata, c.User, c.ResponseFormat = also.Metadata, cmp.Or(also.User, also.Safety), chatForm(also.Text.Format)
	if t.Conversation != "" {
		t.Asked.Echo = append([]byte(`{"conversation":{"id":`+string(wire.Quote(t.Conversation))+`},`), t.Asked.Echo[1:]...)
	}
	switch {
	case t.Background:
		return nil, invalid("background", "background is not served: send the request without it, and read the chat's "+
			"history if the client leaves.")
	case t.Previous != "" && t.Conversation != "":
		return nil, invalid("previous_response_id", "previous_response_id and conversation exclude each other: send one of "+
			"them.")
	}
	if err = h.understand(r, c, t.Conversation); err == nil && !c.bare {
		err = c.goOn(r, t, newest, refers)
	}
	return c, inResponses(err)
}

// chatForm is text.format as the response_format of a chat completion.
func chatForm(format json.RawMessage) json.RawMessage {
	var f struct {
		Type json.RawMessage `json:"type"`
	}
	if json.Unmarshal(format, &f) != nil || len(f.Type) == 0 {
		return nil // translation has taken it, so it is none
	}
	return fmt.Appendf(nil, `{"type":%s,"json_schema":%s}`, f.Type, format)
}

// withoutReferences has an answer without words where the input refers to an item of ours: what that says is in the
// chat. newest is the last id of ours in it, and refers the last reference; both are empty for none.
func withoutReferences(raw, input json.RawMessage) (body []byte, newest, refers string, err error) {
	var items []json.RawMessage
	if json.Unmarshal(input, &items) != nil {
		return raw, "", "", nil // a text, or what translation refuses
	}
	for i, one := range items {
		var item struct {
			Type   string `json:"type"`
			ID     string `json:"id"`
			CallID string `json:"call_id"`
		}
		if json.Unmarshal(one, &item) != nil {
			continue
		}
		known := false
		for _, id := range []string{item.ID, item.CallID} {
			if _, _, ours := splitID(id); ours {
				newest, known = id, true
			}
		}
		if item.Type != "item_reference" {
			continue
		}
		if refers = item.ID; !known {
			return nil, "", "", noItem(item.ID)
		}
		items[i] = json.RawMessage(`{"role":"assistant","content":"…"}`)
	}
	if refers == "" {
		return raw, newest, "", nil
	}
	var members map[string]json.RawMessage
	if err = json.Unmarshal(raw, &members); err == nil {
		members["input"] = line(items)
		body, err = json.Marshal(members)
	}
	return body, newest, refers, err
}

func noItem(id string) error {
	return &failure{Param: "input", Problem: api.Problem{Status: http.StatusNotFound, Code: "item_not_found",
		Message: fmt.Sprintf("Item with id '%.100s' not found: send the item itself.", id)}}
}

// goOn finds the place of a request. A previous response has to be of the chat that is named, or of a fork of it. In a
// chat that is named otherwise a transcript is matched by its words.
func (c *call) goOn(r *http.Request, t responseswire.Translated, newest, refers string) error {
	said := c.last().Role == memory.RoleUser
	if refers != "" {
		c.missing = noItem(refers)
	}
	switch run, chat, ok := splitID(cmp.Or(t.Previous, newest)); {
	case t.Previous != "":
		c.missing = &failure{Param: "previous_response_id", Problem: api.Problem{Status: http.StatusBadRequest,
			Code: "previous_response_not_found", Message: fmt.Sprintf("Previous response with id '%.200s' not found.", t.Previous)}}
		if !ok || chat == nil && said || !within(chat, c.chat) {
			return c.missing
		}
		c.chat, c.run = chat, run
	case c.chat != nil:
	case ok && chat != nil && t.Store:
		c.chat, c.run = chat, run
	case said && t.Store:
		c.chat, c.begins = newChat(r), true
	}
	return nil
}

// within says whether a chat is the one that a request names, or was forked from it.
func within(chat, named *memory.Chat) bool {
	return named == nil || chat != nil && (*chat == *named || strings.HasPrefix(chat.ID(), forkPrefix(*named)))
}

// newChat is one for what names none. The same request with its key gets it again; a key of 128 bits is nobody's to guess.
func newChat(r *http.Request) *memory.Chat {
	name := rand.Text()
	if key := r.Header.Get(webapi.IdempotencyKey); key != "" {
		sum := sha256.Sum256([]byte(access.From(r.Context()).Key + "\x00" + key))
		name = base32.StdEncoding.EncodeToString(sum[:])[:len(name)]
	}
	chat, _ := memory.Tenant{}.Chat("responses:" + name) // letters and digits
	return &chat
}

// responseID is the id of an answer: it leads back to the run, to the event that it begins with, and to the chat. The
// ids of its items are made of it; see splitID.
func responseID(run string, first int64, chat *memory.Chat) string {
	id := "resp_" + memory.MessageID(run, first) + "_"
	if chat != nil {
		id += chat.ID()
	}
	return id
}

// splitID gives the run and the chat of an id of a response (resp_RUN.N_CHAT), of an item (msg_RUN.N_CHAT_I) or of a
// call (call_RUN_WAIT_CHAT) that was given here; the chat is nil for none.
func splitID(id string) (run string, chat *memory.Chat, ok bool) {
	kind, rest, _ := strings.Cut(id, "_")
	run, rest, ok = strings.Cut(rest, "_")
	switch kind {
	case "resp":
	case "call":
		_, rest, _ = strings.Cut(rest, "_")
	default:
		rest = rest[:max(strings.LastIndexByte(rest, '_'), 0)]
	}
	if kind != "call" && ok {
		run, _, ok = memory.SplitID(run)
	}
	if of, err := (memory.Tenant{}).Chat(rest); err == nil {
		chat = &of
	}
	return run, chat, ok && api.ValidRunID(run) && (chat != nil || rest == "")
}

// begin fills a chat that begins with what was said before a request's message.
func (h *Handler) begin(ctx context.Context, chat memory.Chat, before []chatMessage) error {
	var lines bytes.Buffer
	for _, m := range contextOf(before) {
		lines.Write(append(line(webapi.ExportLine{Message: m}), '\n'))
	}
	count := len(before)
	if lines.Write(line(webapi.ExportLine{Messages: &count})); count == 0 {
		return nil
	}
	_, err := h.Memory.Import(goingOn(ctx), chat, &lines)
	return unlessMade(err)
}

// branch makes the chat in which a message follows an answer that others have followed before: it has what was said up
// to that. The same message with its key finds it again.
func (h *Handler) branch(ctx context.Context, chat memory.Chat, at, key string) (memory.Chat, error) {
	sum := sha256.Sum256([]byte(at + "\n" + key))
	return h.forkAs(ctx, chat, fmt.Sprintf("%s%x", forkPrefix(chat), sum[:8]), at)
}

// inResponses is an error about a member of a request for a chat completion, by the member's name in Responses.
func inResponses(err error) error {
	var f *failure
	if !errors.As(err, &f) {
		return err
	}
	named := *f
	switch {
	case strings.HasPrefix(f.Param, "messages"):
		named.Param = "input"
	case f.Param == "response_format":
		named.Param = "text.format"
	}
	return &named
}
