package api

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

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

// Whatever valid JSON says twice is found, and nothing else.
func FuzzCheckMembers(f *testing.F) {
	for _, seed := range []string{
		`{"a":{"b":[1,{"c":"\\\"}"}]},"b":-1.5e3}`, `{"a":1,"\u0061":2}`, `[{"a":[{"b":0,"b":0}]}]`,
		` {"a" : {} , "A" : [ ] } `, `"x"`, `1`, `{"":{"":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || !utf8.Valid(raw) {
			return
		}
		if found, want := CheckMembers(raw, nil) != nil, twice(json.NewDecoder(bytes.NewReader(raw))); found != want {
			t.Fatalf("%s: found %v, not %v", raw, found, want)
		}
	})
}

// twice says whether the next value has a member twice.
func twice(d *json.Decoder) (found bool) {
	open, _ := d.Token()
	if open != json.Delim('{') && open != json.Delim('[') {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		if open == json.Delim('{') {
			token, _ := d.Token()
			name, _ := token.(string)
			found = found || seen[name]
			seen[name] = true
		}
		found = twice(d) || found
	}
	_, _ = d.Token()
	return found
}
