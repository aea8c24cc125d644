package panel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/panel"
)

func TestADiscussionIsSevenFreshSessions(t *testing.T) {
	b := sit(t, nil, nil, nil)
	a := b.discuss("REST or gRPC?")
	require.Equal(t, event.Completed, a.Status)
	require.Equal(t, `Take REST.

Key points:
- tools

Consensus:
- both work

Disagreements:
- speed

Answered: one (A), two (B), three (C). Moderator: chair.`, a.Response)
	require.Equal(t, event.Usage{InputTokens: 70, OutputTokens: 7}, a.Usage)

	sessions := 0
	for _, m := range append(b.members, b.moderator) {
		for _, q := range m.asked {
			require.Equal(t, "c1.discuss", q.Conversation, "it is erased with the chat's")
			require.True(t, q.Final, "it leaves no session behind")
			require.Len(t, q.Messages, 1, "nobody sees what it said a step before")
			sessions++
		}
	}
	require.Equal(t, 7, sessions)
}

func TestReviewersSeeTheOthersByStableLetters(t *testing.T) {
	b := sit(t, nil, nil, nil)
	b.discuss("REST or gRPC?")
	for i, want := range []string{"BC", "AC", "AB"} {
		reviews := b.members[i].requests("review")
		require.Len(t, reviews, 1)
		require.Equal(t, want, reviews[0].letters())
		require.Equal(t, "REST or gRPC?", reviews[0].Question)
		for _, a := range reviews[0].Answers {
			require.Equal(t, "answer by "+names[a.Letter[0]-'A'], a.Answer, "a letter is one member's in every review")
		}
		require.NotContains(t, reviews[0].last(), "answer by "+names[i], "its own answer is left out")
	}
	syntheses := b.moderator.requests("synthesis")
	require.Len(t, syntheses, 1)
	require.Equal(t, "ABC", syntheses[0].letters())
	require.Len(t, syntheses[0].Reviews, 3)
	for i, v := range syntheses[0].Reviews {
		require.Equal(t, string(rune('A'+i)), v.By)
		require.Equal(t, "review by "+names[i], v.Review)
	}
}

func TestEventsTellWhoAnsweredAndWhoReviewsWhom(t *testing.T) {
	b := sit(t, nil, nil, nil)
	b.config.Limit = 1 // one after the other
	a := b.discuss("REST or gRPC?")
	require.ElementsMatch(t, []string{
		"answer running one (A)", "answer done one (A): answer by one",
		"answer running two (B)", "answer done two (B): answer by two",
		"answer running three (C)", "answer done three (C): answer by three",
		"review running one (A) on B, C", "review done one (A) on B, C: review by one",
		"review running two (B) on A, C", "review done two (B) on A, C: review by two",
		"review running three (C) on A, B", "review done three (C) on A, B: review by three",
		"synthesis running chair (moderator)", "synthesis done chair (moderator): Take REST.",
	}, b.told())
	require.Equal(t, "REST or gRPC?", one[*event.Delegation](b).Task)
	require.Equal(t, event.Serial, one[*event.Delegation](b).Calls, "it is remembered")
	require.Equal(t, a.Response, one[*event.Completion](b).Response)
}

func TestAFailedModelIsKeptAndTheRestGoOn(t *testing.T) {
	b := sit(t, nil, always(fail("boom")), nil)
	a := b.discuss("REST or gRPC?")
	require.Equal(t, event.Completed, a.Status)
	require.Contains(t, a.Response, "Answered: one (A), three (C). Without an answer: two. The model did not answer.")
	require.Len(t, b.members[1].asked, 1, "it takes no further part")
	require.Equal(t, "C", b.members[0].requests("review")[0].letters(), "letters do not move up")
	require.Equal(t, "A", b.members[2].requests("review")[0].letters())
	require.Equal(t, "AC", b.moderator.requests("synthesis")[0].letters())
	require.Contains(t, b.told(), "answer failed two (B): The model did not answer.")
}

func TestOneAnswerIsNotReviewed(t *testing.T) {
	b := sit(t, always(fail("boom")), nil, always(fail("boom")))
	a := b.discuss("REST or gRPC?")
	require.Equal(t, event.Completed, a.Status)
	require.Contains(t, a.Response, "Take REST.")
	require.Contains(t, a.Response, "Answered: two (B). There was only one answer, so nobody reviewed it.")
	require.Empty(t, b.members[1].requests("review"))
	require.Equal(t, "B", b.moderator.requests("synthesis")[0].letters())
	require.Empty(t, b.moderator.requests("synthesis")[0].Reviews)
}

func TestAllFailedIsAnError(t *testing.T) {
	b := sit(t, always(fail("boom")), always(fail("boom")))
	a := b.discuss("REST or gRPC?")
	require.Equal(t, event.Failed, a.Status)
	require.Equal(t, "(no answer: panel_failed)", a.Response)
	require.Equal(t, &event.Error{
		Code: "panel_failed", Retryable: true,
		Message: "None of the 2 models answered. one: The model did not answer. two: The model did not answer.",
	}, one[*event.Error](b))
	require.Empty(t, b.moderator.asked)
}

func TestAFailedReviewIsKept(t *testing.T) {
	b := sit(t, nil, but("two", "review", always(fail("boom"))), nil)
	a := b.discuss("REST or gRPC?")
	require.Contains(t, a.Response, "Without a review: two. The model did not answer.")
	reviews := b.moderator.requests("synthesis")[0].Reviews
	require.Len(t, reviews, 2)
	require.Equal(t, "C", reviews[1].By)
}

// noConclusion is the beginning of a discussion's text if the moderator twice said what can be no conclusion.
const noConclusion = "There is no conclusion: the moderator chair failed. Twice it did not keep to the form that was " +
	"asked for. These are the answers as they were given.\n\nA (one):\nanswer by one\n"

func TestTheModeratorsForm(t *testing.T) {
	for name, test := range map[string]struct {
		said []string
		want string
	}{
		"in a fence":              {[]string{"```json\n" + synthesis + "\n```"}, "Take REST.\n\nKey points:"},
		"right at the second try": {[]string{"Well…", synthesis}, "Take REST.\n\nKey points:"},
		"lists may be empty":      {[]string{`{"conclusion":"Yes."}`}, "Yes.\n\nAnswered:"},
		"prose twice": {[]string{"REST, I think.", " REST, clearly.\n\nIt is cached."},
			"REST, clearly.\n\nIt is cached.\n\nAnswered: one (A), two (B). Moderator: chair."},
		"prose in which the form is":      {[]string{"Here: " + synthesis, "Here: " + synthesis}, noConclusion},
		"another object twice":            {[]string{`{"answer":"REST"}`, `{"answer":"REST"}`}, noConclusion},
		"another object in a fence twice": {[]string{"Well…", "```json\n[\"REST\"]\n```"}, noConclusion},
		"prose and then nothing":          {[]string{"REST, I think.", " "}, noConclusion},
		"an unknown member":               {[]string{`{"conclusion":"a","mood":"good"}`, synthesis}, "Take REST."},
		"words around the object":         {[]string{"Here: " + synthesis, synthesis}, "Take REST."},
		"a conclusion without words":      {[]string{`{"conclusion":" "}`, synthesis}, "Take REST."},
		"a member that is given twice":    {[]string{`{"conclusion":"a","conclusion":"b"}`, synthesis}, "Take REST."},
	} {
		t.Run(name, func(t *testing.T) {
			b := sit(t, nil, nil)
			b.moderator.answer = func(_ context.Context, r request) reply { return say(test.said[r.try-1]) }
			a := b.discuss("REST or gRPC?")
			require.Equal(t, event.Completed, a.Status)
			require.True(t, strings.HasPrefix(a.Response, test.want), a.Response)
			asked := b.moderator.requests("synthesis")
			require.Len(t, asked, len(test.said))
			if len(asked) == 2 {
				require.Equal(t, asked[0].Conversation, asked[1].Conversation, "a second try is the same session")
				require.Equal(t, test.said[0], asked[1].Messages[1].Content)
			}
		})
	}
}

func TestWithoutAModeratorTheAnswersAreShown(t *testing.T) {
	b := sit(t, nil, nil)
	b.moderator.answer = always(fail("boom"))
	a := b.discuss("REST or gRPC?")
	require.Equal(t, event.Completed, a.Status)
	require.Equal(t,
		`There is no conclusion: the moderator chair failed. The model did not answer. These are the answers as they were given.

A (one):
answer by one

B (two):
answer by two

Answered: one (A), two (B).`, a.Response)
}

// A model that asks for tools that it was not offered gets a second try, too.
func TestAnAnswerIsWords(t *testing.T) {
	b := sit(t, nil, func(ctx context.Context, r request) reply {
		if r.step == "answer" && r.try == 1 {
			return goodPlan("a plan that nobody wants")
		}
		return able("two")(ctx, r)
	})
	a := b.discuss("REST or gRPC?")
	require.Contains(t, a.Response, "Answered: one (A), two (B).")
	require.Len(t, b.members[1].requests("answer"), 2)
}

func TestASlowModelHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sit(t, nil, func(ctx context.Context, _ request) reply {
			<-ctx.Done()
			return reply{err: ctx.Err()}
		}, nil)
		b.config.Timeout = 90 * time.Second
		start := time.Now()
		a := b.discuss("REST or gRPC?")
		require.Equal(t, event.Completed, a.Status)
		require.Contains(t, a.Response, "Without an answer: two. It took longer than 1m30s.")
		require.Equal(t, 90*time.Second, time.Since(start), "nobody else waits for it afterwards")
	})
}

// The time of a session does not run while it waits for its turn.
func TestWaitingForATurnIsNotSlowness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patient := func(ctx context.Context, r request) reply {
			time.Sleep(time.Minute)
			return able("x")(ctx, r)
		}
		b := sit(t, patient, patient, patient, patient)
		b.config.Limit, b.config.Timeout = 1, 61*time.Second
		a := b.discuss("REST or gRPC?")
		require.Contains(t, a.Response, "Answered: one (A), two (B), three (C), four (D).")
	})
}

func TestAStopEndsEveryCallAtOnce(t *testing.T) {
	for _, step := range []string{"answer", "review", "synthesis", "plan", "vote"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				ended := make(chan string, 20)
				hang := func(ctx context.Context, r request) reply {
					<-ctx.Done()
					ended <- r.step
					return reply{err: ctx.Err()}
				}
				b := sit(t, but("one", step, hang), but("two", step, hang), but("three", step, hang))
				b.moderator.answer = but("moderator", step, hang)
				agent := panel.DiscussName
				if step == "plan" || step == "vote" {
					agent = panel.EnsembleName
				}
				go func() {
					synctest.Wait() // all that can be called is called
					cancel(subagent.ErrStopped)
				}()
				start := time.Now()
				a, err := b.run(ctx, agent, "REST or gRPC?")
				require.NoError(t, err)
				require.Equal(t, event.Stopped, a.Status)
				require.Equal(t, "(no answer: stopped)", one[*event.Completion](b).Response)
				require.Zero(t, time.Since(start))
				want := map[string]int{"answer": 3, "review": 3, "synthesis": 1, "plan": 3, "vote": 6}[step]
				require.Len(t, ended, want)
				require.False(t, strings.Contains(strings.Join(b.told(), "\n"), " failed "), "a stop is nobody's failure")
			})
		})
	}
}

func TestAStopEndsThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		hang := func(ctx context.Context, _ request) reply {
			<-ctx.Done()
			return reply{err: ctx.Err()}
		}
		b := sit(t, hang, hang, hang)
		b.config.Limit = 1
		go func() {
			synctest.Wait()
			cancel(subagent.ErrStopped)
		}()
		a, err := b.run(ctx, panel.DiscussName, "REST or gRPC?")
		require.NoError(t, err)
		require.Equal(t, event.Stopped, a.Status)
		require.Len(t, append(append(b.members[0].asked, b.members[1].asked...), b.members[2].asked...), 1)
	})
}

// What cannot be told ends the task with its calls, and the error comes back, be
// it that the next event could be told again.
func TestAnEventThatCannotBeToldEndsTheTask(t *testing.T) {
	broken := errors.New("nobody listens")
	for at := range 16 {
		b := sit(t, nil, nil, nil)
		n := 0
		b.refuse = func(event.Payload) error {
			if n++; n == at+1 {
				return broken
			}
			return nil
		}
		a, err := b.run(t.Context(), panel.DiscussName, "REST or gRPC?")
		require.ErrorIs(t, errors.Join(err, a.Err), broken, at)
	}
}

func TestAPanicIsTheCallers(t *testing.T) {
	b := sit(t, nil, func(context.Context, request) reply { panic("a model broke") })
	require.PanicsWithValue(t, "a model broke", func() { _, _ = b.run(t.Context(), panel.DiscussName, "?") })
}

// No more sessions than the limit run at once, over all tasks of a panel.
func TestTheLimitHoldsOverAllTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		busy := func(ctx context.Context, r request) reply {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return able("x")(ctx, r)
		}
		b := sit(t, busy, busy, busy, busy)
		b.config.Limit = 3
		b.moderator.answer = busy
		p, err := panel.New(b.config)
		require.NoError(t, err)
		other := sit(t)
		done := make(chan subagent.Outcome)
		go func() {
			a, _ := other.runOn(t.Context(), p, panel.EnsembleName, "another task")
			done <- a
		}()
		a, err := b.runOn(t.Context(), p, panel.DiscussName, "REST or gRPC?")
		require.NoError(t, err)
		for _, a := range []subagent.Outcome{a, <-done} {
			require.Equal(t, event.Completed, a.Status)
			require.NotContains(t, a.Response, "did not answer")
		}
		require.Equal(t, 3, most, "it holds, and it is used")
	})
}

func TestEightMembersHaveSixtyFourSessionsEightAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := func(ctx context.Context, r request) reply {
			time.Sleep(time.Second)
			return able("x")(ctx, r)
		}
		b := sit(t, busy, busy, busy, busy, busy, busy, busy, busy)
		start := time.Now()
		a := b.ensemble("Move the API")
		require.Equal(t, 8*time.Second, time.Since(start), "one second of plans, seven of votes")
		require.EqualValues(t, 64*10, a.Usage.InputTokens)
		require.Equal(t, 56, strings.Count(a.Response, "\n- "))
	})
}

// A follow-up refers to the conclusions before it; they are not without end.
func TestMembersSeeThePanelsEarlierConclusions(t *testing.T) {
	b := sit(t, nil, nil)
	for i := range 5 {
		b.history = append(b.history,
			memory.Message{Role: memory.RoleUser, Content: fmt.Sprintf("question %d", i)},
			memory.Message{Role: memory.RoleAssistant, Content: fmt.Sprintf("conclusion %d %s", i, strings.Repeat("x", 20_000))})
	}
	b.discuss("And the second option?")
	for _, m := range append(b.members, b.moderator) {
		for _, q := range m.asked {
			require.Len(t, q.Messages, 7)
			require.Equal(t, "question 2", q.Messages[0].Content)
			require.True(t, strings.HasPrefix(q.Messages[5].Content, "conclusion 4 "))
			require.Less(t, len(q.Messages[5].Content), 9_000)
		}
	}
}

func TestLongAnswersAreCutForTheOthers(t *testing.T) {
	b := sit(t, always(say(strings.Repeat("я", 100_000))), nil)
	b.discuss("REST or gRPC?")
	got := b.members[1].requests("review")[0].Answers[0].Answer
	require.LessOrEqual(t, len(got), 32<<10)
	require.True(t, strings.HasSuffix(got, "я…"))
	for _, line := range b.told() {
		require.Less(t, len(line), 33<<10)
	}
}

func TestAResultIsBounded(t *testing.T) {
	b := sit(t, nil, nil)
	b.moderator.answer = always(say(`{"conclusion":"` + strings.Repeat("x", 2<<20) + `"}`))
	require.LessOrEqual(t, len(b.discuss("REST or gRPC?").Response), 512<<10)
}

func TestWrongQuestions(t *testing.T) {
	for question, want := range map[string]*event.Error{
		" \n": {
			Code: "question_empty", Message: "The question is empty: say what the panel is to work on.",
		},
		strings.Repeat("x", panel.MaxQuestion+1): {
			Code:    "question_too_long",
			Message: "A panel takes a question of at most 32768 bytes, this one has 32769: shorten it.",
		},
	} {
		for _, agent := range []memory.Agent{panel.DiscussName, panel.EnsembleName} {
			b := sit(t, nil, nil)
			a, err := b.run(t.Context(), agent, question)
			require.NoError(t, err)
			require.Equal(t, event.Failed, a.Status)
			require.Equal(t, want, one[*event.Error](b))
			require.Empty(t, b.members[0].asked)
		}
	}
}

func TestWrongPanels(t *testing.T) {
	m := func(names ...string) (members []panel.Member) {
		for _, n := range names {
			members = append(members, panel.Member{Name: n, Model: &model{}})
		}
		return members
	}
	chair := panel.Member{Name: "chair", Model: &model{}}
	for want, c := range map[string]panel.Config{
		"a panel has 2 to 8 members, not 1": {Members: m("a"), Moderator: chair},
		"a panel has 2 to 8 members, not 9": {Members: m("a", "b", "c", "d", "e", "f", "g", "h", "i"),
			Moderator: chair},
		`a panel has two members named "a"; every name stands once`: {Members: m("a", "b", "a"), Moderator: chair},
		"a member of a panel needs a name and a model":              {Members: m("a", ""), Moderator: chair},
		"a panel's moderator needs a name and a model":              {Members: m("a", "b")},
		"a panel's limit and timeout must be more than 0":           {Members: m("a", "b"), Moderator: chair, Limit: -1},
	} {
		_, err := panel.New(c)
		require.EqualError(t, err, want)
	}
}
