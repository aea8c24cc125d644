package webmemory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// countEvery is the least time between two counts of the same chat's bytes.
const countEvery = time.Second

// storage keeps the counts of stored bytes up to date. A chat is counted soon after each of its turns. A process that dies
// leaves its last turns to the next count of the chats.
type storage struct {
	*core
	mu      sync.Mutex
	changed map[memory.Chat]bool // guarded by mu: chats to count
	wake    chan struct{}
}

func newStorage(c *core) *storage {
	return &storage{core: c, changed: map[memory.Chat]bool{}, wake: make(chan struct{}, 1)}
}

// note has a chat counted soon.
func (s *storage) note(chat memory.Chat) {
	s.mu.Lock()
	s.changed[chat] = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// work counts chats until the service ends.
func (s *storage) work() {
	for s.life.Err() == nil {
		select {
		case <-s.wake:
		case <-s.life.Done():
			return
		}
		_ = pause(s.life, countEvery)
		s.countAll(s.life)
	}
}

// countAll counts the chats that were noted. What cannot be counted is noted again.
func (s *storage) countAll(ctx context.Context) {
	s.mu.Lock()
	chats := s.changed
	s.changed = map[memory.Chat]bool{}
	s.mu.Unlock()
	for chat := range chats {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		err := s.count(ctx, chat)
		cancel()
		if err != nil {
			s.telemetry.Often.Warn().Err(err).Str("chat", chat.String()).Msg("the bytes of a chat are not counted yet")
			s.note(chat)
		}
	}
}

// count counts the bytes of a chat. A chat that sleeps in the cold store keeps its count.
func (s *storage) count(ctx context.Context, chat memory.Chat) error {
	histories, err := s.store.Chats.Histories(ctx, chat, s.cfg.Agents()...)
	if err != nil {
		return err
	}
	bytes := 0
	for _, h := range histories {
		bytes += h.Bytes + h.ArchivedBytes + h.NotesBytes
	}
	if bytes == 0 {
		if states, err := s.store.Cold.Look(ctx, chat); err != nil || states[0].Asleep {
			return err
		}
	}
	return s.store.Stored.Chat(ctx, chat, int64(bytes))
}

// room returns how many bytes a tenant may store beyond those that it does. An error is errStorageFull if there are none.
func (s *core) room(ctx context.Context, tenant memory.Tenant) (remaining int64, err error) {
	limit := s.cfg.Limiter.Stored(tenant)
	if limit == 0 {
		return math.MaxInt64, nil
	}
	used, err := s.store.Stored.Total(ctx, tenant)
	if err == nil && used >= limit {
		err = s.errStorageFull(tenant)
	}
	return limit - used, err
}

// growing returns the handler of a route that adds to a tenant's stored bytes. The request fails with errStorageFull if
// the tenant has reached its limit, or if the body exceeds the rest. Messages, imports and forks are refused when they
// are sure to be new.
func (s *routes) growing(answer func(*gin.Context) error) func(*gin.Context) error {
	return func(c *gin.Context) error {
		tenant := problem.TenantOf(c)
		remaining, err := s.room(c.Request.Context(), tenant)
		if err != nil {
			return err
		}
		body := &boundedBody{ReadCloser: c.Request.Body, remaining: remaining}
		c.Request.Body = body
		if err = answer(c); err != nil && body.full.Load() {
			err = s.errStorageFull(tenant)
		}
		return err
	}
}

// documents forwards requests about documents.
func (s *routes) documents(c *gin.Context) error {
	search := strings.HasSuffix(c.Param("rest"), "/search") // below /v1/collections
	if m := c.Request.Method; m == http.MethodPut || m == http.MethodPost && !search {
		return s.growing(s.forward)(c)
	}
	return s.forward(c)
}

// boundedBody fails when more than left bytes are read, and sets full.
type boundedBody struct {
	io.ReadCloser
	remaining int64
	full      atomic.Bool
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.remaining -= int64(n); b.remaining < 0 {
		b.full.Store(true)
		return 0, errors.New("the body exceeds the tenant's storage limit")
	}
	return n, err
}

func (s *core) errStorageFull(tenant memory.Tenant) error {
	limit := access.Size(s.cfg.Limiter.Stored(tenant))
	return &api.Problem{Status: http.StatusInsufficientStorage, Code: webapi.CodeStorageFull,
		Message: fmt.Sprintf("The tenant %s has reached its storage limit of %s. Delete chats or documents, or ask the "+
			"operator to raise the limit.", tenant, limit)}
}
