package webmemory

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access/tally"
	"mneme/apiserver/api"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// This file answers what calls of models took and cost, from the counters that the gateway keeps in the same Redis.

var errUsageOff = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeUsageOff,
	Message: "This service is not told where usage is counted."}

// readUsage answers a page of daily counters: of the caller's tenant, and for an admin of the default tenant of any.
func (s *auditor) readUsage(c *gin.Context) error {
	if s.Cfg.Usage == nil {
		return errUsageOff
	}
	now := time.Now()
	q := tally.Query{Dimension: tally.Dimension(cmp.Or(c.Query("by"), string(tally.ByTenant))),
		Name: c.Query("chat"), Cursor: c.Query("cursor")}
	if q.Name != "" && c.Query("by") != "" && q.Dimension != tally.ByChat {
		return problem.BadRequest("chat goes with by=chat only.")
	}
	if q.Name != "" {
		q.Dimension = tally.ByChat
	}
	var err, sinceErr, untilErr error
	if q.Tenant, err = tenantAsked(c); err != nil {
		return err
	}
	q.First, sinceErr = tally.ParseDay(cmp.Or(c.Query("since"), "30d"), now)
	q.Last, untilErr = tally.ParseDay(cmp.Or(c.Query("until"), "0d"), now)
	err = errors.Join(sinceErr, untilErr)
	var page tally.Page
	if err == nil {
		page, err = s.Cfg.Usage.Read(c.Request.Context(), q)
	}
	if errors.Is(err, tally.ErrQuery) {
		return problem.BadRequest("%s.", strings.ReplaceAll(err.Error(), tally.ErrQuery.Error()+": ", ""))
	}
	return api.Answer(c.Writer, http.StatusOK, page, err)
}
