package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mneme/memory"
)

// kind is what is wrong.
type kind string

// What can be found.
const (
	lost      kind = "lost"          // acknowledged and not stored
	torn      kind = "torn"          // no array of messages, at any instant
	rewritten kind = "rewritten"     // a history that changed other than by growing, an id with other contents
	doubled   kind = "doubled"       // stored twice
	disorder  kind = "disorder"      // not in the order of its run, or inside another
	conflict  kind = "conflict"      // one event with two contents
	returned  kind = "returned"      // from before an erasure
	ghost     kind = "ghost"         // refused as having run nothing, and stored
	invalid   kind = "invalid"       // anything else that must not be
	declared  kind = "declared lost" // a run that a client saw completed
	revived   kind = "put back"      // what was edited by hand
	untold    kind = "untold"        // a loss of which the chat's next run says nothing
	hang      kind = "hung"          // a stream without an end
	unsettled kind = "unsettled"     // never came to rest
)

var kinds = []kind{lost, torn, rewritten, doubled, disorder, conflict, returned, ghost, declared, revived, untold, hang,
	invalid, unsettled}

// violation is one finding.
type violation struct {
	kind    kind
	what    string
	at      time.Time // near which to look for the cause
	chat    *chat
	key     memory.Key
	edited  time.Time // when the message in question was edited by hand; zero for never
	run     string
	seq     int64
	post    *post
	history *stored
}

func (v violation) headline() string {
	var b strings.Builder
	if v.chat != nil {
		fmt.Fprintf(&b, "chat %s ", v.chat.id)
	}
	if v.key != (memory.Key{}) {
		fmt.Fprintf(&b, "history %s ", v.key)
	}
	if v.run != "" {
		fmt.Fprintf(&b, "run %s event %d ", v.run, v.seq)
	}
	return b.String() + v.what
}

// explain prints a finding with all that helps to understand it.
func (s *soak) explain(v violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n  around %s\n", v.kind, v.headline(), v.at.Format("15:04:05.000"))
	if v.post != nil {
		fmt.Fprintf(&b, "  posted %s agent %s key %q: %.200s\n", v.post.sent.Format("15:04:05.000"), v.post.agent, v.post.key,
			v.post.text)
		b.WriteString(lines(v.post.attempts))
	}
	if near := s.ledger.faults.around(v.at, 25*time.Second); len(near) > 0 {
		b.WriteString("  faults around it:\n" + lines(near))
	}
	if v.chat != nil {
		for _, e := range v.chat.erasures {
			fmt.Fprintf(&b, "  erased %s: asked %s, last %s, done %s\n", e.key, e.first.Format("15:04:05.000"),
				e.last.Format("15:04:05.000"), e.ack.Format("15:04:05.000"))
		}
	}
	if r := s.ledger.runs[v.run]; r != nil {
		b.WriteString("  received of the run:\n")
		for _, seq := range slices.Sorted(maps.Keys(r.events)) {
			if got := r.events[seq]; !got.event.Ephemeral() {
				fmt.Fprintf(&b, "    %s %s %.240s\n", got.at.Format("15:04:05.000"), got.web, got.line)
			}
		}
	}
	if h := v.history; h != nil {
		s.dump("history-"+strings.ReplaceAll(h.key.String(), ":", "-")+".json", h.history.JSON())
		fmt.Fprintf(&b, "  history now (%d messages), near that time and its end:\n", len(h.raw))
		for i := range h.messages {
			if h.time(i).Sub(v.at).Abs() < 2*time.Second || i >= len(h.raw)-6 {
				fmt.Fprintf(&b, "    %d %s %.200s\n", i, h.time(i).Format("15:04:05.000"), h.raw[i])
			}
		}
	}
	return b.String()
}

// shownViolations is how many findings are printed; the file has more.
const shownViolations, keptViolations = 5, 200

// report prints the totals and the verdict, and keeps the findings.
func (s *soak) report(found *findings, took time.Duration) (clean bool) {
	s.table(found, took)
	l := s.ledger
	if len(l.violations) == 0 {
		fmt.Println("verdict: PASS — zero lost, zero torn, zero invalid")
		return true
	}
	// One of each kind first.
	order, rest := []violation{}, []violation{}
	had := map[kind]bool{}
	for _, v := range l.violations {
		if had[v.kind] {
			rest = append(rest, v)
		} else {
			order = append(order, v)
		}
		had[v.kind] = true
	}
	order = append(order, rest...)
	var all strings.Builder
	for i, v := range order[:min(len(order), keptViolations)] {
		text := s.explain(v)
		if i < shownViolations || i < len(had) {
			fmt.Println(text)
		}
		all.WriteString(text + "\n")
	}
	s.dump("violations.txt", []byte(all.String()))
	s.dump("faults.txt", []byte(lines(l.faults.list)))
	fmt.Printf("verdict: FAIL — %d findings; all of them in %s/found/violations.txt\n", len(l.violations), s.dir)
	return false
}

func (s *soak) table(found *findings, took time.Duration) {
	l, c := s.ledger, s.ledger.counts
	row := func(name string, value any) { fmt.Printf("  %-34s %v\n", name, value) }
	fmt.Printf("\nsoak of %v, seed %d\n", took.Round(time.Second), s.seed)
	row("posts", c.posts)
	row("accepted", c.accepted)
	row("answered in JSON", c.answers)
	for _, code := range slices.Sorted(maps.Keys(c.refused)) {
		row("refused "+code, c.refused[code])
	}
	row("no response", c.broken)
	row("repeated under a key", c.repeated)
	row("resumed with Last-Event-ID", c.resumed)
	row("stops", c.stopped)
	row("erasures (attempts repeated)", fmt.Sprintf("%d (%d)", c.erased, c.eraseRetries))
	row("edits by hand", c.edited)
	row("words of erased chats looked for", s.words.looked)
	row("runs seen", len(l.runs))
	row("events acknowledged", c.events)
	row("messages stored in the end", found.stored)
	row("acknowledged messages compared", found.checked)
	row("not compared: while being erased", found.maybe)
	row("runs read again in the end", found.replayed)
	if s.fault != faultKills {
		row("losses of Redis ("+s.fault+")", s.outages.done)
		row("runs that told of one in time", found.told)
		row("gone with all that held them", found.lost)
		row("findings that follow from that", found.followed)
		s.dump("excused.txt", []byte(strings.Join(found.excuses, "\n")))
	}
	row("reads of histories meanwhile", s.reads.reads.Load())
	for _, name := range s.stack.order {
		row(name+" kill -9, SIGTERM, paused", fmt.Sprintf("%d, %d, %d", l.faults.count(name, "kill"),
			l.faults.count(name, "term"), l.faults.count(name, "pause")))
	}
	for _, name := range counters {
		row(name, s.meters.total(name))
	}
	row("messages behind their turn", found.late)
	for _, k := range kinds {
		n := 0
		for _, v := range l.violations {
			if v.kind == k {
				n++
			}
		}
		row(string(k), n)
	}
}
