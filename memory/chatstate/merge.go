package chatstate

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
)

// How many entries the lists of a state have at most.
const (
	maxKeys      = 32
	maxGrants    = 64
	maxCuts      = 12
	maxAnswers   = 8
	maxHistories = 32
	maxParts     = 64
	maxNames     = 16

	maxConversations = 4
)

// Merge joins two states of one chat, of which either may have been lost or have gone another way. It is a join in
// the sense of lattices: commutative, associative, idempotent, total, and merging with a state that came before in
// the same line changes nothing. So processes may tell each other what they remember in any order, twice, or late.
func Merge(a, b State) State {
	switch c := a.Mark().Compare(b.Mark()); {
	case c < 0:
		a.Turn, a.N, a.By, a.Array = b.Turn, b.N, b.By, b.Array
	case c == 0:
		a.Array = greater(a.Array, b.Array, Array.compare)
	}
	a.Run, a.Keys = joinRuns(a.Run, b.Run, a.Keys, b.Keys)
	a.Grants = union(a.Grants, b.Grants, Grant.compare, func(g, h Grant) Grant {
		if g.order(h) < 0 {
			return h
		}
		return g
	})
	a.Older, a.Cut = later(a.Older, b.Older), later(a.Cut, b.Cut)
	a.Erased = joinErased(a.Erased, b.Erased)
	a.Cuts = union(a.Cuts, b.Cuts, Change.compare, joinChange)
	a.Histories = union(a.Histories, b.Histories, History.compare, joinHistory)
	a.Conversations = union(a.Conversations, b.Conversations, Conversation.compare,
		func(c, _ Conversation) Conversation { return c })
	return normal(a)
}

// normal is the state with nothing in it that something else in it rules out, and with lists within their bounds.
// Merge relies on it that what normal drops can be told from what is left, so that it does not come back: it is below
// a mark that only rises.
func normal(s State) State {
	if s.Erased != nil {
		s = withoutErased(s)
	}
	s.Cuts, s.Cut = newest(s.Cuts, maxCuts, s.Cut, func(c Change) Mark { return c.Mark })
	s.Grants, s.Older = newest(s.Grants, maxGrants, s.Older, Grant.mark)
	s.Keys = lastOf(s.Keys, maxKeys)
	s.Histories = lastOf(s.Histories, maxHistories)
	s.Conversations = lastOf(s.Conversations, maxConversations)
	return s
}

// withoutErased takes out what is from before the newest erasure of the chat.
func withoutErased(s State) State {
	gone := func(m Mark) bool { return !s.Erased.Mark.Before(m) }
	if s.Run != nil && gone(s.Run.Mark) {
		s.Run = nil
	}
	s.Keys = without(s.Keys, func(k Key) bool { return gone(k.Mark) })
	s.Grants = without(s.Grants, func(g Grant) bool { return gone(g.mark()) })
	s.Cuts = without(s.Cuts, func(c Change) bool { return gone(c.Mark) })
	s.Histories = without(s.Histories, func(h History) bool { return gone(h.Mark) })
	s.Conversations = without(s.Conversations, func(c Conversation) bool { return gone(c.Mark) })
	if gone(s.Older) {
		s.Older = Mark{}
	}
	if gone(s.Cut) {
		s.Cut = Mark{}
	}
	return s
}

// joinRuns gives the newest of two runs, and the keys of the runs that are over with it.
func joinRuns(a, b *Run, keys, more []Key) (*Run, []Key) {
	keys = union(keys, more, Key.compare, func(k, l Key) Key { return greater(k, l, Key.order) })
	if a == nil || b == nil {
		return cmp.Or(a, b), keys
	}
	switch c := a.compare(b); {
	case c < 0:
		a, b = b, a
	case c == 0:
		return joinRun(a, b), keys
	}
	// The older one cannot go on: the newer one began because somebody took it for over or did not know it.
	return a, union(keys, keyOf(b), Key.compare, func(k, l Key) Key { return greater(k, l, Key.order) })
}

// keyOf is the entry of a run that is not the newest any more; none for one without a key.
func keyOf(r *Run) []Key {
	if !r.Keyed {
		return nil
	}
	return []Key{{Mark: r.Mark, Run: r.ID, Outcome: cmp.Or(r.Outcome, Lost)}}
}

// joinRun joins two states of one run: the one that has come further, with all answers.
func joinRun(a, b *Run) *Run {
	if a.order(b) < 0 {
		a, b = b, a
	}
	if a.Phase == Over {
		return a
	}
	run := *a
	run.Answers = lastOf(union(a.Answers, b.Answers, func(x, y Answer) int { return cmp.Compare(x.Step, y.Step) },
		func(x, y Answer) Answer { return greater(x, y, Answer.order) }), maxAnswers)
	return &run
}

func (r *Run) compare(o *Run) int {
	return cmp.Or(r.Mark.Compare(o.Mark), strings.Compare(r.ID, o.ID))
}

// order says which of two states of one run has come further. Its end comes last.
func (r *Run) order(o *Run) int {
	over := func(r *Run) int { return phaseOrder(r.Phase) / phaseOrder(Over) }
	if c := cmp.Compare(over(r), over(o)); c != 0 || r.Phase != Over {
		return cmp.Or(c, cmp.Compare(r.Step, o.Step), cmp.Compare(phaseOrder(r.Phase), phaseOrder(o.Phase)),
			r.At.Compare(o.At), r.bytes(o))
	}
	return cmp.Or(outcomes(r.Outcome, o.Outcome), o.At.Compare(r.At), r.bytes(o))
}

// outcomes orders the ends that two states know of one run. One of the run's own holds against what was only
// concluded, and "completed", which sorts first, against the others. It must not hang on anything else, since a run
// whose entry is in Keys has nothing else.
func outcomes(a, b string) int {
	own := func(outcome string) int { return slices.Index([]string{Lost, Withdrawn}, outcome) }
	x, y := own(a), own(b)
	return cmp.Or(cmpBool(x < 0, y < 0), cmp.Compare(x, y), strings.Compare(b, a))
}

// bytes orders two states of a run of which nothing else says which holds.
func (r *Run) bytes(o *Run) int {
	x, y := *r, *o
	x.Answers, y.Answers = nil, nil
	return bytes.Compare(State{Run: &x}.Encode(), State{Run: &y}.Encode())
}

// order lets the earlier of two answers to one suspension hold.
func (a Answer) order(o Answer) int {
	return cmp.Or(o.Mark.Compare(a.Mark), strings.Compare(a.Sum, o.Sum))
}

func (k Key) compare(o Key) int { return cmp.Or(k.Mark.Compare(o.Mark), strings.Compare(k.Run, o.Run)) }

func (k Key) order(o Key) int { return outcomes(k.Outcome, o.Outcome) }

// mark is a grant's place among all, which does not change with what becomes of it.
func (g Grant) mark() Mark { return Mark{Turn: g.Turn, By: g.By} }

// compare tells grants apart: one lease is granted a call once, however often it withdraws and asks again.
func (g Grant) compare(o Grant) int {
	return cmp.Or(g.mark().Compare(o.mark()), strings.Compare(g.Call, o.Call))
}

// order says which of two states of one grant is the later. They have one writer, whose commits are numbered; that
// the call was made is a fact whatever else is noted.
func (g Grant) order(o Grant) int {
	return cmp.Or(cmpBool(g.Word == Made, o.Word == Made), cmp.Compare(g.N, o.N),
		cmp.Compare(wordOrder(g.Word), wordOrder(o.Word)))
}

// joinErased keeps the newer of two erasures, which is of all that the older one was of. What the older one has left
// open in places of its own stays open.
func joinErased(a, b *Change) *Change {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	switch c := a.Mark.Compare(b.Mark); {
	case c < 0:
		a, b = b, a
	case c == 0:
		e := joinChange(*a, *b)
		return &e
	}
	e := *a
	e.Parts = maps.Clone(a.Parts)
	if e.Parts == nil {
		e.Parts = map[string]int{}
	}
	for part := range b.Parts {
		if _, known := e.Parts[part]; !known {
			e.Parts[part] = 0
		}
	}
	e.Parts = firstParts(e.Parts)
	return &e
}

// joinChange joins two states of one change.
func joinChange(a, b Change) Change {
	names := slices.Concat(a.Names, b.Names)
	slices.Sort(names)
	names = slices.Compact(names)
	a.Names = names[:min(len(names), maxNames)]
	if len(a.Names) == 0 {
		a.Names = nil
	}
	a.Parts = firstParts(joinParts(a.Parts, b.Parts))
	return a
}

// joinParts gives the later round of each part.
func joinParts(a, b map[string]int) map[string]int {
	parts := map[string]int{}
	maps.Copy(parts, a)
	for part, round := range b {
		parts[part] = max(parts[part], round)
	}
	return parts
}

// firstParts bounds what a foreign text may bring; a change of ours has fewer.
func firstParts(parts map[string]int) map[string]int {
	if len(parts) == 0 {
		return nil
	}
	if len(parts) > maxParts {
		for _, name := range slices.Sorted(maps.Keys(parts))[maxParts:] {
			delete(parts, name)
		}
	}
	return parts
}

func (c Change) compare(o Change) int {
	return cmp.Or(c.Mark.Compare(o.Mark), strings.Compare(c.Kind, o.Kind), strings.Compare(c.Of, o.Of))
}

func (h History) compare(o History) int {
	return cmp.Or(h.Mark.Compare(o.Mark), strings.Compare(h.Agent, o.Agent))
}

// joinHistory keeps the newest word about a history's archive.
func joinHistory(a, b History) History {
	return greater(a, b, func(x, y History) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Messages, y.Messages), cmp.Compare(x.Segments, y.Segments),
			cmp.Compare(x.Bytes, y.Bytes))
	})
}

func (a Array) compare(o Array) int {
	return cmp.Or(cmp.Compare(a.Len, o.Len), cmp.Compare(a.Count, o.Count), strings.Compare(a.Sum, o.Sum))
}

func (c Conversation) compare(o Conversation) int {
	return cmp.Or(c.Mark.Compare(o.Mark), strings.Compare(c.ID, o.ID))
}

// union joins two sorted lists; of entries that are the same by compare join makes one.
func union[T any](a, b []T, compare func(T, T) int, join func(T, T) T) []T {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make([]T, 0, len(a)+len(b))
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, compare)
	for _, e := range all {
		if n := len(out); n > 0 && compare(out[n-1], e) == 0 {
			out[n-1] = join(out[n-1], e)
		} else {
			out = append(out, e)
		}
	}
	return out
}

// newest bounds a list that is sorted by mark: what is not above the mark under which something was dropped before
// goes too, so that it makes no difference whether lists are joined first or bounded first.
func newest[T any](list []T, most int, dropped Mark, mark func(T) Mark) ([]T, Mark) {
	if over := len(list) - most; over > 0 {
		dropped = later(dropped, mark(list[over-1]))
	}
	return without(list, func(e T) bool { return !dropped.Before(mark(e)) && dropped != Mark{} }), dropped
}

func lastOf[T any](list []T, most int) []T { return list[max(0, len(list)-most):] }

// without is the list without some entries, nil if none is left. It leaves the list itself alone.
func without[T any](list []T, gone func(T) bool) []T {
	var out []T
	for _, e := range list {
		if !gone(e) {
			out = append(out, e)
		}
	}
	return out
}

func later(a, b Mark) Mark { return greater(a, b, Mark.Compare) }

func greater[T any](a, b T, compare func(T, T) int) T {
	if compare(a, b) < 0 {
		return b
	}
	return a
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
