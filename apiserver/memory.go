package apiserver

import (
	"context"
	"net/http"

	"mneme/apiserver/api"
	"mneme/memory"
)

// chatMemory is the memory of a run's chat, which the webmemory that holds the run searches.
type chatMemory struct {
	at   api.MemoryAccess
	http *http.Client
}

func (m chatMemory) Recall(ctx context.Context, q memory.RecallRequest) (memory.Recalled, error) {
	return m.at.Recall(ctx, m.http, q)
}

// Claim asks the webmemory that holds the run for a call of a tool outside.
func (m chatMemory) Claim(ctx context.Context, c memory.ClaimRequest) (memory.Claimed, error) {
	return m.at.Claim(ctx, m.http, c)
}

// Settle says what such a call returned.
func (m chatMemory) Settle(ctx context.Context, call, result string, failed bool) error {
	return m.at.Settle(ctx, m.http, call, api.SettleRequest{Result: result, Failed: failed})
}
