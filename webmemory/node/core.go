package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// ZoneOf returns zone, or the user's time zone if zone is empty. It ignores read errors, so no request fails because of
// the zone.
func ZoneOf(ctx context.Context, s *Core, zone string, u memory.User) string {
	if zone == "" && !u.IsZero() {
		zone, _ = s.Store.Users.Zone(ctx, u)
	}
	return zone
}

// Core holds what all parts of the service share: settings, the memory and its copies, the apiserver's client, metrics,
// logs, and common helpers. It also writes the audit log, records tombstones, and erases chats' conversations at the
// gateway. Background work of the service ends with Life.
type Core struct {
	Cfg           Config
	Store         *redisstore.Store
	Cache         *cache.Cache
	Spool         *spool.Spool
	Runs          *api.Client
	Log           zerolog.Logger
	Sessions      *SessionLogs
	EndStore      *EndStore
	Telemetry     *telemetry.Service
	Metrics       *Metrics
	Searches      *fair.Places // slots of searches, and of lists of keys, which cost as much
	Work          *fair.Places // slots of memory changes and transcripts
	Follower      Follower
	Conversations Conversations
	Tier          *ColdTier

	Life    context.Context // context of runs and of the janitor
	Workers sync.WaitGroup  // one per run, plus the janitor and the health check
}

// RetryInBackground calls try until it no longer returns memory.ErrUnavailable, or until the service ends.
func (s *Core) RetryInBackground(try func(context.Context) error) {
	s.Workers.Go(func() {
		for Pause(s.Life, Jitter(RetryEvery)) == nil {
			ctx, cancel := context.WithTimeout(s.Life, StoreTimeout)
			err := try(ctx)
			cancel()
			if !errors.Is(err, memory.ErrUnavailable) {
				return
			}
		}
	})
}

// Token returns the token of a new lease of this process.
func (s *Core) Token() string { return redisstore.Token(s.Spool.Name(), rand.Text()) }

// IsDead reports whether the process that made a token is proven dead, which takes access to its disk.
func (s *Core) IsDead(token string) bool { return s.Spool.Dead(redisstore.HolderOf(token)) }

// Adopt takes over the spools of processes that died on this disk.
func (s *Core) Adopt() {
	if err := s.Spool.Adopt(); err != nil {
		s.Telemetry.Often.Warn().Err(err).Msg("the spools of dead processes were not looked for")
	}
}

// RedactedSince reports whether this disk knows of a redaction in a chat after turn. If so, data of a run of that turn
// must not be written back.
func (s *Core) RedactedSince(chat memory.Chat, turn int64) bool {
	return slices.ContainsFunc(s.Follower.File.Redactions(chat), func(r erasures.Redacted) bool { return r.Turn > turn })
}

// RewoundSince reports whether run was taken back after turn.
func (s *Core) RewoundSince(chat memory.Chat, run string, turn int64) bool {
	run = strings.TrimSuffix(run, memory.ClosingSuffix)
	return s.Follower.File.Turn(erasures.Rewound(chat, run)) > turn
}

// NotErased returns problem.ErrLostRun for a run that was erased, redacted or taken back. Redis has such a run only
// after it lost the removal.
func (s *Core) NotErased(chat memory.Chat, rest *redisstore.Rest) error {
	if rest.Turn < s.Follower.File.HistoryTurn(memory.ChatKey(chat)) || s.RedactedSince(chat, rest.Turn) ||
		s.RewoundSince(chat, rest.Run, rest.Turn) {
		return problem.ErrLostRun
	}
	return nil
}

// RedactedCopy returns h with all redactions newer than h applied.
func (s *Core) RedactedCopy(h *memory.History) (*memory.History, error) {
	var err error
	for _, r := range s.Follower.File.Redactions(h.Key().Chat()) {
		if r.Turn > h.Cut() && r.Turn > s.Follower.File.HistoryTurn(h.Key()) && err == nil {
			h, err = h.Redacted(func(id string) bool { return r.Has(h.Key(), id) })
		}
	}
	return h, err
}

// NoteCut records on disk that an operator deleted or rewrote a history by hand, with the fencing token of the
// discovery. It also notifies the other processes through Redis (followHandCuts in package erase).
func (s *Core) NoteCut(key memory.Key, turn int64) {
	err := s.Cfg.Cuts.Add(map[string]int64{key.String(): turn})
	if err != nil {
		s.Log.Error().Err(err).Str("key", key.String()).Msg(
			"a change by hand is not known here if Redis loses its data; older copies may come back then")
	}
	ctx, cancel := context.WithTimeout(s.Life, StoreTimeout)
	defer cancel()
	if err := s.Store.Erasures.Note(ctx, turn, erasures.HandCut(key)); err != nil {
		s.Log.Warn().Err(err).Str("key", key.String()).Msg(
			"other processes do not know of a change by hand until they use the history")
	}
}

// NoteAll stores tombstones in Redis, 1000 per call.
func (s *Core) NoteAll(ctx context.Context, turn int64, names []string) error {
	for chunk := range slices.Chunk(names, 1000) {
		if err := s.Store.Erasures.Note(ctx, turn, chunk...); err != nil {
			return err
		}
	}
	return nil
}

// EraseConversations erases the conversations of a chat at the gateway that were not used after turn. It erases only
// conversations that this process knows.
func (s *Core) EraseConversations(ctx context.Context, chat memory.Chat, turn int64) error {
	c := &s.Conversations
	ids := c.until(chat, turn)
	for _, id := range ids {
		if err := fair.Block(ctx, func() error {
			return s.Runs.EraseConversation(ctx, chat.Tenant(), id)
		}); err != nil {
			return Unreachable(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.Turns[chat], id)
	}
	if len(c.Turns[chat]) == 0 {
		delete(c.Turns, chat)
	}
	return nil
}

// EraseOffered erases the conversations that Conversations.Erased reports, and removes the chat's conversation from
// Redis. The caller holds the chat's lease.
func (s *Core) EraseOffered(ctx context.Context, chat memory.Chat, turn redisstore.Turn) error {
	if err := s.EraseConversations(ctx, chat, turn.ErasedIn()); err != nil {
		return err
	}
	return s.Store.Turns.DropConversation(ctx, chat)
}

// LoadEach loads histories without a turn, in one round trip if none is damaged. A damaged history is nil.
func (s *Core) LoadEach(ctx context.Context, keys ...memory.Key) ([]*memory.History, error) {
	copies := make([]*memory.History, len(keys))
	for i, key := range keys {
		copies[i] = memory.Empty(key)
	}
	loaded, err := s.Cache.Load(ctx, 0, copies...)
	if !errors.Is(err, memory.ErrDamaged) {
		return loaded, err
	}
	loaded = make([]*memory.History, len(keys))
	for i := range copies {
		one, err := s.Cache.Load(ctx, 0, copies[i])
		switch {
		case err == nil:
			loaded[i] = one[0]
		case !errors.Is(err, memory.ErrDamaged):
			return nil, err
		}
	}
	return loaded, nil
}

// CountMessages returns the number of messages in a history, 0 if it is damaged.
func (s *Core) CountMessages(ctx context.Context, key memory.Key) (int, error) {
	loaded, err := s.LoadEach(ctx, key)
	if err != nil || loaded[0] == nil {
		return 0, err
	}
	return loaded[0].Len(), nil
}

// HasRun reports whether the apiserver refused a run because a run with the same id exists. The post then repeats a
// post whose record Redis lost.
func HasRun(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == api.RunConflict
}

// Unreachable returns an API problem for a failure to reach the apiserver. It returns cancellations, run conflicts and
// problems with status 400, 413 or 503 unchanged.
func Unreachable(err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Status == http.StatusServiceUnavailable ||
		p.Status == http.StatusBadRequest || p.Status == http.StatusRequestEntityTooLarge || HasRun(err)) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", &api.Problem{
		Status: http.StatusServiceUnavailable, Code: webapi.CodeAgentsUnavailable, Retryable: true,
		Message: "The agents cannot be reached right now; please send the message again.",
	}, err)
}
