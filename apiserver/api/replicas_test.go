package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/dnstest"
	"mneme/memory"
)

// replica is an apiserver that has runs and does nothing with them.
type replica struct {
	*httptest.Server
	mu       sync.Mutex
	draining bool            // guarded by mu
	runs     map[string]bool // guarded by mu
	asked    []string        // guarded by mu: method, path and Host of each request
}

func (r *replica) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, req.Method+" "+req.URL.Path+" "+req.Host)
	id := strings.Split(req.URL.Path+"///", "/")[3]
	switch {
	case req.Method == http.MethodPost && req.URL.Path == "/v1/runs":
		var run api.RunRequest
		raw, _ := io.ReadAll(req.Body)
		if err := json.Unmarshal(raw, &run); err != nil {
			api.WriteProblem(w, api.BadRequest(err))
			return
		}
		if r.draining {
			api.WriteProblem(w, &api.Problem{Status: http.StatusServiceUnavailable, Code: api.Draining, Message: "No."})
			return
		}
		r.runs[run.RunID] = true
		at := "http://" + req.Host + "/v1/runs/" + run.RunID + "/events"
		api.WriteJSON(w, http.StatusAccepted, api.RunAccepted{Events: at})
	case strings.HasPrefix(req.URL.Path, "/v1/chats/"):
		api.WriteJSON(w, http.StatusOK, api.ChatErased{})
	case !r.runs[id]:
		api.WriteProblem(w, &api.Problem{Status: http.StatusNotFound, Code: "unknown_run", Message: "No such run."})
	case strings.HasSuffix(req.URL.Path, "/events"):
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, frame(finished(1)))
	}
}

func (r *replica) has() (runs, asked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs), len(r.asked)
}

// replicas are so many on one port of addresses of their own. show has the name stand for some of them.
func replicas(t *testing.T, n int) (all []*replica, base string, show func(...int)) {
	t.Helper()
	name, port := strings.ToLower(t.Name())+".test", "0"
	addr := func(i int) string { return fmt.Sprintf("127.0.0.%d", i+2) }
	for i := range n {
		l, err := net.Listen("tcp", net.JoinHostPort(addr(i), port))
		if err != nil {
			t.Skipf("this machine has no such address of loopback to itself: %v", err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		r := &replica{runs: map[string]bool{}}
		r.Server = httptest.NewUnstartedServer(r)
		require.NoError(t, r.Listener.Close())
		r.Listener = l
		r.Start()
		t.Cleanup(r.Close)
		all = append(all, r)
	}
	show = func(which ...int) {
		var addrs []string
		for _, i := range which {
			addrs = append(addrs, addr(i))
		}
		dnstest.Set(name, addrs...)
	}
	return all, "http://" + net.JoinHostPort(name, port), show
}

func post(t *testing.T, c *api.Client, run string) error {
	t.Helper()
	_, err := c.PostRun(t.Context(), api.RunRequest{RunID: run, ChatID: memory.MustChat("c"), Message: "Hello."})
	return err
}

func TestPostsPassOverWhatTakesNoRuns(t *testing.T) {
	all, base, show := replicas(t, 3)
	show(0, 1, 2)
	c := client(t, base)
	for i := range 60 {
		require.NoError(t, post(t, c, fmt.Sprint("first", i)))
	}
	for i, r := range all {
		runs, _ := r.has()
		require.Greater(t, runs, 3, "replica %d", i)
		require.Contains(t, r.asked[0], strings.TrimPrefix(base, "http://"), "it is asked by the name")
	}
	all[0].Close()
	all[1].mu.Lock()
	all[1].draining = true
	all[1].mu.Unlock()
	drained, _ := all[1].has()
	for i := range 60 {
		require.NoError(t, post(t, c, fmt.Sprint("second", i)))
	}
	runs, asked := all[1].has()
	require.Equal(t, drained, runs)
	require.Greater(t, asked, drained, "it was asked, and passed over")
	show(1)
	var problem *api.Problem
	require.ErrorAs(t, post(t, c, "a"), &problem)
	require.Equal(t, api.Draining, problem.Code)
	show(0)
	require.ErrorIs(t, post(t, c, "a"), api.ErrUnreachable)
	dnstest.Set("testpostspassoverwhattakesnoruns.test")
	require.ErrorIs(t, post(t, c, "a"), api.ErrUnreachable, "it is looked for where it was last")
}

// Another process, which was told nothing, goes to the one that has a run, also when there are more of them than when
// it began; and one that cannot be asked is not one without the run.
func TestARunIsFoundByItsIdAlone(t *testing.T) {
	all, base, show := replicas(t, 4)
	show(0, 1, 2)
	one, other := client(t, base), client(t, base)
	for i := range 20 {
		run := fmt.Sprint("run", i)
		require.NoError(t, post(t, one, run))
		require.NoError(t, post(t, other, run), "repeated")
		require.NoError(t, other.Stop(t.Context(), run))
	}
	total := 0
	for _, r := range all {
		runs, asked := r.has()
		require.Equal(t, 3*runs, asked, "no other one was asked")
		total += runs
	}
	require.Equal(t, 20, total)
	show(3, 2, 1, 0)
	for i := range 20 {
		seqs, err := read(t.Context(), other, other.EventsURL(fmt.Sprint("run", i)), 0)
		require.NoError(t, err)
		require.Equal(t, []int64{1}, seqs)
	}
	var problem *api.Problem
	require.ErrorAs(t, other.Stop(t.Context(), "none"), &problem)
	require.Equal(t, http.StatusNotFound, problem.Status)
	all[3].Close()
	require.ErrorIs(t, other.Stop(t.Context(), "none"), api.ErrUnreachable)
}

// Events of a chat may be kept by each: all are asked to drop them. Where nothing listens none are kept; a name behind
// which nothing listens at all is told.
func TestRunsOfAChatAreDeletedEverywhere(t *testing.T) {
	all, base, show := replicas(t, 3)
	show(0, 1, 2)
	c := client(t, base)
	require.NoError(t, c.DeleteRuns(t.Context(), memory.MustChat("c")))
	_, err := c.DeleteChat(t.Context(), memory.MustChat("c"))
	require.NoError(t, err)
	for _, r := range all {
		_, asked := r.has()
		require.Equal(t, 2, asked)
	}
	all[1].Close()
	require.NoError(t, c.DeleteRuns(t.Context(), memory.MustChat("c")))
	_, asked := all[2].has()
	require.Equal(t, 3, asked, "the others are asked all the same")
	all[0].Close()
	all[2].Close()
	require.ErrorIs(t, c.DeleteRuns(t.Context(), memory.MustChat("c")), api.ErrUnreachable)
}

// A connection to an address is one to the server of the name.
func TestTheNameOfAServerStays(t *testing.T) {
	_, base, show := replicas(t, 2)
	show(0, 1)
	names := map[string]string{}
	plain := &net.Dialer{}
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			names[addr] = api.ServerName(ctx)
			return plain.DialContext(ctx, network, addr)
		}}}
	c, err := api.NewClient(strings.Replace(base, "http:", "https:", 1), h)
	require.NoError(t, err)
	for i := range 30 {
		require.NoError(t, post(t, c, fmt.Sprint(i)))
	}
	require.Len(t, names, 2)
	for addr, name := range names {
		require.NotContains(t, addr, "test")
		require.Equal(t, "thenameofaserverstays.test", strings.TrimPrefix(name, "test"))
	}
}
