package node

import (
	"context"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/memory"
	"mneme/memory/event"
)

// Governs reports whether the caller may see and change the keys of a tenant.
func Governs(c *gin.Context, tenant memory.Tenant) bool {
	p := access.FromContext(c.Request.Context())
	return p.Tenant == tenant || p.Operator()
}

// Actions of a request that need a right in addition to the route's. Doing returns the names of further actions.
const (
	Rewinds     = "after"                               // takes back more than the newest exchange
	Regenerates = "after, of the newest exchange alone" // takes back the newest exchange, as clients with a transcript do
)

var (
	// BesideRights maps actions to the scopes that they need.
	BesideRights = access.Rights{
		Regenerates:             access.Chat,
		Rewinds:                 access.MemoryWrite,
		"client_result approve": access.Chat,
		"client_result deny":    access.Chat,
		"approval approve":      access.Approve,
		"approval edit":         access.Approve,
		"approval deny":         access.ChatOrApprove, // a new message or a stop of the run denies too
		"question approve":      access.Approve,
		"question deny":         access.ChatOrApprove,
	}
	// BesideEntries maps actions to their entries in the audit log.
	BesideEntries = map[string]string{
		Rewinds:            "chat.rewind",
		"approval approve": "approval.approve",
		"approval edit":    "approval.edit",
		"approval deny":    "approval.deny",
		"question approve": "question.approve",
		"question deny":    "question.deny",
	}
)

// CheckRight returns an error if the caller may not perform an action of BesideRights.
func CheckRight(ctx context.Context, what string) error {
	return access.FromContext(ctx).Need(BesideRights[what])
}

// Doing returns the action of an answer: the kind of its wait, and the decision. The kind comes from the wait and not
// from the answer. Doing returns "" if no pending wait matches.
func Doing(a event.WaitAnswer, pending []event.Wait) string {
	for _, w := range pending {
		if w.ID == a.ID {
			return w.Kind + " " + a.Decision
		}
	}
	return ""
}

// NothingDone is the key that a handler sets in its context if it changed nothing. Such a request gets no audit entry,
// because it must not push other entries out of the log.
const NothingDone = "nothing done"

// WriteAudit records an action of the caller on a target of a tenant. An empty entry records nothing. A failure does
// not undo the action.
func (s *Core) WriteAudit(ctx context.Context, tenant memory.Tenant, entry, target string) {
	if entry == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StoreTimeout)
	defer cancel()
	if err := s.Cfg.Audit.Write(ctx, tenant, entry, target); err != nil {
		s.Metrics.unaudited.Inc()
		s.Log.Error().Err(err).Str("action", entry).Str("target", target).Str("key", access.FromContext(ctx).Key).
			Msg("an entry of the audit log was not kept")
	}
}
