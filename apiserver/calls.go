package apiserver

import (
	"context"

	"mneme/apiserver/api"
	"mneme/subagent/external"
)

// Claim asks the webmemory that holds the run for a call of a tool outside.
func (m chatMemory) Claim(ctx context.Context, c external.Claim) (external.Claimed, error) {
	got, err := m.at.Claim(ctx, m.http, api.ClaimRequest(c))
	return external.Claimed(got), err
}

// Settle says what such a call returned.
func (m chatMemory) Settle(ctx context.Context, call, result string, failed bool) error {
	return m.at.Settle(ctx, m.http, call, api.SettleRequest{Result: result, Failed: failed})
}
