package ingest

import (
	"context"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/webclient"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// target is a collection behind webmemory.
type target struct {
	client     *webclient.Client
	collection string
	keep       bool // nothing is deleted
	progress   Progress
}

// List gives what is there.
func (t *target) List(ctx context.Context, cursor string, count int) ([]docstore.Head, string, error) {
	return t.client.Documents(ctx, t.collection, cursor, count)
}

// PutAll sends documents, and tells what became of each as soon as it is known.
// What could not be read here is refused here.
func (t *target) PutAll(ctx context.Context, inputs ...rag.Input) ([]rag.Outcome, error) {
	outcomes := make([]rag.Outcome, len(inputs))
	var send []api.Document
	var places []int
	for i, in := range inputs {
		if in.Err != nil {
			outcomes[i] = rag.Outcome{
				ID: in.ID, Status: rag.OutcomeRefused, Code: string(loader.CodeOf(in.Err)), Reason: in.Err.Error(), Err: in.Err,
			}
			t.progress.Outcome(outcomes[i])
			continue
		}
		send = append(send, document(in))
		places = append(places, i)
	}
	if len(send) == 0 {
		return outcomes, nil
	}
	answers, err := t.client.PutDocuments(ctx, t.collection, send, t.progress.Outcome)
	for n, o := range answers {
		outcomes[places[n]] = o
	}
	return outcomes, err
}

// Delete removes documents, unless they are kept.
func (t *target) Delete(ctx context.Context, ids ...string) (removed int, err error) {
	if t.keep {
		return 0, nil
	}
	for _, id := range ids {
		was, err := t.client.DeleteDocument(ctx, t.collection, id)
		if err != nil {
			return removed, err
		}
		if was {
			removed++
		}
	}
	return removed, nil
}

// document is an input as it travels.
func document(in rag.Input) api.Document {
	d := api.Document{
		ID: in.ID, Title: in.Document.Title, Text: in.Document.Text, Source: in.Document.Source,
		Metadata: in.Document.Metadata, Origin: in.Origin, Raw: in.Raw,
	}
	for _, s := range in.Document.Sections {
		d.Sections = append(d.Sections, api.Section{Span: api.Span(s.Span), Path: s.Path, Body: s.Body})
	}
	for _, s := range in.Document.Whole {
		d.Whole = append(d.Whole, api.Span(s))
	}
	return d
}
