package loader

import (
	"context"
	"io"
	"iter"

	"mneme/subagent/rag/chunk"
)

// Load and Documents read with a loader that has only limits.
func Load(ctx context.Context, name, contentType string, r io.Reader, limits Limits) (chunk.Document, error) {
	return Loader{Limits: limits}.Load(ctx, name, contentType, r)
}

func Documents(ctx context.Context, name, contentType string, r io.Reader, limits Limits) iter.Seq2[Item, error] {
	return Loader{Limits: limits}.Documents(ctx, name, contentType, r)
}
