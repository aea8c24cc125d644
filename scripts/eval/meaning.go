package main

import (
	"context"
	"time"

	"mneme/memory"
	"mneme/memory/recall"
	"mneme/scripts/eval/internal/conversations"
	"mneme/scripts/eval/internal/embedding"
)

// meaning is the index of a webmemory whose recall.vectors takes in all messages. It is asked
// without the webmemory, which searches by words alone where an endpoint fails or is slow, and
// does not tell when all messages are placed.
type meaning struct {
	endpoint *embedding.Endpoint
	indexes  map[string]*recall.Index // by conversation
}

// Import indexes a conversation and places its messages.
func (m meaning) Import(ctx context.Context, c conversations.Conversation) error {
	ix := recall.New(memory.Key{}) // of no chat, which no search asks for
	ix.Append(stored(c)...)
	ix.MarkComplete()
	bare := ix.Unplaced(ix.Len(), ix.Len())
	texts := make([]string, len(bare))
	for i, b := range bare {
		texts[i] = recall.Placed(b.Text)
	}
	vectors, err := m.endpoint.Texts(ctx, c.ID, texts)
	if err != nil {
		return err
	}
	placed := map[string][]float32{}
	for i, b := range bare {
		placed[b.ID] = vectors[i]
	}
	ix.Place(placed)
	m.indexes[c.ID] = ix
	return nil
}

// Ask searches by words and by the vector of the question.
func (m meaning) Ask(
	ctx context.Context, q conversations.Question, askedAt float64, budget int,
) ([]conversations.Hit, error) {
	return m.search(ctx, q, q.Question, askedAt, budget)
}

// vectorsOnly searches the indexes of a meaning without the words of the question.
type vectorsOnly struct{ meaning }

// Import does nothing: the meaning has imported the conversation.
func (vectorsOnly) Import(context.Context, conversations.Conversation) error { return nil }

// Ask searches by the vector of the question.
func (m vectorsOnly) Ask(
	ctx context.Context, q conversations.Question, askedAt float64, budget int,
) ([]conversations.Hit, error) {
	return m.search(ctx, q, "", askedAt, budget)
}

// search searches by some words and by the vector of the question.
func (m meaning) search(
	ctx context.Context, q conversations.Question, words string, askedAt float64, budget int,
) (hits []conversations.Hit, err error) {
	v, err := m.endpoint.Query(ctx, recall.Placed(q.Question))
	if err != nil {
		return nil, err
	}
	answer := recall.Search([]*recall.Index{m.indexes[q.Conversation]}, recall.Query{
		Text: words, AskedAt: time.UnixMilli(int64(askedAt * 1000)), Budget: budget, Vector: v.Vector,
	})
	for _, h := range answer.Hits {
		hits = append(hits, conversations.Hit{ID: h.ID, Text: h.Text})
	}
	return hits, nil
}
