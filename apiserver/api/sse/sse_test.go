package sse_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api/sse"
)

// What is written is read as it was, without the comments; the closing event has no id.
func TestWrittenEventsAreRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		to := sse.NewWriter(w, time.Minute)
		require.NoError(t, to.Event(7, "text", []byte(`{"a":1}`)))
		require.NoError(t, to.Comment("heartbeat"))
		require.NoError(t, to.Event(8, "text", []byte(strings.Repeat("x", 200<<10))))
		require.NoError(t, to.Closing("error", []byte(`{"code":"moved"}`)))
		require.NoError(t, to.Flush())
	}))
	defer server.Close()
	resp, err := http.Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	in := sse.NewReader(resp.Body, 1<<20, time.Minute, func() { resp.Body.Close() })
	for _, want := range []struct{ id, name, data string }{
		{"7", "text", `{"a":1}`}, {"8", "text", strings.Repeat("x", 200<<10)}, {"", "error", `{"code":"moved"}`},
	} {
		e, err := in.Next()
		require.NoError(t, err)
		require.Equal(t, want, struct{ id, name, data string }{string(e.ID), string(e.Name), string(e.Data)})
		require.Equal(t, want.id == "", e.ID == nil)
	}
	_, err = in.Next()
	require.Equal(t, io.EOF, err)
}

func TestOtherWritersEvents(t *testing.T) {
	in := sse.NewReader(iotest.OneByteReader(strings.NewReader(
		"retry: 5\n\n:\n\nid\ndata:a\r\ndata:\r\ndata:  b\r\nother: x\r\n\r\ndata:\n\ndata: torn")), 1<<10, 0, nil)
	e, err := in.Next()
	require.NoError(t, err)
	require.NotNil(t, e.ID)
	require.Equal(t, "a\n\n b", string(e.Data))
	_, err = in.Next()
	require.Equal(t, io.EOF, err, "an event without data, and one that was cut off, are none")
}

func TestAnEventOverTheLimit(t *testing.T) {
	_, err := sse.NewReader(strings.NewReader("data: "+strings.Repeat("x", 8<<10)+"\n\n"), 1<<10, 0, nil).Next()
	require.ErrorIs(t, err, sse.ErrTooLong)
}

// The watch runs while the reader waits, not while its caller is busy.
func TestASilentStream(t *testing.T) {
	from, to := io.Pipe()
	in := sse.NewReader(from, 1<<10, time.Millisecond, func() { to.CloseWithError(io.ErrClosedPipe) })
	_, err := in.Next()
	require.Equal(t, sse.ErrSilent, err)
}
