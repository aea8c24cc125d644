package panel

import (
	"fmt"
	"regexp"
	"strings"
)

// Counted matches the figures of a result that the panel counted itself.
var Counted = regexp.MustCompile(`average \d+\.\d\d, \d+ votes?\b|: \d+ of 10\.|^\d+ of 10\.`)

// String is the discussion as it is answered and remembered.
func (d discussion) String() string {
	var b strings.Builder
	if d.err == nil {
		fmt.Fprintf(&b, "%s\n", withoutAsides(d.synthesis.Conclusion))
		list(&b, "Key points", d.synthesis.KeyPoints)
		list(&b, "Consensus", d.synthesis.Consensus)
		list(&b, "Disagreements", d.synthesis.Disagreements)
	} else {
		fmt.Fprintf(&b, "There is no conclusion: the moderator %s failed. %s These are the answers as they were given.\n",
			d.moderator, reason(d.err))
		for _, a := range d.contributions() {
			fmt.Fprintf(&b, "\n%s (%s):\n%s\n", a.letter, a.member, withoutAsides(a.text))
		}
	}
	b.WriteString("\nAnswered: ")
	var who []string
	for _, a := range d.contributions() {
		who = append(who, fmt.Sprintf("%s (%s)", a.member, a.letter))
	}
	b.WriteString(strings.Join(who, ", ") + ".")
	if len(who) == 1 {
		b.WriteString(" There was only one answer, so nobody reviewed it.")
	}
	for _, a := range d.answers {
		if a.err != nil {
			fmt.Fprintf(&b, " Without an answer: %s. %s", a.member, reason(a.err))
		}
	}
	for _, v := range d.reviews {
		if v.err != nil {
			fmt.Fprintf(&b, " Without a review: %s. %s", v.member, reason(v.err))
		}
	}
	if d.err == nil {
		fmt.Fprintf(&b, " Moderator: %s.", d.moderator)
	}
	return b.String()
}

// oneLine keeps a text from passing for other lines of a result.
func oneLine(s string) string { return strings.Join(strings.Fields(withoutAsides(s)), " ") }

// withoutAsides is a member's text as it is shown, unless nothing else is in it.
func withoutAsides(s string) string {
	if plain := strings.TrimSpace(metaLine.ReplaceAllString(s, "")); plain != "" {
		return plain
	}
	return strings.TrimSpace(s)
}

// aside are lines that are no part of what is said: the status that agents with documents
// end their answers with, and the definitions of footnotes.
var metaLine = regexp.MustCompile(`(?im)^[ \t*_>#-]*(?:(?:status|missing)[ \t*_"]*[:=]|\[\^[^\]\n]*\]:).*$`)

func list(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, item := range items {
		fmt.Fprintf(b, "- %s\n", oneLine(item))
	}
}

// String is the chosen plan, then every plan with its votes, the best one first.
func (c contest) String() string {
	var b strings.Builder
	chosen := c.standings[0]
	fmt.Fprintf(&b, "Chosen: the plan of %s (%s).%s\n\n", c.plans[chosen.plan].member, chosen, c.why())
	c.plans[chosen.plan].write(&b)
	b.WriteString("\nAll plans and votes\n")
	for _, s := range c.standings {
		fmt.Fprintf(&b, "\nPlan of %s: %s.\n", c.plans[s.plan].member, s)
		if s != chosen {
			c.plans[s.plan].write(&b)
		}
		for _, v := range c.votes {
			switch {
			case v.plan != s.plan:
			case v.err != nil:
				fmt.Fprintf(&b, "- %s abstained: %s\n", v.voter, reason(v.err))
			default:
				fmt.Fprintf(&b, "- %s: %d of %d. %s\n", v.voter, v.score, maxScore, v.reasoning)
			}
		}
	}
	for _, p := range c.plans {
		if p.err != nil {
			fmt.Fprintf(&b, "\nNo plan of %s, which therefore did not vote: %s\n", p.member, reason(p.err))
		}
	}
	return strings.TrimSpace(b.String())
}

// why says how the choice was made where the average alone does not tell.
func (c contest) why() string {
	best := c.standings[0]
	switch {
	case len(c.standings) == 1:
		return " It is the only plan, so nobody voted."
	case best.votes == 0:
		return " Nobody gave a vote that counts, so the first plan stands by its place alone."
	}
	next := c.standings[1]
	switch {
	case next.votes == 0 || best.total*next.votes != next.total*best.votes:
		return ""
	case best.votes != next.votes:
		return " Another plan has the same average from fewer votes."
	}
	return " Another plan has the same average and as many votes; the first of them is taken."
}

// String is the average with the number of votes that it rests on.
func (s standing) String() string {
	switch s.votes {
	case 0:
		return "no votes"
	case 1:
		return fmt.Sprintf("average %.2f, 1 vote", s.average())
	}
	return fmt.Sprintf("average %.2f, %d votes", s.average(), s.votes)
}

func (p plan) write(b *strings.Builder) {
	fmt.Fprintf(b, "Objective: %s\nReasoning: %s\n", p.Objective, p.Reasoning)
	for i, t := range p.Tasks {
		fmt.Fprintf(b, "%d. %s\n", i+1, t)
	}
}
