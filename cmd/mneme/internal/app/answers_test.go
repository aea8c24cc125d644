package app_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory"
	"mneme/memory/event"
)

// reader is a model that searches for what it is asked and then says what it was
// told to say.
func reader(t *testing.T, say string) string {
	s := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat,
		Answer: func(r *upstreamtest.Request) *upstreamtest.Answer {
			a := upstreamtest.Reply(upstreamtest.Say(say))
			if len(r.Results) == 0 {
				query, _ := json.Marshal(map[string]string{"query": r.User})
				a = upstreamtest.Reply(upstreamtest.Use("search_documents", string(query)))
			}
			return &a
		}})
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL + "/v1"
}

// What a subagent concluded from documents reaches a bot as data: in the
// completion of the stream, also when it is read again, and in the answer of a
// post that waits.
func TestAnswersFromDocumentsAsData(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	quote := "A ferry ticket costs 14 crowns."
	for want, test := range map[string]struct {
		say     string
		cites   bool
		missing []string
	}{
		event.Answered: {"It costs 14 crowns [1].\nstatus: answered", true, []string{}},
		event.Partial: {"It costs 14 crowns [1].\nstatus: partial\nmissing: the way back", true, []string{
			"the way back",
		}},
		event.NotFound:       {"The documents do not say it.\nstatus: not_found", false, []string{}},
		event.Underspecified: {"Which ferry do you mean?\nstatus: underspecified", false, []string{}},
	} {
		t.Run(want, func(t *testing.T) {
			u := start(t, scriptedModel{otherwise: "knowledge"}.environ(t, "MNEME_DATA_DIR="+t.TempDir(),
				backend("model", "openai", reader(t, test.say)),
				"MNEME_PROXY_TEAMMATES={knowledge: model}")...)
			u.load(map[string]string{"ferry.md": quote})
			check := func(a *event.Answer) {
				t.Helper()
				require.NotNil(t, a)
				require.Equal(t, want, a.Status)
				require.Equal(t, test.missing, a.Missing)
				require.NotContains(t, a.Answer, "status:")
				if !test.cites {
					require.Empty(t, a.Citations)
					return
				}
				require.Len(t, a.Citations, 1)
				c := a.Citations[0]
				require.Equal(t, event.Citation{N: 1, PassageID: "ferry.md#0", DocID: "ferry.md", Title: c.Title, Source: c.Source,
					Quote: quote, Start: c.Start, End: c.Start + len(quote)}, c)
			}
			const question = "How much does a ferry ticket cost?"
			completion := func(events []event.Event) *event.Completion {
				for _, e := range events {
					if c, ok := e.Payload.(*event.Completion); ok {
						return c
					}
				}
				t.Fatal("no completion")
				return nil
			}
			events := u.stream("1", question)
			check(completion(events).Answer)
			_, raw := u.request("GET", "/v1/chats/1/runs/"+events[0].RunID+"/events", "", "")
			check(completion(transcript(t, raw)).Answer)

			body, err := json.Marshal(map[string]string{"message": question})
			require.NoError(t, err)
			status, raw := u.request("POST", "/v1/chats/2/messages", "application/json", string(body))
			require.Equal(t, http.StatusOK, status, raw)
			var whole struct {
				Answers []struct {
					Subagent memory.Agent `json:"subagent"`
					event.Answer
				}
			}
			require.NoError(t, json.Unmarshal([]byte(raw), &whole))
			require.Len(t, whole.Answers, 1)
			require.Equal(t, memory.Agent("knowledge"), whole.Answers[0].Subagent)
			check(&whole.Answers[0].Answer)
		})
	}
}

const twoReaders = `
proxy:
  teammates: {knowledge: model, archive: model}
agents:
  subagents:
    - {name: analytic}
    - {name: knowledge}
    - {name: archive, description: Knows what stands in the archive, system: You read the archive., collections: [archive]}
`

// The passages of one message are numbered over all subagents that it is given to.
func TestCitationsOfTwoSubagentsAreToldApart(t *testing.T) {
	const question = "What does a ferry ticket cost, and when does the bridge open?"
	master := scriptedModel{
		tasks: map[string][]task{
			question: {{"knowledge", "What does a ferry ticket cost?"}, {"archive", "When does the bridge open?"}},
		},
	}
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mneme.yaml", []byte(twoReaders), 0o600))
	u := start(t, master.environ(t, backend("model", "openai", reader(t, "So it is [1]. And so [2].")))...)
	u.load(map[string]string{"ferry.md": "A ferry ticket costs 14 crowns."})
	status, body := u.request("PUT", "/v1/collections/archive", "", "")
	require.Equal(t, http.StatusCreated, status, body)
	status, body = u.request("PUT", "/v1/collections/archive/documents/bridge.md", "text/markdown",
		"The bridge opens at two.")
	require.Equal(t, http.StatusCreated, status, body)
	a := u.ask("1", question)
	require.Len(t, a.Citations, 2, a.Content)
	require.Equal(t, "ferry.md", a.Citations[0].DocID)
	require.Equal(t, 1, a.Citations[0].N)
	require.Equal(t, "bridge.md", a.Citations[1].DocID)
	require.Equal(t, 2, a.Citations[1].N)
}
