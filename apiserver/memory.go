package apiserver

import (
	"context"
	"net/http"

	"mneme/apiserver/api"
	"mneme/subagent/recall"
)

// chatMemory is the memory of a run's chat, which the webmemory that holds the run searches.
type chatMemory struct {
	at   api.MemoryAccess
	http *http.Client
}

func (m chatMemory) Recall(ctx context.Context, q recall.Query) (recall.Found, error) {
	got, err := m.at.Recall(ctx, m.http, api.RecallRequest(q))
	found := recall.Found{Partial: got.Partial}
	for _, h := range got.Hits {
		found.Hits = append(found.Hits, recall.Hit(h))
	}
	return found, err
}
