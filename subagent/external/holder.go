package external

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/subagent/loop"
)

// Holder is an agent in a run.
type Holder struct {
	Run
	Agent       memory.Agent // empty for the master
	Sources     []Source
	Reserved    []string     // names of the agent's other tools
	Max         int          // tools that it is shown; 0 for no bound
	Definitions *Definitions // of all runs
	Log         zerolog.Logger
}

// Tools are the agent's, each a loop.Resumer. They are those of this run: make them once.
func (h Holder) Tools() []loop.Tool {
	h.Definitions = cmp.Or(h.Definitions, &Definitions{})
	var list []Tool
	for _, s := range h.Sources {
		list = append(list, s.Tools()...)
	}
	list = AssignNames(list, h.Reserved...)
	notice := ""
	if h.Max > 0 && len(list) > h.Max {
		h.tooMany(list[h.Max:])
		notice = DescribeOmitted(list[h.Max:], "You are not shown")
		list = list[:h.Max]
	}
	var tools []loop.Tool
	for _, t := range list {
		if t.Caller != nil {
			tools = append(tools, &tool{Tool: t, holder: &h, notice: notice,
				prepared: h.Definitions.prepare(t.Definition, h.Log)})
			notice = ""
		}
	}
	return tools
}

// DescribeOmitted says how many tools of which servers an agent is not shown, and what to do.
func DescribeOmitted(tools []Tool, intro string) string {
	count := map[string]int{}
	for _, t := range tools {
		count[t.Server]++
	}
	var parts []string
	for _, server := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d more tools of %s", count[server], server))
	}
	return intro + " " + strings.Join(parts,
		", ") + ": they are more than max_tools of the configuration; name those that " +
		"are needed in allow, or raise it."
}

// tooMany says which tools an agent is not shown.
func (h Holder) tooMany(omitted []Tool) {
	names := make([]string, len(omitted))
	for i, t := range omitted {
		names[i] = t.ID()
	}
	list := strings.Join(names, ", ")
	if h.Definitions.shouldLog(string(h.Agent) + "\x00" + list) {
		h.Log.Error().Str("subagent", string(h.Agent)).Int("max_tools", h.Max).Str("left_out", list).
			Msg("an agent has more tools than max_tools; name fewer in allow, or raise max_tools")
	}
}

// maxName is how long vendors allow the name of a tool to be.
const maxName = 64

var notInNames = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)

// AssignNames gives each tool the name that models call it by: its own, in the letters that vendors
// allow. Where another tool has it the server's name goes in front, for all that are alike.
func AssignNames(tools []Tool, reserved ...string) []Tool {
	counts := map[string]int{}
	for _, name := range reserved {
		counts[name]++
	}
	plain := make([]string, len(tools))
	for i, t := range tools {
		plain[i] = notInNames.ReplaceAllString(t.Name, "_")
		counts[plain[i]]++
	}
	used := map[string]bool{}
	for _, name := range reserved {
		used[name] = true
	}
	result := make([]Tool, len(tools))
	for i, t := range tools {
		name := cmp.Or(plain[i], "tool")
		if counts[plain[i]] > 1 {
			name = notInNames.ReplaceAllString(t.Server, "_") + "_" + name
		}
		t.As = name[:min(len(name), maxName)]
		for n := 2; used[t.As]; n++ {
			end := "_" + strconv.Itoa(n)
			t.As = name[:min(len(name), maxName-len(end))] + end
		}
		used[t.As] = true
		result[i] = t
	}
	return result
}
