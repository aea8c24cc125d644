package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/gin-gonic/gin"
	"github.com/tidwall/gjson"

	"mneme/memory/secrets"
	"mneme/proxy/sanitize"
	"mneme/proxy/upstream"
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
	Input       int       `json:"max_input_tokens,omitempty"` // the same, as Anthropic's API names it
	Output      int64     `json:"max_tokens,omitempty"`       // of an answer; missing if unknown
}

// modelsBackend is the backend with the models that a route shows.
func (s *Server) modelsBackend(c *gin.Context, scope string) *backend {
	if scope == scopeMain {
		return s.activeRoute(c.Request.Context()).first()
	}
	return s.teammateRoute(c.Param("name")).first()
}

// chatModel shows the model that a name leads to.
func (b *backend) chatModel(name string) chatModel {
	return chatModel{ID: name, Object: "model", OwnedBy: "mneme", Tokens: b.windows.size(b.models.find(name))}
}

func (b *backend) messagesModel(name string) messagesModel {
	model := b.models.find(name)
	tokens := b.windows.size(model)
	return messagesModel{"model", name, name, time.Unix(0, 0).UTC(), tokens, tokens, b.outputTokens(model)}
}

// outputTokens returns the limit of a model's answers in tokens, by its refusals or the table; 0 if it is unknown.
func (b *backend) outputTokens(model string) int64 {
	most := int64(0)
	for _, r := range b.modelInfo(model).rules {
		if r.Max > 0 && r.ConflictsWith == "" && slices.Contains(outputMembers[b.dialect], r.Name) &&
			(most == 0 || r.Max < most) {
			most = r.Max
		}
	}
	return cmp.Or(most, sanitize.OutputTokens(model))
}

// Bounds of a vendor's list of models.
const (
	listTime     = 5 * time.Second // to get it
	listKept     = 10 * time.Minute
	failureKept  = 30 * time.Second // before a vendor without a list is asked again
	maxList      = 16 << 20         // in bytes; some have hundreds of models with their descriptions
	maxListed    = 1000
	maxModelName = 200 // in bytes
)

// vendorLists are the names that a backend's vendor lists, by the caller with the credential
// that it was asked with; that is "" where it is the backend's own.
type vendorLists struct {
	get func(ctx context.Context, call wire.Call, limit int64) ([]byte, error) // nil: it has no list

	mu       sync.Mutex
	byCaller map[string]vendorList // guarded by mu
}

type vendorList struct {
	names []string
	until time.Time
}

// modelNames are the names that clients may choose from: the configured ones, else the aliases; a backend
// that has none of them takes any name, so its vendor's list is shown, or else what every name leads to.
func (s *Server) modelNames(ctx context.Context, b *backend, in http.Header, dialect wire.Dialect) []string {
	names := b.config.Models
	if len(names) == 0 {
		names = b.models.aliases()
	}
	if len(names) == 0 {
		names = s.vendorNames(ctx, b, in, dialect)
	}
	if target := b.models.names[anyModel]; len(names) == 0 && target != "" {
		names = []string{target}
	}
	if len(names) == 0 && b.config.Kind == KindOffline {
		names = []string{KindOffline} // it answers to any name
	}
	return names
}

// vendorNames are those that the vendor lists, as of a while ago. Two requests at once may both ask.
func (s *Server) vendorNames(ctx context.Context, b *backend, in http.Header, dialect wire.Dialect) []string {
	if b.lists.get == nil {
		return nil
	}
	caller := ""
	call := wire.Call{Dialect: b.speaks, Path: "/models", Header: http.Header{}}
	if b.config.Auth == upstream.AuthPassthrough {
		caller, call.Header = tenant(in), translatedHeader(in, b.speaks)
		if dialect == b.speaks { // a bearer token is no API key
			call.Header = http.Header{}
			for _, name := range []string{"Authorization", "X-Api-Key", "Anthropic-Beta"} {
				if values := in[name]; values != nil {
					call.Header[name] = values
				}
			}
		}
	}
	if b.speaks == wire.Messages {
		call.Path = "/v1/models?limit=1000"
	}
	b.lists.mu.Lock()
	cached, ok := b.lists.byCaller[caller]
	b.lists.mu.Unlock()
	if ok && time.Now().Before(cached.until) {
		return cached.names
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTime) // the next client has use for it too
	defer cancel()
	body, err := b.lists.get(ctx, call, maxList)
	list := vendorList{until: time.Now().Add(failureKept)}
	if err != nil {
		s.telemetry.Often.Warn().Err(err).Str("backend", b.name).Msg("the vendor's list of models cannot be had")
	} else if list.names = namesListed(hider{own: b.secrets}.answer(body)); len(list.names) > 0 {
		list.until = time.Now().Add(listKept)
	}
	b.lists.mu.Lock()
	defer b.lists.mu.Unlock()
	if b.lists.byCaller == nil || len(b.lists.byCaller) >= maxModels {
		b.lists.byCaller = map[string]vendorList{}
	}
	b.lists.byCaller[caller] = list
	return list.names
}

// namesListed reads a list of models, which looks the same in both dialects.
func namesListed(body []byte) (names []string) {
	// At Interactions Google has a list of its own form.
	google := gjson.GetBytes(body, "models.#.name").Array()
	for _, id := range append(gjson.GetBytes(body, "data.#.id").Array(), google...) {
		// Gemini's own names have a prefix that calls do not need.
		name := strings.Clone(strings.TrimPrefix(id.String(), "models/"))
		strange := func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }
		if name != "" && len(name) <= maxModelName && !strings.ContainsFunc(name, strange) && len(names) < maxListed {
			names = append(names, name)
		}
	}
	return names
}

// listModels names the models of the route's backend in the client's dialect.
func (s *Server) listModels(c *gin.Context, scope string) {
	b := s.modelsBackend(c, scope)
	names := s.modelNames(c.Request.Context(), b, c.Request.Header, guessDialect(c.Request))
	if guessDialect(c.Request) == wire.Messages {
		page := messagesModels{Data: make([]messagesModel, len(names))}
		for i, name := range names {
			page.Data[i] = b.messagesModel(name)
		}
		if n := len(names); n > 0 {
			page.FirstID, page.LastID = &names[0], &names[n-1]
		}
		c.JSON(http.StatusOK, page)
		return
	}
	list := chatModels{Object: "list", Data: make([]chatModel, len(names))}
	for i, name := range names {
		list.Data[i] = b.chatModel(name)
	}
	c.JSON(http.StatusOK, list)
}

// showModel shows one model by a name that requests on this route may use.
func (s *Server) showModel(c *gin.Context, scope string) {
	b, name := s.modelsBackend(c, scope), strings.TrimPrefix(c.Param("id"), "/")
	switch {
	case !b.models.accepts(name) && !slices.Contains(b.config.Models, name), secrets.Keyless(name) != name:
		refuseRoute(c, http.StatusNotFound, fmt.Sprintf("there is no model %q here: GET /v1/models lists those there are",
			name))
	case guessDialect(c.Request) == wire.Messages:
		c.JSON(http.StatusOK, b.messagesModel(name))
	default:
		c.JSON(http.StatusOK, b.chatModel(name))
	}
}
