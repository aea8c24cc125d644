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
	time   time.Time
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
		began := r.first().createdAt()
		if owners := f.owners(r, began); owners != nil {
			f.loads[r.chat] = append(f.loads[r.chat], load{began, owners})
		}
	}
	return f
}

// owners are the lives of those that had been asked for a run when it began; one of
// them had it from there to some point. None if one of them ended or slept before:
// another process may have taken the run over.
func (f *fates) owners(r *run, end time.Time) (owners []holder) {
	if r == nil || r.post == nil {
		return nil
	}
	began := r.first().createdAt()
	for _, a := range r.post.attempts {
		v := f.stack.services[a.web]
		if a.start.After(began) || slices.ContainsFunc(owners, func(h holder) bool { return h.web == v }) {
			continue
		}
		life := v.life(began, end)
		if life == nil {
			return nil
		}
		owners = append(owners, holder{v, life})
	}
	return owners
}

// lossReason says whether something of a run, made at a time, may be gone: Redis lost it,
// and each process that had it had ended before it could write it back. Which
// processes had it is known of those alone that were asked for the run, or for a later
// one of the chat. why is empty if it must be there. key is the history in question;
// without one only the process that had the run counts, as for its record.
func (f *fates) lossReason(ch *chat, key memory.Key, r *run, createdAt time.Time) (why string) {
	return f.lossReasonUntil(ch, key, r, createdAt, time.Now())
}

// lossReasonUntil is lost for the losses before a point in time.
func (f *fates) lossReasonUntil(ch *chat, key memory.Key, r *run, createdAt, cutoff time.Time) (why string) {
	if f == nil {
		return ""
	}
	var own []load
	if owners := f.owners(r, createdAt); owners != nil {
		own = append(own, load{createdAt, owners})
	}
	for i, o := range f.outages {
		modifiedAt, loads := createdAt, own
		if key != (memory.Key{}) {
			if e := ch.lastEdit(key, o.start); modifiedAt.Before(e) { // older copies do not count since
				modifiedAt, loads = e, nil
			}
			for _, l := range f.loads[ch] {
				if l.time.After(modifiedAt) {
					loads = append(slices.Clip(loads), l)
				}
			}
		}
		if !o.start.Before(cutoff) || !modifiedAt.Before(o.start) || modifiedAt.Before(o.durableUntil.Add(-2*time.Second)) {
			continue
		}
		if !slices.ContainsFunc(loads, func(l load) bool { return l.time.Before(o.start) && l.wroteBack(o) }) {
			return fmt.Sprintf("loss %d at %s, Redis back %s: none of %d known holders lived until %v after that",
				i+1, stamp(o.start), stamp(o.recovered), len(loads), restore)
		}
	}
	return ""
}

// wroteBack says whether all processes that may have had it lived long enough after a loss.
func (l load) wroteBack(o outage) bool {
	return !slices.ContainsFunc(l.owners, func(h holder) bool {
		deadline := o.recovered.Add(restore)
		for _, p := range h.web.pauses {
			if p.start.Before(deadline) && p.end.After(o.recovered) {
				deadline = p.end.Add(restore)
			}
		}
		return !h.life.end.IsZero() && !h.life.end.After(deadline)
	})
}

// excuse says why a finding is what Redis' losses must cost; empty if it is not.
func (c *checker) excuse(h *stored, v violation) (why string) {
	switch r := c.runs[v.run]; {
	case v.kind == missing:
		return c.fates.lossReason(h.chat, h.key, r, r.events[v.seq].createdAt())
	case v.kind == revived, v.kind == rewritten && !v.edited.IsZero(): // the edit is what may be gone
		return c.fates.lossReason(h.chat, h.key, nil, cmp.Or(v.edited, v.time))
	case v.kind == declared: // Redis forgot that the run had ended, and the process that closed it did not know
		return c.fates.lossReason(h.chat, memory.Key{}, r, r.events[slices.Max(r.seqs())].createdAt())
	case v.kind != invalid && v.kind != disorder:
	case r == nil:
		return c.fates.lossReason(h.chat, h.key, nil, v.time)
	default: // the neighbours that it lacks
		for _, seq := range r.seqs() {
			why = cmp.Or(why, c.fates.lossReason(h.chat, h.key, r, r.events[seq].createdAt()))
		}
	}
	return why
}

// excused counts a finding that Redis' losses must cost.
func (c *checker) excused(v violation, why string) {
	if v.kind == missing {
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
		why := c.fates.lossReason(r.chat, memory.Key{}, r, r.first().createdAt())
		if why != "" {
			c.excused(v, why)
		}
		return why != ""
	})
}

// checkResetNotices checks that the first run of a chat after Redis lost everything says so.
func (c *checker) checkResetNotices() {
	runs := map[*chat][]*run{}
	for _, r := range c.runs {
		if _, ok := r.events[1].event.Payload.(*event.RunStarted); ok {
			runs[r.chat] = append(runs[r.chat], r)
		}
	}
	for ch, list := range runs {
		slices.SortFunc(list, func(a, b *run) int { return a.first().createdAt().Compare(b.first().createdAt()) })
		for i, o := range c.fates.outages {
			next := slices.IndexFunc(list, func(r *run) bool { return r.first().createdAt().After(o.start) })
			if !o.durableUntil.IsZero() || next < 1 {
				continue
			}
			r, key, prevStart := list[next], memory.ChatKey(ch.id), list[next-1].first().createdAt()
			start := r.first().createdAt()
			_, notified := r.events[2].event.Payload.(*event.MemoryReset)
			switch {
			case notified:
				c.count("runs that told of a loss in time", 1)
			case start.Before(o.recovered.Add(time.Second)), i+1 < len(c.fates.outages) &&
				start.After(c.fates.outages[i+1].start):
			case ch.stateOf(key, prevStart) != intact, c.unseen(ch, o.start, start):
			case c.fates.lossReason(ch, key, list[next-1], prevStart) != "":
			default:
				c.violate(violation{kind: untold, chat: ch, run: r.id, post: r.post, time: start,
					what: "the first run since Redis lost everything at " + stamp(o.start) + " does not say memory reset"})
			}
		}
	}
}

// unseen says whether a run of the chat may have begun that no client heard of.
func (c *checker) unseen(ch *chat, start, end time.Time) bool {
	return slices.ContainsFunc(c.posts, func(p *post) bool {
		return p.chat == ch && slices.ContainsFunc(p.attempts, func(a attempt) bool {
			return a.start.After(start.Add(-time.Minute)) && a.start.Before(end) && !a.refused() && c.runs[a.run] == nil
		})
	})
}
