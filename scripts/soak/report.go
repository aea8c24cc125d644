package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// How many findings are printed, besides one of each kind, and how many are kept in a file.
const shownViolations, keptViolations = 5, 200

// counters of webmemory are those that the report shows.
var counters = []string{
	"mneme_takeovers_total", "mneme_memory_late_total", "mneme_memory_adopted_total", "mneme_memory_stale_total",
	"mneme_memory_lost_total", "mneme_memory_damaged_total", "mneme_memory_deleted_total", "mneme_redis_resets_total",
}

// report prints the totals and the verdict, and keeps the findings.
func (s *soak) report(c *checker) (clean bool) {
	s.head()
	s.row("losses of Redis", len(s.outages))
	s.row("runs seen", len(s.runs))
	s.row("reads of histories meanwhile", int(s.reads.reads.Load()))
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		s.row(name, s.counts[name])
	}
	s.row("messages behind their turn", c.late)
	for _, name := range counters {
		s.row(name, s.meters.total(name))
	}
	s.dump("excused.txt", strings.Join(c.excuses, "\n"))
	if len(s.violations) == 0 {
		fmt.Fprintln(s.out, "verdict: PASS — zero lost, zero torn, zero invalid")
		return true
	}
	var order, rest []violation // one of each kind first
	byKind := map[kind]int{}
	for _, v := range s.violations {
		if byKind[v.kind]++; byKind[v.kind] == 1 {
			order = append(order, v)
		} else {
			rest = append(rest, v)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(byKind)) {
		s.row("FOUND "+string(k), byKind[k])
	}
	var findings strings.Builder
	for i, v := range slices.Concat(order, rest)[:min(len(s.violations), keptViolations)] {
		text := s.explain(v)
		if i < max(shownViolations, len(order)) {
			fmt.Fprintln(s.out, text)
		}
		findings.WriteString(text + "\n")
	}
	s.dump("violations.txt", findings.String())
	s.dump("faults.txt", lines(s.faults))
	fmt.Fprintf(s.out, "verdict: FAIL — %d findings; all of them in %s/found/violations.txt\n", len(s.violations), s.dir)
	return false
}

// explain prints a finding with all that helps to understand it.
func (s *soak) explain(v violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n  around %s\n", v.kind, v.headline(), stamp(v.time))
	if v.post != nil {
		fmt.Fprintf(&b, "  posted %s agent %s key %q: %.200s\n", stamp(v.post.sentAt), v.post.agent, v.post.key, v.post.text)
		b.WriteString(lines(v.post.attempts))
	}
	b.WriteString("  faults around it:\n" + lines(slices.DeleteFunc(slices.Clone(s.faults), func(f fault) bool {
		return f.time.Sub(v.time).Abs() > 25*time.Second
	})))
	if v.chat != nil {
		for _, e := range v.chat.erasures {
			fmt.Fprintf(&b, "  erased %s: asked %s, last %s, done %s\n", e.key, stamp(e.first), stamp(e.last), stamp(e.ack))
		}
	}
	if r := s.runs[v.run]; r != nil {
		b.WriteString("  received of the run:\n")
		for _, seq := range r.seqs() {
			if got := r.events[seq]; !got.event.Ephemeral() {
				fmt.Fprintf(&b, "    %s %s %.240s\n", stamp(got.receivedAt), got.web, got.line)
			}
		}
	}
	if h := v.history; h != nil {
		s.dump("history-"+strings.ReplaceAll(h.key.String(), ":", "-")+".json", string(h.history.JSON()))
		fmt.Fprintf(&b, "  history now (%d messages), near that time and its end:\n", len(h.raw))
		for i := range h.messages {
			if h.time(i).Sub(v.time).Abs() < 2*time.Second || i >= len(h.raw)-6 {
				fmt.Fprintf(&b, "    %d %s %.200s\n", i, stamp(h.time(i)), h.raw[i])
			}
		}
	}
	return b.String()
}

func lines[T fmt.Stringer](list []T) string {
	var b strings.Builder
	for _, x := range list {
		b.WriteString("    " + x.String() + "\n")
	}
	return b.String()
}

// dump writes a file of findings.
func (s *soak) dump(name, text string) {
	path := filepath.Join(s.dir, "found", name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		s.say("a finding could not be kept: %v", err)
	}
}
