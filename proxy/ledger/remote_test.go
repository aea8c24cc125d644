package ledger_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/internal/testtier"
	"mneme/proxy/ledger"
)

// remote is a ledger.Remote of functions; one that is nil succeeds with nothing.
type remote struct {
	save  func(ctx context.Context, entries []ledger.Entry) ([]ledger.Mark, error)
	load  func(ctx context.Context, q ledger.Query) (ledger.Loaded, error)
	beats bool // load is also what answers when the ledger asks for erasures, once a second
	erase func(ctx context.Context, e ledger.Erasure) error
	keep  func(conversation string, until time.Time) error
}

func (r remote) Save(ctx context.Context, entries []ledger.Entry) ([]ledger.Mark, error) {
	if r.save == nil {
		return nil, nil
	}
	return r.save(ctx, entries)
}

func (r remote) Load(ctx context.Context, q ledger.Query) (ledger.Loaded, error) {
	if r.load == nil || !q.ErasedSince.IsZero() && !r.beats {
		return ledger.Loaded{}, nil
	}
	return r.load(ctx, q)
}

func (r remote) Erase(ctx context.Context, e ledger.Erasure) error {
	if r.erase == nil {
		return nil
	}
	return r.erase(ctx, e)
}

func (r remote) Keep(_ context.Context, _, conversation string, until time.Time) error {
	if r.keep == nil {
		return nil
	}
	return r.keep(conversation, until)
}

var errAway = errors.New("away")

// open is a ledger that is closed with the test, whether or not all was saved.
func open(t *testing.T, c ledger.Config) *ledger.Ledger {
	t.Helper()
	l := ledger.New(c)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = l.Close(ctx)
		goleak.VerifyNone(t, goleak.IgnoreCurrent())
	})
	return l
}

func TestAnAbsentRemoteIsNotAskedByEveryRequest(t *testing.T) {
	var asked, warned atomic.Int64
	log := zerolog.New(io.Discard).Hook(zerolog.HookFunc(func(_ *zerolog.Event, level zerolog.Level, _ string) {
		if level == zerolog.WarnLevel {
			warned.Add(1)
		}
	}))
	l := open(t, ledger.Config{Log: log, Patience: time.Hour, Remote: remote{
		load: func(context.Context, ledger.Query) (ledger.Loaded, error) {
			asked.Add(1)
			return ledger.Loaded{}, errAway
		},
		save: func(context.Context, []ledger.Entry) ([]ledger.Mark, error) { return nil, errAway },
	}})
	require.Nil(t, replayOne(t, l, alice, opus, storedTurn).Turn)
	require.True(t, l.Degraded())
	require.Positive(t, warned.Load())
	l.Record(t.Context(), answer(alice, opus, storedTurn))
	require.True(t, replayOne(t, l, alice, opus, storedTurn).Same)
	before := asked.Load()
	for range 100 {
		replayOne(t, l, chat(7), opus, storedTurn)
	}
	require.LessOrEqual(t, asked.Load()-before, int64(50), "a beat in between lets one try again")
	require.LessOrEqual(t, warned.Load(), int64(52), "and is worth a line")
}

func TestAClientThatLeavesSaysNothingOfTheRemote(t *testing.T) {
	testtier.Slow(t)
	l := open(t, ledger.Config{Remote: remote{beats: true, load: func(ctx context.Context, _ ledger.Query) (ledger.Loaded,
		error) {
		<-ctx.Done()
		return ledger.Loaded{}, ctx.Err()
	}}})
	left, cancel := context.WithCancel(t.Context())
	cancel()
	l.Judge(left, ledger.Request{Scope: alice, Target: opus, Dialect: "messages",
		Outline: outline(t, assistant(storedTurn))})
	require.False(t, l.Degraded())
	replayOne(t, l, alice, opus, storedTurn) // waits for as long as it may
	require.True(t, l.Degraded())
}

// A conversation comes from another process, and Redis answers later than a request may wait for it otherwise.
func TestAConversationOfAnotherProcessIsWaitedFor(t *testing.T) {
	turn := answer(alice, opus, storedTurn)
	turn.Time = time.Now()
	l := open(t, ledger.Config{Patience: time.Millisecond,
		Remote: remote{load: func(ctx context.Context, _ ledger.Query) (ledger.Loaded, error) {
			select {
			case <-ctx.Done():
				return ledger.Loaded{}, ctx.Err()
			case <-time.After(20 * time.Millisecond):
				return ledger.Loaded{Chunks: []ledger.Chunk{{Mark: ledger.Mark{Born: "b", Last: 1},
					Entries: []ledger.Entry{{Scope: alice, Time: turn.Time, Turn: &turn}}}}}, nil
			}
		}}})
	require.True(t, replayOne(t, l, alice, opus, storedTurn).Same)
	require.False(t, l.Degraded())
}

// A client that has a conversation kept goes on with it in another process, maybe after this one is gone.
func TestAConversationThatIsKeptIsSaved(t *testing.T) {
	goOn := make(chan struct{})
	var saved atomic.Int64
	l := open(t, ledger.Config{Patience: time.Millisecond,
		Remote: remote{save: func(ctx context.Context, entries []ledger.Entry) ([]ledger.Mark, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-goOn:
				saved.Add(int64(len(entries)))
				return nil, nil
			}
		}}})
	l.Record(t.Context(), answer(alice, opus, storedTurn))
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	until := time.Now().Add(time.Hour)
	require.ErrorIs(t, l.Keep(soon, alice.Tenant, alice.Conversation, until), context.DeadlineExceeded)
	require.NoError(t, l.Keep(t.Context(), alice.Tenant, "another", until))
	close(goOn)
	require.NoError(t, l.Keep(t.Context(), alice.Tenant, alice.Conversation, until))
	require.EqualValues(t, 1, saved.Load())
}

func TestNothingIsAskedThatIsKnown(t *testing.T) {
	var asked []ledger.Query
	l := open(t,
		ledger.Config{Patience: time.Hour,
			Remote: remote{load: func(_ context.Context, q ledger.Query) (ledger.Loaded, error) {
				asked = append(asked, q)
				return ledger.Loaded{Chunks: []ledger.Chunk{{Mark: ledger.Mark{Born: "b", Last: int64(len(asked))}}}}, nil
			}}})
	replay(t, l, alice, opus, user(`"hi"`))
	require.Empty(t, asked, "nothing was answered yet")
	l.Record(t.Context(), answer(alice, opus, storedTurn))
	for range 5 {
		require.True(t, replayOne(t, l, alice, opus, storedTurn).Same)
	}
	require.Len(t, asked, 1, "another process may have had the conversation before")
	replayOne(t, l, alice, opus, content(thinking("elsewhere", "sigE")))
	require.Equal(t, []ledger.Position{{Scope: alice, Mark: ledger.Mark{Born: "b", Last: 1}}}, asked[1].Scopes,
		"only what is new")
}

func TestWhatWaitsIsBounded(t *testing.T) {
	l := open(t, ledger.Config{Remote: remote{
		save: func(context.Context, []ledger.Entry) ([]ledger.Mark, error) { return nil, errAway },
	}})
	done, cancel := context.WithCancel(t.Context())
	cancel() // so that no call waits
	for i := range 5000 {
		l.Record(done, numbered(chat(i%50), i))
	}
	s := l.Stats()
	require.LessOrEqual(t, s.Waiting, 4096)
	require.EqualValues(t, 5000, int64(s.Waiting)+s.Dropped)
	require.True(t, holds(t, l, numbered(chat(0), 0)), "memory has it")
}

func TestForgetReachesWhatWaits(t *testing.T) {
	testtier.Slow(t)
	var away atomic.Bool
	away.Store(true)
	var got atomic.Int64
	l := open(t, ledger.Config{Remote: remote{
		save: func(_ context.Context, entries []ledger.Entry) ([]ledger.Mark, error) {
			if away.Load() {
				return nil, errAway
			}
			for _, e := range entries {
				if e.Scope == alice {
					t.Error("an erased turn was saved")
				}
			}
			got.Add(int64(len(entries)))
			return nil, nil
		},
		erase: func(context.Context, ledger.Erasure) error { return errAway },
	}})
	l.Record(t.Context(), answer(alice, opus, storedTurn))
	l.Record(t.Context(), answer(chat(1), opus, storedTurn))
	require.ErrorIs(t, l.Forget(t.Context(), alice.Tenant, alice.Conversation), errAway)
	require.Equal(t, 1, l.Stats().Waiting)
	away.Store(false)
	require.NoError(t, l.Close(t.Context()))
	require.EqualValues(t, 1, got.Load())
}

// A request was reading from the remote while its conversation was erased.
func TestAnErasureHoldsAgainstALateReader(t *testing.T) {
	old := answer(alice, opus, storedTurn)
	old.Time = time.Now().Add(-time.Minute)
	var l *ledger.Ledger
	l = open(t,
		ledger.Config{Patience: time.Hour,
			Remote: remote{load: func(ctx context.Context, _ ledger.Query) (ledger.Loaded, error) {
				if err := l.Forget(ctx, alice.Tenant, alice.Conversation); err != nil {
					return ledger.Loaded{}, err
				}
				return ledger.Loaded{Chunks: []ledger.Chunk{{Mark: ledger.Mark{Born: "b", Last: 2}, Entries: []ledger.Entry{
					{Scope: alice, Time: old.Time, Turn: &old}, {Scope: alice, Time: old.Time, Origin: opus, Refused: []string{"sX"}},
				}}}}, nil
			}}})
	require.Nil(t, replayOne(t, l, alice, opus, storedTurn).Turn)
	require.Zero(t, l.Stats().Scopes)
}
