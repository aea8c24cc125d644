package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// history is a conversation of a coding agent: 60 messages, about 115 kB, a
// quarter of it the model's.
func history(b *testing.B, l *ledger.Ledger) *wire.Outline {
	var messages []string
	for i := range 30 {
		messages = append(messages, user(`[{"type":"tool_result","tool_use_id":"x","content":`+
			quote(strings.Repeat("result\n", 380))+`}]`))
		c := content(
			thinking(fmt.Sprint(i, strings.Repeat(" I consider.", 25)), fmt.Sprint(i, strings.Repeat("Er67SC7u", 40))),
			text(fmt.Sprint("Step ", i)),
			toolUse(fmt.Sprintf("toolu_%024d", i), "Bash", `{"command":`+quote(strings.Repeat("echo x; ", 20))+
				`,"description":"x"}`))
		l.Record(b.Context(), answer(alice, opus, c))
		messages = append(messages, assistant(c))
	}
	return outline(b, messages...)
}

func BenchmarkJudge(b *testing.B) {
	l := ledger.New(ledger.Config{})
	r := ledger.Request{Scope: alice, Target: opus, Dialect: wire.Messages, Outline: history(b, l)}
	bench := func(b *testing.B, r ledger.Request) {
		b.ReportAllocs()
		b.SetBytes(int64(len(r.Outline.Body)))
		for b.Loop() {
			for _, j := range l.Judge(b.Context(), r) {
				if !j.Same {
					b.Fatal("a turn was not known")
				}
			}
		}
	}
	b.Run("conversation", func(b *testing.B) { bench(b, r) })
	r.Scope.Conversation, r.New = "new", true
	b.Run("no conversation", func(b *testing.B) { bench(b, r) })
}

// BenchmarkJudgeUnseen judges bytes that were never seen: the worst case.
func BenchmarkJudgeUnseen(b *testing.B) {
	l := ledger.New(ledger.Config{})
	o := history(b, l)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		body := strings.ReplaceAll(string(o.Body), "Step ", fmt.Sprint("Step ", i))
		fresh, err := wire.ReadOutline([]byte(body))
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		l.Judge(b.Context(), ledger.Request{Scope: alice, Target: opus, Dialect: wire.Messages, Outline: fresh})
	}
}

func BenchmarkRecord(b *testing.B) {
	l := ledger.New(ledger.Config{})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s := alice
		s.Conversation = fmt.Sprint(i)
		l.Record(b.Context(), answer(s, opus, storedTurn))
	}
	b.ReportMetric(float64(l.Stats().Bytes)/float64(l.Stats().Turns), "B/turn")
}

func BenchmarkContextKey(b *testing.B) {
	system := `[{"type":"text","text":` + quote(strings.Repeat("be kind. ", 3000)) +
		`,"cache_control":{"type":"ephemeral"}}]`
	o, err := wire.ReadOutline([]byte(`{"model":"m","system":` + system + `,"tools":[{"name":"a","description":` +
		quote(strings.Repeat("tool ", 6000)) + `}]}`))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(o.Body)))
	for b.Loop() {
		ledger.ContextKey(o)
	}
}
