package api_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/r3labs/sse/v2"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/memory/event"
)

func TestFramesAreAsTheWireSays(t *testing.T) {
	odd, err := event.Decode([]byte("{\"role\":\"newer\",\n\"run_id\":\"r1\",\r\n\"seq\":2}"))
	require.NoError(t, err)
	log := logOf(t, delta(1, "a <b>\nc"), odd, finished(3))
	resp, body := get(t, serve(t, log, api.Pace{}).URL, "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(t, "no-cache", resp.Header.Get("Cache-Control"))
	require.Equal(t, "no", resp.Header.Get("X-Accel-Buffering"))
	require.Equal(t, "retry: 1000\ndata: "+string(delta(1, "a <b>\nc").Line())+"\nevent: assistant_delta\nid: 1\n\n"+
		"data: {\"role\":\"newer\",\"run_id\":\"r1\",\"seq\":2}\nevent: newer\nid: 2\n\n"+
		"data: "+string(finished(3).Line())+"\nevent: run_finished\nid: 3\n\n", body)
}

// often is a backoff without a wait.
type often struct{}

func (often) NextBackOff() time.Duration { return time.Millisecond }
func (often) Reset()                     {}

// r3labs' own client follows a run whose stream is cut again and again and gets each event once. It hands out the rest of
// an event that was cut as an event, which docs/clients.md says how to skip.
func TestTheClientOfR3labsFollowsARun(t *testing.T) {
	t.Parallel()
	const total = 40
	log := api.NewLog(runID, api.Limits{})
	for seq := int64(1); seq < total; seq++ {
		text := "x"
		if seq == 20 {
			text = strings.Repeat("x", 100<<10)
		}
		require.NoError(t, log.Append(delta(seq, text)))
	}
	require.NoError(t, log.Append(finished(total)))
	for _, cut := range []int{240, 300, 350, 1 << 10} {
		connections, events := 0, 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			connections++
			after, err := strconv.Atoi(cmp.Or(r.Header.Get("Last-Event-ID"), "0"))
			require.NoError(t, err)
			left := cut
			if after < 20 && after+cut/100 >= 19 {
				left += 101 << 10 // the large event fits
			}
			api.ServeEvents(&cutWriter{w, left}, r, log, api.Pace{})
		}))
		t.Cleanup(server.Close)
		c := sse.NewClient(server.URL, sse.ClientMaxBufferSize(api.MaxEvent))
		c.Connection.Transport = &http.Transport{DisableKeepAlives: true}
		c.ReconnectStrategy = often{}
		ctx, cancel := context.WithCancel(t.Context())
		var got []int64
		err := c.SubscribeRawWithContext(ctx, func(m *sse.Event) {
			events++
			e, err := event.Decode(m.Data)
			if err != nil || len(got) > 0 && e.Seq <= got[len(got)-1] {
				return
			}
			if got = append(got, e.Seq); e.Seq == total {
				cancel()
			}
		})
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		cancel()
		require.Equal(t, from(1, total), got)
		require.Greater(t, connections, 3, "streams that were cut")
		require.LessOrEqual(t, events, total+connections, "one rest for each cut")
	}
}

// cutWriter breaks the connection after some bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(b []byte) (int, error) {
	n, _ := w.ResponseWriter.Write(b[:min(len(b), w.left)])
	if w.left -= n; w.left == 0 {
		w.Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

func (w *cutWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func TestPositions(t *testing.T) {
	over := func(t *testing.T) *api.Log { return logOf(t, delta(1, "a"), finished(2)) }
	live := func(t *testing.T) *api.Log { return logOf(t, delta(1, "a")) }
	dropped := func(t *testing.T) *api.Log { l := over(t); l.Drop(); return l }
	for _, c := range []struct {
		name   string
		log    func(*testing.T) *api.Log
		header string
		query  string
		status int
		holds  string
	}{
		{"over, from the start", over, "", "", 200, "id: 1\n"},
		{"over, nothing new", over, "2", "", 204, ""},
		{"over, by query", over, "", "?last_event_id=2", 204, ""},
		{"the header wins over the query", over, "2", "?last_event_id=0", 204, ""},
		{"over, beyond the end", over, "3", "", 400, "bad_last_event_id"},
		{"live, ahead of it", live, "2", "", 400, "bad_last_event_id"},
		{"negative", over, "-1", "", 400, "bad_last_event_id"},
		{"no number", over, "abc", "", 400, "bad_last_event_id"},
		{"a fraction", over, "1.0", "", 400, "bad_last_event_id"},
		{"too large a number", over, "99999999999999999999", "", 400, "bad_last_event_id"},
		{"no number by query", over, "", "?last_event_id=x", 400, "bad_last_event_id"},
		{"dropped", dropped, "1", "", 410, "events_gone"},
		{"dropped, nothing new", dropped, "2", "", 204, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := get(t, serve(t, c.log(t), api.Pace{}).URL+c.query, c.header)
			require.Equal(t, c.status, resp.StatusCode, body)
			require.Contains(t, body, c.holds)
		})
	}
}

func TestResumeAtEveryEventLiveAndAfterTheEnd(t *testing.T) {
	const total = 12
	log := api.NewLog(runID, api.Limits{})
	url := serve(t, log, api.Pace{}).URL
	c := client(t, url)
	var reading sync.WaitGroup
	check := func(after int64) {
		reading.Go(func() {
			got, err := read(t.Context(), c, url, after)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(from(after+1, total)) {
				t.Errorf("after %d: %v, %v", after, got, err)
			}
		})
	}
	for seq := int64(1); seq < total; seq++ {
		require.NoError(t, log.Append(delta(seq, "x")))
		for after := range seq + 1 {
			check(after)
		}
	}
	require.NoError(t, log.Append(finished(total)))
	reading.Wait()
	for after := range int64(total + 1) {
		check(after)
	}
	reading.Wait()
}

func TestMoreEventsThanAnyQueueHolds(t *testing.T) {
	const total = 5000
	log := api.NewLog(runID, api.Limits{})
	for seq := int64(1); seq < total; seq++ {
		require.NoError(t, log.Append(delta(seq, "x")))
	}
	require.NoError(t, log.Append(finished(total)))
	url := serve(t, log, api.Pace{}).URL
	got, err := read(t.Context(), client(t, url), url, 0)
	require.NoError(t, err)
	require.Equal(t, from(1, total), got)
}

func TestLargeEvents(t *testing.T) {
	testtier.Slow(t)
	largest := api.MaxEvent - len(delta(2, "").Line())
	sizes := []int{1 << 20, largest}
	log := api.NewLog(runID, api.Limits{})
	for i, size := range sizes {
		require.NoError(t, log.Append(delta(int64(i+1), strings.Repeat("x", size))))
	}
	require.NoError(t, log.Append(finished(3)))
	url := serve(t, log, api.Pace{}).URL
	var got []int
	for e, err := range eachEvent(t.Context(), client(t, url), url, 0) {
		require.NoError(t, err)
		if d, ok := e.Payload.(*event.AssistantDelta); ok {
			got = append(got, len(d.Text))
		}
	}
	require.Equal(t, sizes, got)
}

// A client that never reads is dropped by the write deadline; until then neither
// the producer nor another reader waits for it.
func TestAStuckClientDelaysNobodyAndIsDropped(t *testing.T) {
	testtier.Slow(t)
	log := api.NewLog(runID, api.Limits{})
	dropped := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			defer close(dropped)
			api.ServeEvents(w, r, log, api.Pace{Write: time.Second})
			return
		}
		api.ServeEvents(w, r, log, api.Pace{})
	}))
	defer server.Close()
	require.NoError(t, log.Append(delta(1, "first")))

	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	_, err = fmt.Fprintf(conn, "GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	head := bufio.NewReader(conn) // it sees the answer begin, then reads no more
	line, err := head.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "200")

	const total = 24
	c := client(t, server.URL)
	var seen []int64
	for e, err := range eachEvent(t.Context(), c, server.URL+"/good", 0) {
		require.NoError(t, err)
		seen = append(seen, e.Seq)
		// Far more than the sockets between server and the stuck client take.
		next := delta(e.Seq+1, strings.Repeat("x", 512<<10))
		if e.Seq+1 == total {
			next = finished(total)
		}
		if e.Seq < total {
			require.NoError(t, log.Append(next))
		}
	}
	require.Equal(t, from(1, total), seen)
	<-dropped

	seen, err = read(t.Context(), c, server.URL+"/good", 1)
	require.NoError(t, err, "it comes back with its Last-Event-ID")
	require.Equal(t, from(2, total), seen)
}

func TestAClientThatLeavesEndsItsStream(t *testing.T) {
	log := logOf(t, delta(1, "a"))
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		api.ServeEvents(w, r, log, api.Pace{})
	}))
	defer server.Close()
	for e, err := range eachEvent(t.Context(), client(t, server.URL), server.URL, 0) {
		require.NoError(t, err)
		require.EqualValues(t, 1, e.Seq)
		break
	}
	<-ended
}

func TestAbortEndsAStreamWithAnErrorThatHasNoID(t *testing.T) {
	log := logOf(t, delta(1, "a"))
	log.Abort(&api.Problem{Code: "turn_moved", Message: "Another turn\nhas begun.", Retryable: true})
	url := serve(t, log, api.Pace{}).URL
	_, body := get(t, url, "")
	frames := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	require.Len(t, frames, 2)
	require.Equal(t, ": closing\nevent: error\ndata: "+
		`{"role":"error","run_id":"r1","code":"turn_moved","message":"Another turn\nhas begun.","retryable":true}`, frames[1])

	seqs, err := read(t.Context(), client(t, url), url, 0)
	require.Equal(t, []int64{1}, seqs)
	require.ErrorIs(t, err, &api.Problem{Code: "turn_moved"})
}

func TestEventsDroppedUnderAReaderAreToldAsGone(t *testing.T) {
	log := logOf(t, delta(1, "a"))
	url := serve(t, log, api.Pace{}).URL
	var last error
	for _, err := range eachEvent(t.Context(), client(t, url), url, 0) {
		if last = err; err == nil {
			log.Drop()
		}
	}
	require.ErrorIs(t, last, api.ErrGone)
}

// Time is the bubble's here: the heartbeats are counted, not waited for.
func TestHeartbeatsComeWhileTheStreamIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logOf(t, delta(1, "a"))
		w := httptest.NewRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			api.ServeEvents(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), log, api.Pace{})
		}()
		time.Sleep(46 * time.Second)
		synctest.Wait()
		require.NoError(t, log.Append(finished(2)))
		<-ended
		require.Equal(t, "retry: 1000\ndata: "+string(delta(1, "a").Line())+"\nevent: assistant_delta\nid: 1\n\n"+
			strings.Repeat(": heartbeat\n\n", 3)+
			"data: "+string(finished(2).Line())+"\nevent: run_finished\nid: 2\n\n", w.Body.String())
	})
}
