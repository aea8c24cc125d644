package proxy

import (
	"errors"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/proxy/wire"
)

// rights say what each route needs where keys are asked for. A route that is not here is refused.
var rights = func() access.Rights {
	routes := access.Rights{
		"HEAD /": access.Open, "GET /health": access.Open, "GET /healthz": access.Open, "GET /readyz": access.Open,
		"GET /metrics": access.Open,

		"DELETE /v1/conversations":     access.Internal, // all of a tenant's
		"DELETE /v1/conversations/:id": access.Models, "PUT /v1/conversations/:id/keep": access.Models,
		"GET /admin/backend": access.Admin, "PUT /admin/backend": access.Admin, "GET /admin/usage": access.Admin,
	}
	for _, prefix := range []string{"", "/teammate", "/teammate/:name"} {
		for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions",
			"/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens", "/v1/responses/:id",
			"/v1/responses/:id/cancel", "/v1/responses/:id/input_items", "/v1/conversations", "/v1/embeddings", "/v1/models",
			"/v1/models/*id"} {
			routes["ANY "+prefix+path] = access.Models
		}
	}
	return routes
}()

// letIn lets a request in before its body is read, for as long as its key is good, or answers it.
func (s *Server) letIn(c *gin.Context) {
	if s.ofCLI(c) {
		return
	}
	r, err := s.config.Gate.Admit(c.Request, rights, c.FullPath())
	if err == nil {
		in, release := s.config.Gate.Stay(r)
		defer release()
		c.Request = in
		c.Next()
		return
	}
	_ = c.Error(err) // for the request's line in the log
	c.Abort()
	if no, ok := errors.AsType[*access.Refusal](err); ok {
		no.SetHeader(c.Writer.Header())
		c.Data(no.Status, "application/json",
			wire.Failure{Status: no.Status, Code: no.Code, Message: no.Message}.Body(guessDialect(c.Request)))
	}
}

// ofCLI says whether a request is a model call of a Copilot CLI of ours, which comes with a key that
// this process has made for it.
func (s *Server) ofCLI(c *gin.Context) bool {
	if c.Param("name") != copilotTeammate {
		return false
	}
	for _, b := range s.backends {
		if b.cli != nil && b.cli.tenant == tenant(c.Request.Header) {
			return true
		}
	}
	return false
}
