package webmemory

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"mneme/memory"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

func newStorage(c *node.Core) *node.Storage {
	return &node.Storage{Core: c, Changed: map[memory.Chat]bool{}, Wake: make(chan struct{}, 1)}
}

// growing returns the handler of a route that adds to a tenant's stored bytes. The request fails with errStorageFull if
// the tenant has reached its limit, or if the body exceeds the rest. Messages, imports and forks are refused when they
// are sure to be new.
func (s *routes) growing(answer func(*gin.Context) error) func(*gin.Context) error {
	return func(c *gin.Context) error {
		tenant := problem.TenantOf(c)
		remaining, err := s.Room(c.Request.Context(), tenant)
		if err != nil {
			return err
		}
		body := &boundedBody{ReadCloser: c.Request.Body, remaining: remaining}
		c.Request.Body = body
		if err = answer(c); err != nil && body.full.Load() {
			err = s.ErrStorageFull(tenant)
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
