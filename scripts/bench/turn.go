package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/scripts/lab"
)

type turnCmd struct {
	Turns, Rounds int
	Mneme         string // program; "" to build one
	Draw          string // file
	Age, Live     int
	Growth        bool
	OpenAI        bool
	Limits        bool
	Long          int // messages; 0 for none
	Files         uint64
}

func (c *turnCmd) command() *cobra.Command {
	b := &cobra.Command{
		Use: "turn", Short: "CPU, latency and Redis of one turn beside a bare chain; with --live the memory of open answers",
		Long: `A turn is one message to the master: three model calls, one delegation to a subagent, 20 deltas, from a vendor that answers at once. webmemory, apiserver and proxy are three processes over sockets and a redis-server of their own. The chain is three processes of net/http that pass on the same three calls and their streams and remember nothing. All are measured in the same run, round after round, one turn at a time, chats of ten turns each.

CPU is the kernel's count of the processes' threads. The embedded default is one process, mneme up, over the store in it. Redis is CPU time of redis-server (INFO cpu) and bytes of INFO stats. Commands are those that clients sent, each of a pipeline by itself, counted by MONITOR in turns of their own; those that scripts call are left out.

With --openai the two that are compared are chat completions, whose client sends the whole transcript, and mneme's own streams, of the same three services. Target: at most 1.15 times the CPU.

With --limits the two that are compared are the three services with a key, a tenant and a user that have rates and budgets each, and the same services that ask nobody, over one Redis. Target: at most 1.1 times the CPU.

With --growth one chat of the three services grows to --age turns, with windows of four messages. Blocks of ten of its last turns are measured in turns with the turns 5 to 14 of new chats. The same again with another three services over the same Redis, which answer every other turn.

With --long N one chat has N messages that were imported. Blocks of ten turns in it are measured in turns with blocks of chats of ten messages, with recall off and with recall for every turn, where nothing is found; and searches of it, from the first on, which has no index.

With --live N answers are held open in the middle of their last call: memory (RSS), goroutines and descriptors of each service, from its /metrics, less those before; then all are let go and must complete.

Examples:
  go run ./scripts/bench turn
  go build -o /tmp/mneme ./cmd/mneme && go run ./scripts/bench turn --mneme /tmp/mneme --turns 500
  go run ./scripts/bench turn --openai
  go run ./scripts/bench turn --limits
  go run ./scripts/bench turn --growth
  go run ./scripts/bench turn --long 100000
  go run ./scripts/bench turn --live 2000`,
		RunE: func(*cobra.Command, []string) error { return c.run() },
	}
	f := b.Flags()
	f.IntVar(&c.Turns, "turns", 200, "Turns of each way in one round")
	f.IntVar(&c.Rounds, "rounds", 5, "How often both ways are measured, one after the other")
	f.StringVar(&c.Mneme, "mneme", "", "A built mneme, a `FILE`; without it one is built from ./cmd/mneme")
	f.StringVar(&c.Draw, "draw", "", "Instead: one chat of each way grows for --age turns; its CPU per turn as a picture, `FILE`, SVG")
	f.IntVar(&c.Age, "age", 1000, "Turns of an old chat")
	f.BoolVar(&c.OpenAI, "openai", false, "Instead: chat completions beside mneme's own streams")
	f.BoolVar(&c.Limits, "limits", false, "Instead: turns with a key, rates and budgets beside turns without")
	f.BoolVar(&c.Growth, "growth", false, "Instead: turns of a chat that has --age of them beside those of young ones")
	f.IntVar(&c.Long, "long", 0, "Instead: turns and searches of a chat of `N` messages beside chats of ten")
	f.IntVar(&c.Live, "live", 0, "Instead: `N` answers open at once, in mneme up and in the three services")
	f.Uint64Var(&c.Files, "files", 20000, "Limit of descriptors for every process of --live")
	return b
}

// way is one of the two that are compared.
type way struct {
	name    string
	url     string // CHAT stands for the chat
	key     string // "" for none
	user    string // "" for none
	pids    []int
	cpu     []float64 // ms per turn, by round
	latency []time.Duration
	chats   int
}

func (c *turnCmd) run() error {
	l := lab.New(c.Mneme)
	defer l.Stop()
	if c.Live > 0 {
		return c.live(l)
	}
	v := lab.NewVendor(nil)
	defer v.Close()
	if c.Limits {
		c.limits(l, v)
		return nil
	}
	s := l.Services(v, true)
	ways := []*way{{name: "mneme", url: s.URL, pids: s.Pids}}
	if c.OpenAI {
		ways = []*way{{name: "openai", url: completions(s.URL), pids: s.Pids}, ways[0]}
	} else {
		ways = append(ways, chain(l, v))
	}
	for _, w := range ways {
		w.turns(50)
		w.latency = nil
	}
	if c.Draw != "" {
		c.age(ways)
		return nil
	}
	if c.Growth {
		c.growth(l, v)
		return nil
	}
	if c.Long > 0 {
		c.long(l, v)
		return nil
	}
	if !c.OpenAI {
		own := l.Replica(lab.Services{}, v, false) // over a store of its own
		ways = append(ways, &way{name: "embedded", url: own.URL, pids: own.Pids})
		ways[2].turns(50)
		ways[2].latency = nil
	}
	var load [3]float64 // ms of CPU, bytes in, bytes out of Redis
	for range c.Rounds {
		for _, w := range ways {
			before, used := lab.Info(s.Redis), lab.CPU(w.pids...)
			w.turns(c.Turns)
			w.cpu = append(w.cpu, ms(lab.CPU(w.pids...)-used)/float64(c.Turns))
			for i, after := range lab.Info(s.Redis) {
				if w == ways[0] {
					load[i] += (after - before[i]) / float64(c.Turns*c.Rounds)
				}
			}
		}
	}
	fmt.Printf("a turn: three model calls, one delegation, 20 deltas; %d rounds of %d turns, medians\n", c.Rounds, c.Turns)
	beside := ways[1]
	for _, w := range ways {
		cpu, p50 := quantile(w.cpu, .5), quantile(w.latency, .5)
		fmt.Printf("  %-8s CPU %.2f ms (%.2f–%.2f), p50 %.2f ms, p95 %.2f ms", w.name, cpu, quantile(w.cpu, 0),
			quantile(w.cpu, 1), ms(p50), ms(quantile(w.latency, .95)))
		if w != beside {
			fmt.Printf("; ÷ %s: CPU %.2f ×, p50 %.2f ×", beside.name, cpu/quantile(beside.cpu, .5),
				float64(p50)/float64(quantile(beside.latency, .5)))
		}
		fmt.Println()
	}
	fmt.Printf("  Redis  CPU %.2f ms, %.0f bytes in, %.0f bytes out\n", load[0], load[1], load[2])
	const watched = 50
	sent, scripted := s.Monitor(func() { ways[0].turns(watched) })
	all := 0
	for _, n := range sent {
		all += n
	}
	fmt.Printf("  commands sent: %.1f; scripts called %.1f more\n", float64(all)/watched, float64(scripted)/watched)
	for _, name := range slices.SortedFunc(maps.Keys(sent), func(a, b string) int { return sent[b] - sent[a] }) {
		fmt.Printf("    %-10s %.1f\n", name, float64(sent[name])/watched)
	}
	return nil
}

// age lets one chat of each way grow and draws what its turns took, by fifteenths.
func (c *turnCmd) age(ways []*way) {
	lines, labels, step := make([][]float64, len(ways)), []string{}, max(c.Age/15, 1)
	for turn := step; turn <= c.Age; turn += step {
		for i, w := range ways {
			used := lab.CPU(w.pids...)
			for range step {
				lab.Must(0, say(w.url, "old"))
			}
			lines[i] = append(lines[i], ms(lab.CPU(w.pids...)-used)/float64(step))
		}
		labels = append(labels, strconv.Itoa(turn))
	}
	for i, w := range ways {
		fmt.Printf("%-6s CPU per turn in ms, by %d: %.2f\n", w.name, step, lines[i])
	}
	draw(c.Draw, "CPU of a turn in ms, over the turns that a chat has", []string{"mneme", "the bare chain"}, labels,
		lines...)
}

// turns makes so many, ten in a chat.
func (w *way) turns(n int) {
	for i := range n {
		if i%10 == 0 {
			w.chats++
		}
		began := time.Now()
		chat := fmt.Sprintf("%s-%d-%d", w.name, os.Getpid(), w.chats)
		if strings.HasSuffix(w.url, completionsPath) {
			lab.Must(0, complete(w.url, chat, i%10))
		} else {
			lab.Must(0, w.say(chat))
		}
		w.latency = append(w.latency, time.Since(began))
	}
}

const question = "Which month sold the most, and why?"

// say is say with the way's key and user.
func (w *way) say(chat string) error {
	body := map[string]any{"message": question, "stream": true}
	if w.user != "" {
		body["user"] = w.user
	}
	return send(w.url, chat, w.key, string(lab.Must(json.Marshal(body))))
}

// say sends a message and reads the answer's stream to its end.
func say(url, chat string) error {
	return ask(url, chat, question)
}

// ask is say with words of its own.
func ask(url, chat, message string) error {
	return send(url, chat, "", fmt.Sprintf(`{"message": %q, "stream": true}`, message))
}

// complete is say by a chat completion, with a transcript of so many turns before it.
func complete(url, chat string, before int) error {
	past := fmt.Sprintf(`{"role": "user", "content": %q}, {"role": "assistant", "content": "March, since it rained."}, `, question)
	return send(url, chat, "", fmt.Sprintf(`{"model": "mneme", "stream": true, "messages": [%s{"role": "user", "content": %q}]}`,
		strings.Repeat(past, before), question))
}

// send posts a body, with a key if it is not empty, and reads the answer's stream to its end.
func send(url, chat, key, body string) error {
	resp, err := post(strings.Replace(url, "CHAT", chat, 1), key, body)
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

// completionsPath ends the URL of chat completions.
const completionsPath = "/v1/chat/completions"

// completions is where the chat completions are of a chat with messages that are posted at a URL.
func completions(url string) string {
	base, _, _ := strings.Cut(url, "/v1/chats/")
	return base + "/c/CHAT" + completionsPath
}

// chain starts the bare one.
func chain(l *lab.Lab, v *lab.Vendor) *way {
	w := &way{name: "chain"}
	to := v.Listener.Addr().String()
	for _, calls := range []int{0, 3, 0} { // the gateway's place, the apiserver's, webmemory's
		var pid int
		to, pid = l.Hop(to, calls)
		w.pids = append(w.pids, pid)
	}
	w.url = "http://" + to + "/CHAT"
	return w
}
