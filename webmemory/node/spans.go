package node

import (
	"mneme/memory/tracing"
	"mneme/webmemory/problem"
)

// EndMemory ends a span of what was done to the memory.
func EndMemory(span *tracing.Span, records int, err error) {
	if span == nil {
		return
	}
	failed := ""
	if err != nil {
		failed = problem.FromError(err).Code
	}
	span.Set(tracing.MemoryRecords.Int(records))
	span.End(failed)
}
