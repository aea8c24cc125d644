package textindex

// relatedShare says which earlier turns count. A chat goes from topic to topic, and the
// words of one that is over lead a question astray that stands by itself. A turn is on
// the question's topic if some passage answers both: the passage's share of the best
// score that the question reaches, times its share of the best that the turn reaches,
// is at least this. The value is measured (mneme eval retrieval --topics): in
// conversations that keep to their topic nothing is lost up to .35, and behind other
// topics a larger one is better.
const relatedShare = 0.35

// maxTurnTerms bounds the terms of a turn by which it is compared.
const maxTurnTerms = 64

// related leaves of the turns before a question those that are on its topic: the
// user's turns back to the first that is not, and the last reply if it is. A question
// of which no passage has a word leans on all of them; one of a single term, as "And
// the price?", on the user's last turn in any case.
func (s *Snapshot) related(a *analyzer, question string, past []earlier, refused []bitset) []earlier {
	if len(past) == 0 {
		return nil
	}
	own := a.query(question, nil)
	asked := s.score(own, refused)
	defer asked.release()
	meets := func(t earlier) bool {
		terms := a.query(t.text, nil)
		said := s.score(terms[:min(len(terms), maxTurnTerms)], refused)
		defer said.release()
		return asked.meets(said)
	}
	var on []earlier
	for _, t := range past {
		switch {
		case len(own) == 1 && t.weight == weightUser || meets(t):
			on = append(on, t)
		case !t.reply:
			return on
		}
	}
	return on
}

// meets says whether a passage scores high enough in both, or none scores in r at all.
func (r *scoring) meets(other *scoring) bool {
	var one, two, both float64
	for i, score := range r.scores {
		one, two = max(one, score), max(two, other.scores[i])
		both = max(both, score*other.scores[i])
	}
	return one == 0 || two > 0 && both >= relatedShare*one*two
}
