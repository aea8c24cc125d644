package node

import (
	"context"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/memory"
	"mneme/memory/event"
)

// Governs says whether the caller may see and change keys of a tenant.
func Governs(c *gin.Context, tenant memory.Tenant) bool {
	p := access.FromContext(c.Request.Context())
	return p.Tenant == tenant || p.Operator()
}

// What requests may do beside their route. So may an answer to a wait, by the wait's kind and the decision: see doing.
const (
	Rewinds     = "after"                               // a message that takes back more than the newest exchange
	Regenerates = "after, of the newest exchange alone" // which clients do that show a transcript
)

var (
	// BesideRights maps what requests may do beside their route to its scope.
	BesideRights = access.Rights{
		Regenerates:             access.Chat,
		Rewinds:                 access.MemoryWrite,
		"client_result approve": access.Chat,
		"client_result deny":    access.Chat,
		"approval approve":      access.Approve,
		"approval edit":         access.Approve,
		"approval deny":         access.ChatOrApprove, // as a new message does, and a stop of the run
		"question approve":      access.Approve,
		"question deny":         access.ChatOrApprove,
	}
	// BesideEntries maps the same to its entry in the audit log.
	BesideEntries = map[string]string{
		Rewinds:            "chat.rewind",
		"approval approve": "approval.approve",
		"approval edit":    "approval.edit",
		"approval deny":    "approval.deny",
		"question approve": "question.approve",
		"question deny":    "question.deny",
	}
)

// CheckRight is nil if the caller may do what a request does beside its route.
func CheckRight(ctx context.Context, what string) error {
	return access.FromContext(ctx).Need(BesideRights[what])
}

// Doing is what an answer does: it follows from the kind of its wait, and not from what the answer has. "" for one to
// none of the waits.
func Doing(a event.WaitAnswer, pending []event.Wait) string {
	for _, w := range pending {
		if w.ID == a.ID {
			return w.Kind + " " + a.Decision
		}
	}
	return ""
}

// NothingDone is set by a handler that found nothing to do: such requests must not push others out of the log.
const NothingDone = "nothing done"

// WriteAudit writes that the caller did something to a target of a tenant's; "" is no entry. What was done stays done if
// that fails.
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
