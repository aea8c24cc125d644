package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// A quiet stream sends keep-alives. Clients of Responses such as codex count events with data only.
func TestQuietStreamsShowThatTheyGoOn(t *testing.T) {
	t.Parallel()
	for dialect, data := range map[wire.Dialect]bool{wire.Messages: true, wire.Chat: false, wire.Responses: true} {
		synctest.Test(t, func(t *testing.T) {
			to := httptest.NewRecorder()
			to.Header().Set("Content-Type", "text/event-stream")
			w := newClientWriter(to, time.Minute)
			w.tell = func(http.Header) {}
			w.begin(200)
			w.ping(dialect)
			time.Sleep(4*quiet + time.Second)
			w.release()
			synctest.Wait()
			frames := strings.Split(strings.TrimSuffix(to.Body.String(), "\n\n"), "\n\n")
			require.Len(t, frames, 4)
			_, event, found := strings.Cut(frames[0], "\ndata: ")
			require.Equal(t, data, found)
			require.Equal(t, data, gjson.Get(event, "type").Str != "")
		})
	}
}
