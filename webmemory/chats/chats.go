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

// Lists serves and fills the list of chats, with their titles, pins and metadata.
type Lists struct{ *node.Core }

// byUse and byPin are values of order. Both sort by last use, the latest first. byPin selects pinned chats only.
const byUse, byPin = "used", "pinned"

// maxSearch limits q, in bytes.
const maxSearch = 256

// ListChats handles GET /v1/chats.
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
	case order == byUse, tenant != memory.Tenant{}, s.Cfg.Cold.Store != nil: // in these cases the list by use is complete
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

// chatsLooked limits the chats that one request searches. lookAtOnce is the number of chats per read.
const chatsLooked, lookAtOnce = 2000, 200

// chatsByUse lists up to limit chats with q in their title or id, latest use first, after cursor. q is in lower case.
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
			count = limit - len(out.Chats) + 1 // one more, to detect a next page
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
			case len(out.Chats) == limit: // e belongs to the next page
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

// pinnedChats lists up to limit pinned chats with q in their title or id, latest use first. q is in lower case.
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

// entries returns the list entries of places, in the same order. An entry has no card if the chat does not exist.
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
		if card.Messages == 0 && card.Bytes > 0 { // values written by other programs have no count
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
	_ = json.Unmarshal([]byte(cmp.Or(card.Metadata, "null")), &out.Metadata) // unreadable metadata is omitted
	return out
}

// PatchChat handles PATCH /v1/chats/{chat}.
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
	if entries[0].ChatCard == nil { // erased since ChangeCard
		return problem.ErrUnknownChat
	}
	return api.Answer(c.Writer, http.StatusOK, entries[0], nil)
}

// ListAll adds the chats that an older version stored without a list, in batches. It retries until it succeeds.
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

// GetChat handles GET /v1/chats/{chat}.
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
			// Values written by other programs have no count.
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

// waitingOf returns the run that waits in a chat, or nil if there is none that can resume.
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
