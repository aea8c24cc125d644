package redisstore_test

import (
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// Which user a chat is of alone is known from its first post on, and a chat from before that was noted is of none; the
// next holder of a run knows its user. So it is over one server and over a Cluster.
func TestUsers(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T) redis.UniversalClient{
		"one server": func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.Start(t).Client() },
		"cluster": func(t *testing.T) redis.UniversalClient {
			t.Helper()
			testtier.Slow(t)
			return redistest.StartCluster(t).Client()
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t)
			s := redisstore.New(client, zerolog.Nop())
			ann, err := memory.Tenant{}.User("ann")
			require.NoError(t, err)
			bob, err := memory.Tenant{}.User("bob")
			require.NoError(t, err)
			post := func(id string, u memory.User) redisstore.Loss {
				t.Helper()
				chat := memory.MustChat(id)
				turn, err := s.Turns.Take(ctx, chat, "token", "c", time.Minute)
				require.NoError(t, err)
				run := redisstore.OpenRun{Run: "r", Turn: turn.Number, User: u, Posted: true}
				loss, err := s.Turns.Open(ctx, chat, "token", time.Minute, run)
				require.NoError(t, err)
				run.Posted = false
				_, err = s.Turns.Open(ctx, chat, "token", time.Minute, run) // as when its place is noted
				require.NoError(t, err)
				require.NoError(t, s.Turns.Leave(ctx, chat, "token"))
				turn, err = s.Turns.Take(ctx, chat, "next", "c", time.Minute)
				require.NoError(t, err)
				require.Equal(t, u, turn.Open.User)
				require.NoError(t, s.Turns.Release(ctx, chat, "next"))
				return loss
			}
			require.Empty(t, post("own", ann).UserNotes)
			n := memory.Note{ID: "n1", Text: "a", State: memory.NoteActive, Chat: "own", TS: 7}
			require.NoError(t, s.Users.ChangeNotes(ctx, ann, adding(n)))
			require.Equal(t, []memory.Note{n}, post("own", ann).UserNotes)
			require.Empty(t, post("both", bob).UserNotes)
			post("both", ann)
			post("nobodys", memory.User{})
			post("nobodys", ann)
			require.NoError(t, client.HSet(ctx, "{chat_history:before}:meta", "s:analytic", "1").Err())
			post("before", ann)

			page, all, err := s.Users.PostedBy(ctx, ann, math.MaxInt64, 0, 10)
			require.NoError(t, err)
			require.Equal(t, 4, all)
			alone := map[string]bool{}
			for _, p := range page {
				is, there, err := s.Users.PostedAlone(ctx, ann, p.Chat)
				require.NoError(t, err)
				require.True(t, there)
				alone[p.Chat.ID()] = is
			}
			require.Equal(t, map[string]bool{"own": true, "both": false, "nobodys": false, "before": false}, alone)

			own := memory.MustChat("own")
			require.NoError(t, s.Users.PostedLike(ctx, memory.MustChat("fork"), own))
			require.NoError(t, s.Users.PostedLike(ctx, memory.MustChat("fork"), own), "as when the first attempt failed")
			is, _, err := s.Users.PostedAlone(ctx, ann, memory.MustChat("fork"))
			require.NoError(t, err)
			require.True(t, is)
			require.NoError(t, s.Users.PostedLike(ctx, memory.MustChat("both"), own))
			is, _, err = s.Users.PostedAlone(ctx, ann, memory.MustChat("both"))
			require.NoError(t, err)
			require.False(t, is, "bob was there before")

			post("own", ann)
			for _, p := range page { // seen before the user posted once more
				require.NoError(t, s.Users.Unpost(ctx, ann, p))
			}
			left, all, err := s.Users.PostedBy(ctx, ann, math.MaxInt64, 0, 10)
			require.NoError(t, err)
			require.Len(t, left, all)
			require.NotEmpty(t, left)
			turn, err := s.Turns.Take(ctx, own, "token", "c", time.Minute)
			require.NoError(t, err)
			require.ErrorIs(t, s.Users.NoteOfUser(ctx, turn.Number-1, own, ann), memory.ErrMoved)
			require.NoError(t, s.Users.NoteOfUser(ctx, turn.Number, own, ann))
			gone, err := s.Users.VoidNotes(ctx, own, func(memory.Note) bool { return true })
			require.NoError(t, err)
			require.Equal(t, 1, gone)
			require.NoError(t, s.EraseChat(ctx, turn.Number, own, memory.ChatKey(own)))
			require.ErrorIs(t, client.ZScore(ctx, "mneme:user-chats:ann", "own").Err(), redis.Nil)
		})
	}
}
