package proxy

import (
	"net/http"
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
}

// listModels names the aliases of the route's backend in the client's dialect.
// A vendor's own list is never shown: what is behind an alias may change.
func (s *Server) listModels(c *gin.Context, scope string) {
	b := s.activeBackend(c.Request.Context())
	if scope != scopeMain {
		b = s.teammateBackend(c.Param("name"))
	}
	aliases := b.models.aliases()
	if guessDialect(c.Request) == wire.Messages {
		page := messagesModels{Data: make([]messagesModel, len(aliases))}
		for i, name := range aliases {
			page.Data[i] = messagesModel{"model", name, name, time.Unix(0, 0).UTC()}
		}
		if n := len(aliases); n > 0 {
			page.FirstID, page.LastID = &aliases[0], &aliases[n-1]
		}
		c.JSON(http.StatusOK, page)
		return
	}
	list := chatModels{Object: "list", Data: make([]chatModel, len(aliases))}
	for i, name := range aliases {
		list.Data[i] = chatModel{ID: name, Object: "model", OwnedBy: "mneme"}
	}
	c.JSON(http.StatusOK, list)
}
