package chats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// This file is about lists of chats, and what they say of each: its title, when it was used, its metadata.

// Lists lists chats and keeps what their owners say of them: titles, pins, metadata. It writes the list of chats,
// also, once, of those from before there was one.
type Lists struct{ *node.Core }

// byUse is the value of order for the chats that were used last first, byPin that for those of them that are pinned.
const byUse, byPin = "used", "pinned"

// maxSearch bounds q, in bytes.
const maxSearch = 256

// ListChats is GET /v1/chats.
func (s *Lists) ListChats(c *gin.Context) error {
	limit, err := problem.Number(c, "limit", node.PageSize, 1, node.MaxPage)
	if err != nil {
		return err
	}
	ctx, tenant, cursor, q := c.Request.Context(), problem.TenantOf(c), c.Query("cursor"), c.Query("q")
	switch order := c.Query("order"); {
	case order != "" && order != byUse && order != byPin:
		return problem.BadRequest("order is %s, %s or left out, not %.40q.", byUse, byPin, order)
	case q != "" && order == "":
		return problem.BadRequest("q goes with order=%s.", byUse)
	case len(q) > maxSearch:
		return problem.BadRequest("q has at most %d bytes.", maxSearch)
	case order == byPin:
		out, err := s.pinnedChats(ctx, tenant, strings.ToLower(memory.Plain(q)), limit)
		return api.Answer(c.Writer, http.StatusOK, out, err)
	case order == byUse, tenant != memory.Tenant{}, s.Cfg.Cold.Store != nil: // whose chats are all in the list
		out, err := s.chatsByUse(ctx, tenant, strings.ToLower(memory.Plain(q)), limit, cursor)
		return api.Answer(c.Writer, http.StatusOK, out, err)
	}
	chats, next, err := s.Store.Chats.Page(ctx, cursor, limit)
	if err != nil {
		return err
	}
	out := webapi.ChatList{Chats: []webapi.ChatEntry{}, NextCursor: next}
	for _, chat := range chats {
		if chat.Tenant() == tenant {
			out.Chats = append(out.Chats, webapi.ChatEntry{ChatID: chat})
		}
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// chatsLooked is at how many chats one request looks that searches them, and lookAtOnce how many it reads in one go.
const chatsLooked, lookAtOnce = 2000, 200

// chatsByUse lists a tenant's chats with q in their title or id, in lower case, behind a cursor.
func (s *Lists) chatsByUse(ctx context.Context, tenant memory.Tenant, q string, limit int, cursor string) (
	out webapi.ChatList, err error,
) {
	out.Chats = []webapi.ChatEntry{}
	pos, err := redisstore.ParsePlace(cursor)
	if err != nil {
		return out, err
	}
	for scanned := 0; scanned < chatsLooked; {
		count := lookAtOnce
		if q == "" {
			count = limit - len(out.Chats) + 1 // whether there is another one
		}
		places, err := s.Store.Chats.ByUse(ctx, tenant, pos, count)
		if err != nil {
			return out, err
		}
		scanned += count
		hasMore := len(places) == count
		entries, err := s.entries(ctx, tenant, places)
		if err != nil {
			return out, err
		}
		for i, e := range entries {
			switch {
			case e.ChatCard == nil || !contains(e, q):
			case len(out.Chats) == limit: // and this one is the next
				out.NextCursor = pos.Cursor()
				return out, nil
			default:
				out.Chats, pos = append(out.Chats, e), places[i]
			}
		}
		if !hasMore {
			return out, nil
		}
		if pos = places[count-1]; len(out.Chats) == limit {
			break
		}
	}
	out.NextCursor = pos.Cursor()
	return out, nil
}

// pinnedChats lists a tenant's pinned chats with q in their title or id, in lower case, in the order of use.
func (s *Lists) pinnedChats(ctx context.Context, tenant memory.Tenant, q string,
	limit int) (webapi.ChatList, error) {
	out := webapi.ChatList{Chats: []webapi.ChatEntry{}}
	pins, err := s.Store.Chats.ByUse(ctx, tenant, redisstore.Pins, node.MaxPage)
	if err != nil {
		return out, err
	}
	var ids []string
	for _, p := range pins {
		ids = append(ids, p.Member)
	}
	places, err := s.Store.Chats.Used(ctx, tenant, ids...)
	if err != nil {
		return out, err
	}
	slices.SortStableFunc(places, func(a, b redisstore.Place) int { return cmp.Compare(b.Used, a.Used) })
	entries, err := s.entries(ctx, tenant, places)
	for _, e := range entries {
		if e.ChatCard != nil && contains(e, q) && len(out.Chats) < limit {
			out.Chats = append(out.Chats, e)
		}
	}
	return out, err
}

func contains(e webapi.ChatEntry, q string) bool {
	return strings.Contains(strings.ToLower(e.Title), q) || strings.Contains(strings.ToLower(e.ChatID.ID()), q)
}

// entries are what a list says of its places; one without a card is no chat, or not there any more.
func (s *Lists) entries(ctx context.Context, tenant memory.Tenant, places []redisstore.Place) (
	[]webapi.ChatEntry, error,
) {
	out := make([]webapi.ChatEntry, len(places))
	var chats []memory.Chat
	var positions []int
	for i, p := range places {
		if chat, ok := p.Chat(tenant); ok {
			chats, positions = append(chats, chat), append(positions, i)
		}
	}
	cards, err := s.Store.Chats.Cards(ctx, chats...)
	if err != nil {
		return nil, err
	}
	var asleep []int
	var sleeping []memory.Chat
	for i, chat := range chats {
		if places[positions[i]].Asleep {
			asleep, sleeping = append(asleep, i), append(sleeping, chat)
		}
	}
	for i, card := range s.Tier.Cards(ctx, sleeping) {
		cards[asleep[i]] = redisstore.Card{Title: card.Title, Messages: card.Messages, Metadata: card.Metadata,
			Pinned: cards[asleep[i]].Pinned}
	}
	for i, card := range cards {
		if card.Missing {
			if err := s.Store.Chats.Unlist(ctx, tenant, places[positions[i]]); err != nil {
				return nil, err
			}
			continue
		}
		if card.Messages == 0 && card.Bytes > 0 { // a value that another program wrote has no count yet
			if card.Messages, err = s.CountMessages(ctx, memory.ChatKey(chats[i])); err != nil {
				return nil, err
			}
		}
		out[positions[i]] = webapi.ChatEntry{ChatID: chats[i], ChatCard: cardOf(card, places[positions[i]].Used)}
		out[positions[i]].ChatCard.Asleep = places[positions[i]].Asleep
	}
	return out, nil
}

func cardOf(card redisstore.Card, used int64) *webapi.ChatCard {
	out := &webapi.ChatCard{Title: card.Title, Used: float64(used) / 1000, Messages: card.Messages, Pinned: card.Pinned}
	switch {
	case card.Open:
		out.State = webapi.ChatBusy
	case card.Waiting:
		out.State = webapi.ChatWaiting
	}
	_ = json.Unmarshal([]byte(cmp.Or(card.Metadata, "null")), &out.Metadata) // what cannot be read says nothing
	return out
}

// PatchChat is PATCH /v1/chats/{chat}.
func (s *Lists) PatchChat(c *gin.Context, chat memory.Chat, body webapi.ChatChange) error {
	var title, metadata *string
	if body.Title != nil {
		if len(*body.Title) > webapi.MaxTitle {
			return problem.BadRequest("title has %d bytes, at most %d are taken.", len(*body.Title), webapi.MaxTitle)
		}
		plain := memory.Plain(*body.Title)
		title = &plain
	}
	if body.Metadata != nil {
		if err := api.CheckMetadata(*body.Metadata); err != nil {
			return err
		}
		text := ""
		if len(*body.Metadata) > 0 {
			raw, err := json.Marshal(*body.Metadata)
			if err != nil {
				return err
			}
			text = string(raw)
		}
		metadata = &text
	}
	ctx := c.Request.Context()
	if body.Generated {
		if title == nil || *title == "" {
			return problem.BadRequest("made goes with a title.")
		}
		if err := s.Store.Chats.MakeTitle(ctx, chat, *title); err != nil {
			return err
		}
		title = nil
	}
	exists, err := s.Store.Chats.ChangeCard(ctx, chat, title, metadata, body.Pinned)
	if err != nil {
		return err
	}
	if !exists {
		return problem.ErrUnknownChat
	}
	if err := s.Store.Chats.List(ctx, chat); err != nil {
		return err
	}
	places, err := s.Store.Chats.Used(ctx, chat.Tenant(), chat.ID())
	if err != nil {
		return err
	}
	entries, err := s.entries(ctx, chat.Tenant(), places)
	if err != nil {
		return err
	}
	if entries[0].ChatCard == nil { // erased meanwhile
		return problem.ErrUnknownChat
	}
	return api.Answer(c.Writer, http.StatusOK, entries[0], nil)
}

// ListAll brings the chats that a version without the list has stored into it, some at a time.
func (s *Lists) ListAll() {
	for {
		err := s.tryListAll()
		if err == nil || s.Life.Err() != nil {
			return
		}
		s.Log.Debug().Err(err).Msg("the chats are not listed yet; it is tried again")
		if node.Pause(s.Life, node.Jitter(node.RetryEvery)) != nil {
			return
		}
	}
}

func (s *Lists) tryListAll() error {
	done, err := s.Store.Chats.Listed(s.Life)
	if err != nil || done {
		return err
	}
	began, count := time.Now(), 0
	if err := redisstore.Gather(s.Life, s.Store); err != nil {
		return err
	}
	for cursor, hasMore := "", true; hasMore; hasMore = cursor != "" {
		var chats []memory.Chat
		if chats, cursor, err = s.Store.Chats.Page(s.Life, cursor, lookAtOnce); err == nil {
			err = s.Store.Chats.List(s.Life, chats...)
		}
		if err != nil {
			return err
		}
		count += len(chats)
		if err := node.Pause(s.Life, 10*time.Millisecond); err != nil {
			return err
		}
	}
	if count > 0 {
		s.Log.Info().Int("chats", count).Dur("took", time.Since(began)).Msg("listed the chats in the order of use")
	}
	return s.Store.Chats.AllListed(s.Life)
}

// GetChat is GET /v1/chats/{chat}.
func (s *Lists) GetChat(c *gin.Context, chat memory.Chat) error {
	stored, err := s.Store.Chats.Histories(c.Request.Context(), chat, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	cards, err := s.Store.Chats.Cards(c.Request.Context(), chat)
	if err != nil {
		return err
	}
	out := webapi.ChatInfo{ChatID: chat, Title: cards[0].Title, Histories: []webapi.HistoryInfo{}}
	open, err := s.Store.Turns.OpenRun(c.Request.Context(), chat)
	if err != nil {
		return err
	}
	if open != nil {
		out.Run = open.Run
	}
	if out.Waiting, err = s.waitingOf(c.Request.Context(), chat); err != nil {
		return err
	}
	for _, h := range stored {
		if h.Messages == 0 {
			// A value that another program wrote has no count yet.
			if h.Messages, err = s.CountMessages(c.Request.Context(), h.Key); err != nil {
				return err
			}
		}
		out.Histories = append(out.Histories, webapi.HistoryInfo{
			Key: h.Key.String(), Subagent: h.Key.Agent(), Messages: h.Messages, Bytes: h.Bytes,
			Archived: h.Archived, ArchivedBytes: h.ArchivedBytes, Notes: h.Notes,
		})
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// waitingOf is the run of a chat that waits; nil for none.
func (s *Lists) waitingOf(ctx context.Context, chat memory.Chat) (*webapi.Waiting, error) {
	w, err := s.Store.Suspensions.Waiting(ctx, chat)
	if errors.Is(err, redisstore.ErrStateLost) || err == nil && w == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pending, err := runs.WaitsOf(w)
	if err != nil {
		return nil, nil //nolint:nilerr // it cannot go on, and is ended by the next holder of the chat's lease
	}
	return &webapi.Waiting{Outcome: webapi.OutcomeWaiting, RunID: w.Run, Pending: pending}, nil
}
