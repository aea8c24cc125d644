package panel

import "slices"

// standing is how one plan came off.
type standing struct {
	plan  int // the place in contest.plans
	votes int // abstentions do not count
	total int // of their scores
}

// average of the scores; 0 without votes.
func (s standing) average() float64 {
	if s.votes == 0 {
		return 0
	}
	return float64(s.total) / float64(s.votes)
}

// tally puts the plans that were written in order: by the average of their
// scores, of equal ones by the number of votes, of equal ones by the place. A
// plan without a vote has no average and comes after those that have one.
func tally(plans []plan, votes []vote) []standing {
	var all []standing
	for i, p := range plans {
		if p.err != nil {
			continue
		}
		s := standing{plan: i}
		for _, v := range votes {
			if v.plan == i && v.score != 0 {
				s.votes++
				s.total += v.score
			}
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b standing) int {
		if a.votes == 0 || b.votes == 0 {
			return b.votes - a.votes
		}
		// The averages as fractions: 20/3 is not a tie with anything near it.
		if d := b.total*a.votes - a.total*b.votes; d != 0 {
			return d
		}
		return b.votes - a.votes
	})
	return all
}
