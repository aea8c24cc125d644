package chat_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/chat"
	"mneme/internal/webtest"
	"mneme/memory/event"
)

// waits is a run that waits for a person, and finishes with what was answered.
func waits(list ...event.Wait) func(*webtest.Run) {
	return func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat, Message: r.Message}, &event.RunWaiting{Waits: list})
		answers := <-r.Answers
		said, _ := json.Marshal(answers)
		r.Emit(&event.RunResumed{Answers: answers}, &event.Assistant{Content: string(said)},
			&event.RunFinished{Outcome: event.Completed})
	}
}

var refund = event.Wait{ID: "w1", Kind: event.Approval, Subagent: "billing", Tool: "refund",
	Arguments: json.RawMessage(`{"amount":5}`), Reason: "it is configured so"}

func interactive(o *chat.Options) { o.Interactive = true }

func TestAPersonIsAskedInPlace(t *testing.T) {
	question := event.Wait{ID: "w2", Kind: event.Question, Tool: "book", Arguments: json.RawMessage(`{}`), Reason: "Which day?",
		Schema: json.RawMessage(`{"properties":{"day":{"type":"string"},"people":{"type":"integer"},"note":{"type":"string"}},"required":["day"]}`)}
	own := event.Wait{ID: "w3", Kind: event.ClientResult, Tool: "door", Arguments: json.RawMessage(`{}`)}
	for name, c := range map[string]struct {
		waits        []event.Wait
		input, wants string
	}{
		"yes":                      {[]event.Wait{refund}, "hm\ny\n", `[{"id":"w1","decision":"approve"}]`},
		"no":                       {[]event.Wait{refund}, "no\n", `[{"id":"w1","decision":"deny"}]`},
		"edit":                     {[]event.Wait{refund}, "e\n[1]\n{\"amount\":1}\n", `[{"id":"w1","decision":"edit","arguments":{"amount":1}}]`},
		"an edit that is given up": {[]event.Wait{refund}, "e\n\nn\n", `[{"id":"w1","decision":"deny"}]`},
		"a form": {[]event.Wait{question}, "May 5\ntwo\n2\n\n",
			`[{"id":"w2","decision":"approve","result":{"day":"May 5","people":2}}]`},
		"no answer to a form": {[]event.Wait{question}, "\n", `[{"id":"w2","decision":"deny"}]`},
		"a result":            {[]event.Wait{own}, "it is open\n", `[{"id":"w3","decision":"approve","result":"it is open"}]`},
		"all of them": {[]event.Wait{refund, own}, "y\n{\"ok\":true}\n",
			`[{"id":"w1","decision":"approve"},{"id":"w3","decision":"approve","result":{"ok":true}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, webtest.New(t, waits(c.waits...)), "hi\n"+c.input, interactive)
			require.NoError(t, err)
			require.Contains(t, out, c.wants)
		})
	}
	out, err := run(t, webtest.New(t, waits(refund)), "hi\ny\n", interactive)
	require.NoError(t, err)
	require.Contains(t, out, `⏸ billing · refund {"amount":5} · it is configured so`)
}

// A run that was left waiting is asked about when its chat is entered, and by a command.
func TestARunIsLeftWaiting(t *testing.T) {
	s := webtest.New(t, waits(refund))
	_, err := run(t, s, "hi\n", interactive) // the input ends where it asks
	require.NoError(t, err)
	out, err := run(t, s, "y\n/answer\n", interactive)
	require.NoError(t, err)
	require.Contains(t, out, `"decision":"approve"`)
	require.Contains(t, out, "no run of this chat waits")
}

func TestWhoPipesCannotAnswer(t *testing.T) {
	s := webtest.New(t, waits(refund))
	_, err := run(t, s, "hi\n", nil)
	require.ErrorContains(t, err, "waits for an answer")
	// So that the run ends with the test.
	_, err = run(t, s, "n\n", interactive)
	require.NoError(t, err)
}
