package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"mneme/internal/upstreamtest"
	"mneme/memory"
)

// unitsCmd measures one of each thing that an operator has many of.
func unitsCmd() *cobra.Command {
	var mneme, only string
	b := &cobra.Command{
		Use: "units", Short: "What a chat, a run, a key, a user, a passage … are in Redis: commands, CPU, bytes",
		Long: `Each row is made by three services of their own, over an empty Redis, with a vendor that answers at once. Commands are the difference of INFO commandstats, with those that scripts call, CPU that of redis-server, with appendonly yes; what the services do without requests is taken off. Bytes are the difference of used_memory to the empty Redis, once the services have stopped and SCRIPT FLUSH: all that is there at once, what is left when keys that end within 25 hours are gone, and when all that end are. The lines below a row are its kinds of keys: how many there are for each unit, their MEMORY USAGE, and the longest time until they end. The run of 20 s is silent for 10, then says 20 words a second. A conversation is a client's at the gateway, which sends its newest question alone. A passage is also measured in the apiserver that read the documents, and in one that starts with them (RSS).`,
		Run: func(*cobra.Command, []string) {
			l := newLab(mneme)
			defer l.Stop()
			fmt.Printf("%-36s %9s %9s %9s %9s %9s %9s\n", "", "commands", "CPU ms", "AOF B", "B at once", "B 25 h", "B for ever")
			for _, u := range units(l) {
				if strings.Contains(u.name, only) {
					u.measure(newLab(l.Mneme)) // in a folder that no other process has written in
				}
			}
		},
	}
	b.Flags().StringVar(&mneme, "mneme", "", "A built mneme, a `FILE`; without it one is built from ./cmd/mneme")
	b.Flags().StringVar(&only, "only", "", "Rows whose names have this in them, alone")
	return b
}

// unit is a row: so many calls of do, each of which makes one of it, or as many as it says.
type unit struct {
	name     string
	calls    int
	settings string // further lines of the configuration
	do       func(s services, i int) (created int)
}

func units(l *lab) []unit {
	chat := func(turns int, body string) func(services, int) int {
		return func(s services, i int) int {
			for range turns {
				ask(s, http.MethodPost, fmt.Sprintf("/v1/chats/bench-%d/messages", i), "", strings.ReplaceAll(body, "NUMBER",
					strconv.Itoa(i)))
			}
			return 1
		}
	}
	const hi = `{"message":"hi"}`
	keys := "auth: {mode: keys, keys_file: " + l.File("units.yaml", fmt.Sprintf("keys:\n- {id: bench, scopes: [admin], "+
		"hash: %x}\n", sha256.Sum256([]byte(limitedKey)))) + "}\n"
	conversation := func(turns int) func(services, int) int {
		return func(s services, i int) int {
			for turn := range turns {
				between{addr: s.Addrs[0]}.post("/v1/messages", fmt.Sprint("bench-", i), fmt.Sprintf(
					`{%s"messages":[{"role":"user","content":"Question %d: which month sold the most?"}]}`, messagesHead, turn))
			}
			return 1
		}
	}
	return []unit{
		{"chat of 1 turn", 400, "", chat(1, hi)},
		{"chat of 4 turns", 150, "", chat(4, hi)},
		{"chat of 100 turns", 12, "", chat(100, hi)},
		{"chat of 4 turns that delegate", 100, "", chat(4, `{"message":"DELEGATE"}`)},
		{"chat of 1 run that waits", 200, "", chat(1, `{"message":"WAIT","tools":[{"name":"open_door","description":"Opens.",`+
			`"parameters":{"type":"object"}}]}`)},
		{"chat of 1 run of 20 s", 200, "", chat(1, `{"message":"SLOWLY"}`)},
		{"chat of 1 turn, of its own user", 400, "", chat(1, `{"message":"hi","user":"user-NUMBER"}`)},
		{"chat of 1 turn, erased", 400, "", func(s services, i int) int {
			chat(1, hi)(s, i)
			ask(s, http.MethodDelete, fmt.Sprintf("/v1/chats/bench-%d", i), "", "")
			return 1
		}},
		{"key, and its chat of 1 turn", 400, keys, func(s services, i int) int {
			var reply struct{ Key string }
			must(0, json.Unmarshal(ask(s, http.MethodPost, "/v1/keys", limitedKey, `{"name":"k","scopes":["chat"]}`), &reply))
			ask(s, http.MethodPost, fmt.Sprintf("/v1/chats/bench-%d/messages", i), reply.Key, hi)
			return 1
		}},
		{"conversation of 1 call", 400, "", conversation(1)},
		{"conversation of 10 calls", 60, "", conversation(10)},
		{"passage", 400, "", passages},
	}
}

// passages puts a document of 1,000 paragraphs, with word frequencies as in English, and counts its passages.
func passages(s services, i int) int {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, uint64(i+1))), 1.1, 8, vocabulary-1)
	var text strings.Builder
	for range 1000 {
		for range 60 {
			fmt.Fprintf(&text, "w%dk ", zipf.Uint64())
		}
		text.WriteString("\n\n")
	}
	ask(s, http.MethodPut, "/v1/collections/docs", "", "{}") // the first makes it
	var put struct{ Passages int }
	body := must(json.Marshal(map[string]string{"title": "Bench", "text": text.String()}))
	must(0, json.Unmarshal(ask(s, http.MethodPut, fmt.Sprintf("/v1/collections/docs/documents/bench-%d", i), "",
		string(body)), &put))
	return put.Passages
}

// ask is the answer to a request of webmemory.
func ask(s services, method, path, key, body string) []byte {
	base, _, _ := strings.Cut(s.URL, "/v1/")
	r := must(http.NewRequest(method, base+path, strings.NewReader(body)))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if strings.Contains(body, slowMarker) {
		r.Header.Set("Prefer", "respond-async")
	}
	resp := must(http.DefaultClient.Do(r))
	defer resp.Body.Close()
	answer := must(io.ReadAll(resp.Body))
	if resp.StatusCode >= 300 {
		panic(fmt.Errorf("%s %s: %s %.300s", method, path, resp.Status, answer))
	}
	return answer
}

// unitsVendor answers "hi" at once, delegates where it is told to, and calls a tool of the client's.
func unitsVendor() *vendor {
	v := newVendor(nil)
	calls := recorded(upstreamtest.Chat, "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user",
		"content":"?"}],"tools":[{"type":"function","function":{"name":"open_door","parameters":{"type":"object"}}}]}`,
		upstreamtest.Use("open_door", `{}`))
	v.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.Header().Set("Content-Type", "text/event-stream") // the other answers set their own
		switch {
		case bytes.Contains(body, []byte(slowMarker)): // says nothing for 10 s, then 20 words a second
			time.Sleep(10 * time.Second)
			for i := range 200 {
				_, _ = w.Write(v.chat[2][min(i, 1)])
				_ = http.NewResponseController(w).Flush()
				time.Sleep(50 * time.Millisecond)
			}
			_, _ = w.Write(bytes.Join(v.chat[2][2:], nil))
			return
		case bytes.Contains(body, []byte("WAIT")):
			_, _ = w.Write(bytes.Join(calls, nil))
			return
		case !bytes.Contains(body, []byte("DELEGATE")) && !bytes.Contains(body, []byte(`"model":"back"`)):
			r.Header.Set(answerHeader, "2")
		}
		v.ServeHTTP(w, r)
	})
	return v
}

func (u unit) measure(l *lab) {
	v := unitsVendor()
	defer v.Close()
	defer l.Stop()
	client := l.Redis()
	client.ConfigSet(bg, "latency-tracking", "no") // takes memory with the first call of each command
	must(0, client.ConfigSet(bg, "auto-aof-rewrite-percentage", "0").Err())
	must(0, client.ConfigSet(bg, "appendonly", "yes").Err())
	empty, mark := used(client), l.Mark()
	l.Settings, l.Backend = u.settings, ""
	if strings.HasPrefix(u.name, "conversation") {
		l.Backend = vendors["messages"]
	}
	s := l.Replica(services{Redis: client}, v, true)
	cooldown := time.Second // what comes behind the answers
	if strings.HasSuffix(u.name, " of 20 s") {
		cooldown = 25 * time.Second
	}
	first := float64(u.do(s, u.calls)) // compiles the scripts, opens the connections
	time.Sleep(cooldown)
	sample := func(d time.Duration, do func()) (figures [3]float64, seconds float64) {
		began, base := time.Now(), work(client)
		do()
		time.Sleep(d)
		for i, now := range work(client) {
			figures[i] = now - base[i]
		}
		return figures, time.Since(began).Seconds()
	}
	idle, rest := sample(3*time.Second, func() {})
	baseline := holding(s.Addrs[1])
	var added atomic.Int64
	took, seconds := sample(cooldown, func() {
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := worker; i < u.calls; i += 4 {
					added.Add(int64(u.do(s, i)))
				}
			})
		}
		wg.Wait()
	})
	n := float64(added.Load())
	total := first + n
	fmt.Printf("%-36s", u.name)
	for i, figure := range took {
		fmt.Printf(" %9.*f", []int{1, 3, 0}[i], (figure-idle[i]*seconds/rest)/n)
	}
	if u.name == "passage" {
		started := l.Replica(s, v, true)
		defer fmt.Printf("    apiserver's RSS: %.0f B a passage where %.0f were put, %.0f B in one that started with them\n",
			1e3*(holding(s.Addrs[1])[0]-baseline[0])/n, total, 1e3*(holding(started.Addrs[1])[0]-baseline[0])/total)
	}
	l.StopTo(mark)
	must(0, client.Do(bg, "SCRIPT", "FLUSH", "SYNC").Err())
	kinds := kindsOf(client)
	for _, horizon := range []time.Duration{0, 25 * time.Hour, 1e6 * time.Hour} {
		for _, key := range must(client.Keys(bg, "*").Result()) {
			if ttl := client.PTTL(bg, key).Val(); ttl > 0 && ttl < horizon {
				client.Del(bg, key)
			}
		}
		fmt.Printf(" %9.0f", (used(client)-empty)/total)
	}
	fmt.Println()
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		fmt.Printf("    %-36s %8.3f keys %8.0f B %7.1f h\n", name, k[0]/total, k[1]/total, k[2])
	}
}

// varies are the parts of keys that name one of many.
var variablePart = regexp.MustCompile(`\{[^}]*\}|\d{4}-\d\d-\d\d|[^:]*\d[^:]*|[0-9a-f]{16,}`)

// kindsOf are the keys' number, bytes and longest time to live, in hours, by their kind; 0 is for ever.
func kindsOf(client *redis.Client) map[string][3]float64 {
	kinds := map[string][3]float64{}
	for _, key := range must(client.Keys(bg, "*").Result()) {
		name := variablePart.ReplaceAllString(key, "*")
		if k, ok := memory.ParseRedisKey(key); ok {
			name = string(k.Kind)
		}
		k := kinds[name]
		kinds[name] = [3]float64{k[0] + 1, k[1] + float64(must(client.MemoryUsage(bg, key, 0).Result())),
			max(k[2], client.PTTL(bg, key).Val().Hours())}
	}
	return kinds
}

// number is one of INFO.
func number(client *redis.Client, section, name string) float64 {
	return must(strconv.ParseFloat(must(client.InfoMap(bg, strings.ToLower(section)).Result())[section][name], 64))
}

// used is used_memory once tables have been resized.
func used(client *redis.Client) float64 {
	time.Sleep(2 * time.Second)
	return number(client, "Memory", "used_memory")
}

// work is what Redis has done since its start: commands but those by which processes stay in touch, CPU in ms, and
// bytes of the append-only file.
func work(client *redis.Client) (sums [3]float64) {
	for name, figures := range must(client.InfoMap(bg, "commandstats").Result())["Commandstats"] {
		if kind, _, _ := strings.Cut(strings.TrimPrefix(name, "cmdstat_"), "|"); slices.Contains([]string{"info", "ping",
			"hello", "client"}, kind) {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(figures, "calls="), ",")
		sums[0] += must(strconv.ParseFloat(calls, 64))
	}
	sums[1], sums[2] = infoOf(client)[0], number(client, "Persistence", "aof_current_size")
	return sums
}
