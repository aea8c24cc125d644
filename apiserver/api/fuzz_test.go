package api

import (
	"bytes"
	"testing"

	"mneme/apiserver/api/sse"
	"mneme/memory/event"
)

// Whatever a server sends, events come out in order and reading ends.
func FuzzReadEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: {\"role\":\"assistant_delta\",\"run_id\":\"r\",\"seq\":1}\nevent: x\n\n: heartbeat\n\n"))
	f.Add([]byte(": closing\nevent: error\ndata: {\"code\":\"x\"}\n\n"))
	f.Add([]byte("id\ndata\r\n\r\n\rdata:\n\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		last, over := int64(0), false
		err := readEvents(sse.NewReader(bytes.NewReader(stream), MaxEvent, 0, nil), 0, func(e event.Event) error {
			if e.Seq != last+1 || over {
				t.Fatalf("event %d after event %d, run over: %v", e.Seq, last, over)
			}
			last, over = e.Seq, e.Terminal()
			return nil
		})
		if (err == nil) != over {
			t.Fatalf("err %v, run over: %v", err, over)
		}
	})
}
