package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// rereadRuns bounds how many runs are read once more in the end.
const rereadRuns = 400

// reread reads runs once more on both processes. What comes counts as received:
// it must be what clients got before, and it must be stored.
func (s *soak) reread(found *findings) {
	s.ledger.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.ledger.runs))
	s.ledger.mu.Unlock()
	s.random(3).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:min(len(ids), rereadRuns)] {
		r := s.ledger.runs[id]
		for _, first := range []bool{true, false} {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			out := s.client.follow(ctx, r.post, s.stack.web(first), id, 0, nil)
			cancel()
			switch {
			case out.status == http.StatusOK && out.done:
				found.replayed++
			case out.status == http.StatusOK:
				s.ledger.violate(violation{kind: invalid, chat: r.chat, run: id, seq: out.last, post: r.post, at: r.events[1].at,
					what: fmt.Sprintf("everything is at rest, yet on %s the run has no end after event %d (%s)",
						s.stack.web(first).name, out.last, out.code)})
			case out.status != http.StatusNotFound && out.status != http.StatusGone:
				s.ledger.violate(violation{kind: invalid, chat: r.chat, run: id, post: r.post, at: r.events[1].at,
					what: fmt.Sprintf("reading the run on %s gives %d %s", s.stack.web(first).name, out.status, out.code)})
			}
		}
	}
}

// compareReads checks that both processes show a history as it is stored.
func (s *soak) compareReads(h *stored) {
	path := "/v1/chats/" + h.chat.id.String() + "/history"
	if h.key.Agent() != "" {
		path = "/v1/chats/" + h.chat.id.String() + "/subagents/" + string(h.key.Agent()) + "/history"
	}
	for _, first := range []bool{true, false} {
		web := s.stack.web(first)
		shown, err := s.shown(web, path)
		if err != nil || !equal(h.raw, shown) {
			s.ledger.violate(violation{kind: invalid, chat: h.chat, key: h.key, history: h,
				what: fmt.Sprintf("%s shows %d messages that are not the %d stored ones (%v)", web.name, len(shown), len(h.raw),
					err)})
		}
	}
}

// shown is a history as a process shows it, all pages.
func (s *soak) shown(web *service, path string) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var all [][]byte
	for {
		resp, err := s.client.send(ctx, http.MethodGet, web, fmt.Sprintf("%s?limit=1000&offset=%d", path, len(all)), nil, "")
		if err != nil {
			return all, err
		}
		var page struct {
			Messages   []json.RawMessage `json:"messages"`
			NextOffset int               `json:"next_offset"`
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		if err != nil {
			return all, err
		}
		for _, m := range page.Messages {
			all = append(all, m)
		}
		if page.NextOffset == 0 {
			return all, nil
		}
	}
}
