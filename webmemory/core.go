package webmemory

import (
	"context"
	"crypto/rand"
	"errors"
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
)

// core is what all rooms of the service share: the settings, the memory and its copies, the apiserver, what counts and
// logs, and the few helpers that more than one room calls. Of its own it writes the audit log, notes what was taken
// away, and erases at the gateway what was said of a chat. With its context life ends what the service does by itself.
type core struct {
	cfg           Config
	store         *redisstore.Store
	cache         *cache.Cache
	spool         *spool.Spool
	runs          *api.Client
	log           zerolog.Logger
	sessions      *sessionLogs
	endStore      *endStore
	telemetry     *telemetry.Service
	metrics       *metrics
	searches      *fair.Places // and lists of keys, which cost as much
	work          *fair.Places // changes of the memory, and transcripts
	follower      follower
	conversations conversations
	tier          *coldTier

	life    context.Context // of runs and of the janitor
	workers sync.WaitGroup  // one per run, and the janitor and the health check
}

// retryInBackground goes on trying what Redis did not take, until it does.
func (s *core) retryInBackground(try func(context.Context) error) {
	s.workers.Go(func() {
		for pause(s.life, jitter(retryEvery)) == nil {
			ctx, cancel := context.WithTimeout(s.life, storeTimeout)
			err := try(ctx)
			cancel()
			if !errors.Is(err, memory.ErrUnavailable) {
				return
			}
		}
	})
}

// token makes the token of a lease that this process takes.
func (s *core) token() string { return redisstore.Token(s.spool.Name(), rand.Text()) }

// isDead says whether the process that made a token is proven dead, here where its disk
// can be read.
func (s *core) isDead(token string) bool { return s.spool.Dead(redisstore.HolderOf(token)) }

// adopt takes the spools of processes that died on this disk.
func (s *core) adopt() {
	if err := s.spool.Adopt(); err != nil {
		s.telemetry.Often.Warn().Err(err).Msg("the spools of dead processes were not looked for")
	}
}

// redactedSince says whether something of a chat was redacted, as far as is known here, after a turn: what was
// kept of a run of that turn is gone, and must not be written back.
func (s *core) redactedSince(chat memory.Chat, turn int64) bool {
	return slices.ContainsFunc(s.follower.file.Redactions(chat), func(r erasures.Redacted) bool { return r.Turn > turn })
}

// rewoundSince says whether a run of a turn was taken back later on.
func (s *core) rewoundSince(chat memory.Chat, run string, turn int64) bool {
	run = strings.TrimSuffix(run, memory.ClosingSuffix)
	return s.follower.file.Turn(erasures.Rewound(chat, run)) > turn
}

// notErased refuses a run that was erased or taken back, and that Redis has come back with.
func (s *core) notErased(chat memory.Chat, rest *redisstore.Rest) error {
	if rest.Turn < s.follower.file.HistoryTurn(memory.ChatKey(chat)) || s.redactedSince(chat, rest.Turn) ||
		s.rewoundSince(chat, rest.Run, rest.Turn) {
		return errLostRun
	}
	return nil
}

// redactedCopy is a copy without the text of redactions that it does not follow.
func (s *core) redactedCopy(h *memory.History) (*memory.History, error) {
	var err error
	for _, r := range s.follower.file.Redactions(h.Key().Chat()) {
		if r.Turn > h.Cut() && r.Turn > s.follower.file.HistoryTurn(h.Key()) && err == nil {
			h, err = h.Redacted(func(id string) bool { return r.Has(h.Key(), id) })
		}
	}
	return h, err
}

// noteCut keeps on disk that an operator deleted or rewrote a history by hand, with the
// fencing token under which that was found, and tells the other processes
// (followHandCuts).
func (s *core) noteCut(key memory.Key, turn int64) {
	err := s.cfg.Cuts.Add(map[string]int64{key.String(): turn})
	if err != nil {
		s.log.Error().Err(err).Str("key", key.String()).Msg(
			"a change by hand is not known here if Redis loses its data; older copies may come back then")
	}
	ctx, cancel := context.WithTimeout(s.life, storeTimeout)
	defer cancel()
	if err := s.store.Erasures.Note(ctx, turn, erasures.HandCut(key)); err != nil {
		s.log.Warn().Err(err).Str("key", key.String()).Msg(
			"other processes do not know of a change by hand until they use the history")
	}
}

func (s *core) noteAll(ctx context.Context, turn int64, names []string) error {
	for chunk := range slices.Chunk(names, 1000) {
		if err := s.store.Erasures.Note(ctx, turn, chunk...); err != nil {
			return err
		}
	}
	return nil
}

// eraseConversations erases at the gateway what a chat said up to a number, as far as this
// process knows the chat's conversations.
func (s *core) eraseConversations(ctx context.Context, chat memory.Chat, turn int64) error {
	c := &s.conversations
	ids := c.until(chat, turn)
	for _, id := range ids {
		if err := fair.Block(ctx, func() error {
			return s.runs.EraseConversation(ctx, chat.Tenant(), id)
		}); err != nil {
			return asking(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.turns[chat], id)
	}
	if len(c.turns[chat]) == 0 {
		delete(c.turns, chat)
	}
	return nil
}

// eraseOffered erases such a conversation at the gateway (conversations.erased), and takes
// it away from the chat while its lease is held.
func (s *core) eraseOffered(ctx context.Context, chat memory.Chat, turn redisstore.Turn) error {
	if err := s.eraseConversations(ctx, chat, turn.ErasedIn()); err != nil {
		return err
	}
	return s.store.Turns.DropConversation(ctx, chat)
}
