package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mneme/scripts/lab"
)

// floodCmd measures what one tenant feels of what another one sends.
type floodCmd struct {
	Mneme          string // program; "" to build one
	Turns          int
	Within, Settle time.Duration
	Only           []string
}

func (c *floodCmd) command() *cobra.Command {
	b := &cobra.Command{
		Use: "flood", Short: "Turns of one tenant while another one floods the services, in ten ways",
		Long: `The tenants a and b have a key each, in one mneme up with the default limits. The turns of b, one after the other, are measured alone, and again while a floods the services in one of ten ways, over and over until b is done. Each way has a process, a Redis and a vendor of its own, all on loopback. Target: the p95 of b is at most 3 times what it is alone, and no turn of b fails.

Examples:
  go run ./scripts/bench flood
  go run ./scripts/bench flood --only "nested schemas" --only "32 recalls"`,
		RunE: func(*cobra.Command, []string) error { return c.run() },
	}
	f := b.Flags()
	f.StringVar(&c.Mneme, "mneme", "", "A built mneme, a `FILE`; without it one is built from ./cmd/mneme")
	f.IntVar(&c.Turns, "turns", 40, "Turns of b, alone and again under each flood")
	f.DurationVar(&c.Within, "within", 10*time.Second, "After which time no further turn of b begins")
	f.DurationVar(&c.Settle, "settle", 2*time.Second, "How long a floods before b begins")
	f.StringArrayVar(&c.Only, "only", nil, "This way alone; may be repeated")
	return b
}

// Keys of the two tenants. That of a may make further ones.
const (
	keyOfA = "mn_floods_0123456789abcdefghijklmnopqrstuv"
	keyOfB = "mn_works_0123456789abcdefghijklmnopqrstuvw"
)

// Words in a message of a by which the vendor knows what to do.
const slowly, failing, endlessly = "SLOWLY", "FAILING", "ENDLESSLY"

// flooded is what tenant a does its worst to.
type flooded struct {
	lab.Services
	base string
}

// flood is one way: so many workers that do something again and again until their context ends.
type flood struct {
	name    string
	workers int
	do      func(f flooded, ctx context.Context, worker, round int)
}

var floods = []flood{
	{"320 runs of 5 s", 320, says(slowly)},
	{"12 vendor 500s", 12, func(f flooded, ctx context.Context, worker, _ int) {
		says(failing)(f, ctx, worker, 0)
		<-ctx.Done()
	}},
	{"8 uploads of 700 kB", 8, func(f flooded, ctx context.Context, worker, round int) {
		f.send(ctx, "PUT", fmt.Sprintf("/v1/chats/up-%d/documents/%d.txt", worker, round), "text/plain",
			fmt.Sprintf("Report %d of %d. ", round, worker)+words()[:700<<10])
	}},
	{"26 MB of 2.5 million members", 2, func(f flooded, ctx context.Context, worker, _ int) {
		f.send(ctx, "POST", fmt.Sprintf("/v1/chats/members-%d/messages", worker), "application/json", members())
	}},
	{"nested schemas", 4, func(f flooded, ctx context.Context, worker, round int) {
		schema := strings.Repeat(`{"type":"object","properties":{"a":`, 1000) + `{"type":"string"}` + strings.Repeat("}}", 1000)
		f.send(ctx, "POST", fmt.Sprintf("/v1/chats/nested-%d-%d/messages", worker, round), "application/json",
			`{"message":"x","tools":[{"name":"t","description":"d","parameters":`+schema+`}]}`)
	}},
	{"2,000 half heads", 2000, func(f flooded, ctx context.Context, _, _ int) {
		f.hold(ctx, "POST /v1/chats/half/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
	}},
	{"32 recalls", 32, func(f flooded, ctx context.Context, worker, round int) {
		chat := fmt.Sprintf("/v1/chats/recall-%d", worker)
		if round == 0 {
			f.send(ctx, "POST", chat+"/import", "application/x-ndjson", transcript())
		}
		f.send(ctx, "GET", chat+"/recall?query=w12k+w700k+w4k+w19k+w333k", "", "")
	}},
	{"20 imports of 1 MB", 20, func(f flooded, ctx context.Context, worker, round int) {
		f.send(ctx, "POST", fmt.Sprintf("/v1/chats/import-%d-%d/import", worker, round), "application/x-ndjson",
			transcript())
	}},
	{"1,000 keys", 32, func(f flooded, ctx context.Context, worker, round int) {
		if round*32 >= 1000 {
			f.send(ctx, "GET", "/v1/keys", "", "")
			return
		}
		f.send(ctx, "POST", "/v1/keys", "application/json", fmt.Sprintf(`{"name":"k-%d-%d","scopes":["chat"]}`, worker, round))
	}},
	{"50 streams never read", 50, func(f flooded, ctx context.Context, worker, round int) {
		body := fmt.Sprintf(`{"message":"%s","stream":true}`, endlessly)
		f.hold(ctx, fmt.Sprintf("POST /v1/chats/unread-%d-%d/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", worker, round, keyOfA, len(body), body))
	}},
}

// says has each worker send messages with a word for the vendor, in chats of its own.
func says(word string) func(flooded, context.Context, int, int) {
	return func(f flooded, ctx context.Context, worker, round int) {
		f.send(ctx, "POST", fmt.Sprintf("/v1/chats/%s-%d-%d/messages", word, worker, round), "application/json",
			fmt.Sprintf(`{"message":%q,"stream":true}`, word))
	}
}

// send sends a request of a and reads its answer, whatever it is.
func (f flooded) send(ctx context.Context, method, path, kind, body string) {
	r := lab.Must(http.NewRequestWithContext(ctx, method, f.base+path, strings.NewReader(body)))
	r.Header.Set("Authorization", "Bearer "+keyOfA)
	r.Header.Set("Content-Type", kind)
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// hold writes something to a connection of its own and reads nothing.
func (f flooded) hold(ctx context.Context, text string) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.base, "http://"))
	if err == nil {
		_, _ = io.WriteString(conn, text)
		<-ctx.Done()
		_ = conn.Close()
	}
}

// words is 1 MB of made-up text. What is sent is made once, since the time for it would be b's.
var words = sync.OnceValue(func() string {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 8, vocabulary-1)
	var b strings.Builder
	for b.Len() < 1<<20 {
		fmt.Fprintf(&b, "w%dk ", zipf.Uint64())
	}
	return b.String()
})

// transcript is the body of an import of 1 MB of text.
var transcript = sync.OnceValue(func() string {
	var b strings.Builder
	for some := range slices.Chunk(strings.Fields(words()), 25) {
		line := map[string]any{"role": "user", "content": strings.Join(some, " "), "timestamp": 1.7e9}
		b.Write(append(lab.Must(json.Marshal(map[string]any{"message": line})), '\n'))
	}
	return b.String()
})

// members is a message with 2.5 million members.
var members = sync.OnceValue(func() string {
	var b strings.Builder
	for i := range 2_500_000 {
		fmt.Fprintf(&b, `,"%07d":1`, i)
	}
	return `{"message":"x","metadata":{"a":"b"` + b.String() + "}}"
})

func (c *floodCmd) run() error {
	l := lab.New(c.Mneme)
	defer l.Stop()
	limit := syscall.Rlimit{Cur: 20_000, Max: 20_000} // children inherit it
	lab.Must(0, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	l.Runs = 256
	l.Settings = "auth: {mode: keys, keys_file: " + l.File("keys.yaml", fmt.Sprintf("keys:\n"+
		"- {id: floods, tenant: a, scopes: [admin], hash: %x}\n- {id: works, tenant: b, scopes: [chat], hash: %x}\n",
		sha256.Sum256([]byte(keyOfA)), sha256.Sum256([]byte(keyOfB)))) + "}\n"
	fmt.Printf("turns of tenant b, alone and while tenant a floods; p50 and p95 in ms, at most %d turns of each\n", c.Turns)
	for _, way := range floods {
		if len(c.Only) > 0 && !slices.Contains(c.Only, way.name) {
			continue
		}
		mark := l.Mark()
		v := lab.NewVendor(nil)
		v.Config.Handler = disturbed{v}
		s := l.Services(v, false)
		f := flooded{s, strings.TrimSuffix(s.URL, "/v1/chats/CHAT/messages")}
		c.turns(s, "warm")
		alone, _ := c.turns(s, "alone")
		ctx, stop := context.WithCancel(bg)
		var workers sync.WaitGroup
		for worker := range way.workers {
			workers.Go(func() {
				for round := 0; ctx.Err() == nil; round++ {
					way.do(f, ctx, worker, round)
				}
			})
		}
		time.Sleep(c.Settle)
		under, failed := c.turns(s, "under")
		stop()
		workers.Wait()
		fmt.Printf("  %-28s alone %6.1f %6.1f   flooded %7.1f %7.1f   p95 × %5.1f   %d of %d failed, %.0f MB\n", way.name,
			ms(quantile(alone, .5)), ms(quantile(alone, .95)), ms(quantile(under, .5)), ms(quantile(under, .95)),
			float64(quantile(under, .95))/float64(quantile(alone, .95)), failed, len(under), lab.Resident(s.Pids...)/1e6)
		v.CloseClientConnections()
		l.StopTo(mark)
		v.Close()
	}
	return nil
}

// turns are those of b.
func (c *floodCmd) turns(s lab.Services, chats string) (took []time.Duration, failed int) {
	for i, began := 0, time.Now(); i < c.Turns && time.Since(began) < c.Within; i++ {
		at := time.Now()
		if send(s.URL, fmt.Sprintf("%s-%d", chats, i/10), keyOfB, fmt.Sprintf(`{"message":%q,"stream":true}`, question)) != nil {
			failed++
		}
		took = append(took, time.Since(at))
	}
	return took, failed
}

// disturbed is the vendor as tenant a meets it.
type disturbed struct{ *lab.Vendor }

func (d disturbed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch {
	case bytes.Contains(body, []byte(failing)):
		http.Error(w, `{"error":{"message":"the server had an error"}}`, http.StatusInternalServerError)
		return
	case bytes.Contains(body, []byte(slowly)):
		select {
		case <-time.After(5 * time.Second):
		case <-r.Context().Done():
			return
		}
	case bytes.Contains(body, []byte(endlessly)):
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":"+
				"[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", strings.Repeat("And so on. ", 40))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
		return
	}
	d.Vendor.ServeHTTP(w, r)
}
