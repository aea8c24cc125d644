package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

type memoryCmd struct {
	Sizes []int
	Runs  int
	Draw  string // file
}

func (c *memoryCmd) command() *cobra.Command {
	b := &cobra.Command{
		Use: "memory", Short: "Remembering beside rewriting the history whole, over its length",
		Long: `A turn takes the chat's lease, proves its copies of the chat's and a subagent's history, appends a ` +
			`question and an answer and gives the lease back. Rewriting is GET, encoding/json, append both, SET. Cold is the ` +
			`store's load without a copy. All of them in one process over a redis-server of their own; a history grows by ` +
			`what is measured, 2 messages a time. Bytes are those that Redis read and wrote, by INFO stats.`,
		RunE: func(*cobra.Command, []string) error { return c.run() },
	}
	f := b.Flags()
	f.IntSliceVar(&c.Sizes, "sizes", []int{10, 100, 1000, 10000}, "Messages that the history has already")
	f.IntVar(&c.Runs, "runs", 21, "How often each is measured, one after the other")
	f.StringVar(&c.Draw, "draw", "", "Write the picture into this `FILE`, as SVG")
	return b
}

func (c *memoryCmd) run() error {
	l := newLab("no mneme is needed")
	defer l.Stop()
	client := l.Redis()
	store := redisstore.New(client, zerolog.Nop())
	cached := cache.New(store, 1<<30)
	pair := []memory.Message{{Role: memory.RoleUser, Timestamp: 1763711157.25},
		{Role: memory.RoleAssistant, Timestamp: 1763711158.25}}
	for i := range pair {
		pair[i].Content = strings.Repeat("Which harbour, и какой маяк? ", 16)
	}
	ways := []string{"a turn", "rewriting", "cold load", "bare GET"}
	lines := make([][]float64, len(ways))
	var labels []string
	fmt.Printf("medians of %d, µs and kB to and from Redis\n%10s", c.Runs, "messages")
	for _, w := range ways {
		fmt.Printf("%24s", w)
	}
	for _, size := range c.Sizes {
		chat := must(memory.ParseChat(fmt.Sprintf("bench-%d", size)))
		keys := []memory.Key{memory.ChatKey(chat), memory.SubagentKey("analytic", chat)}
		h := memory.Empty(keys[0])
		for i := range size {
			h = h.With(pair[i%2].Encode())
		}
		rewritten := fmt.Sprintf("rewritten-%d", size)
		for _, k := range []string{keys[0].String(), keys[1].String(), rewritten} {
			must(0, client.Set(bg, k, h.JSON(), 0).Err())
		}
		runs := 0
		do := []func(){
			func() {
				runs++
				token := fmt.Sprintf("%d-%d", size, runs)
				turn := must(store.Turns.Take(bg, chat, token, "bench", 15*time.Second))
				loaded := must(cached.Load(bg, turn.Number, memory.Empty(keys[0]), memory.Empty(keys[1])))
				for i, m := range pair {
					loaded[0] = must(cached.Append(bg, loaded[0], memory.Mark{Run: "RUN" + token, Seq: int64(i + 1),
						Turn: turn.Number}, m.Encode()))
				}
				must(0, store.Turns.Release(bg, chat, token))
			},
			func() { must(0, rewrite(client, rewritten, pair)) },
			func() { must(store.Load(bg, 0, memory.Empty(keys[0]))) },
			func() { must(client.Get(bg, keys[0].String()).Bytes()) },
		}
		fmt.Printf("\n%10d", size)
		durations, moved := make([][]time.Duration, len(do)), make([]float64, len(do))
		for run := range c.Runs + 1 { // the first one pays for what nothing had been cached of
			for i, way := range do {
				probe := traffic(client)
				base, began := traffic(client), time.Now()
				way()
				if took := time.Since(began); run > 0 {
					durations[i] = append(durations[i], took)
					moved[i] += (traffic(client) - base - (base - probe)) / 1e3 / float64(c.Runs)
				}
			}
		}
		for i := range do {
			median := quantile(durations[i], .5)
			fmt.Printf("%12.0f µs %6.1f kB", float64(median.Nanoseconds())/1e3, moved[i])
			lines[i] = append(lines[i], ms(median))
		}
		labels = append(labels, fmt.Sprint(size))
	}
	fmt.Println()
	draw(c.Draw, "A turn's memory in ms, over the messages that a history has", ways[:2], labels, lines[:2]...)
	return nil
}

// rewrite is how a service remembers that has one JSON array per chat and no more.
func rewrite(client *redis.Client, key string, pair []memory.Message) error {
	type plain struct { // parses faster than memory.Message, which tolerates odd fields
		Role      string  `json:"role"`
		Content   string  `json:"content"`
		Timestamp float64 `json:"timestamp"`
	}
	var history []plain
	value, err := client.Get(bg, key).Bytes()
	err = errors.Join(err, json.Unmarshal(value, &history))
	for _, m := range pair {
		history = append(history, plain{m.Role, m.Content, m.Timestamp})
	}
	value, _ = json.Marshal(history)
	return errors.Join(err, client.Set(bg, key, value, 0).Err())
}

// traffic is how many bytes Redis has read and written, this question's too.
func traffic(client *redis.Client) float64 {
	s := infoOf(client)
	return s[1] + s[2]
}
