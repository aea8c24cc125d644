package api_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webtest"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, url string) *webapi.Client {
	t.Helper()
	c, err := webapi.New(url)
	require.NoError(t, err)
	c.Pause = time.Millisecond
	t.Cleanup(c.Close)
	return c
}

// story is a run of five events.
func story(r *webtest.Run) {
	r.Emit(&event.RunStarted{ChatID: r.Chat, Message: r.Message})
	r.Emit(&event.AssistantDelta{Text: "Hel"}, &event.AssistantDelta{Text: "lo"})
	r.Emit(&event.Assistant{Content: "Hello"}, &event.RunFinished{Outcome: event.Completed})
}

// roles walks to the end.
func roles(events iter.Seq2[event.Event, error]) (all []string, err error) {
	for e, err := range events {
		if err != nil {
			return all, err
		}
		all = append(all, e.Role())
	}
	return all, nil
}

var whole = []string{"run_started", "assistant_delta", "assistant_delta", "assistant", "run_finished"}

func TestEveryEventComesOnceWhereverTheConnectionBreaks(t *testing.T) {
	for _, cuts := range [][]int{nil, {0}, {1}, {2}, {4}, {0, 0, 1, 0, 2}, {1, 1, 1, 1, 1}} {
		s := webtest.New(t, story)
		s.Cut(cuts...)
		got, err := roles(dial(t, s.URL).Say(t.Context(), memory.MustChat("1"), "hi", "k"))
		require.NoError(t, err, "%v", cuts)
		require.Equal(t, whole, got, "%v", cuts)
		require.Equal(t, 1, s.Posts(), "%v: a retried post must not run twice", cuts)
	}
}

func TestAServerThatKeepsBreakingIsGivenUp(t *testing.T) {
	s := webtest.New(t, story)
	s.Cut(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	got, err := roles(dial(t, s.URL).Say(t.Context(), memory.MustChat("1"), "hi", "k"))
	require.ErrorContains(t, err, "the stream of events broke")
	require.Equal(t, whole[:1], got)
}

func TestFollowShowsARunFromItsStart(t *testing.T) {
	s := webtest.New(t, story)
	s.Start(memory.MustChat("1"), "r1", "hi")
	got, err := roles(dial(t, s.URL).Follow(t.Context(), memory.MustChat("1"), "r1"))
	require.NoError(t, err)
	require.Equal(t, whole, got)

	_, err = roles(dial(t, s.URL).Follow(t.Context(), memory.MustChat("1"), "nosuch"))
	require.ErrorIs(t, err, api.ErrUnknownRun)
}

func TestARefusedPostIsNotRepeated(t *testing.T) {
	s := webtest.New(t, story)
	var asked atomic.Int32
	s.Refuse = func(*http.Request) (int, string, string) {
		asked.Add(1)
		return http.StatusServiceUnavailable, "memory_away", "The memory cannot be reached."
	}
	_, err := roles(dial(t, s.URL).Say(t.Context(), memory.MustChat("1"), "hi", "k"))
	require.EqualError(t, err, "The memory cannot be reached. (memory_away)")
	require.EqualValues(t, 1, asked.Load())
}

func TestARestartingServerIsWaitedFor(t *testing.T) {
	s := webtest.New(t, story)
	s.Cut(2)
	var asked atomic.Int32
	s.Refuse = func(*http.Request) (int, string, string) {
		if n := asked.Add(1); n == 2 || n == 3 {
			return http.StatusServiceUnavailable, "draining", "The service is stopping."
		}
		return 0, "", ""
	}
	got, err := roles(dial(t, s.URL).Say(t.Context(), memory.MustChat("1"), "hi", "k"))
	require.NoError(t, err)
	require.Equal(t, whole, got)
}

func TestNobodyListens(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	_, err := roles(dial(t, s.URL).Say(t.Context(), memory.MustChat("1"), "hi", "k"))
	require.EqualError(t, err, "nothing listens on "+s.URL+": start `mneme up`")
	_, err = dial(t, s.URL).Chat(t.Context(), memory.MustChat("1"))
	require.EqualError(t, err, "nothing listens on "+s.URL+": start `mneme up`")
}

func TestTheEndOfTheContextEndsTheWalk(t *testing.T) {
	blocked := make(chan struct{})
	s := webtest.New(t, func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat})
		<-blocked
	})
	defer close(blocked)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("enough")
	for _, err := range dial(t, s.URL).Say(ctx, memory.MustChat("1"), "hi", "k") {
		if err != nil {
			require.ErrorIs(t, err, why)
			break
		}
		cancel(why)
	}
}

func TestASilentConnectionIsOpenedAgain(t *testing.T) {
	testtier.Slow(t)
	var opened atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"role\":\"run_started\",\"run_id\":\"r\",\"seq\":1}\n\n")
		_ = http.NewResponseController(w).Flush()
		if opened.Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "data: {\"role\":\"run_finished\",\"run_id\":\"r\",\"seq\":2}\n\n")
	}))
	defer s.Close()
	c := dial(t, s.URL)
	c.Idle = time.Second // in which what is sent must come
	got, err := roles(c.Say(t.Context(), memory.MustChat("1"), "hi", "k"))
	require.NoError(t, err)
	require.Equal(t, []string{"run_started", "run_finished"}, got)
}

func TestAnswersThatAreNoStream(t *testing.T) {
	for name, test := range map[string]struct {
		handler func(http.ResponseWriter)
		want    string
	}{
		"a page": {
			func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/html") },
			`answered with "text/html" instead of events; is --url right?`,
		},
		"a run that is over": {
			func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
			`the run is over, but its end was not seen; the history has its answer`,
		},
		"an error without a number": {
			func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "text/event-stream")
				_,
					_ = io.WriteString(w,
					"event: error\ndata: {\"role\":\"error\",\"code\":\"disk_full\",\"message\":\"Nothing can be stored.\"}\n\n")
			},
			`Nothing can be stored. (disk_full)`,
		},
		"no event": {
			func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: hello\n\n")
			},
			`this does not look like webmemory`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { test.handler(w) }))
			defer s.Close()
			_, err := roles(dial(t, s.URL).Say(t.Context(), memory.MustChat("1"), "hi", "k"))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestTheRest(t *testing.T) {
	s := webtest.New(t, story)
	c := dial(t, s.URL)
	for _, chat := range []memory.Chat{memory.MustChat("a"), memory.MustChat("b"), memory.MustChat("c"),
		memory.MustChat("-100123"), memory.MustChat("x:1@y")} {
		s.Remember(memory.ChatKey(chat), memory.Message{Role: "user", Content: "hi"})
	}
	key := memory.SubagentKey("analytic", memory.MustChat("x:1@y"))
	for range 7 {
		s.Remember(key, memory.Message{Role: "user", Content: "again"})
	}
	var chats []memory.Chat
	for chat, err := range c.Chats(t.Context()) {
		require.NoError(t, err)
		chats = append(chats, chat)
	}
	require.Equal(t, []memory.Chat{memory.MustChat("-100123"), memory.MustChat("a"), memory.MustChat("b"),
		memory.MustChat("c"), memory.MustChat("x:1@y")}, chats)

	count := 0
	for _, err := range c.Messages(t.Context(), key, -5) {
		require.NoError(t, err)
		count++
	}
	require.Equal(t, 5, count)

	erased, err := c.EraseHistory(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, []string{"subagent:analytic:x:1@y"}, erased)
	info, err := c.Chat(t.Context(), memory.MustChat("x:1@y"))
	require.NoError(t, err)
	require.Len(t, info.Histories, 1)
	erased, err = c.EraseChat(t.Context(), memory.MustChat("x:1@y"))
	require.NoError(t, err)
	require.Equal(t, []string{"chat_history:x:1@y"}, erased)
}
