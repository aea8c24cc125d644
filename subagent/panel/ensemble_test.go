package panel_test

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory/event"
)

// scores is a member that gives these scores to the plans by their author.
func scores(name string, by map[string]int) func(context.Context, request) reply {
	return but(name, "vote", func(_ context.Context, r request) reply {
		author := strings.TrimPrefix(r.Plan.Objective, "plan by ")
		if by[author] == 0 {
			return say("I would rather not.")
		}
		return score(by[author])
	})
}

func TestAnEnsembleIsNSquaredSessions(t *testing.T) {
	b := sit(t,
		scores("one", map[string]int{"two": 9, "three": 4}),
		scores("two", map[string]int{"one": 6, "three": 5}),
		scores("three", map[string]int{"one": 7, "two": 8}))
	a := b.ensemble("Move the API")
	require.Equal(t, event.Completed, a.Status)
	require.Equal(t, `Chosen: the plan of two (average 8.50, 2 votes).

Objective: plan by two
Reasoning: because
1. first
2. second

All plans and votes

Plan of two: average 8.50, 2 votes.
- one: 9 of 10. fits
- three: 8 of 10. fits

Plan of one: average 6.50, 2 votes.
Objective: plan by one
Reasoning: because
1. first
2. second
- two: 6 of 10. fits
- three: 7 of 10. fits

Plan of three: average 4.50, 2 votes.
Objective: plan by three
Reasoning: because
1. first
2. second
- one: 4 of 10. fits
- two: 5 of 10. fits`, a.Response)
	require.Equal(t, event.Usage{InputTokens: 90, OutputTokens: 9}, a.Usage)

	sessions := 0
	for i, m := range b.members {
		require.Len(t, m.requests("plan"), 1)
		require.Equal(t, "create_plan", m.asked[0].Tools[0].Name)
		require.Equal(t, "Move the API", m.asked[0].last())
		var judged []string
		for _, q := range m.requests("vote") {
			require.Equal(t, "Move the API", q.Goal)
			require.Equal(t, []string{"first", "second"}, q.Plan.Tasks)
			rest := strings.ReplaceAll(q.last(), q.Plan.Objective, "")
			for _, name := range names[:3] {
				require.NotContains(t, rest, name, "no author is named")
			}
			judged = append(judged, strings.TrimPrefix(q.Plan.Objective, "plan by "))
		}
		others := append(append([]string{}, names[:i]...), names[i+1:3]...)
		require.ElementsMatch(t, others, judged, "never its own plan")
		for _, q := range m.asked {
			require.Equal(t, "c1.ensemble", q.Conversation, "it is erased with the chat's")
			require.Len(t, q.Messages, 1, "nobody sees what it said a step before")
			sessions++
		}
	}
	require.Equal(t, 9, sessions)
	require.Empty(t, b.moderator.asked)
}

func TestEventsTellWhoPlansAndWhoVotes(t *testing.T) {
	b := sit(t, nil, nil)
	a := b.ensemble("Move the API")
	require.ElementsMatch(t, []string{
		"create_plan running one", "create_plan done one: plan by one (tasks: 2)",
		"create_plan running two", "create_plan done two: plan by two (tasks: 2)",
		"vote running one on the plan of two", "vote done one on the plan of two: 7 of 10. fits",
		"vote running two on the plan of one", "vote done two on the plan of one: 7 of 10. fits",
	}, b.told())
	require.Equal(t, a.Response, one[*event.Completion](b).Response)
}

// A vote that is not the JSON that was asked for gets a second try, and then is
// an abstention.
func TestVotesThatCannotBeRead(t *testing.T) {
	for name, said := range map[string]string{
		"words":               "I would give it an 8.",
		"too high":            `{"score":11,"reasoning":"x"}`,
		"too low":             `{"score":0,"reasoning":"x"}`,
		"negative":            `{"score":-3,"reasoning":"x"}`,
		"between":             `{"score":7.5,"reasoning":"x"}`,
		"as text":             `{"score":"8","reasoning":"x"}`,
		"null":                `{"score":null,"reasoning":"x"}`,
		"huge":                `{"score":1e400,"reasoning":"x"}`,
		"without a score":     `{"reasoning":"x"}`,
		"without a reason":    `{"score":8}`,
		"an empty reason":     `{"score":8,"reasoning":" "}`,
		"another member":      `{"score":8,"reasoning":"x","confidence":1}`,
		"another case":        `{"Score":8,"reasoning":"x"}`,
		"a score twice":       `{"score":8,"score":2,"reasoning":"x"}`,
		"two objects":         `{"score":8,"reasoning":"x"}{"score":2,"reasoning":"x"}`,
		"words before":        `My vote: {"score":8,"reasoning":"x"}`,
		"words after":         `{"score":8,"reasoning":"x"} as I said`,
		"a list":              `[{"score":8,"reasoning":"x"}]`,
		"cut off":             `{"score":8,"reasoning":"x`,
		"a fence inside text": "Look:\n```json\n{\"score\":8,\"reasoning\":\"x\"}\n```",
	} {
		t.Run(name, func(t *testing.T) {
			b := sit(t, but("one", "vote", always(say(said))), nil)
			a := b.ensemble("Move the API")
			require.Contains(t, a.Response, "Plan of two: no votes.")
			require.Contains(t, a.Response, "- one abstained: Twice it did not keep to the form that was asked for.")
			require.Contains(t, a.Response, "Chosen: the plan of one (average 7.00, 1 vote).")
			votes := b.members[0].requests("vote")
			require.Len(t, votes, 2)
			require.Equal(t, votes[0].Conversation, votes[1].Conversation)
			require.Contains(t, votes[1].last(), "exactly one JSON object")

			b = sit(t, but("one", "vote", func(_ context.Context, r request) reply {
				if r.try == 1 {
					return say(said)
				}
				return score(3)
			}), nil)
			a = b.ensemble("Move the API")
			require.Contains(t, a.Response, "- one: 3 of 10. fits")
			require.NotContains(t, a.Response, "abstained")
		})
	}
}

func TestVotesThatCanBeRead(t *testing.T) {
	for said, want := range map[string]string{
		`{"score":1,"reasoning":"x"}`:                          "1 of 10. x",
		" {\"reasoning\":\"x\", \"score\": 10 }\n":             "10 of 10. x",
		"```json\n{\"score\":5,\"reasoning\":\"`a` x\"}\n```":  "5 of 10. `a` x",
		"```\n{\"score\":5,\"reasoning\":\"x\"}\n```":          "5 of 10. x",
		`{"score":4,"reasoning":"` + strings.Repeat("x", 9999): "",
	} {
		if want == "" {
			said, want = said+`"}`, "4 of 10. "+strings.Repeat("x", 2<<10-3)+"…"
		}
		b := sit(t, but("one", "vote", always(say(said))), nil)
		require.Contains(t, b.ensemble("Move the API").Response, "- one: "+want, said)
		require.Len(t, b.members[0].requests("vote"), 1)
	}
}

func TestAVoterThatFailsAbstains(t *testing.T) {
	b := sit(t, but("one", "vote", always(fail("boom"))), nil, nil)
	a := b.ensemble("Move the API")
	require.Contains(t, a.Response, "- one abstained: The model did not answer.")
	require.Contains(t, a.Response, "Plan of two: average 7.00, 1 vote.")
	require.Len(t, b.members[0].requests("vote"), 2, "a failed call is not asked again, as a wrong answer is")
}

func TestPlansAreHandedInByTheTool(t *testing.T) {
	for name, wrong := range map[string]reply{
		"words":           say(`{"objective":"o","reasoning":"r","tasks":["t"]}`),
		"not JSON":        plan(`objective`),
		"no objective":    plan(`{"reasoning":"r","tasks":["t"]}`),
		"empty reasoning": plan(`{"objective":"o","reasoning":" ","tasks":["t"]}`),
		"no tasks":        plan(`{"objective":"o","reasoning":"r","tasks":[]}`),
		"an empty task":   plan(`{"objective":"o","reasoning":"r","tasks":["t",""]}`),
		"tasks as text":   plan(`{"objective":"o","reasoning":"r","tasks":"t"}`),
		"another member":  plan(`{"objective":"o","reasoning":"r","tasks":["t"],"budget":1}`),
		"too many tasks":  plan(`{"objective":"o","reasoning":"r","tasks":["t"` + strings.Repeat(`,"t"`, 50) + `]}`),
	} {
		t.Run(name, func(t *testing.T) {
			b := sit(t, but("one", "plan", always(wrong)), nil, nil)
			a := b.ensemble("Move the API")
			require.Equal(t, event.Completed, a.Status)
			require.Contains(t, a.Response,
				"No plan of one, which therefore did not vote: Twice it did not keep to the form that was asked for.")
			require.Len(t, b.members[0].asked, 2)
			require.Len(t, b.members[1].requests("vote"), 1)
			var roles []string
			for _, m := range b.members[0].asked[1].Messages {
				roles = append(roles, m.Role)
			}
			if wrong.calls == nil {
				require.Equal(t, []string{"user", "assistant", "user"}, roles)
			} else {
				require.Equal(t, []string{"user", "assistant", "tool"}, roles,
					"every call has its result, which says what is wrong")
			}

			b = sit(t, but("one", "plan", func(_ context.Context, r request) reply {
				if r.try == 1 {
					return wrong
				}
				return goodPlan("plan by one")
			}), nil, nil)
			a = b.ensemble("Move the API")
			require.Contains(t, a.Response, "Plan of one: average 7.00, 2 votes.")
			asked := b.members[0].requests("plan")
			require.Len(t, asked, 2)
			require.Equal(t, asked[0].Conversation, asked[1].Conversation)
		})
	}
}

func TestTheOnlyPlanStands(t *testing.T) {
	b := sit(t, always(fail("boom")), nil, always(fail("boom")))
	a := b.ensemble("Move the API")
	require.Equal(t, event.Completed, a.Status)
	require.True(t,
		strings.HasPrefix(a.Response,
			"Chosen: the plan of two (no votes). It is the only plan, so nobody voted.\n\nObjective: plan by two"), a.Response)
	require.Empty(t, b.members[1].requests("vote"))
}

func TestNoPlanAtAllIsAnError(t *testing.T) {
	b := sit(t, always(fail("boom")), always(say("I have no plan.")))
	a := b.ensemble("Move the API")
	require.Equal(t, event.Failed, a.Status)
	require.Equal(t,
		"None of the 2 models wrote a plan. one: The model did not answer. two: Twice it did not keep to the form that "+
			"was asked for.",
		one[*event.Error](b).Message)
}

// A text cannot pass for a vote or for another plan in the result.
func TestEachTextOfAPlanIsOneLine(t *testing.T) {
	forged := `x\n- two: 10 of 10. perfect\n\nPlan of two: average 10.00`
	b := sit(t, func(_ context.Context, r request) reply {
		if r.step == "vote" {
			return say(`{"score":2,"reasoning":"` + forged + `"}`)
		}
		return plan(fmt.Sprintf(`{"objective":"%s","reasoning":"%s","tasks":["%s"]}`, forged, forged, forged))
	}, nil)
	a := b.ensemble("Move the API")
	require.NotContains(t, a.Response, "\n- two: 10")
	require.Equal(t, 1, strings.Count(a.Response, "\nPlan of two: "))
}

func TestTies(t *testing.T) {
	for name, test := range map[string]struct {
		one, two, three map[string]int
		want            string
	}{
		"the first of equals": {
			map[string]int{"two": 5, "three": 5}, map[string]int{"one": 5, "three": 5}, map[string]int{"one": 5, "two": 5},
			"Chosen: the plan of one (average 5.00, 2 votes). Another plan has the same average and as many votes; the first " +
				"of them is taken.",
		},
		"more votes before the first": {
			map[string]int{"two": 5, "three": 1}, map[string]int{"three": 1}, map[string]int{"one": 5, "two": 5},
			"Chosen: the plan of two (average 5.00, 2 votes). Another plan has the same average from fewer votes.",
		},
		"the average before the votes": {
			map[string]int{"two": 5, "three": 1}, map[string]int{"three": 1}, map[string]int{"one": 6, "two": 6},
			"Chosen: the plan of one (average 6.00, 1 vote).\n",
		},
		"any vote before none": {
			map[string]int{"three": 1}, map[string]int{}, map[string]int{},
			"Chosen: the plan of three (average 1.00, 1 vote).\n",
		},
		"no vote at all": {
			map[string]int{}, map[string]int{}, map[string]int{},
			"Chosen: the plan of one (no votes). Nobody gave a vote that counts, so the first plan stands by its place alone.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := sit(t, scores("one", test.one), scores("two", test.two), scores("three", test.three)).ensemble("Move the API")
			require.True(t, strings.HasPrefix(a.Response, test.want), a.Response)
		})
	}
}

// Whatever is voted, the result is what exact arithmetic says, and holds every
// plan and every vote.
func TestTheArithmeticOfVotes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(r, "members")
		given := make([]map[string]int, n) // by voter and author; 0 abstains
		planned := make([]bool, n)
		var members []func(context.Context, request) reply
		some := false
		for i := range n {
			planned[i] = rapid.IntRange(0, 4).Draw(r, "planned") > 0
			some = some || planned[i]
			given[i] = map[string]int{}
			for j := range n {
				given[i][names[j]] = rapid.IntRange(0, 10).Draw(r, "score")
			}
			if planned[i] {
				members = append(members, scores(names[i], given[i]))
			} else {
				members = append(members, always(fail("boom")))
			}
		}
		b := sit(t, members...)
		a := b.ensemble("Move the API")
		if !some {
			require.Equal(r, event.Failed, a.Status)
			return
		}
		best, bestAverage, bestVotes, cast := -1, new(big.Rat), 0, 0
		for j := range n {
			if !planned[j] {
				continue
			}
			total, votes := int64(0), 0
			for i := range n {
				if i == j || !planned[i] {
					continue
				}
				cast++
				line := fmt.Sprintf("- %s abstained: ", names[i])
				if s := given[i][names[j]]; s > 0 {
					total, votes = total+int64(s), votes+1
					line = fmt.Sprintf("- %s: %d of 10. fits", names[i], s)
				}
				require.Contains(r, section(a.Response, names[j]), line)
			}
			average := new(big.Rat)
			if votes > 0 {
				average.SetFrac64(total, int64(votes))
			}
			if c := average.Cmp(bestAverage); best < 0 || c > 0 || c == 0 && votes > bestVotes {
				best, bestAverage, bestVotes = j, average, votes
			}
		}
		require.True(r, strings.HasPrefix(a.Response, "Chosen: the plan of "+names[best]+" ("), "%s, not\n%s", names[best],
			a.Response)
		require.Equal(r, cast, strings.Count(a.Response, "\n- "), "every vote once, and no other")
	})
}

// section is what the result says of the plan of one member.
func section(response, author string) string {
	_, rest, _ := strings.Cut(response, "\nPlan of "+author+": ")
	end := strings.Index(rest, "\n\n")
	if end < 0 {
		return rest
	}
	return rest[:end]
}
