package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// fates says what Redis' losses may have cost.
type fates struct {
	stack   *testbed
	outages []outage
	loads   map[*chat][]load // runs that began, for which all the chat's histories were loaded
}

// load is a point at which a history was in the memory of a process: of the only one
// that can have done it, or of one of several.
type load struct {
	at     time.Time
	owners []holder
}

// holder is a life of a webmemory process that had something in its memory.
type holder struct {
	web  *service
	life *span
}

func (s *soak) fates() *fates {
	f := &fates{stack: s.testbed, outages: s.outages, loads: map[*chat][]load{}}
	for _, r := range s.runs {
		at := r.first().made()
		if owners := f.owners(r, at); owners != nil {
			f.loads[r.chat] = append(f.loads[r.chat], load{at, owners})
		}
	}
	return f
}

// owners are the lives of those that had been asked for a run when it began; one of
// them had it from there to some point. None if one of them ended or slept before:
// another process may have taken the run over.
func (f *fates) owners(r *run, to time.Time) (owners []holder) {
	if r == nil || r.post == nil {
		return nil
	}
	began := r.first().made()
	for _, a := range r.post.attempts {
		v := f.stack.services[a.web]
		if a.at.After(began) || slices.ContainsFunc(owners, func(h holder) bool { return h.web == v }) {
			continue
		}
		life := v.life(began, to)
		if life == nil {
			return nil
		}
		owners = append(owners, holder{v, life})
	}
	return owners
}

// lost says whether something of a run, made at a time, may be gone: Redis lost it,
// and each process that had it had ended before it could write it back. Which
// processes had it is known of those alone that were asked for the run, or for a later
// one of the chat. why is empty if it must be there. key is the history in question;
// without one only the process that had the run counts, as for its record.
func (f *fates) lost(ch *chat, key memory.Key, r *run, at time.Time) (why string) {
	return f.lostUntil(ch, key, r, at, time.Now())
}

// lostUntil is lost for the losses before a point in time.
func (f *fates) lostUntil(ch *chat, key memory.Key, r *run, at, until time.Time) (why string) {
	if f == nil {
		return ""
	}
	var own []load
	if owners := f.owners(r, at); owners != nil {
		own = append(own, load{at, owners})
	}
	for i, o := range f.outages {
		made, held := at, own
		if key != (memory.Key{}) {
			if e := ch.lastEdit(key, o.from); made.Before(e) { // older copies do not count since
				made, held = e, nil
			}
			for _, l := range f.loads[ch] {
				if l.at.After(made) {
					held = append(slices.Clip(held), l)
				}
			}
		}
		if !o.from.Before(until) || !made.Before(o.from) || made.Before(o.kept.Add(-2*time.Second)) {
			continue
		}
		if !slices.ContainsFunc(held, func(l load) bool { return l.at.Before(o.from) && l.wroteBack(o) }) {
			return fmt.Sprintf("loss %d at %s, Redis back %s: none of %d known holders lived until %v after that",
				i+1, stamp(o.from), stamp(o.up), len(held), restore)
		}
	}
	return ""
}

// wroteBack says whether all processes that may have had it lived long enough after a loss.
func (l load) wroteBack(o outage) bool {
	return !slices.ContainsFunc(l.owners, func(h holder) bool {
		until := o.up.Add(restore)
		for _, p := range h.web.pauses {
			if p.from.Before(until) && p.to.After(o.up) {
				until = p.to.Add(restore)
			}
		}
		return !h.life.to.IsZero() && !h.life.to.After(until)
	})
}

// excuse says why a finding is what Redis' losses must cost; empty if it is not.
func (c *checker) excuse(h *stored, v violation) (why string) {
	switch r := c.runs[v.run]; {
	case v.kind == lost:
		return c.fates.lost(h.chat, h.key, r, r.events[v.seq].made())
	case v.kind == revived, v.kind == rewritten && !v.edited.IsZero(): // the edit is what may be gone
		return c.fates.lost(h.chat, h.key, nil, cmp.Or(v.edited, v.at))
	case v.kind == declared: // Redis forgot that the run had ended, and the process that closed it did not know
		return c.fates.lost(h.chat, memory.Key{}, r, r.events[slices.Max(r.seqs())].made())
	case v.kind != invalid && v.kind != disorder:
	case r == nil:
		return c.fates.lost(h.chat, h.key, nil, v.at)
	default: // the neighbours that it lacks
		for _, seq := range r.seqs() {
			why = cmp.Or(why, c.fates.lost(h.chat, h.key, r, r.events[seq].made()))
		}
	}
	return why
}

// excused counts a finding that Redis' losses must cost.
func (c *checker) excused(v violation, why string) {
	if v.kind == lost {
		c.count("gone with all that held them", 1)
	} else {
		c.count("findings that follow from losses", 1)
	}
	c.excuses = append(c.excuses, fmt.Sprintf("%s: %s\n  %s", v.kind, v.headline(), why))
}

// excuseConflicts drops those of runs if their record may be gone: a post that is sent
// once more under its key runs again then.
func (c *checker) excuseConflicts() {
	c.violations = slices.DeleteFunc(c.violations, func(v violation) bool {
		r := c.runs[v.run]
		if v.kind != conflict || r == nil {
			return false
		}
		why := c.fates.lost(r.chat, memory.Key{}, r, r.first().made())
		if why != "" {
			c.excused(v, why)
		}
		return why != ""
	})
}

// told checks that the first run of a chat after Redis lost everything says so.
func (c *checker) told() {
	runs := map[*chat][]*run{}
	for _, r := range c.runs {
		if _, ok := r.events[1].event.Payload.(*event.RunStarted); ok {
			runs[r.chat] = append(runs[r.chat], r)
		}
	}
	for ch, list := range runs {
		slices.SortFunc(list, func(a, b *run) int { return a.first().made().Compare(b.first().made()) })
		for i, o := range c.fates.outages {
			next := slices.IndexFunc(list, func(r *run) bool { return r.first().made().After(o.from) })
			if !o.kept.IsZero() || next < 1 {
				continue
			}
			r, key, before := list[next], memory.ChatKey(ch.id), list[next-1].first().made()
			at := r.first().made()
			_, told := r.events[2].event.Payload.(*event.MemoryReset)
			switch {
			case told:
				c.count("runs that told of a loss in time", 1)
			case at.Before(o.up.Add(time.Second)), i+1 < len(c.fates.outages) && at.After(c.fates.outages[i+1].from):
			case ch.stateOf(key, before) != kept, c.unseen(ch, o.from, at):
			case c.fates.lost(ch, key, list[next-1], before) != "":
			default:
				c.violate(violation{kind: untold, chat: ch, run: r.id, post: r.post, at: at,
					what: "the first run since Redis lost everything at " + stamp(o.from) + " does not say memory reset"})
			}
		}
	}
}

// unseen says whether a run of the chat may have begun that no client heard of.
func (c *checker) unseen(ch *chat, from, to time.Time) bool {
	return slices.ContainsFunc(c.posts, func(p *post) bool {
		return p.chat == ch && slices.ContainsFunc(p.attempts, func(a attempt) bool {
			return a.at.After(from.Add(-time.Minute)) && a.at.Before(to) && !a.refused() && c.runs[a.run] == nil
		})
	})
}
