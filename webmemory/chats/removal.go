package chats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access/tally"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
)

// EraseRoutes erases chats, histories and users. It gets each chat's lease before all waiting posts.
type EraseRoutes struct {
	*node.Core
	Eraser     *erase.Eraser
	Tombstones *erase.Tombstones
	Leaser     *turns.Leaser
}

// DeleteHistory handles DELETE …/history of a chat or a subagent.
func (s *EraseRoutes) DeleteHistory(c *gin.Context, key memory.Key) error {
	return s.erase(c, key.Chat(), erase.Scope{History: &key})
}

// DeleteChat handles DELETE /v1/chats/{chat}. With scan=true it also scans Redis for keys that no index names.
func (s *EraseRoutes) DeleteChat(c *gin.Context, chat memory.Chat) error {
	scan, err := problem.Flag(c, "scan")
	if err != nil {
		return err
	}
	return s.erase(c, chat, erase.Scope{Scan: scan})
}

// erase erases the part of a chat that what selects.
func (s *EraseRoutes) erase(c *gin.Context, chat memory.Chat, what erase.Scope) error {
	allowed := 2*node.StoreTimeout + redisstore.Beat
	if what.Scan {
		allowed = node.ScanTimeout
	}
	p := runs.Deleting
	if what.History != nil {
		p = runs.Erasing
	}
	return turns.TakeAway(s.Leaser, c, chat, p, allowed, func(ctx context.Context, w *runs.Writer) (webapi.Erased, error) {
		return s.Eraser.EraseUnder(ctx, w, what)
	})
}

// DeleteUser handles DELETE /v1/users/{user}. With chats=true it also erases chats that were posted under this user
// only.
func (s *EraseRoutes) DeleteUser(c *gin.Context, u memory.User) error {
	chats, err := problem.Flag(c, "chats")
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	e := redisstore.UserErasure{User: u, Timestamp: time.Now().UnixMilli(), Chats: chats}
	if err := s.Store.Users.Erasing(ctx, e, s.erasureLease()); err != nil {
		return err
	}
	var out webapi.ErasedUser
	if out.Notes, err = s.eraseUserNotes(context.WithoutCancel(ctx), e); err != nil {
		return err
	}
	if err := s.eraseUserRest(ctx, e, math.MaxInt64, &out); err != nil {
		return err
	}
	c.Set(node.NothingDone, out.Notes+len(out.Chats)+len(out.Retained) == 0)
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// erasureLease is the time without progress before another process finishes a user's erasure.
func (s *EraseRoutes) erasureLease() time.Duration { return 2 * s.Cfg.Lease }

// eraseUserRest erases a user's counters and, if e.Chats is set, as many chats as one request may. If only unreadable
// chats remain, the erasure is done.
func (s *EraseRoutes) eraseUserRest(ctx context.Context, e redisstore.UserErasure, until int64,
	out *webapi.ErasedUser) error {
	if e.Chats {
		if err := s.eraseUserChats(ctx, e, until, out); err != nil {
			return err
		}
	}
	ctx = context.WithoutCancel(ctx)
	err := s.Eraser.ForgetUsage(ctx, e.User.Tenant(), tally.ByUser, e.User.ID())
	if err == nil && out.Remaining <= len(out.Failed) {
		err = s.Store.Users.Erased(ctx, e)
	}
	return err
}

// FinishErasures finishes user erasures of other processes, and those with more chats than one request may erase.
func (s *EraseRoutes) FinishErasures() {
	for node.Pause(s.Life, node.Jitter(s.Cfg.Lease)) == nil {
		unfinished, err := s.Store.Users.HalfErased(s.Life)
		if err != nil {
			continue // the health check reports Redis
		}
		for _, e := range unfinished {
			if err := s.finishErasure(s.Life, e); err != nil && s.Life.Err() == nil {
				s.Telemetry.Often.Warn().Err(err).Str("user", e.User.String()).Msg("the erasure of a user is not finished yet")
			}
		}
	}
}

// finishErasure finishes a user's erasure. Newer data stays.
func (s *EraseRoutes) finishErasure(ctx context.Context, e redisstore.UserErasure) error {
	err := s.Store.Users.Erasing(ctx, e, s.erasureLease())
	if err == nil {
		err = s.Follower.File.Add(map[string]int64{erasures.User(e.User): e.Timestamp})
	}
	if err == nil {
		err = s.Tombstones.EraseAgain(ctx, erasures.User(e.User), e.Timestamp)
	}
	if err != nil {
		return err
	}
	s.Log.Warn().Str("user", e.User.String()).Msg("finishing the erasure of a user")
	for {
		var out webapi.ErasedUser
		if err := s.eraseUserRest(ctx, e, e.Timestamp, &out); err != nil {
			return err
		}
		if out.Remaining <= len(out.Failed) || len(out.Chats)+len(out.Retained) == 0 {
			return s.Store.Server.Scrub(ctx)
		}
	}
}

// eraseUserNotes erases a user's notes and returns their number. It first writes a tombstone to this disk. If Redis
// returns to an older state, the notes are erased again.
func (s *EraseRoutes) eraseUserNotes(ctx context.Context, e redisstore.UserErasure) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, node.ScrubWait)
	defer cancel()
	if err := s.Follower.File.Add(map[string]int64{erasures.User(e.User): e.Timestamp}); err != nil {
		return 0, err
	}
	erased, err := s.Store.Users.EraseNotes(ctx, e.Timestamp, e.User)
	if err != nil {
		return 0, err
	}
	return erased, s.Store.Server.Scrub(ctx)
}

// eraseUserChats erases chats that were posted under e.User only and not used after until, a Unix time in ms. It stops
// at the limits of one request. Chats with posts of others leave the user's list. An unreadable chat stays on it and is
// added to out.Failed. Other errors are returned only if no chat was processed.
func (s *EraseRoutes) eraseUserChats(ctx context.Context, e redisstore.UserErasure, until int64,
	out *webapi.ErasedUser) error {
	began, done, skipped := time.Now(), 0, 0
	var failed error
	late := func() bool { return time.Since(began) > erase.UserEraseTime || ctx.Err() != nil }
	for {
		page, total, err := s.Store.Users.PostedBy(ctx, e.User, until, skipped, erase.MaxUserChats-done)
		if err != nil {
			return err
		}
		out.Remaining = total
		for _, p := range page {
			if late() {
				break
			}
			erased, exists, err := s.eraseIfAlone(ctx, e.User, p.Chat)
			if err == nil {
				err = s.Store.Users.Unpost(ctx, e.User, p)
			}
			if err == nil {
				err = s.Store.Users.Erasing(ctx, e, s.erasureLease())
			}
			if err != nil {
				s.Log.Warn().Err(err).Str("chat", p.Chat.String()).Msg("a chat of a user was not erased; it stays on the list")
				skipped++
				if node.Unread(err) {
					out.Failed = append(out.Failed, p.Chat)
				} else {
					failed = errors.Join(failed, err)
				}
				continue
			}
			done, out.Remaining = done+1, out.Remaining-1
			switch {
			case erased:
				out.Chats = append(out.Chats, p.Chat)
			case exists:
				out.Retained = append(out.Retained, p.Chat)
			}
		}
		if len(page) == 0 || done >= erase.MaxUserChats || late() {
			break
		}
	}
	if done == 0 {
		return errors.Join(failed, ctx.Err())
	}
	return nil
}

// eraseIfAlone erases a chat if all of it was posted under u. It checks again under the lease, when no other request
// can post. If the chat is not erased, exists reports whether it has data.
func (s *EraseRoutes) eraseIfAlone(ctx context.Context, u memory.User, chat memory.Chat) (erased, exists bool,
	err error) {
	if err := s.Tier.Wake(ctx, chat); err != nil {
		return false, false, err
	}
	if erased, exists, err = s.Store.Users.PostedAlone(ctx, u, chat); err != nil || !erased {
		return false, exists, err
	}
	_, err = turns.TakeAwayNow(s.Leaser, chat, runs.Deleting, 2*node.StoreTimeout+redisstore.Beat,
		func(ctx context.Context, w *runs.Writer) (out webapi.Erased, err error) {
			if erased, exists, err = s.Store.Users.PostedAlone(ctx, u, chat); err != nil || !erased {
				return out, err
			}
			return s.Eraser.EraseUnder(ctx, w, erase.Scope{})
		})
	return erased && err == nil, exists, err
}

// RedactRoutes redacts a message, or its exchange in all histories. It gets the chat's lease before all waiting posts.
type RedactRoutes struct {
	*node.Core
	Histories *past.Histories
	Eraser    *erase.Eraser
	Leaser    *turns.Leaser
}

// RedactMessage handles DELETE …/messages/{id} of a chat or a subagent.
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
	// An unknown id must not stop a run.
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

// planRedaction finds the messages to blank.
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
		// The chat's route accepts ids of all its histories, because recall returns them.
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

// exchangeOf returns the ids of a message's exchange: a user message and all messages before the next one.
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

// RewindRoutes rewinds chats and restores set-aside messages, under the chat's lease.
type RewindRoutes struct {
	*node.Core
	Histories *past.Histories
	Rewinder  *erase.Rewinder
	Leaser    *turns.Leaser
}

// PostRewind handles POST …/rewind. Like an erasure, it stops the chat's active run.
func (s *RewindRoutes) PostRewind(c *gin.Context, chat memory.Chat, body erase.RewindRequest) error {
	target := ""
	if body.Target == nil {
		return problem.BadRequest("to is missing: the id of the last message that stays, or null for none.")
	}
	if string(body.Target) != "null" && (json.Unmarshal(body.Target, &target) != nil || target == "") {
		return problem.BadRequest("to is the id of a message or null, not %.80s.", body.Target)
	}
	// Validate the request before it stops a run.
	headCache := past.Heads{}
	v, err := s.Histories.Look(c.Request.Context(), chat, headCache)
	if err == nil && len(v) == 0 {
		err = problem.ErrUnknownChat
	}
	if err == nil {
		_, err = s.Histories.Locate(c.Request.Context(), chat, v, target)
	}
	if err != nil {
		return err
	}
	return turns.TakeAway(s.Leaser, c, chat, runs.Erasing, node.ScanTimeout,
		func(ctx context.Context, w *runs.Writer) (webapi.SetAside, error) {
			return s.Rewinder.RewindUnder(ctx, w, target, headCache)
		})
}

// GetSetAside handles GET …/set-aside.
func (s *RewindRoutes) GetSetAside(c *gin.Context, chat memory.Chat) error {
	setAsides, err := s.Store.Rewinds.List(c.Request.Context(), chat)
	if err != nil {
		return err
	}
	out := webapi.SetAsides{SetAside: []webapi.SetAside{}}
	for _, a := range setAsides {
		out.SetAside = append(out.SetAside, erase.SetAsideEntry(a))
	}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// PostRestore handles POST …/set-aside/{id}/restore. It waits for an active run. If the run changed the chat, the error
// is problem.ErrMessagesSince.
func (s *RewindRoutes) PostRestore(c *gin.Context, chat memory.Chat) error {
	ctx := c.Request.Context()
	readAside := func(ctx context.Context) (*redisstore.SetAside, error) {
		a, err := s.Store.Rewinds.Read(ctx, chat, c.Param("id"))
		if err == nil && a == nil {
			err = erase.ErrUnknownSetAside
		}
		return a, err
	}
	if _, err := readAside(ctx); err != nil {
		return err
	}
	var out webapi.SetAside
	err := s.Leaser.UnderTurn(context.WithoutCancel(ctx), chat, func(ctx context.Context, w *runs.Writer) error {
		a, err := readAside(ctx)
		if err != nil {
			return err
		}
		if err := s.Histories.UnchangedSince(ctx, w.Histories, a); err != nil {
			return err
		}
		out = erase.SetAsideEntry(*a)
		return s.Rewinder.RestoreUnder(ctx, w, a)
	})
	return api.Answer(c.Writer, http.StatusOK, out, err)
}
