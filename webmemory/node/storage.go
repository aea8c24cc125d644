package node

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// countEvery is the minimum time between two counts of a chat's bytes.
const countEvery = time.Second

// Storage maintains the counts of stored bytes. It counts a chat soon after each of its turns. If the process dies
// first, the next count of the chat includes these turns.
type Storage struct {
	*Core
	mu      sync.Mutex
	Changed map[memory.Chat]bool // guarded by mu: chats to count
	Wake    chan struct{}
}

// Note schedules a count of a chat.
func (s *Storage) Note(chat memory.Chat) {
	s.mu.Lock()
	s.Changed[chat] = true
	s.mu.Unlock()
	select {
	case s.Wake <- struct{}{}:
	default:
	}
}

// Work counts chats until the service ends.
func (s *Storage) Work() {
	for s.Life.Err() == nil {
		select {
		case <-s.Wake:
		case <-s.Life.Done():
			return
		}
		_ = Pause(s.Life, countEvery)
		s.countAll(s.Life)
	}
}

// countAll counts the scheduled chats. If the count of a chat fails, it is scheduled again.
func (s *Storage) countAll(ctx context.Context) {
	s.mu.Lock()
	chats := s.Changed
	s.Changed = map[memory.Chat]bool{}
	s.mu.Unlock()
	for chat := range chats {
		ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
		err := s.count(ctx, chat)
		cancel()
		if err != nil {
			s.Telemetry.Often.Warn().Err(err).Str("chat", chat.String()).Msg("the bytes of a chat are not counted yet")
			s.Note(chat)
		}
	}
}

// count counts the bytes of a chat. A chat that sleeps in the cold store keeps its count.
func (s *Storage) count(ctx context.Context, chat memory.Chat) error {
	histories, err := s.Store.Chats.Histories(ctx, chat, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	bytes := 0
	for _, h := range histories {
		bytes += h.Bytes + h.ArchivedBytes + h.NotesBytes
	}
	if bytes == 0 {
		if states, err := s.Store.Cold.Look(ctx, chat); err != nil || states[0].Asleep {
			return err
		}
	}
	return s.Store.Stored.Chat(ctx, chat, int64(bytes))
}

// Room returns how many more bytes a tenant may store. If there is no room, the error is s.ErrStorageFull.
func (s *Core) Room(ctx context.Context, tenant memory.Tenant) (remaining int64, err error) {
	limit := s.Cfg.Limiter.Stored(tenant)
	if limit == 0 {
		return math.MaxInt64, nil
	}
	used, err := s.Store.Stored.Total(ctx, tenant)
	if err == nil && used >= limit {
		err = s.ErrStorageFull(tenant)
	}
	return limit - used, err
}

// ErrStorageFull returns the API problem for a change that would exceed a tenant's storage limit.
func (s *Core) ErrStorageFull(tenant memory.Tenant) error {
	limit := access.Size(s.Cfg.Limiter.Stored(tenant))
	return &api.Problem{Status: http.StatusInsufficientStorage, Code: webapi.CodeStorageFull,
		Message: fmt.Sprintf("The tenant %s has reached its storage limit of %s. Delete chats or documents, or ask the "+
			"operator to raise the limit.", tenant, limit)}
}
