package redisstore_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// However a zombie's first message to a subagent and the next turn fall together:
// either the new turn sees the message, or it is refused. Never is it stored behind
// what the new turn has read.
func TestAFirstMessageRacesTheNextTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 200 {
		chat := memory.MustChat(fmt.Sprint(i))
		key := memory.SubagentKey("analytic", chat)
		old, err := w.Turns.Take(ctx, chat, "old", "c", 15*time.Second)
		require.NoError(t, err)
		require.NoError(t, w.Turns.Leave(ctx, chat, "old")) // its lease is over, and it does not know
		var race sync.WaitGroup
		var late error
		var seen []string
		race.Go(func() {
			_, late = w.Append(ctx, memory.Empty(key), memory.Mark{Run: "Z", Seq: 1, Turn: old.Number}, said(1))
		})
		race.Go(func() {
			turn, err := w.Turns.Take(ctx, chat, "new", "c", 15*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			for _, agent := range turn.Agents {
				seen = contents(t, loadFrom(t, w, turn.Number, memory.Empty(memory.SubagentKey(agent, chat))))
			}
		})
		race.Wait()
		stored := contents(t, loadFrom(t, w, 0, memory.Empty(key)))
		if late != nil {
			require.True(t, errors.Is(late, memory.ErrMoved), late)
			require.Empty(t, stored)
			continue
		}
		require.Equal(t, []string{"1"}, stored)
		require.Equal(t, stored, seen, "the new turn knows what was taken")
	}
}
