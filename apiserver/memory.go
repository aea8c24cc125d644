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
	got, err := m.at.Recall(ctx, m.http, api.RecallRequest{
		Subagent: q.Agent, Query: q.Text, From: q.From, To: q.To, Budget: q.Budget, Overhead: q.Overhead,
		Automatic: q.Automatic, Needed: q.Needed, Everywhere: q.Everywhere,
	})
	found := recall.Found{Partial: got.Partial}
	for _, h := range got.Hits {
		found.Hits = append(found.Hits, recall.Hit{
			ID: h.ID, TS: h.TS, Role: h.Role, Name: h.Name, Chat: h.Chat, Agent: h.Subagent, Score: h.Score, Text: h.Text,
			Exchange: h.Messages, Origin: h.Origin, Newer: h.Newer,
		})
	}
	return found, err
}
