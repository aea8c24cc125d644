package proxy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// roleReports are the cases about the roles of messages.
var roleReports = map[string]report{
	"alternate-gemma": {refuses: neighbours, check: inOrder("S1", "S2", "a", "b")},
	"codex-compact": {refuses: systemInside, check: inOrder("q1", "<permissions", "<environment_context/>",
		"a summary")},
	"codex-mode":     {refuses: misplacedSystem, check: inOrder("a1", "read-only", "q2")},
	"mid-claude":     {refuses: misplacedSystem, check: inOrder("first", "a1", "RULE-7", "q2")},
	"mid-deepseek":   {refuses: systemInside, check: inOrder("You are X.", "q2", "RULE-7")},
	"mid-generic":    {refuses: systemInside, check: inOrder("You are X.", "q2", "RULE-7")},
	"mid-kimi":       {refuses: systemInside, check: inOrder("You are X.", "q2", "RULE-7")},
	"mid-minimax":    {refuses: systemInside, check: inOrder("You are X.", "q2", "RULE-7")},
	"mid-old-claude": {refuses: systemInside, check: inOrder("You are X.", "q2", "RULE-7")},
	"prefill-codex":  {refuses: lastAnswer, check: inOrder("q1", "I look into it.", "Continue.")},
}

// roleNames are the roles of a request's messages. A system message that precedes all others in chat completions is not
// among them.
func roleNames(r received) (names []string) {
	for i, m := range gjson.Get(r.body, "messages").Array() {
		if role := m.Get("role").Str; i > 0 || role != wire.RoleSystem || gjson.Get(r.body, "system").Exists() {
			names = append(names, role)
		}
	}
	return names
}

func systemInside(r received) bool {
	return strings.Contains(strings.Join(roleNames(r), ","), wire.RoleSystem)
}

// misplacedSystem is the rule of Claude Opus 4.8.
func misplacedSystem(r received) bool {
	roles := strings.Join(append(roleNames(r), "end"), ",")
	rest := strings.NewReplacer("user,system,assistant", "", "user,system,end", "").Replace(roles)
	return strings.Contains(rest, wire.RoleSystem)
}

func neighbours(r received) bool {
	return strings.Contains(strings.Join(roleNames(r), ","), "user,user") || systemInside(r)
}

func lastAnswer(r received) bool {
	roles := roleNames(r)
	return roles[len(roles)-1] == wire.RoleAssistant
}

// inOrder checks that each request has these texts in this order.
func inOrder(texts ...string) func(*testing.T, []received, []answered) {
	return func(t *testing.T, accepted []received, _ []answered) {
		t.Helper()
		for _, r := range accepted {
			said := gjson.Get(r.body, "system").Raw + gjson.Get(r.body, "messages").Raw
			said = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(said)
			for _, text := range texts {
				at := strings.Index(said, text)
				require.GreaterOrEqual(t, at, 0, "%s is missing or too early in %s", text, r.body)
				said = said[at:]
			}
		}
	}
}
