package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// way is one of the ways to be answered that are compared, with what its turns took.
type way struct {
	name      string
	urls      []string // asked by turns; CHAT stands for the chat
	key, user string   // "" for none
	message   func() string
	pids      []int
	redis     *redis.Client // nil for none that is watched

	chats, turnCount int
	cpu              []float64 // ms per turn, by what was measured
	latency          []time.Duration
	load             [3]float64 // of Redis, for all turns that were measured: ms of CPU, bytes in, bytes out
	measured         int
	commandCounts    map[string]int // commands of the turns that were watched
	scripted         int
	watched          int
}

// wayOf is services, asked as they are.
func wayOf(name string, targets ...services) *way {
	w := &way{name: name, redis: targets[0].Redis}
	for _, s := range targets {
		w.urls, w.pids = append(w.urls, s.URL), append(w.pids, s.Pids...)
	}
	return w
}

const question = "Which month sold the most, and why?"

// completions ends the URL of chat completions.
const completions = "/v1/chat/completions"

// turn asks in a chat, in which so many turns were before, and reads the answer to its end.
func (w *way) turn(chat string, priorTurns int) {
	w.turnCount++
	url, body := w.urls[w.turnCount%len(w.urls)], map[string]any{"message": question, "stream": true}
	if w.message != nil {
		body["message"] = w.message()
	}
	if w.user != "" {
		body["user"] = w.user
	}
	if strings.HasSuffix(url, completions) { // its client sends the whole transcript
		userMessage := map[string]string{"role": "user", "content": question}
		past := []any{userMessage, map[string]string{"role": "assistant", "content": "March, since it rained."}}
		body = map[string]any{"model": "mneme", "stream": true, "messages": append(slices.Repeat(past, priorTurns),
			userMessage)}
	}
	began := time.Now()
	must(0, send(url, chat, w.key, string(must(json.Marshal(body)))))
	w.latency = append(w.latency, time.Since(began))
}

// turns makes so many, ten in a chat.
func (w *way) turns(n int) {
	for i := range n {
		if i%10 == 0 {
			w.chats++
		}
		w.turn(fmt.Sprintf("%s-%d-%d", w.name, os.Getpid(), w.chats), i%10)
	}
}

// warm makes turns that are not measured.
func (w *way) warm() *way {
	w.turns(50)
	w.latency = nil
	return w
}

// measure enters what n turns take.
func (w *way) measure(n int, turns func()) {
	info := func() (figures [3]float64) {
		if w.redis != nil {
			figures = infoOf(w.redis)
		}
		return figures
	}
	base, used := info(), cpuOf(w.pids...)
	turns()
	w.cpu = append(w.cpu, ms(cpuOf(w.pids...)-used)/float64(n))
	for i, value := range info() {
		w.load[i] += value - base[i]
	}
	w.measured += n
}

// watch counts the commands of n turns, which measures nothing: MONITOR costs more than they do.
func (w *way) watch(n int, turns func()) {
	if w.redis != nil {
		latency := w.latency
		w.commandCounts, w.scripted = (&services{Redis: w.redis}).Monitor(turns)
		w.watched, w.latency = n, latency
	}
}

func (w *way) String() string {
	line := fmt.Sprintf("  %-8s CPU %.2f ms (%.2f–%.2f), p50 %.2f ms, p95 %.2f ms", w.name, median(w.cpu),
		slices.Min(w.cpu), slices.Max(w.cpu), ms(median(w.latency)), ms(quantile(w.latency, .95)))
	if w.watched == 0 {
		return line
	}
	total, n := 0, float64(w.measured)
	for _, count := range w.commandCounts {
		total += count
	}
	return line + fmt.Sprintf("; Redis CPU %.2f ms, %.0f bytes in, %.0f bytes out; "+
		"commands sent %.1f, called by scripts %.1f",
		w.load[0]/n, w.load[1]/n, w.load[2]/n, float64(total)/float64(w.watched), float64(w.scripted)/float64(w.watched))
}

// printComparison prints ways, and the others beside the last one: ratios in the same round, their median and range.
func printComparison(ways ...*way) {
	base := ways[len(ways)-1]
	for _, w := range ways {
		fmt.Println(w)
	}
	for _, w := range ways[:len(ways)-1] {
		pairs := make([]float64, len(w.cpu))
		for i := range pairs {
			pairs[i] = w.cpu[i] / base.cpu[i]
		}
		fmt.Printf("  %s ÷ %s: CPU %.2f × (%.2f–%.2f), p50 %.2f ×\n", w.name, base.name, median(pairs), slices.Min(pairs),
			slices.Max(pairs), float64(median(w.latency))/float64(median(base.latency)))
	}
}

// commands prints what a turn sends to Redis.
func (w *way) commands() {
	for _, name := range slices.SortedFunc(maps.Keys(w.commandCounts), func(a, b string) int {
		return cmp.Or(w.commandCounts[b]-w.commandCounts[a], strings.Compare(a, b))
	}) {
		fmt.Printf("    %-10s %.1f\n", name, float64(w.commandCounts[name])/float64(w.watched))
	}
}

// compare measures ways one after the other, round after round.
func (c *turnCmd) compare(ways ...*way) {
	for range c.Rounds {
		for _, w := range ways {
			w.measure(c.Turns, func() { w.turns(c.Turns) })
		}
	}
	for _, w := range ways {
		w.watch(50, func() { w.turns(50) })
	}
	fmt.Printf("a turn: three model calls, one delegation, 20 deltas; %d rounds of %d turns, medians\n", c.Rounds, c.Turns)
	printComparison(ways...)
}

// ages measures blocks of turns of an old chat by turns with those of young ones.
func ages(w *way, old string, young func(round int) (chat string)) {
	const rounds, block = 5, 10
	pair := []*way{new(way), new(way)}
	*pair[0], *pair[1] = *w, *w
	pair[0].name, pair[1].name = "old", "young"
	for round := range rounds + 1 {
		for i, chat := range []string{old, young(round)} {
			turns := func() {
				for range block {
					pair[i].turn(chat, 0)
				}
			}
			if round == 0 { // pays for indexes
				pair[i].watch(block, turns)
			} else {
				pair[i].measure(block, turns)
			}
		}
	}
	printComparison(pair...)
}

// say sends a message and reads the answer's stream to its end.
func say(url, chat, message string) error {
	return send(url, chat, "", fmt.Sprintf(`{"message": %q, "stream": true}`, message))
}

// send posts a body, with a key if it is not empty, and reads the answer's stream to its end.
func send(url, chat, key, body string) error {
	r, err := http.NewRequest(http.MethodPost, strings.Replace(url, "CHAT", chat, 1), strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(answer), `"outcome":"completed"`) &&
		strings.Count(string(answer), "[DONE]") != 3 && !strings.Contains(string(answer), `"finish_reason":"stop"`) {
		err = fmt.Errorf("the turn did not complete: …%s", answer[max(0, len(answer)-400):])
	}
	return err
}
