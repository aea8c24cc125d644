package past

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/recall"
	"mneme/memory/redisstore"
	"mneme/webmemory/node"
)

var errNotEverywhere = &api.Problem{
	Status: http.StatusForbidden, Code: "recall_everywhere_off",
	Message: "Chats are not searched together here: set recall.everywhere to how many of a user's chats may be.",
}

// GetUserRecall handles GET /v1/users/{user}/recall.
func (s *Searcher) GetUserRecall(c *gin.Context, u memory.User) error {
	q, err := queryOf(c, node.ZoneOf(c.Request.Context(), s.Core, c.Query("time_zone"), u))
	if err != nil {
		return err
	}
	return AnswerUser(c, s, q, u)
}

// AnswerUser searches the chats of a user and writes the response.
func AnswerUser(c *gin.Context, s *Searcher, q recall.Query, u memory.User) error {
	if s.Cfg.RecallEverywhere == 0 {
		return errNotEverywhere
	}
	out, err := foundOfUser(c.Request.Context(), s, q, u)
	return api.Answer(c.Writer, http.StatusOK, out, err)
}

// foundOfUser searches the user's most recent chats, but only chats in which no other user has posted. This keeps other
// users' messages out of the result. Redis is checked before and after the search. Sleeping chats are searched in their
// objects and do not wake. out.Unread lists chats that cannot be read.
func foundOfUser(ctx context.Context, s *Searcher, q recall.Query, u memory.User) (out memory.Recalled, err error) {
	posted, err := s.Store.Users.Recent(ctx, u, s.Cfg.RecallEverywhere)
	if err != nil {
		return out, err
	}
	asleep, failed, err := s.Tier.Frozen(ctx, posted...)
	if err != nil {
		return out, err
	}
	chats, hidden, err := s.Store.Users.Own(ctx, u, slices.DeleteFunc(posted, func(chat memory.Chat) bool {
		_, sleeps := asleep[chat]
		return sleeps || slices.Contains(failed, chat)
	})...)
	if err != nil {
		return out, err
	}
	for chat, f := range asleep {
		if f.User == u.ID() {
			chats, hidden = append(chats, chat), append(hidden, f.Hidden...)
		}
	}
	keys := make([]memory.Key, len(chats))
	for i, chat := range chats {
		keys[i] = memory.ChatKey(chat)
	}
	slices.SortFunc(keys, func(a, b memory.Key) int { return cmp.Compare(a.String(), b.String()) })
	q.Quarantine = append(memory.Quarantine{}, hidden...)
	result, unread, err := s.recall(ctx, q, asleep, keys...)
	if err != nil {
		return out, err
	}
	for _, key := range unread {
		failed = append(failed, key.Chat())
	}
	out = memory.Recalled{Hits: []memory.RecallHit{}, Partial: result.Partial || len(failed) > 0}
	for _, chat := range failed {
		out.Unread = append(out.Unread, chat.ID())
	}
	exclusive := map[memory.Chat]bool{}
	for _, h := range result.Hits {
		chat := h.Key.Chat()
		if _, ok := exclusive[chat]; !ok {
			if exclusive[chat], err = s.stillAlone(ctx, u, chat, asleep); err != nil {
				return out, err
			}
		}
		if exclusive[chat] { // otherwise another user has posted meanwhile
			hit := hitOf(h)
			hit.Chat = chat.ID()
			out.Hits = append(out.Hits, hit)
		}
	}
	return out, nil
}

// stillAlone reports whether only u has posted in a chat. A chat that still sleeps has not changed.
func (s *Searcher) stillAlone(ctx context.Context, u memory.User, chat memory.Chat,
	asleep map[memory.Chat]redisstore.Frozen) (bool, error) {
	if _, slept := asleep[chat]; slept {
		states, err := s.Store.Cold.Look(ctx, chat)
		if err != nil || states[0].Asleep {
			return err == nil, err
		}
	}
	exclusive, _, err := s.Store.Users.PostedAlone(ctx, u, chat)
	return exclusive, err
}
