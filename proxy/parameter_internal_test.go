package proxy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/sanitize"
)

// Clients choose the names of models, so what is learned of them is bounded.
func TestLessonsAreBounded(t *testing.T) {
	t.Parallel()
	var k knowledge
	configured := func(string) sanitize.Profile { return sanitize.For("generic", "") }
	for m := range 3 * maxModels {
		k.modelInfo(fmt.Sprint("m", m), configured)
		require.LessOrEqual(t, len(k.models), maxModels)
	}
	for p := range 3 * maxRules {
		k.learn(sanitize.Rule{Model: "m", Name: fmt.Sprint("p", p)})
	}
	kept := k.modelInfo("m", configured).rules
	require.Len(t, kept, maxRules)
	require.Equal(t, fmt.Sprint("p", 3*maxRules-1), kept[maxRules-1].Name, "the newest stays")
	require.Empty(t, k.modelInfo("other", configured).rules)
	again := kept[3]
	again.Source = "said again"
	k.learn(again)
	require.Len(t, k.modelInfo("m", configured).rules, maxRules, "one that is known is not added again")
	yes := true
	k.learn(sanitize.Rule{Profile: sanitize.Overrides{Replay: sanitize.ReplayOverrides{Bound: &yes}}})
	require.True(t, k.modelInfo("m", configured).profile.Replay.Bound)
	require.True(t, k.modelInfo("other", configured).profile.Replay.Bound, "a rule without a model holds for all")
}
