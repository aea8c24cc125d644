package thinking

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// long is a conversation of about 115 kB, all of which a vendor has answered, and
// the ledger that saw it.
func long(b *testing.B) (*ledger.Ledger, ledger.Request) {
	l := ledger.New(ledger.Config{})
	b.Cleanup(func() { require.NoError(b, l.Close(context.Background())) })
	r := ledger.Request{Scope: ledger.Scope{Route: "main", Conversation: "c"}, Target: claude, Dialect: wire.Messages}
	messages := []string{hi}
	filler := strings.Repeat("a sentence of the answer. ", 60)
	for i := range 35 {
		stored := assistant(thought(fmt.Sprint(i, filler)), says(fmt.Sprint(i)),
			uses(fmt.Sprintf("toolu_%020d", i), fmt.Sprint(i)))
		r.Outline = outline(b, asks(messages...))
		o := NewObserver(wire.Messages, false)
		hear(o, []byte(strings.Replace(stored, `"role":"assistant",`, "", 1)))
		a, ok := o.Answer()
		require.True(b, ok)
		Begin(context.Background(), l, r, Policy{}).Register(context.Background(), r.Outline, a, nil)
		messages = append(messages, stored, results(fmt.Sprintf("toolu_%020d", i)))
	}
	r.Outline = outline(b, asks(messages...))
	return l, r
}

// BenchmarkFilterNothingToDo is the main pipeline's share in a request with a history
// that is proven as a whole.
func BenchmarkFilterNothingToDo(b *testing.B) {
	l, r := long(b)
	b.Run("begin+filter", func(b *testing.B) {
		b.SetBytes(int64(len(r.Outline.Body)))
		b.ReportAllocs()
		for b.Loop() {
			body, _ := Begin(context.Background(), l, r, Policy{}).Filter()
			if &body[0] != &r.Outline.Body[0] {
				b.Fatal("it was changed")
			}
		}
	})
	b.Run("filter", func(b *testing.B) {
		b.SetBytes(int64(len(r.Outline.Body)))
		b.ReportAllocs()
		s := Begin(context.Background(), l, r, Policy{})
		for b.Loop() {
			s.Filter()
		}
	})
}

func BenchmarkStrip(b *testing.B) {
	_, r := long(b)
	b.SetBytes(int64(len(r.Outline.Body)))
	b.ReportAllocs()
	for b.Loop() {
		Strip(r.Outline, wire.Messages)
	}
}

// BenchmarkObserver is a stream of 20 deltas.
func BenchmarkObserver(b *testing.B) {
	streams := map[wire.Dialect][][]byte{}
	add := func(d wire.Dialect, event string) { streams[d] = append(streams[d], []byte(event)) }
	add(wire.Messages, messageStart)
	add(wire.Messages, opened(0, `{"type":"text","text":""}`))
	for range 20 {
		add(wire.Messages, added(0, "text_delta", "text", "some words "))
		add(wire.Chat, chunk(`{"content":"some words "}`, `null`))
	}
	add(wire.Messages, closed(0))
	add(wire.Messages, stopDelta)
	add(wire.Messages, messageStop)
	add(wire.Chat, chunk(`{}`, `"stop"`))
	add(wire.Chat, "[DONE]")
	for d, events := range streams {
		b.Run(string(d), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o := NewObserver(d, false)
				for _, e := range events {
					event(o, e)
				}
				if a, ok := o.Answer(); !ok || a.Cut {
					b.Fatal("the answer is not complete")
				}
			}
		})
	}
}
