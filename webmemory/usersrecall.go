package webmemory

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/recall"
)

// This file is about finding what a user said in any chat. The chats are those that were posted under the user alone, so
// that no user is shown what another one said; which those are stands in Redis and is looked at before and after a
// search.

var errNotEverywhere = &api.Problem{
	Status: http.StatusForbidden, Code: "recall_everywhere_off",
	Message: "Chats are not searched together here: set recall.everywhere to how many of a user's chats may be.",
}

// getUserRecall is GET /v1/users/{user}/recall.
func (s *searcher) getUserRecall(c *gin.Context) error {
	u, err := userOf(c)
	if err != nil {
		return err
	}
	q, err := queryOf(c)
	if err != nil {
		return err
	}
	return answerUser(c, s, q, u)
}

// answerUser searches the chats of a user, and answers with what was found.
func answerUser(c *gin.Context, s *searcher, q recall.Query, u memory.User) error {
	if s.cfg.RecallEverywhere == 0 {
		return errNotEverywhere
	}
	out, err := foundOfUser(c.Request.Context(), s, q, u)
	if err == nil {
		api.WriteJSON(c.Writer, http.StatusOK, out)
	}
	return err
}

func foundOfUser(ctx context.Context, s *searcher, q recall.Query, u memory.User) (out api.Recalled, err error) {
	chats, hidden, err := s.store.Users.Own(ctx, u, s.cfg.RecallEverywhere)
	if err != nil {
		return out, err
	}
	keys := make([]memory.Key, len(chats))
	for i, chat := range chats {
		keys[i] = memory.ChatKey(chat)
	}
	slices.SortFunc(keys, func(a, b memory.Key) int { return cmp.Compare(a.String(), b.String()) })
	q.Quarantine = append(memory.Quarantine{}, hidden...)
	found, err := s.recall(ctx, q, keys...)
	if err != nil {
		return out, err
	}
	out = api.Recalled{Hits: []api.RecallHit{}, Partial: found.Partial}
	alone := map[memory.Chat]bool{}
	for _, h := range found.Hits {
		chat := h.Key.Chat()
		if _, known := alone[chat]; !known {
			if alone[chat], _, err = s.store.Users.PostedAlone(ctx, u, chat); err != nil {
				return out, err
			}
		}
		if alone[chat] { // else another user has posted there meanwhile
			hit := hitOf(h)
			hit.Chat = chat.ID()
			out.Hits = append(out.Hits, hit)
		}
	}
	return out, nil
}
