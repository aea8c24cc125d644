package node

import (
	"context"

	"mneme/access"
	"mneme/memory"
)

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
