package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"mneme/access"
)

// BackendState is what the admin group shows of the backends.
type BackendState struct {
	Active   string   `json:"active"`
	Backends []string `json:"backends"`
	Routes   []string `json:"routes,omitempty"`
	// Learned are the rules that refusals have taught this process, by backend.
	Learned map[string][]string `json:"learned,omitempty"`
	// Choices are those of each route in their order, with their keys where there are several.
	Choices map[string][]string `json:"choices,omitempty"`
}

// operatorsOnly refuses the admins of single tenants what concerns all of them.
func operatorsOnly(c *gin.Context) {
	if !access.FromContext(c.Request.Context()).Operator() {
		c.Abort()
		refuseRoute(c, http.StatusForbidden, "this is about all tenants: it takes an admin's key of the default tenant")
	}
}

func (s *Server) showBackend(c *gin.Context) {
	state := BackendState{s.activeRoute(c.Request.Context()).name, slices.Sorted(maps.Keys(s.backends)),
		slices.Sorted(maps.Keys(s.config.Routes)), map[string][]string{}, map[string][]string{}}
	for name, b := range s.backends {
		if rules := b.knowledge.taught(); rules != nil {
			state.Learned[name] = rules
		}
	}
	for _, name := range state.Routes {
		state.Choices[name] = s.routed[name].names()
	}
	c.JSON(http.StatusOK, state)
}

// switchBackend changes the main pipeline's backend for the requests that begin
// after it, on every gateway that shares the store.
func (s *Server) switchBackend(c *gin.Context) {
	var req struct {
		Active string `json:"active"`
	}
	if err := json.UnmarshalRead(http.MaxBytesReader(c.Writer, c.Request.Body, 4<<10), &req); err != nil {
		refuseRoute(c, http.StatusBadRequest, `the body must be JSON like {"active":"kimi"}`)
		return
	}
	if !s.knows(req.Active) {
		refuseRoute(c, http.StatusBadRequest, fmt.Sprintf("there is no backend %q (%s)", req.Active,
			s.config.backendNames()))
		return
	}
	prev := s.activeRoute(c.Request.Context())
	if err := s.active.Use(c.Request.Context(), req.Active); err != nil {
		s.log.Error().Err(err).Str("to", req.Active).Msg("the active backend could not be switched")
		refuseRoute(c, http.StatusServiceUnavailable, "the switch could not be stored, so nothing was switched; try again")
		return
	}
	s.log.Info().Str("from", prev.name).Str("to", req.Active).Msg("active backend switched")
	err := s.config.Shared.Audit.Write(c.Request.Context(), access.FromContext(c.Request.Context()).Tenant,
		"backend.switch", "backends/"+req.Active)
	if err != nil {
		s.log.Error().Err(err).Str("to", req.Active).Msg("an entry of the audit log was not kept")
	}
	s.showBackend(c)
}
