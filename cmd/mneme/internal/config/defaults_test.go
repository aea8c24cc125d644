package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/external"
	"mneme/subagent/openaimodel"
	"mneme/subagent/panel"
	"mneme/subagent/rag"
	"mneme/subagent/recall"
	"mneme/webmemory/openaiapi"
)

func TestAShortHistoryIsOneSetting(t *testing.T) {
	c, err := load(t, "webmemory: {max_history: 7}\n")
	require.NoError(t, err)
	require.Equal(t, 7, c.Webmemory.ContextWindow)
	require.Equal(t, 7, c.Webmemory.SubagentContextWindow)
	c, err = load(t, "webmemory: {max_history: 0, context_window: 500}\n")
	require.NoError(t, err, "all messages are kept")
	require.Equal(t, 500, c.Webmemory.ContextWindow)
	require.Equal(t, 50, c.Webmemory.SubagentContextWindow)
}

func TestTheMastersPrompt(t *testing.T) {
	for text, want := range map[string]string{
		"": masterSystem, "agents: {master: {system: You are Ada.}}\n": masterSystem + "\n\nYou are Ada.",
		"agents: {master: {system_replace: You are Ada.}}\n": "You are Ada.",
	} {
		c, err := load(t, text)
		require.NoError(t, err)
		require.Equal(t, want, c.Agents.Master.Prompt())
	}
}

// Tags cannot name a constant, so that what they say is compared with the packages to which the settings go.
func TestTagsSayWhatThePackagesTake(t *testing.T) {
	c := Default()
	require.Equal(t, []any{
		openaimodel.DefaultBatchSize, rag.DefaultVectorWeight, rag.DefaultRerankTop, rag.DefaultRerankTimeout,
		panel.DefaultLimit, panel.DefaultTimeout, external.DefaultExpiry, tally.Keep,
	}, []any{
		c.Retrieval.Embeddings.BatchSize, c.Retrieval.VectorWeight, c.Retrieval.Rerank.Top, c.Retrieval.Rerank.Timeout,
		c.Panel.Limit, c.Panel.Timeout, c.Approvals.Expiry, c.Usage.Keep,
	})
	checks := map[string]string{}
	for _, k := range allKeys() {
		checks[k.path] = k.tag.Get("check")
	}
	for path, want := range map[string]string{
		"auth.mode":                "omitempty,oneof=" + AuthKeys + " " + AuthNone,
		"retrieval.fusion":         fmt.Sprintf("oneof=%s %s", rag.WeightedSum, rag.ReciprocalRanks),
		"retrieval.rerank.top":     fmt.Sprintf("range=2..%d", rag.MaxK),
		"recall.auto":              fmt.Sprintf("oneof=%s %s %s", recall.Question, recall.Always, recall.Off),
		"redis.list_shards":        fmt.Sprintf("range=1..%d", memory.MaxShards),
		"usage.keep":               fmt.Sprintf("range=24h..%dh", int(tally.MostKeep.Hours())),
		"budgets.when_away":        fmt.Sprintf("oneof=%s %s", limit.Refuse, limit.Allow),
		"budgets.unclosed":         fmt.Sprintf("oneof=%s %s", limit.ChargeEstimate, limit.Release),
		"agents.subagents.*.calls": fmt.Sprintf("oneof=%s %s", event.Serial, event.Isolated),
		"openai.progress":          fmt.Sprintf("oneof=%s %s", openaiapi.Reasoning, openaiapi.NoReasoning),
		"openai.on_disconnect":     fmt.Sprintf("oneof=%s %s", openaiapi.Stop, openaiapi.Continue),
		"openai.on_mismatch":       fmt.Sprintf("oneof=%s %s", openaiapi.Append, openaiapi.Transcript),
		"proxy.backends.*.kind": "oneof=" + strings.Join([]string{KindAnthropic, KindOpenAI, KindResponses,
			KindInteractions, KindCopilot, KindOffline}, " "),
	} {
		require.Equal(t, want, checks[path], path)
	}
}
