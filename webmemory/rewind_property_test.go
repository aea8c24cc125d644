package webmemory_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
)

// pair are the histories of a chat as the model of this test knows them: the lines of its export.
type pair struct{ own, analytic []string }

func (p pair) text() string {
	if len(p.own) == 0 {
		return ""
	}
	all := slices.Concat(p.own, p.analytic)
	return fmt.Sprintf("%s\n{\"messages\":%d}\n", strings.Join(all, "\n"), len(all))
}

// taken is a rewind that can be undone: the chat as it was, and as it was left.
type taken struct {
	id           string
	before, left pair
}

// A chat that is said to, goes back, is put back, forked and exported, by one process or the other, is what a
// list is that is cut and put together; and what is stored can always be shown to a model.
func TestRewindsAgainstAModel(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand)
	urls := []string{w.URL, w.StartReplica(sixAtHand)}
	seed := rand.Uint64()
	t.Log("seed", seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	between := func(low, high int) int { return low + draw.IntN(high-low+1) }
	steps := 160
	if testing.Short() {
		steps = 40
	}
	for round := range steps / 8 {
		chat := fmt.Sprintf("chat%d-0", round)
		var is pair
		var asides []taken
		forks := 0
		for range 8 {
			w.Target(urls[draw.IntN(len(urls))], func() {
				switch []string{"say", "say", "rewind", "rewind", "restore", "fork"}[draw.IntN(6)] {
				case "say":
					talk(t, w, chat, 0, between(1, 5))
					got := strings.Split(strings.TrimSpace(exportChat(t, w, chat)), "\n")
					cut := slices.IndexFunc(got, func(l string) bool { return strings.HasPrefix(l, `{"subagent"`) })
					now := pair{got[:cut], got[cut : len(got)-1]}
					require.True(t, slices.Equal(is.own, now.own[:len(is.own)]))
					require.True(t, slices.Equal(is.analytic, now.analytic[:len(is.analytic)]))
					is = now
				case "rewind":
					if len(is.own) == 0 {
						return
					}
					n, to := between(-1, len(is.own)-1), ""
					keep := 0
					if n >= 0 {
						to, keep = messageID(t, w, chat, n), n/2+1 // exchanges of two messages in both histories
					}
					done := rewindChat(t, w, chat, to)
					left := pair{slices.Clip(is.own[:2*keep]), slices.Clip(is.analytic[:2*keep])}
					if keep == 0 {
						left = pair{}
					}
					require.Equal(t, 2*(len(is.own)-len(left.own)), done.Messages)
					if done.Messages > 0 {
						asides = append(asides, taken{done.ID, is, left})
						asides = asides[max(len(asides)-8, 0):]
					}
					is = left
				case "restore":
					if len(asides) == 0 {
						return
					}
					i := between(0, len(asides)-1)
					if asides[i].left.text() != is.text() {
						restoreAside(t, w, chat, asides[i].id, http.StatusConflict)
						return
					}
					restoreAside(t, w, chat, asides[i].id, http.StatusOK)
					is = asides[i].before
					asides = slices.Delete(asides, i, i+1)
				case "fork":
					forks++
					as := fmt.Sprintf("chat%d-%d", round, forks)
					status, got := w.Do("POST", "/v1/chats/"+chat+"/fork", fmt.Sprintf(`{"as":%q}`, as)).Text()
					if len(is.own) == 0 {
						require.Equal(t, 404, status, got)
						return
					}
					require.Equal(t, 201, status, got)
					chat, asides = as, nil
				}
			})
			for _, url := range urls {
				w.Target(url, func() { require.Equal(t, is.text(), exportChat(t, w, chat)) })
			}
			require.Len(t, listAsides(t, w, chat), len(asides))
			for _, key := range []string{"chat_history:", "subagent:analytic:"} {
				raw, err := w.Redis.Get(t.Context(), key+chat).Bytes()
				if len(is.own) == 0 {
					require.Error(t, err)
					continue
				}
				require.NoError(t, err)
				var messages []memory.Message
				require.NoError(t, json.Unmarshal(raw, &messages))
				sent, _ := memory.Repair(messages)
				require.Len(t, sent, min(len(is.own), len(messages)), "nothing needs a repair")
			}
		}
	}
}
