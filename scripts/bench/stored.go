package main

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

type storedCmd struct {
	Mneme string
}

func (c *storedCmd) command() *cobra.Command {
	b := &cobra.Command{
		Use: "stored", Short: "What a chat's turns are in Redis: commands, bytes of the append-only file, bytes at rest",
		Long: `Two turns, "hi" and one with a delegation to a subagent, by the three services with a vendor that answers ` +
			`at once. Commands are those that MONITOR shows, with those that scripts call; those of the gateway's keys ` +
			`are counted apart, too. AOF is what a fifth turn adds to the append-only file. Bytes are MEMORY USAGE of the ` +
			`keys of a chat of four turns: of those that stay, and of all that are there in its first quarter of an hour.`,
		RunE: func(*cobra.Command, []string) error { return c.run() },
	}
	b.Flags().StringVar(&c.Mneme, "mneme", "", "A built mneme, a `FILE`; without it one is built from ./cmd/mneme")
	return b
}

// stored is the Redis of services whose turns are counted.
type stored struct {
	client *redis.Client
	turn   func(chat string)
}

func (c *storedCmd) run() error {
	l := newLab(c.Mneme)
	defer l.Stop()
	v, direct := newVendor(nil), false
	defer v.Close()
	inner := v.Config.Handler
	v.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if direct {
			r.Header.Set(answerHeader, "2")
		}
		inner.ServeHTTP(w, r)
	})
	s := l.Services(v, true)
	b := stored{client: s.Redis, turn: func(chat string) {
		must(0, say(s.URL, chat, "hi"))
		time.Sleep(50 * time.Millisecond) // what comes behind the answer
	}}
	fmt.Printf("%-10s %9s %9s %9s %9s %9s\n", "turn", "commands", "gateway's", "AOF B", "at rest B", "15 min B")
	for _, direct = range []bool{true, false} {
		kind := map[bool]string{true: "hi", false: "delegates"}[direct]
		for i := range 20 {
			b.turn(fmt.Sprintf("warm-%s-%d", kind, i))
		}
		b.row(kind)
	}
	return nil
}

// row measures the second to fourth turn of chats.
func (b stored) row(kind string) {
	const chats = 20
	name := func(i int) string { return fmt.Sprintf("%s.%d", kind, i) }
	for i := range chats {
		b.turn(name(i))
	}
	commands, gateway := 0, 0
	ofGateway := false
	for _, line := range (&services{Redis: b.client}).Lines(func() {
		for i := range 3 * chats {
			b.turn(name(i % chats))
		}
	}) {
		source, rest, _ := strings.Cut(line, "] \"")
		if !strings.HasSuffix(source, " lua") { // what follows from scripts is of the same keys
			ofGateway = strings.Contains(rest, "\"proxy:") || strings.Contains(rest, "\"mneme:usage")
		}
		if kind, _, _ := strings.Cut(rest, "\""); slices.Contains([]string{"info", "ping", "hello", "client"},
			strings.ToLower(kind)) {
			continue // by these processes stay in touch
		}
		if commands++; ofGateway {
			gateway++
		}
	}
	const turns = 3 * chats
	rest, kept := b.bytes(name(1))
	must(0, b.client.ConfigSet(bg, "appendonly", "yes").Err())
	began := b.aof()
	for i := range chats {
		b.turn(name(i))
	}
	aof := float64(b.aof()-began) / chats
	must(0, b.client.ConfigSet(bg, "appendonly", "no").Err())
	fmt.Printf("%-10s %9.0f %9.0f %9.0f %9d %9d\n", kind, float64(commands)/turns, float64(gateway)/turns, aof, rest, kept)
}

// bytes is what the keys of a chat take, without those that end within the day, and with them.
func (b stored) bytes(chat string) (rest, kept int64) {
	it := b.client.Scan(bg, 0, "*", 1000).Iterator()
	for it.Next(bg) {
		if !strings.Contains(it.Val()+":", ":"+chat+":") && !strings.Contains(it.Val(), ":"+chat+"}") {
			continue
		}
		size := must(b.client.MemoryUsage(bg, it.Val(), 0).Result())
		if kept += size; b.client.PTTL(bg, it.Val()).Val() < 0 {
			rest += size
		}
	}
	return rest, kept
}

func (b stored) aof() int64 {
	for {
		info := must(b.client.InfoMap(bg, "persistence").Result())["Persistence"]
		if info["aof_rewrite_in_progress"] == "0" && info["aof_enabled"] == "1" && info["aof_rewrite_scheduled"] == "0" {
			return must(strconv.ParseInt(info["aof_current_size"], 10, 64))
		}
		time.Sleep(10 * time.Millisecond)
	}
}
