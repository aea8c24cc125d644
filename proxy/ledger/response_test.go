package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/proxy/ledger"
)

// stored is a turn that is a stored response; it goes on from another one unless that is empty.
func stored(id, previous string) ledger.Turn {
	t := answer(alice, opus, content(text("the same")))
	t.Response = &ledger.Response{ID: id, Previous: previous, Input: []byte(`[{"a":1}]`), Body: []byte(`{"output":[]}`)}
	return t
}

func TestAStoredResponseExpires(t *testing.T) {
	now := time.Now()
	l := memoryOnly(t, ledger.Config{TTL: time.Hour, Now: func() time.Time { return now }})
	l.Record(t.Context(), stored("resp_1", ""))
	_, err := l.Response(t.Context(), alice.Tenant, alice.Route, "resp_1")
	require.NoError(t, err)
	now = now.Add(time.Hour + time.Second)
	_, err = l.Response(t.Context(), alice.Tenant, alice.Route, "resp_1")
	require.ErrorIs(t, err, ledger.ErrNoResponse)
	require.ErrorIs(t, l.Delete(t.Context(), alice.Tenant, alice.Route, "resp_1"), ledger.ErrNoResponse)
}

// Two responses that say the same at the same place are two.
func TestStoredResponsesThatSayTheSame(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	for i := range 40 {
		l.Record(t.Context(), stored(fmt.Sprint("resp_", i), ""))
	}
	for i := range 40 {
		got, err := l.Response(t.Context(), alice.Tenant, alice.Route, fmt.Sprint("resp_", i))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("resp_", i), got.Turn.Response.ID)
		require.True(t, got.Complete)
	}
}

// A chain without its oldest response says so.
func TestAChainThatIsNotWhole(t *testing.T) {
	l := memoryOnly(t, ledger.Config{ScopeTurns: 4})
	previous := ""
	for i := range 6 {
		id := fmt.Sprint("resp_", i)
		l.Record(t.Context(), stored(id, previous))
		got, err := l.Response(t.Context(), alice.Tenant, alice.Route, id)
		require.NoError(t, err)
		require.Equal(t, i < 4, got.Complete, i)
		require.Len(t, got.History, min(i, 3))
		require.Equal(t, i >= 1, got.Full, i)
		previous = id
	}
}

// An answer that broke off is nothing to go on from.
func TestAnAnswerThatBrokeOffIsNoStoredResponse(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	cut := stored("resp_1", "")
	cut.Content, cut.Cut = []byte(content(thinking("x", "sig"))), true
	l.Record(t.Context(), cut)
	_, err := l.Response(t.Context(), alice.Tenant, alice.Route, "resp_1")
	require.ErrorIs(t, err, ledger.ErrNoResponse)
}
