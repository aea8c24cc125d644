package chats

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
)

// RedactRoutes is DELETE of a message: it finds what the message's exchange said in other histories, and has it blanked
// under the chat's turn, before all posts that wait.
type RedactRoutes struct {
	*node.Core
	Histories *past.Histories
	Eraser    *erase.Eraser
	Leaser    *turns.Leaser
}

// RedactMessage is DELETE …/messages/{id} of a chat or of one of its subagents.
func (s *RedactRoutes) RedactMessage(c *gin.Context, key memory.Key) error {
	scope := c.DefaultQuery("scope", webapi.Exchange)
	if scope != webapi.Exchange && scope != webapi.Message {
		return problem.BadRequest("scope is exchange or message, not %.40q.", scope)
	}
	dry, err := problem.Flag(c, "dry_run")
	if err != nil {
		return err
	}
	id, exchange, headCache := c.Param("id"), scope == webapi.Exchange, past.Heads{}
	// An id that is not there stops no run.
	plan, err := s.planRedaction(c.Request.Context(), key, id, exchange, headCache)
	if err != nil {
		return err
	}
	if dry {
		c.Set(node.NothingDone, true)
		return api.Answer(c.Writer, http.StatusOK, plan.Out, nil)
	}
	return turns.TakenAwayBy(s.Leaser, c, func() (webapi.Redacted, error) {
		plan, err := turns.TakeAwayNow(s.Leaser, key.Chat(), runs.Erasing, erase.RedactTimeout,
			func(ctx context.Context, w *runs.Writer) (
				erase.RedactionPlan, error) {
				plan, err := s.planRedaction(ctx, key, id, exchange, headCache)
				if err == nil {
					err = s.Eraser.RedactUnder(ctx, w, plan)
				}
				return plan, err
			})
		return plan.Out, err
	})
}

// planRedaction finds the messages that a redaction takes the text of.
func (s *RedactRoutes) planRedaction(ctx context.Context, key memory.Key, id string, exchange bool,
	headCache past.Heads) (
	plan erase.RedactionPlan, err error) {
	chat := key.Chat()
	histories, err := s.Histories.CurrentAll(ctx, chat, key)
	if err != nil {
		return plan, err
	}
	v, err := s.Histories.Pin(ctx, histories, headCache)
	if err != nil {
		return plan, err
	}
	plan = erase.RedactionPlan{HeadCache: headCache, Out: webapi.Redacted{Redacted: []webapi.MessageRef{}}}
	for k, p := range v {
		p.OnGap = func(webapi.HistoryGap, error) error { plan.Out.Partial = true; return nil }
		v[k] = p
	}
	for k := range histories {
		plan.Keys = append(plan.Keys, k)
	}
	slices.SortFunc(plan.Keys, func(a, b memory.Key) int { return strings.Compare(a.String(), b.String()) })
	ids, err := s.exchangeOf(ctx, v[key], key, id)
	if key == memory.ChatKey(chat) {
		// The chat's route takes an id of any of its histories, as recall gives it.
		for i := 0; i < len(plan.Keys) && errors.Is(err, problem.ErrUnknownMessage); i++ {
			key = plan.Keys[i]
			ids, err = s.exchangeOf(ctx, v[key], key, id)
		}
		if errors.Is(err, problem.ErrUnknownMessage) {
			err = problem.ErrUnknownMessage
		}
	}
	if err != nil {
		return plan, err
	}
	plan.What = erasures.Redaction{Chat: chat, Key: key, IDs: ids}
	if run := memory.RunOf(id); !exchange {
		plan.What.IDs = []string{id}
	} else if node.IsRunID(run) {
		plan.What = erasures.Redaction{Chat: chat, Run: run}
	} else if len(ids) > erase.MaxRedacted {
		return plan, &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("The exchange has more than %d messages; redact them one by one, with scope=message.",
				erase.MaxRedacted)}
	}
	for _, k := range plan.Keys {
		has := func(id string) bool { return plan.What.Has(k, id) }
		for one, err := range s.Histories.Parts(ctx, v[k], has) {
			for i := 0; i < len(one.Heads) && err == nil; i++ {
				if id := one.Heads[i].ID; has(id) {
					plan.Out.Redacted = append(plan.Out.Redacted, webapi.MessageRef{Subagent: k.Agent(), ID: id})
				}
			}
			if err != nil {
				return plan, err
			}
		}
	}
	return plan, nil
}

// exchangeOf are the ids of the exchange around a message of a history: a user message and what follows it
// until the next one.
func (s *RedactRoutes) exchangeOf(ctx context.Context, p past.Pinned, key memory.Key,
	id string) (ids []string, err error) {
	matched := false
	for one, err := range s.Histories.Parts(ctx, p, past.NoID) {
		if err != nil {
			return nil, err
		}
		for _, h := range one.Heads {
			if h.Role == memory.RoleUser {
				if matched {
					return ids, nil
				}
				ids = nil
			}
			matched = matched || h.ID == id
			if len(ids) <= erase.MaxRedacted || h.ID == id {
				ids = append(ids, h.ID)
			}
		}
	}
	if !matched {
		return nil, &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownMessage,
			Message: fmt.Sprintf("The history %s has no message with the id %.140q.", key, id)}
	}
	return ids, nil
}
