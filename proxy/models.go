package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/proxy/wire"
)

// chatModels is the list of models in the chat dialect.
type chatModels struct {
	Object string      `json:"object"`
	Data   []chatModel `json:"data"`
}

type chatModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Tokens  int    `json:"context_tokens,omitempty"` // of the model's context window; missing if unknown
}

// messagesModels is the same in the messages dialect: one page with all of them.
type messagesModels struct {
	Data    []messagesModel `json:"data"`
	HasMore bool            `json:"has_more"`
	FirstID *string         `json:"first_id"`
	LastID  *string         `json:"last_id"`
}

type messagesModel struct {
	Type        string    `json:"type"`
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
	Tokens      int       `json:"context_tokens,omitempty"`
}

// modelsBackend is whose models a route shows.
func (s *Server) modelsBackend(c *gin.Context, scope string) *backend {
	if scope == scopeMain {
		return s.activeBackend(c.Request.Context())
	}
	return s.teammateBackend(c.Param("name"))
}

// chatModel shows the model that a name leads to.
func (b *backend) chatModel(name string) chatModel {
	return chatModel{ID: name, Object: "model", OwnedBy: "mneme", Tokens: b.windows.of(b.models.find(name)).tokens}
}

func (b *backend) messagesModel(name string) messagesModel {
	return messagesModel{"model", name, name, time.Unix(0, 0).UTC(), b.windows.of(b.models.find(name)).tokens}
}

// listModels names the aliases of the route's backend in the client's dialect.
// A vendor's own list is never shown: what is behind an alias may change.
func (s *Server) listModels(c *gin.Context, scope string) {
	b := s.modelsBackend(c, scope)
	aliases := b.models.aliases()
	if guessDialect(c.Request) == wire.Messages {
		page := messagesModels{Data: make([]messagesModel, len(aliases))}
		for i, name := range aliases {
			page.Data[i] = b.messagesModel(name)
		}
		if n := len(aliases); n > 0 {
			page.FirstID, page.LastID = &aliases[0], &aliases[n-1]
		}
		c.JSON(http.StatusOK, page)
		return
	}
	list := chatModels{Object: "list", Data: make([]chatModel, len(aliases))}
	for i, name := range aliases {
		list.Data[i] = b.chatModel(name)
	}
	c.JSON(http.StatusOK, list)
}

// showModel shows one model by a name that requests on this route may use.
func (s *Server) showModel(c *gin.Context, scope string) {
	b, name := s.modelsBackend(c, scope), strings.TrimPrefix(c.Param("id"), "/")
	switch {
	case !b.models.takes(name):
		refuseRoute(c, http.StatusNotFound, fmt.Sprintf("there is no model %q here: GET /v1/models lists those there are",
			name))
	case guessDialect(c.Request) == wire.Messages:
		c.JSON(http.StatusOK, b.messagesModel(name))
	default:
		c.JSON(http.StatusOK, b.chatModel(name))
	}
}
