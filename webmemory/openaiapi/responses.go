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

	"github.com/tidwall/gjson"

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
	run   string       // whose answer the message follows; empty for none
	fresh *memory.Chat // that begins where nothing names one, or where the place is not there
	// missing answers a request whose place is not there; nil: it has all that was said, and begins its own chat.
	missing error
}

// readResponse understands a request of Responses.
func readResponse(h *Handler, w http.ResponseWriter, r *http.Request) (*call, error) {
	raw, err := api.ReadBody(w, r, MaxBody, jsonbound.Transcript)
	if err != nil {
		return nil, err
	}
	body, newest, refers, err := withoutReferences(raw)
	if err != nil {
		return nil, err
	}
	t, request, err := translated(body)
	if err != nil {
		return nil, err
	}
	c := &call{request: request, options: &t.Options}
	// What a chat completion has elsewhere, or translation leaves out.
	extra := gjson.GetManyBytes(raw, "metadata", "user", "safety_identifier", "text.format", "text.format.type")
	c.Metadata, c.User, c.ResponseFormat = json.RawMessage(extra[0].Raw), cmp.Or(extra[1].Str, extra[2].Str), nil
	if extra[4].Exists() {
		c.ResponseFormat = fmt.Appendf(nil, `{"type":%s,"json_schema":%s}`, extra[4].Raw, extra[3].Raw)
	}
	switch {
	case t.Background:
		return nil, invalid("background", "background is not served: send the request without it, and read the chat's "+
			"history if the client leaves.")
	case t.Conversation != "" && t.Previous != "":
		return nil, invalid("previous_response_id", "previous_response_id and conversation exclude each other: send one of "+
			"them.")
	case t.Conversation != "":
		t.Options.Echo = fmt.Appendf(nil, `{"conversation":{"id":%s},%s`, wire.Quote(t.Conversation), t.Options.Echo[1:])
	}
	if err = h.understand(r, c, t.Conversation); err == nil && !c.bare {
		err = c.goOn(r, t, newest, refers)
	}
	if err == nil {
		err = c.readFiles()
	}
	return c, inResponses(err)
}

// translated returns a request of Responses as one for a chat completion.
func translated(body []byte) (t responseswire.Translated, out request, err error) {
	t, err = responseswire.MessagesRequest(body, chatwire.Options{Intermediate: true, Separate: true})
	var chat chatwire.Translated
	if err == nil {
		chat, err = chatwire.ChatRequest(t.Body, chatwire.Options{Files: true})
	}
	if err != nil {
		return t, out, invalid("", "%s", err)
	}
	if t.Replaced || chat.Replaced { // a chat stores only what its authors wrote
		return t, out, invalid("input", "the input has items or parts of a type that a chat does not store: send texts, "+
			"images, files, calls and their outputs")
	}
	return t, out, json.Unmarshal(chat.Body, &out)
}

// withoutReferences has an answer without words where the input refers to an item of ours: what that says is in the
// chat. newest is the last id of ours in it, and refers the last reference; both are empty for none.
func withoutReferences(raw []byte) (body []byte, newest, refers string, err error) {
	o, err := wire.ReadOutline(raw)
	if err != nil {
		return nil, "", "", invalid("", "The body is no request of Responses: %v.", err)
	}
	var e wire.Edits
	for _, span := range o.Elements(o.Members.Get("input")) {
		item, hasChat := gjson.ParseBytes(o.Raw(span)), false
		for _, name := range []string{"id", "call_id"} {
			if _, chat, ours := splitID(item.Get(name).Str); ours {
				newest, hasChat = item.Get(name).Str, chat != nil
			}
		}
		if item.Get("type").Str != "item_reference" {
			continue
		}
		if refers = item.Get("id").Str; !hasChat {
			return nil, "", "", noItem(refers)
		}
		e.Replace(span, []byte(`{"role":"assistant","content":"…"}`))
	}
	return e.Apply(raw), newest, refers, nil
}

func noItem(id string) error {
	return refusal(http.StatusNotFound, "input", "item_not_found",
		"Item with id '%.200s' not found: send the item itself.", id)
}

// goOn finds the place of a request. A previous response has to be of the chat that is named, or of a fork of it. In a
// chat that is named otherwise a transcript is matched by its words.
func (c *call) goOn(r *http.Request, t responseswire.Translated, newest, refers string) error {
	fromUser := c.last().Role == memory.RoleUser
	c.fresh = newChat(r)
	if refers != "" {
		c.missing = noItem(refers)
	}
	switch run, chat, ok := splitID(cmp.Or(t.Previous, newest)); {
	case t.Previous != "":
		c.missing = refusal(http.StatusBadRequest, "previous_response_id", "previous_response_not_found",
			"Previous response with id '%.200s' not found.", t.Previous)
		if !ok || chat == nil && fromUser || !belongsTo(chat, c.chat) {
			return c.missing
		}
		c.chat, c.run = chat, run
	case c.chat != nil:
	case ok && chat != nil && (t.Store || refers != ""):
		c.chat, c.run = chat, run
	case fromUser && t.Store:
		c.chat = c.fresh
	}
	return nil
}

// belongsTo reports whether chat is the chat that a request names, or a fork of it.
func belongsTo(chat, base *memory.Chat) bool {
	return base == nil || chat != nil && (*chat == *base || strings.HasPrefix(chat.ID(), forkPrefix(*base)))
}

// newChat returns a chat for a request that names none; the same request with its Idempotency-Key gets it again.
func newChat(r *http.Request) *memory.Chat {
	chat, _ := memory.Tenant{}.Chat("responses:" + requestID(r, access.FromContext(r.Context()).Key)) // letters and digits
	return &chat
}

// requestID returns a random id. With an Idempotency-Key, the same request in the same scope gets the same id.
func requestID(r *http.Request, scope string) string {
	id := rand.Text()
	if key := r.Header.Get(webapi.IdempotencyKey); key != "" {
		sum := sha256.Sum256([]byte(scope + "\x00" + key))
		id = base32.StdEncoding.EncodeToString(sum[:])[:len(id)]
	}
	return id
}

// responseID is the id of an answer: it leads back to the run, to the event that it begins with, and to the chat. The
// ids of its items are made of it; see splitID.
func responseID(a *answer) string { return "resp_" + memory.MessageID(a.run, a.first) + ofChat(a.chat) }

// ofChat is how ids end that lead back to a chat.
func ofChat(chat *memory.Chat) string {
	if chat == nil {
		return ""
	}
	return "_" + chat.ID()
}

// splitID gives the run and the chat of an id of a response (resp_RUN.N_CHAT), of an item (msg_RUN.N_CHAT_I) or of a
// call (call_RUN_WAIT_CHAT) that was given here; the chat is nil for none.
func splitID(id string) (run string, chat *memory.Chat, ok bool) {
	kind, rest, ok := strings.Cut(id, "_")
	run, rest, _ = strings.Cut(rest, "_")
	switch kind {
	case "resp":
	case "call":
		ok = rest != "" // a vendor's have no second part
		_, rest, _ = strings.Cut(rest, "_")
	default:
		rest = rest[:max(strings.LastIndexByte(rest, '_'), 0)]
	}
	if kind != "call" && ok {
		run, _, ok = memory.SplitID(run)
	}
	if parsed, err := (memory.Tenant{}).Chat(rest); err == nil {
		chat = &parsed
	}
	return run, chat, ok && api.ValidRunID(run) && (chat != nil || rest == "")
}

// begin fills a chat with what was said before a request's message.
func begin(ctx context.Context, h *Handler, chat memory.Chat, history []ChatMessage) error {
	var lines bytes.Buffer
	for _, m := range contextOf(history) {
		lines.Write(append(line(webapi.ExportLine{Message: m}), '\n'))
	}
	count := len(history)
	lines.Write(line(webapi.ExportLine{Messages: &count}))
	_, err := h.Memory.Import(WithMemoryScopes(ctx), chat, &lines)
	_, err = ignoreNotEmpty(err)
	return err
}

// branchOf forks a chat after the message at, for a message that follows an answer which other messages follow already.
// With the same key it returns the same fork. made reports whether this call made it.
func branchOf(ctx context.Context, h *Handler, chat memory.Chat, messageID, key string) (as memory.Chat, created bool,
	err error) {
	sum := sha256.Sum256([]byte(chat.String() + "\n" + messageID + "\n" + key))
	if as, err = (memory.Tenant{}).Chat(fmt.Sprintf("%s%x", forkPrefix(chat), sum[:8])); err != nil {
		return as, false, err
	}
	_, err = h.Memory.Fork(WithMemoryScopes(ctx), chat, webapi.ForkRequest{As: as, LastID: messageID})
	created, err = ignoreNotEmpty(err)
	return as, created, err
}

// namesInResponses are those of a chat completion's members in Responses.
var namesInResponses = strings.NewReplacer("messages", "input", "response_format", "text.format")

// inResponses is an error about a member of a request, by the member's name in Responses.
func inResponses(err error) error {
	if f := new(failure); errors.As(err, &f) {
		return &failure{Problem: f.Problem, Param: namesInResponses.Replace(f.Param)}
	}
	return err
}
