package sanitize_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// history is a request of a coding agent with this many rounds of tools, about
// 1.2 kB each, with thinking.
func history(rounds int) string {
	var b strings.Builder
	b.WriteString(
		`{"model":"claude-opus-4-8","max_tokens":64000,"thinking":{"type":"adaptive"},"output_config":{"effort":"high"},"messages":[{"role":"user","content":[{"type":"text","text":"go"}]}`,
	)
	line := strings.Repeat(`drwxr-xr-x 2 root root 4096 \"a\" \\n`, 22)
	for i := range rounds {
		fmt.Fprintf(&b,
			`,{"role":"assistant","content":[{"type":"thinking","thinking":"step `+
				`%d","signature":"Er%040d"},{"type":"text","text":"Running."},{"type":"tool_use","id":"toolu_%024d","name":"Bash","input":{"command":"ls","description":"list"}}]}`, i, i, i)
		fmt.Fprintf(&b,
			`,{"role":"user","content":[{"tool_use_id":"toolu_%024d","type":"tool_result","content":[{"type":"text","text":"%s"}]}]}`, i, line)
	}
	b.WriteString(`],"stream":true}`)
	return b.String()
}

func BenchmarkNothingToDo(b *testing.B) {
	in := input(b, wire.Messages, history(95), "anthropic")
	require.Empty(b, sanitize.Sanitize(in).Changes)
	b.SetBytes(int64(len(in.Outline.Body)))
	b.ReportAllocs()
	for b.Loop() {
		sanitize.Sanitize(in)
	}
}

// Another vendor takes thinking in another way, here none: every second message
// changes.
func BenchmarkEveryTurnChanges(b *testing.B) {
	in := input(b, wire.Messages, history(95), "openai")
	require.Len(b, sanitize.Sanitize(in).Changes, 96)
	b.SetBytes(int64(len(in.Outline.Body)))
	b.ReportAllocs()
	for b.Loop() {
		sanitize.Sanitize(in)
	}
}

func BenchmarkOutline(b *testing.B) {
	body := []byte(history(95))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.ReadOutline(body); err != nil {
			b.Fatal(err)
		}
	}
}

// The schemas of fifty tools are looked at with each request.
func BenchmarkTools(b *testing.B) {
	var tools []string
	for i := range 50 {
		tools = append(tools, fmt.Sprintf(`{"name":"t%d","description":"%s","input_schema":{"type":"object","properties":{`+
			`"path":{"type":"string","description":"%s"},"limit":{"type":"number"}},"required":["path"]}}`, i,
			strings.Repeat("What it does. ", 40), strings.Repeat("Which one. ", 20)))
	}
	body := `{"model":"claude-opus-4-8","max_tokens":9,"tools":[` + strings.Join(tools, ",") +
		`],"messages":[{"role":"user","content":"hi"}]}`
	for _, vendor := range []string{"generic", "anthropic", "gemini"} {
		b.Run(vendor, func(b *testing.B) {
			in := input(b, wire.Messages, body, vendor)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				sanitize.Sanitize(in)
			}
		})
	}
}
