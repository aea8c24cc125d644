package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/memory/secrets"
	"mneme/memory/telemetry"
	"mneme/proxy/ledger"
	"mneme/proxy/responseswire"
	"mneme/proxy/wire"
)

// maxStored bounds the input of a response that is stored, in bytes. A turn has it twice, in the dialects of its
// client and of its backend, and must fit into what the ledger keeps of a conversation.
const maxStored = 3 << 20

// goOn finds what a request of Responses goes on from, and has its input say all of it: what the previous responses
// were given and answered, then its own items. From here on it is a request of a client that shows its whole
// conversation. It also decides whether the answer is stored, and under which id.
//
// A response is stored as a turn: of the conversation that the client names, else of the previous response's, else
// of one that begins here and has the response's id.
func (s *Server) goOn(ctx context.Context, x scopedRequest) (scopedRequest, error) {
	if x.endpoint.dialect != wire.Responses {
		return x, nil
	}
	o := x.outline
	stores := o.Raw(o.Members.Get("store")).Kind() != jsontext.KindFalse && !s.config.Stateless
	own := o.Members.Get("input")
	resp := &ledger.Response{Input: inputItems(o.Raw(own))}
	source, err := s.referred(ctx, x, resp)
	if err != nil {
		return x, err
	}
	input := resp.Input
	// Of another type than a string it is null, or translation refuses it.
	if previous, _ := o.Text(o.Members.Get("previous_response_id")); previous != "" {
		if c := o.Members.Get("conversation"); c.Exists() && o.Raw(c).Kind() != jsontext.KindNull {
			return x, wire.Failure{Status: 400, Param: "previous_response_id",
				Message: "previous_response_id and conversation exclude each other: send one of them"}
		}
		prev, err := s.previous(ctx, x, previous)
		if err != nil {
			return x, err
		}
		resp.Previous, x.passes = previous, !stores && x.minted
		if x.minted && !prev.Full {
			x.scope, x.minted = prev.Turn.Scope, false
		}
		items, count := history(prev)
		input = joined(items, resp.Input)
		if x.scope != prev.Turn.Scope { // a conversation that has not what was before
			resp.Input, resp.Own = input, count
		}
	} else if source.Turn != nil && x.minted && !source.Full {
		x.scope, x.minted, x.passes = source.Turn.Scope, false, !stores
	}
	if own.Exists() && (resp.Previous != "" || source.Turn != nil) {
		var e wire.Edits
		e.Replace(own, input)
		if x.outline, err = x.outline.WithBody(e.Apply(x.outline.Body)); err != nil {
			return x, err
		}
	}
	if stores && len(resp.Input) <= maxStored {
		resp.ID = responseswire.NewID()
		if x.stored = resp; x.minted {
			x.scope.Conversation = resp.ID
		}
	}
	if x.client.Header().Get(conversationHeader) != "" {
		x.client.Header().Set(conversationHeader, x.scope.Conversation)
	}
	x.result.scopedRequest = x
	return x, nil
}

// referred puts items of stored responses into an input in the place of references to them. It gives the newest of those
// responses; without any its Turn is nil.
func (s *Server) referred(ctx context.Context, x scopedRequest,
	resp *ledger.Response) (source ledger.Stored, err error) {
	if !bytes.Contains(resp.Input, []byte(`"item_reference"`)) || s.config.Stateless {
		return source, nil
	}
	itemsByID := map[string]string{} // items, by their ids
	o := &wire.Outline{Body: resp.Input}
	var e wire.Edits
	for _, span := range o.Elements(wire.Span{End: len(resp.Input)}) {
		item := gjson.ParseBytes(o.Raw(span))
		if item.Get("type").Str != "item_reference" {
			continue
		}
		id := item.Get("id").Str
		if itemsByID[id] == "" {
			stored, err := s.ledger.ResponseOf(ctx, x.scope.Tenant, x.scope.Route, id)
			if err != nil && !errors.Is(err, ledger.ErrNoResponse) {
				x.log().Error().Err(err).Msg("an item of a stored response could not be looked for")
				return source, errNoLook
			}
			if err == nil {
				source = stored
				for _, answered := range gjson.GetBytes(stored.Turn.Response.Body, "output").Array() {
					itemsByID[answered.Get("id").Str] = answered.Raw
				}
			}
		}
		switch {
		case itemsByID[id] != "":
			e.Replace(span, []byte(itemsByID[id]))
		case x.foreign(): // else the vendor may have kept it
			return source, wire.Failure{Status: 404, Param: "input", Message: fmt.Sprintf("Item with id '%s' not found.", id)}
		}
	}
	resp.Input = e.Apply(resp.Input)
	return source, nil
}

// previous finds the response that a request goes on from.
func (s *Server) previous(ctx context.Context, x scopedRequest, id string) (ledger.Stored, error) {
	if s.config.Stateless {
		return ledger.Stored{}, wire.Failure{Status: 501, Param: "previous_response_id",
			Message: "previous_response_id is not served here, since conversations are switched off: send the whole input"}
	}
	prev, err := s.ledger.Response(ctx, x.scope.Tenant, x.scope.Route, id)
	switch {
	case errors.Is(err, ledger.ErrNoResponse), err == nil && !prev.Complete:
		return prev, wire.Failure{Status: 400, Code: "previous_response_not_found", Param: "previous_response_id",
			Message: fmt.Sprintf("Previous response with id '%s' not found.", id)}
	case err != nil:
		x.log().Error().Err(err).Msg("a stored response could not be looked for")
		return prev, errNoLook
	}
	return prev, nil
}

var errNoLook = wire.Failure{Status: http.StatusServiceUnavailable,
	Message: "stored responses cannot be looked for at the moment; try again"}

// inputItems are those of the member input, as an array.
func inputItems(input jsontext.Value) jsontext.Value {
	if input.Kind() == '"' {
		return slices.Concat([]byte(`[{"type":"message","role":"user","content":[{"type":"input_text","text":`), input,
			[]byte(`}]}]`))
	}
	if input.Kind() != '[' {
		return jsontext.Value("[]") // a mistake that translation names
	}
	return bytes.Clone(input)
}

// history is what a response and those before it were given and answered, and how many items these are.
func history(stored ledger.Stored) (items jsontext.Value, count int) {
	items = jsontext.Value("[]")
	for _, t := range append(stored.History, stored.Turn) {
		for _, part := range [][]byte{t.Response.Input, []byte(gjson.GetBytes(t.Response.Body, "output").Raw)} {
			items = joined(items, part)
		}
	}
	return items, int(gjson.GetBytes(items, "#").Int())
}

// joined is an array of the elements of two.
func joined(a, b jsontext.Value) jsontext.Value {
	inner := func(v jsontext.Value) []byte {
		v = bytes.TrimSpace(v)
		return bytes.TrimSpace(v[min(1, len(v)):max(len(v)-1, 0)])
	}
	parts := slices.DeleteFunc([][]byte{inner(a), inner(b)}, func(p []byte) bool { return len(p) == 0 })
	return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
}

// response finds the response that a path names; false if the client has been told why it does not get it.
func (s *Server) response(c *gin.Context, scope string) (*ledger.Response, bool) {
	id := c.Param("id")
	stored, err := s.ledger.Response(c.Request.Context(), caller(c.Request), routeOf(c, scope), id)
	if err != nil {
		s.refuseResponse(c, err)
		return nil, false
	}
	return stored.Turn.Response, true
}

// routeOf is the ledger's route of a request that goes through no pipeline.
func routeOf(c *gin.Context, scope string) string {
	if scope == scopeTeammate {
		return scopeTeammate + "/" + c.Param("name")
	}
	return scope
}

func (s *Server) refuseResponse(c *gin.Context, err error) {
	if errors.Is(err, ledger.ErrNoResponse) {
		message := wire.Quote(secrets.Keyless(fmt.Sprintf("Response with id '%s' not found.", c.Param("id"))))
		c.Data(http.StatusNotFound, "application/json", slices.Concat([]byte(`{"error":{"message":`), message,
			[]byte(`,"type":"invalid_request_error","param":null,"code":null}}`)))
		return
	}
	s.log.Error().Err(err).EmbedObject(telemetry.FromContext(c.Request.Context())).
		Msg("a stored response was out of reach")
	refuseRoute(c, errNoLook.Status, errNoLook.Message)
}

// showResponse gives a stored response as it was answered.
func (s *Server) showResponse(c *gin.Context, scope string) {
	if c.Query("stream") == "true" {
		refuseRoute(c, http.StatusNotImplemented, "a stored response is not streamed again: ask for it without stream")
		return
	}
	if r, ok := s.response(c, scope); ok {
		c.Data(http.StatusOK, "application/json", r.Body)
	}
}

func (s *Server) deleteResponse(c *gin.Context, scope string) {
	id := c.Param("id")
	err := s.ledger.Delete(c.Request.Context(), caller(c.Request), routeOf(c, scope), id)
	if err != nil {
		s.refuseResponse(c, err)
		return
	}
	s.log.Info().EmbedObject(telemetry.FromContext(c.Request.Context())).Str("response", id).Msg("response deleted")
	c.JSON(http.StatusOK, struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}{id, "response", true})
}

// Bounds of a page of items.
const (
	defaultItems = 20
	maxItems     = 100
)

// listInput lists the items that a stored response was given itself, the newest first unless the client asks for
// another order.
func (s *Server) listInput(c *gin.Context, scope string) {
	limit, err := strconv.Atoi(cmp.Or(c.Query("limit"), strconv.Itoa(defaultItems)))
	order := cmp.Or(c.Query("order"), "desc")
	switch {
	case err != nil || limit < 1 || limit > maxItems:
		refuseRoute(c, http.StatusBadRequest, fmt.Sprintf("limit must be a number from 1 to %d", maxItems))
		return
	case order != "asc" && order != "desc":
		refuseRoute(c, http.StatusBadRequest, "order must be asc or desc")
		return
	}
	r, ok := s.response(c, scope)
	if !ok {
		return
	}
	items := shownItems(r)
	if order == "desc" {
		slices.Reverse(items)
	}
	if cursor := c.Query("after"); cursor != "" {
		index := slices.IndexFunc(items, func(i shownItem) bool { return i.id == cursor })
		if index < 0 {
			refuseRoute(c, http.StatusBadRequest, fmt.Sprintf("after: the response has no input item with id '%s'", cursor))
			return
		}
		items = items[index+1:]
	}
	page := struct {
		Object  string           `json:"object"`
		Data    []jsontext.Value `json:"data"`
		FirstID wire.NullString  `json:"first_id"`
		LastID  wire.NullString  `json:"last_id"`
		HasMore bool             `json:"has_more"`
	}{Object: "list", Data: []jsontext.Value{}, HasMore: len(items) > limit}
	for i, item := range items[:min(limit, len(items))] {
		if page.LastID = wire.NullString(item.id); i == 0 {
			page.FirstID = page.LastID
		}
		page.Data = append(page.Data, item.json)
	}
	b, err := wire.Marshal(page)
	if err != nil { // impossible: the items were parsed before
		refuse(c, err)
		return
	}
	c.Data(http.StatusOK, "application/json", b)
}

// shownItem is an item of an input, with the id by which a list goes on behind it.
type shownItem struct {
	id   string
	json jsontext.Value
}

// shownItems are a response's own items, each of them with an id. What a client may leave out or shorten has the
// form that the dialect has for it.
func shownItems(r *ledger.Response) []shownItem {
	var items []shownItem
	for i, v := range gjson.ParseBytes(r.Input).Array()[r.Own:] {
		own := struct {
			ID      string         `json:"id"`
			Type    string         `json:"type"`
			Content jsontext.Value `json:"content,omitzero"`
		}{ID: v.Get("id").Str, Type: cmp.Or(v.Get("type").Str, "message")}
		if own.ID == "" {
			prefix := map[string]string{"message": "msg_", "reasoning": "rs_", "function_call": "fc_",
				"custom_tool_call": "ctc_"}[own.Type]
			own.ID = cmp.Or(prefix, "item_") + strings.TrimPrefix(r.ID, "resp_") + "_in" + strconv.Itoa(i)
		}
		if text := v.Get("content"); own.Type == "message" && text.Type == gjson.String {
			part := "input_text"
			if v.Get("role").Str == wire.RoleAssistant {
				part = "output_text"
			}
			own.Content = slices.Concat([]byte(`[{"type":`), wire.Quote(part), []byte(`,"text":`), wire.Quote(text.Str),
				[]byte("}]"))
		}
		head, _ := wire.Marshal(own) // strings and checked JSON always encode
		items = append(items, shownItem{own.ID, wire.Merged(head, []byte(v.Raw))})
	}
	return items
}

// refuseUnserved answers for what OpenAI has and this gateway does not.
func refuseUnserved(c *gin.Context) {
	refuseRoute(c, http.StatusNotImplemented, c.Request.URL.Path+" is not served yet: POST, GET and DELETE of "+
		"/v1/responses are, and previous_response_id goes on from a response")
}
