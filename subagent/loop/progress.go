package loop

import (
	"context"
	"strings"
	"sync/atomic"

	"mneme/memory"
)

// Progresser is an Observer that is told what calls of tools say while they work. It may be
// called from several goroutines.
type Progresser interface {
	Progress(call memory.ToolCall, text string) error
}

// Bounds of what one call says: a tool outside may say more than a person wants to read.
const (
	maxProgress     = 100
	maxProgressText = 1 << 10 // bytes
)

// Progress has the Observer of the Run told what a call says while it works; ctx is the call's.
// An error ends the run: the call should return it.
func Progress(ctx context.Context, text string) error {
	p, ok := ctx.Value(progressKey{}).(*progress)
	if !ok || p.count.Add(1) > maxProgress {
		return nil
	}
	if text = strings.ToValidUTF8(text, "\uFFFD"); len(text) > maxProgressText {
		text = memory.Shorten(text, maxProgressText) + "…"
	}
	return p.observer.Progress(p.call, text)
}

type progressKey struct{}

// progress is where what a call says goes.
type progress struct {
	observer Progresser
	call     memory.ToolCall
	count    atomic.Int64
}

// telling is the context of a call, in which Progress knows the observer to tell.
func telling(ctx context.Context, o Observer, call memory.ToolCall) context.Context {
	observer, ok := o.(Progresser)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, progressKey{}, &progress{observer: observer, call: call})
}
