package api

import (
	"bytes"
	"testing"
	"time"

	"mneme/memory/event"
)

// Whatever a server sends, events come out in order and reading ends.
func FuzzReadEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: {\"role\":\"assistant_delta\",\"run_id\":\"r\",\"seq\":1}\nevent: x\n\n: heartbeat\n\n"))
	f.Add([]byte(": closing\nevent: error\ndata: {\"code\":\"x\"}\n\n"))
	f.Add([]byte("id\ndata\r\n\r\n\rdata:\n\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		watch := time.NewTimer(time.Hour)
		defer watch.Stop()
		body := &watchedBody{body: bytes.NewReader(stream), watch: watch, idle: time.Hour}
		last, over := int64(0), false
		err := readEvents(body, 0, func(e event.Event) bool {
			if e.Seq != last+1 || over {
				t.Fatalf("event %d after event %d, run over: %v", e.Seq, last, over)
			}
			last, over = e.Seq, e.Terminal()
			return true
		})
		if (err == nil) != over {
			t.Fatalf("err %v, run over: %v", err, over)
		}
	})
}
