package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

const (
	pageOfChats = 50
	// fewChats are in both databases, so that a page of the list is full in either.
	fewChats = 100
	// keysOfChat is what an idle chat has in Redis: two histories, each with its meta.
	keysOfChat = 4
)

// crowd is a mneme of its own over a Redis of its own that holds other chats too.
type crowd struct {
	http  *http.Client
	base  string // URL
	stops []func()
}

func (c *crowd) stop() {
	for _, stop := range slices.Backward(c.stops) {
		stop()
	}
}

// visit is something that is done with one chat.
type visit struct {
	what   string
	method string
	path   string // CHAT stands for the chat
	body   string
	ops    int // in a row, of which the mean counts
}

// visits are in the order in which a chat sees them.
var visits = []visit{
	{"a turn: POST of a message to a subagent, answered offline", http.MethodPost, "/v1/chats/CHAT/messages", `{"message": "What is 17 * 23?", "agent_version": "analytic"}`, 3},
	{"GET of a chat: its histories and their sizes", http.MethodGet, "/v1/chats/CHAT", "", 10},
	{fmt.Sprintf("GET of a page of %d chats", pageOfChats), http.MethodGet, fmt.Sprintf("/v1/chats?limit=%d", pageOfChats), "", 10},
	{"DELETE of a chat", http.MethodDelete, "/v1/chats/CHAT", "", 1},
}

// crowding compares two databases visit by visit: one that holds few chats, and one
// with o.Filler keys of others besides.
func crowding(ctx context.Context, o Options) ([]Crowded, error) {
	var beds [2]*crowd
	for i, keys := range []int{0, o.Filler} {
		o.Progress(fmt.Sprintf("starting mneme over a database of %s keys", count(keys+fewChats*keysOfChat)))
		c, err := newCrowd(ctx, o.Services, fewChats+keys/keysOfChat)
		if c != nil {
			defer c.stop()
		}
		if err != nil {
			return nil, err
		}
		beds[i] = c
	}
	taken := make([][2][]float64, len(visits)) // milliseconds by visit, database and run
	for run := range o.Runs + 1 {
		o.Progress(fmt.Sprintf("one chat among many, run %d of %d", run, o.Runs))
		for i := range beds {
			bed := (run + i) % len(beds) // neither is always first
			chat := "visited-" + strings.ToLower(rand.Text()[:10])
			for j, v := range visits {
				ms, err := beds[bed].do(ctx, v, chat)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", v.what, err)
				}
				if run > 0 { // the first one warms up
					taken[j][bed] = append(taken[j][bed], ms)
				}
			}
		}
	}
	var rows []Crowded
	for j, v := range visits {
		few, many := taken[j][0], taken[j][1]
		ratios := make([]float64, o.Runs)
		for run := range ratios {
			ratios[run] = many[run] / few[run]
		}
		rows = append(rows, Crowded{What: v.what, Keys: o.Filler, Few: spread(few), Many: spread(many), Ratio: spread(ratios)})
	}
	return rows, nil
}

// newCrowd starts a Redis with some idle chats in it, and mneme over it. Stop what
// it gives, also beside an error.
func newCrowd(ctx context.Context, command func(ctx context.Context, config string) *exec.Cmd, chats int) (*crowd, error) {
	c := &crowd{http: &http.Client{Timeout: time.Minute}}
	c.stops = append(c.stops, c.http.CloseIdleConnections)
	server, err := startServer(ctx)
	if err != nil {
		return c, err
	}
	c.stops = append(c.stops, server.stop)
	client, err := connect(server.url())
	if err != nil {
		return c, err
	}
	defer client.Close()
	if err := fill(ctx, client, chats); err != nil {
		return c, fmt.Errorf("writing %d idle chats: %w", chats, err)
	}
	dir, err := os.MkdirTemp("", "mneme-bench-")
	if err != nil {
		return c, err
	}
	c.stops = append(c.stops, func() { os.RemoveAll(dir) })
	mneme, err := (launcher{dir: dir}).launch(ctx, "mneme", func(dir, addr string) (*exec.Cmd, error) {
		words := []string{"ADDR", addr, "URL", server.url(), "DIR", dir}
		for _, name := range []string{"APISERVER", "PROXY"} {
			port, err := freePort()
			if err != nil {
				return nil, err
			}
			words = append(words, name, net.JoinHostPort("127.0.0.1", port))
		}
		file := filepath.Join(dir, "mneme.yaml")
		cmd := command(ctx, file)
		cmd.Env = withoutOurs(cmd.Environ())
		return cmd, os.WriteFile(file, []byte(strings.NewReplacer(words...).Replace(crowdConfig)), 0o600)
	})
	if err != nil {
		return c, err
	}
	c.stops = append(c.stops, mneme.stop)
	c.base = "http://" + mneme.addr
	return c, nil
}

// crowdConfig is all of mneme in one process, answering offline.
const crowdConfig = `data_dir: DIR/data
redis: {url: "URL"}
webmemory: {listen: ADDR, apiserver: "http://APISERVER"}
apiserver: {listen: APISERVER, proxy: "http://PROXY"}
proxy: {listen: PROXY}
`

// fill writes chats that were talked to once, with what the store keeps beside their
// histories.
func fill(ctx context.Context, client *redis.Client, chats int) error {
	const batch = 1000
	for from := 0; from < chats; from += batch {
		pipe := client.Pipeline()
		for i := from; i < min(from+batch, chats); i++ {
			chat := memory.MustChat(fmt.Sprintf("idle-%07d", i))
			for _, key := range []memory.Key{memory.ChatKey(chat), memory.SubagentKey("analytic", chat)} {
				pipe.Set(ctx, key.String(), idle.JSON(), 0)
				pipe.HSet(ctx, "{"+key.String()+"}:meta", "sum", idle.Sum().String(), "len", idle.Size(), "count", idle.Len(), "turn", 1)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// idle is the history of a chat that said little.
var idle = memory.Empty(memory.ChatKey(memory.MustChat("idle"))).
	With(memory.Message{Role: memory.RoleUser, Content: "Hello", Timestamp: 1763711157.25}.Encode()).
	With(memory.Message{Role: memory.RoleAssistant, Content: "Good day", Timestamp: 1763711158.25}.Encode())

// do visits a chat and gives the mean time in milliseconds.
func (c *crowd) do(ctx context.Context, v visit, chat string) (float64, error) {
	began := time.Now()
	for range v.ops {
		req, err := http.NewRequestWithContext(ctx, v.method, c.base+strings.Replace(v.path, "CHAT", chat, 1), strings.NewReader(v.body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Accept", "application/json")
		if v.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return 0, err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return 0, err
		}
		if resp.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("status %d: %.200s", resp.StatusCode, body)
		}
	}
	return float64(time.Since(began).Microseconds()) / 1e3 / float64(v.ops), nil
}
