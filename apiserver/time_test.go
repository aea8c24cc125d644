package apiserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
)

// bubble is a Server on the test's time; requests go straight to its handler.
func bubble(t *testing.T, cfg apiserver.Config, a apiserver.Agent,
	f func(do func(method, path, body string) *httptest.ResponseRecorder)) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(cfg, a, func() []api.SubagentInfo { return subagents }, zerolog.Nop())
		defer func() { require.NoError(t, s.Close()) }()
		f(func(method, path, body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
			return w
		})
	})
}

func body(id string) string { return fmt.Sprintf(`{"run_id":%q,"chat_id":"c1","message":"hi"}`, id) }

func TestARunThatTakesTooLongIsEnded(t *testing.T) {
	bubble(t, apiserver.Config{}, untilStopped, func(do func(method, path, body string) *httptest.ResponseRecorder) {
		began := time.Now()
		require.Equal(t, http.StatusAccepted, do("POST", "/v1/runs", body("r1")).Code)
		stream := do("GET", "/v1/runs/r1/events", "").Body.String()
		require.Equal(t, 10*time.Minute, time.Since(began))
		require.Contains(t, stream, `"code":"run_timeout"`)
		require.Contains(t, stream, "event: run_finished")
	})
}

func TestAFinishedRunIsKnownForAWhile(t *testing.T) {
	bubble(t, apiserver.Config{}, echo, func(do func(method, path, body string) *httptest.ResponseRecorder) {
		do("POST", "/v1/runs", body("r1"))
		time.Sleep(14 * time.Minute)
		require.Equal(t, 200, do("GET", "/v1/runs/r1/events", "").Code)
		time.Sleep(3 * time.Minute)
		require.Equal(t, 404, do("GET", "/v1/runs/r1/events", "").Code)
	})
}

func TestFinishedRunsAreBounded(t *testing.T) {
	for name, cfg := range map[string]apiserver.Config{
		"by count": {KeepRuns: 2},
		"by bytes": {KeepBytes: 1200}, // a run of echo takes about 500
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, cfg, echo, func(do func(method, path, body string) *httptest.ResponseRecorder) {
				for _, id := range []string{"r1", "r2", "r3"} {
					do("POST", "/v1/runs", body(id))
					synctest.Wait()
				}
				require.Equal(t, 404, do("GET", "/v1/runs/r1/events", "").Code, "the oldest leaves first")
				require.Equal(t, 200, do("GET", "/v1/runs/r2/events", "").Code)
				require.Equal(t, 200, do("GET", "/v1/runs/r3/events", "").Code)
			})
		})
	}
}
