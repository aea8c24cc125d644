package chatstate

// Recover joins what the server holds with what processes remember, after it may have lost data. What an erasure that
// one of them knows takes out of another names a place where text lies; who erased may not have known of that, so it
// becomes an open part of the erasure, also where it was done: a process that did not know of the erasure may have
// written there since. What an older erasure has left open is open in the newer one likewise. Parts that lie on the
// server, whose names begin with a place, are open again if the change is of a token from recent on: the server that
// they were done on is another one.
func Recover(recent int64, places []string, states ...State) State {
	var all State
	for _, s := range states {
		all = Merge(all, s)
	}
	if all.Erased != nil {
		e := *all.Erased
		e.Parts = joinParts(e.Parts, nil)
		again := map[string]int{}
		for _, s := range states {
			if s.Erased != nil && s.Erased.Mark == e.Mark {
				continue // its places are parts already
			}
			for _, part := range s.places() {
				if !e.Mark.Before(part.mark) {
					again[part.name] = e.Parts[part.name] + e.Parts[part.name]%2
				}
			}
		}
		e.Parts = firstParts(joinParts(e.Parts, again))
		all.Erased = &e
	}
	if _, err := (Reopen{recent, places}).apply(&all, Mark{}); err != nil {
		panic(err) // it never fails
	}
	return all
}

// place is where text of a chat lies, by the name of the part of an erasure that takes it away.
type place struct {
	name string
	mark Mark
}

// Parts of an erasure that name a place.
const (
	OfHistory      = "history:"
	OfConversation = "conversation:"
)

func (s State) places() (all []place) {
	for _, h := range s.Histories {
		all = append(all, place{OfHistory + h.Agent, h.Mark})
	}
	for _, c := range s.Conversations {
		all = append(all, place{OfConversation + c.ID, c.Mark})
	}
	if s.Erased != nil {
		for _, part := range s.Erased.Open() {
			all = append(all, place{part, s.Erased.Mark})
		}
	}
	return all
}

// Broken says what of a state does not hold any more since it was merged with others: what is to be told, counted and
// put right. Nothing of it is in the merged state, since each process has told other things.
func Broken(mine, merged State) (effects []Effect) {
	if r := mine.Run; r.Unfinished() {
		now := merged.Run
		same := now != nil && now.compare(r) == 0
		switch {
		case !same:
			effects = append(effects, Effect{Do: Stop, Name: r.ID})
			if merged.Erased == nil || merged.Erased.Mark.Before(r.Mark) {
				effects = append(effects, Effect{Do: Close, Name: r.ID})
			}
		case now.Superseded():
			effects = append(effects, Effect{Do: Stop, Name: r.ID}, Effect{Do: Close, Name: r.ID})
		}
	}
	for _, g := range mine.Grants {
		if g.Word != Refused && merged.Twice(g.Call) && !mine.Twice(g.Call) {
			effects = append(effects, Effect{Do: Tell, Name: BesideCall + g.Call})
		}
	}
	return effects
}

// Superseded says whether the run went on with other answers than those that hold: the earlier ones, which a process
// knew that was not heard in time. It cannot go on, since nobody can say which of its calls it would still make.
func (r *Run) Superseded() bool {
	if r == nil || r.Phase != Accepted || r.Given == (Mark{}) {
		return false
	}
	for _, a := range r.Answers {
		if a.Step == r.Step-1 {
			return a.Mark != r.Given
		}
	}
	return false
}
