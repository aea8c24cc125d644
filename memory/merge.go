package memory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// This file joins two states of one history by the ids of its messages. Nothing in
// it depends on where it runs: any two processes that join the same states get the
// same bytes.

// Merge joins a copy with what is stored of the same history, within what deliberate
// changes allow. A copy that was last proven before the last change of what is stored
// adds nothing. Of what does not follow a change that the other one follows only those
// messages stay that the other one has too, or that were begun after the change: the
// stored ones, or those of a copy that was taken when the store had forgotten it.
//
// It is the union by id: whole runs, their messages by number, the runs by the time
// of their first message. A message that no run made keeps its place: it stands by
// its own time, or directly behind what it followed. What stands before the first
// message that a trim of either kept is cut off.
//
// stored comes back itself if the copy changes nothing. odd are ids under which the
// copy has other bytes; what is stored stays there.
func Merge(stored, mine *History) (merged *History, odd []string) {
	grown := stored.log == mine.log && stored.n >= mine.n
	if grown || mine.Len() == 0 || mine.Turn() < stored.Cut() {
		return stored, nil
	}
	original, b := pieces(stored), pieces(mine)
	a := original
	switch {
	case mine.Cut() > stored.Cut():
		a = dropBefore(a, b, mine.Cut())
	case mine.Cut() < stored.Cut() && !mine.standing().own:
		b = dropBefore(b, a, stored.Cut())
	}
	union, odd := join(a, b)
	first := stored.First()
	for i, p := range union {
		if id := p.id; i > 0 && (id == stored.First() || id == mine.First()) {
			first = id
		}
	}
	if i := slices.IndexFunc(union, func(p piece) bool { return p.id == first }); i > 0 {
		union = union[i:]
	} else if first == "" {
		first = mine.First()
	}
	if same(union, original) && mine.Cut() <= stored.Cut() {
		return stored, odd
	}
	messages := raws(union)
	if len(odd) == 0 && len(b) == mine.Len() && same(union, b) {
		messages = mine.Raw(0) // the copy as it is: others may have it too
	}
	merged = Empty(stored.Key()).With(messages...)
	merged.Follows(max(stored.Cut(), mine.Cut()), first)
	merged.ProvenIn(max(stored.Turn(), mine.Turn()))
	return merged, odd
}

// piece is one message on its way into a joined history.
type piece struct {
	id        string
	raw       json.RawMessage // with its id
	run       string          // that made it; "" if none did
	seq       int64
	end       bool    // it closed a lost run
	timestamp float64 // Unix seconds; 0 if it does not say
	// prevRun is the run of the message before one that no run made, "" for none.
	prevRun string
}

// latest is the end of what passes for Unix seconds: some programs write
// milliseconds.
const latest = 1e11

func pieces(h *History) []piece {
	raw := h.Raw(0)
	ids := IDs(raw)
	out := make([]piece, len(raw))
	prevRun := ""
	for i, m := range raw {
		p := piece{id: ids[i], raw: WithID(m, ids[i])}
		var head struct {
			Timestamp json.RawMessage `json:"timestamp"`
		}
		if json.Unmarshal(m, &head) == nil && json.Unmarshal(head.Timestamp, &p.timestamp) != nil || p.timestamp < 0 ||
			p.timestamp > latest {
			p.timestamp = 0
		}
		if run, seq, ok := SplitID(p.id); ok {
			p.run, p.end = strings.CutSuffix(run, ClosingSuffix)
			p.seq, prevRun = seq, p.run
		} else {
			p.prevRun = prevRun
		}
		out[i] = p
	}
	return out
}

// dropBefore is what may stay of pieces that do not follow a change in turn cut: what
// others, which do, hold too, as they hold it, and what was begun later. A turn's
// number is at least the Unix time in ms.
func dropBefore(pieces, others []piece, cut int64) []piece {
	byID := map[string]json.RawMessage{}
	for _, p := range others {
		byID[p.id] = p.raw
	}
	began := beginnings(pieces)
	var out []piece
	for _, p := range pieces {
		t := p.timestamp
		if p.run != "" {
			t = began[p.run]
		}
		raw, too := byID[p.id]
		if too {
			p.raw = raw
		}
		if too || t*1000 >= float64(cut) {
			out = append(out, p)
		}
	}
	return out
}

// beginnings are the times at which the runs of pieces began.
func beginnings(pieces ...[]piece) map[string]float64 {
	began := map[string]float64{}
	for _, list := range pieces {
		for _, p := range list {
			if t, ok := began[p.run]; p.run != "" && (!ok || p.timestamp < t) {
				began[p.run] = p.timestamp
			}
		}
	}
	return began
}

func raws(pieces []piece) []json.RawMessage {
	out := make([]json.RawMessage, len(pieces))
	for i, p := range pieces {
		out[i] = p.raw
	}
	return out
}

func same(a, b []piece) bool {
	return slices.EqualFunc(a, b, func(x, y piece) bool { return x.id == y.id })
}

// isSubsequence says whether all pieces of a stand in b, in the same order.
func isSubsequence(a, b []piece) bool {
	for _, p := range b {
		if len(a) > 0 && a[0].id == p.id {
			a = a[1:]
		}
	}
	return len(a) == 0
}

// join is the union of two lists of pieces.
func join(a, b []piece) (union []piece, odd []string) {
	byID := map[string]json.RawMessage{}
	for _, p := range a {
		byID[p.id] = p.raw
	}
	var runs, foreign [2][]piece
	for side, list := range [][]piece{a, b} {
		for _, p := range list {
			raw, twice := byID[p.id]
			twice = twice && side == 1
			if twice && !bytes.Equal(raw, p.raw) {
				odd = append(odd, p.id)
				p.raw = raw
			}
			switch {
			case p.run == "":
				foreign[side] = append(foreign[side], p)
			case !twice:
				runs[side] = append(runs[side], p)
			}
		}
	}
	switch {
	case isSubsequence(b, a):
		return a, odd
	case isSubsequence(a, b) && len(odd) == 0:
		return b, nil
	}
	began := beginnings(a, b)
	type placed struct {
		piece
		start float64
		rank  int // among those that no run made; 0 for the others, which come first
	}
	var placements []placed
	for _, p := range slices.Concat(runs[0], runs[1]) {
		placements = append(placements, placed{p, began[p.run], 0})
	}
	// What no run made stays in its order: none is placed before the one before it.
	t := 0.0
	for i, p := range interleave(foreign[0], foreign[1], began) {
		t = max(t, p.place(began))
		placements = append(placements, placed{p, t, i + 1})
	}
	slices.SortFunc(placements, func(x, y placed) int {
		return cmp.Or(
			cmp.Compare(x.start, y.start), cmp.Compare(x.rank, y.rank), cmp.Compare(x.run, y.run),
			cmp.Compare(x.seq, y.seq), cmp.Compare(x.endRank(), y.endRank()),
		)
	})
	for _, p := range placements {
		union = append(union, p.piece)
	}
	return union, odd
}

// endRank is 1 for what closed a lost run, which comes last, else 0.
func (p piece) endRank() int {
	if p.end {
		return 1
	}
	return 0
}

// place is the time at which a message stands that no run made.
func (p piece) place(began map[string]float64) float64 {
	if p.timestamp == 0 {
		return began[p.prevRun]
	}
	return p.timestamp
}

// interleave joins two lists of pieces that no run made, keeping the order of both.
// Where they say different things of it, the longer list is right.
func interleave(a, b []piece, began map[string]float64) []piece {
	if cmp.Or(cmp.Compare(len(a), len(b)), -compareIDs(a, b)) < 0 {
		a, b = b, a
	}
	inA, inB := indexes(a), indexes(b)
	done := map[string]bool{}
	var out []piece
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) > 0 && done[b[0].id]:
			b = b[1:]
			continue
		case len(a) > 0 && done[a[0].id]:
			a = a[1:]
			continue
		}
		first := &a
		switch {
		case len(a) == 0:
			first = &b
		case len(b) == 0:
		case inB[a[0].id] && inA[b[0].id]:
		case inB[a[0].id]:
			first = &b
		case inA[b[0].id]:
		case cmp.Or(cmp.Compare(b[0].place(began), a[0].place(began)), strings.Compare(b[0].id, a[0].id)) < 0:
			first = &b
		}
		p := (*first)[0]
		if p.timestamp == 0 && inA[p.id] && inB[p.id] {
			p.prevRun = latestRun(p.id, a, b, began)
		}
		done[p.id] = true
		out = append(out, p)
		*first = (*first)[1:]
	}
	return out
}

// latestRun is the run that a message followed, in whichever list that is the later one.
func latestRun(id string, a, b []piece, began map[string]float64) string {
	run := ""
	for _, list := range [][]piece{a, b} {
		for _, p := range list {
			if p.id == id && cmp.Or(cmp.Compare(began[p.prevRun], began[run]), strings.Compare(p.prevRun, run)) > 0 {
				run = p.prevRun
			}
		}
	}
	return run
}

func indexes(list []piece) map[string]bool {
	out := map[string]bool{}
	for _, p := range list {
		out[p.id] = true
	}
	return out
}

func compareIDs(a, b []piece) int {
	return slices.CompareFunc(a, b, func(x, y piece) int { return strings.Compare(x.id, y.id) })
}
