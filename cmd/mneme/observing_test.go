package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

const (
	rulesFolder = "../../deploy/prometheus"
	rulesFile   = "mneme.yml"
	boardFile   = "../../deploy/grafana/mneme.json"
)

// query is a PromQL expression, and where it stands.
type query struct{ where, text string }

// queriesOfTheRules are the expressions of all rules, and the names under which they are recorded.
func queriesOfTheRules(t *testing.T) (queries []query, recorded []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rulesFolder, rulesFile))
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			queries = append(queries, query{rulesFile + ": " + r.Record + r.Alert, r.Expr})
			if r.Record != "" {
				recorded = append(recorded, r.Record)
			}
		}
	}
	require.Greater(t, len(queries), 20)
	return queries, recorded
}

// queriesOfTheBoard are the expressions of all panels. The ids of panels are what Grafana tells them apart by.
func queriesOfTheBoard(t *testing.T) (queries []query) {
	t.Helper()
	text, err := os.ReadFile(boardFile)
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	ids := map[int]bool{}
	for _, p := range board.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		require.Equal(t, p.Type == "row", len(p.Targets) == 0, "%s: each panel but a row shows something", p.Title)
		for _, target := range p.Targets {
			queries = append(queries, query{"board: " + p.Title, target.Expr})
		}
	}
	require.Greater(t, len(queries), 40)
	return queries
}

var (
	metricRow   = regexp.MustCompile("(?m)^\\| `((?:mneme|go|process)_[a-z0-9_]*\\*?)` \\| [^|]+ \\| ([^|]*)\\|")
	metricUsed  = regexp.MustCompile(`\b((?:mneme|go|process)_\w+)(?:\{([^}]*)\})?`)
	histograms  = regexp.MustCompile(`_seconds_(bucket|sum|count)$`)
	recordUsed  = regexp.MustCompile(`\bmneme:[\w:]+`)
	quotedText  = regexp.MustCompile(`"[^"]*"`)
	labelTested = regexp.MustCompile(`(\w+)\s*(?:=|!)`)
	labelGroups = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// A metric or a label that there is not is no error to Prometheus: the alert is silent, and the panel empty. The table
// of metrics in docs/operation.md is compared with the code by TestTheTableOfMetrics.
func TestMetricsOfTheRulesAndTheBoardAreDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/operation.md")
	require.NoError(t, err)
	table := map[string]string{} // labels, by metric
	for _, row := range metricRow.FindAllStringSubmatch(string(docs), -1) {
		table[row[1]] = row[2]
	}
	require.Greater(t, len(table), 80)
	queries, recorded := queriesOfTheRules(t)
	for _, q := range append(queries, queriesOfTheBoard(t)...) {
		labels := []string{"slo", "job", "instance"}
		found := false
		for _, use := range metricUsed.FindAllStringSubmatch(quotedText.ReplaceAllString(q.text, ""), -1) {
			found = true
			name := use[1]
			own := []string{}
			if part := histograms.FindString(name); part != "" {
				name = strings.TrimSuffix(name, strings.TrimPrefix(part, "_seconds"))
				own = append(own, "le")
			}
			of, there := table[name]
			if prefix, _, _ := strings.Cut(name, "_"); !there {
				of, there = table[prefix+"_*"]
			}
			require.True(t, there, "%s: there is no metric %s in docs/operation.md", q.where, name)
			for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(of, -1) {
				own = append(own, label[1])
			}
			for _, label := range labelTested.FindAllStringSubmatch(use[2], -1) {
				require.Contains(t, own, label[1], "%s: %s has no such label", q.where, name)
			}
			labels = append(labels, own...)
		}
		for _, name := range recordUsed.FindAllString(q.text, -1) {
			found = true
			require.Contains(t, recorded, name, "%s: no rule records it", q.where)
		}
		require.True(t, found, "%s asks for no metric: %s", q.where, q.text)
		for _, group := range labelGroups.FindAllStringSubmatch(q.text, -1) {
			for label := range strings.SplitSeq(group[1], ", ") {
				require.Contains(t, labels, label, "%s: no metric of it has such a label", q.where)
			}
		}
	}
}

// promtool says whether the rules and the queries of the board are PromQL, and whether the alerts tell what
// mneme_test.yml wants.
func TestMetricsRulesWithPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("LEFT OUT: promtool is not installed (apt install prometheus)")
	}
	if testing.Short() {
		t.Skip("promtool plays hours, minute by minute")
	}
	run := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = rulesFolder
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
	}
	run("check", "rules", rulesFile)
	run("test", "rules", "mneme_test.yml")

	type rule struct {
		Record string            `yaml:"record"`
		Expr   string            `yaml:"expr"`
		Labels map[string]string `yaml:"labels"`
	}
	var rules []rule
	for i, q := range queriesOfTheBoard(t) {
		rules = append(rules, rule{"board:query", strings.ReplaceAll(q.text, "$__rate_interval", "1m"),
			map[string]string{"number": strconv.Itoa(i)}})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "board", "rules": rules}}})
	require.NoError(t, err)
	board := filepath.Join(t.TempDir(), "board.yml")
	require.NoError(t, os.WriteFile(board, text, 0o600))
	run("check", "rules", board)
}
