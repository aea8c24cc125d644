package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// vocabulary is how many words a long chat has; as in any text, few of them are most of it.
const vocabulary = 20_000

// long compares turns of a chat of very many messages with those of a chat of ten, in one run,
// with recall off and on, and searches the long one.
func (c *turnCmd) long(l *lab, v *vendor) {
	for _, recall := range [][2]string{{"off", "off"}, {"always", "on, nothing found"}} {
		auto := recall[0]
		mark := l.Mark()
		// For the master alone: the subagent would find its tasks of the turns before.
		l.Settings = fmt.Sprintf("recall: {tool: false, auto: off}\nagents: {master: {recall: {auto: %s}}}\n", auto)
		s := l.Services(v, true, "context_window: 4", "subagent_context_window: 4", "max_history: 100")
		old, w := "long-"+auto, wayOf("", s)
		imported(s, old, c.Long)
		if auto != "off" { // and builds the index, which no turn should pay for
			searches(s, old, c.Long)
		}
		n := 0
		w.message = func() string { n++; return fmt.Sprintf("qx%dzv?", n) }
		fmt.Printf("a turn in a chat of %d messages beside chats of 10, recall %s\n", c.Long, recall[1])
		ages(w, old, func(round int) string {
			short := fmt.Sprint("short-", auto, round)
			imported(s, short, 10)
			return short
		})
		l.StopTo(mark)
	}
}

// imported gives a chat so many messages.
func imported(s services, chat string, messages int) {
	body, pw := io.Pipe()
	go func() {
		if transcript(pw, messages) == nil { // else the answer says why
			_ = pw.Close()
		}
	}()
	resp := must(http.Post(chatURL(s, chat)+"/import", "application/x-ndjson", body))
	defer resp.Body.Close()
	if answer := must(io.ReadAll(resp.Body)); resp.StatusCode != http.StatusCreated {
		panic(fmt.Errorf("the import is refused: %s", answer))
	}
}

// transcript writes so many made-up messages as the lines of an import.
func transcript(w io.Writer, messages int) error {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, uint64(messages))), 1.1, 8, vocabulary-1)
	lines := json.NewEncoder(w)
	for i := range messages {
		var text strings.Builder
		for range 25 {
			fmt.Fprintf(&text, "w%dk ", zipf.Uint64())
		}
		role := []string{"user", "assistant"}[i%2]
		if err := lines.Encode(map[string]any{"message": map[string]any{"role": role, "content": text.String(),
			"id": fmt.Sprintf("m%d.1", i), "timestamp": 1.7e9 + 60*float64(i)}}); err != nil {
			return err
		}
	}
	return nil
}

func chatURL(s services, chat string) string {
	return strings.Replace(strings.TrimSuffix(s.URL, "/messages"), "CHAT", chat, 1)
}

// searches measures searches of a chat: the first, which finds no index, those until the index
// has all messages, and the ones after it.
func searches(s services, chat string, messages int) {
	r := rand.New(rand.NewPCG(2, 2))
	search := func() (partial bool) {
		var words []string
		for range 6 {
			words = append(words, fmt.Sprintf("w%dk", r.IntN(vocabulary)))
		}
		resp := must(http.Get(chatURL(s, chat) + "/recall?query=" + url.QueryEscape(strings.Join(words, " "))))
		defer resp.Body.Close()
		var got struct{ Partial bool }
		must(0, json.NewDecoder(resp.Body).Decode(&got))
		return got.Partial
	}
	began := time.Now()
	partial := search()
	first := time.Since(began)
	for partial {
		time.Sleep(10 * time.Millisecond)
		partial = search()
	}
	total := time.Since(began)
	var took []time.Duration
	for range 400 {
		began := time.Now()
		search()
		took = append(took, time.Since(began))
	}
	fmt.Printf("a search in a chat of %d messages: first answer %.0f ms, whole after %.2f s, "+
		"then p50 %.1f ms, p95 %.1f ms\n", messages, ms(first), total.Seconds(), ms(median(took)),
		ms(quantile(took, .95)))
}
