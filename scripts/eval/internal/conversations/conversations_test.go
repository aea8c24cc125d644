package conversations

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fixed answers every question with the same hits, best first.
type fixed struct {
	hits     []Hit
	imported []string
	err      error
}

func (f *fixed) Import(_ context.Context, c Conversation) error {
	f.imported = append(f.imported, c.ID)
	return nil
}

func (f *fixed) Ask(context.Context, Question, float64, int) ([]Hit, error) { return f.hits, f.err }

func garden(t *testing.T) *Set {
	s, err := Load(filepath.Join("testdata", "garden"))
	require.NoError(t, err)
	return s
}

func TestASetIsRead(t *testing.T) {
	s := garden(t)
	require.Len(t, s.Conversations, 2)
	assert.Equal(t, "ada", s.Conversations[0].ID)
	assert.Len(t, s.Conversations[0].Messages, 10)
	assert.Len(t, s.Questions, 5, "one names no evidence")
	assert.Equal(t, "Ada", s.Conversations[0].Messages[0].Name)
}

func TestAFaultySetIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ conversation, questions, why string }{
		"nothing":         {"", "", "no messages"},
		"no JSON":         {"nonsense", "", "c.jsonl:1:"},
		"one id twice":    {`{"id":"1","role":"user"}` + "\n" + `{"id":"1","role":"user"}`, "", "c.jsonl:2:"},
		"no question":     {`{"id":"1","role":"user"}`, "", "no question that names evidence"},
		"foreign message": {`{"id":"1","role":"user"}`, `{"conversation":"c","evidence":["2"]}`, `no message "2"`},
		"foreign chat":    {`{"id":"1","role":"user"}`, `{"conversation":"d","evidence":["1"]}`, `"d" has no message`},
	} {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "conversations"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "conversations", "c.jsonl"), []byte(c.conversation), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "questions.jsonl"), []byte(c.questions), 0o600))
		_, err := Load(dir)
		assert.ErrorContains(t, err, c.why, name)
	}
	_, err := Load(t.TempDir())
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestWhatCountsAsFound(t *testing.T) {
	long := strings.Repeat("Жизнь прожить – не поле перейти. ", 40)
	piece := string([]rune(long)[100:700])
	assert.True(t, matches("short", "in a short text"))
	assert.False(t, matches("short text", "short"))
	assert.True(t, matches(long, long))
	assert.True(t, matches(long, piece))
	assert.True(t, matches(long, "before "+piece+" behind"))
	assert.False(t, matches(long, string([]rune(piece)[1:])), "599 characters")
	assert.False(t, matches(long, string([]rune(piece)[:300])+"!"+string([]rune(piece)[300:])), "in two pieces")
}

func TestTheBudgetEndsAtTheFirstThatDoesNotFit(t *testing.T) {
	hits := []Hit{{Text: "яблоко!!"}, {Text: "пять5"}, {Text: "x"}}
	assert.Len(t, fitting(hits, 4), 3)
	assert.Len(t, fitting(hits, 3), 1)
	assert.Empty(t, fitting(hits, 1))
}

func TestMeasures(t *testing.T) {
	text := func(i int) string { return garden(t).Conversations[0].Messages[i].Text }
	f := &fixed{hits: []Hit{{"m0", text(0)}, {"m1", text(1)}, {"m5", text(5)}}}
	r, err := Run(t.Context(), garden(t), f, nil, nil, func(string) {})
	require.NoError(t, err)
	assert.Equal(t, []string{"ada", "zoya"}, f.imported)

	encoded, err := json.Marshal(r)
	require.NoError(t, err)
	type figures struct {
		Questions   int
		Budgets     map[string]Share
		R1, R5, MRR float64
	}
	var got struct {
		figures
		Kinds     map[string]figures
		Baselines struct {
			Window map[string]Share
			BM25   map[string]json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(encoded, &got))
	assert.Equal(t, 5, got.Questions)
	assert.Equal(t, Share{AnyFound: 0.4, AllFound: 0.4}, got.Budgets["800"])
	assert.InDelta(t, 0.2, got.R1, 1e-9)
	assert.InDelta(t, 0.4, got.R5, 1e-9)
	assert.InDelta(t, (1+0.5)/5, got.MRR, 1e-9)
	assert.Equal(t, Share{AnyFound: 1, AllFound: 1}, got.Kinds["multi"].Budgets["500"])
	assert.InDelta(t, 0.5, got.Kinds["multi"].MRR, 1e-9)
	assert.Equal(t, 3, got.Kinds["single"].Questions)
	assert.Equal(t, Share{AnyFound: 0.6, AllFound: 0.6}, got.Baselines.Window["500"], "a long message ends it")
	assert.Equal(t, Share{AnyFound: 1, AllFound: 1}, got.Baselines.Window["4000"])
	assert.JSONEq(t, `{"any":0.8,"all":0.6}`, string(got.Baselines.BM25["800"]))
	assert.Contains(t, got.Baselines.BM25, "r5")

	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	assert.Contains(t, b.String(), "all        5  recall  0.400/0.400  0.400/0.400  0.400/0.400   0.400/0.400   0.200")
	assert.Regexp(t, `any@800 +0.400  \[0.000, 0.800\]  -0.400  \[-0.800, \+0.000\]`, b.String())
	assert.NotContains(t, b.String(), "longer than")
}

func TestAnswersAboveTheirBudgetAreNamed(t *testing.T) {
	long := &fixed{hits: []Hit{{"m0", strings.Repeat("x", 2001)}}}
	r, err := Run(t.Context(), garden(t), long, nil, nil, func(string) {})
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	assert.Contains(t, b.String(), "5 answers were longer than their budget.")
}

func TestAFailedQuestionEndsTheRun(t *testing.T) {
	_, err := Run(t.Context(), garden(t), &fixed{err: errors.New("out of order")}, nil, nil, func(string) {})
	assert.ErrorContains(t, err, "question q0: out of order")
}
