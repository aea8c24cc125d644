package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// floodCmd measures what one tenant feels of what another one sends.
func floodCmd() *cobra.Command {
	var mneme, only string
	b := &cobra.Command{
		Use: "flood", Short: "Turns of one tenant while another one floods the services, in many ways",
		Long: `The tenants a and b have a key each, in one mneme up with the default limits. The turns of b, one after the other, are measured alone, and again while a floods the services in one of the ways, over and over until b is done. Each way has a process, a Redis and a vendor of its own, all on loopback. Target: the p95 of b is at most 3 times what it is alone, and no turn of b fails.

Examples:
  go -C scripts run ./bench flood
  go -C scripts run ./bench flood --only uploads`,
		RunE: func(*cobra.Command, []string) error {
			flood(newLab(mneme), only)
			return nil
		},
	}
	b.Flags().StringVar(&mneme, "mneme", "", "A built mneme, a `FILE`; without it one is built from ./cmd/mneme")
	b.Flags().StringVar(&only, "only", "", "Ways whose names have this in them, alone")
	return b
}

// Keys of the two tenants. That of a may make further ones.
const keyOfA, keyOfB = "mn_floods_0123456789abcdefghijklmnopqrstuv", "mn_works_0123456789abcdefghijklmnopqrstuvw"

const chats = "/v1/chats/"

// Words in a message of a by which the vendor knows what to do.
const slowMarker, failMarker, endlessMarker = "SLOWLY", "FAILING", "ENDLESSLY"

// request is what a sends. CHAT is a new chat, NEW its id, HOME a chat that the worker has, OWN its id. One NEW is replaced
// in a body. A path after GATEWAY is the gateway's. Where the text of a whole request stands in its line, that is written to a
// connection of its own, of which nothing is read.
type request struct{ line, kind, body string }

// attack is one way: so many workers that send something, and then other requests in turn again and again, or nothing
// more.
type attack struct {
	name    string
	workers int
	first   request
	loop    []request
}

// attacks are the ways. What is sent is made before, since the time for it would be b's.
func attacks() []attack {
	const asJSON, post = "application/json", "POST CHAT/messages"
	var lines strings.Builder
	must(0, transcript(&lines, 4500)) // about 1 MB
	message := func(word string) request { return request{post, asJSON, fmt.Sprintf(`{"message":%q}`, word)} }
	upload := request{"PUT CHAT/documents/report.txt", "text/plain", lines.String()[:700<<10]}
	members := request{post, asJSON, `{"message":"x","tools":[{}` + strings.Repeat(`,{       }`, 2_500_000) + "]}"}
	nested := request{post, asJSON, `{"message":"x","tools":[{"name":"t","description":"d","parameters":` +
		strings.Repeat(`{"type":"object","properties":{"a":`, 1000) + "{}" + strings.Repeat("}}", 1000) + "}]}"}
	bulkImport := request{"POST CHAT/import", "application/x-ndjson", lines.String()}
	unread := fmt.Sprintf(post+" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Accept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", keyOfA, len(message(endlessMarker).body),
		message(endlessMarker).body)
	messages := strings.NewReplacer("{\"message\":", "", "}}\n", "},").Replace(lines.String())
	conversation := func(path, member string) request {
		return request{"POST " + path, asJSON, fmt.Sprintf(`{"model":"mneme",%q:[%s{"role":"user","content":`+
			`"NEW w12k w700k"}]}`, member, messages)}
	}
	pasted := request{"POST GATEWAY/v1/chat/completions", asJSON,
		`{"model":"m","messages":[{"role":"user","content":"NEW ` + strings.Repeat("w12k w700k w4k ", 50_000) + `"}]}`}
	home := request{"POST HOME/import", bulkImport.kind, bulkImport.body}
	note := func(path string) request { return request{"POST " + path, asJSON, `{"text":"NEW"}`} }
	regenerate := request{"POST HOME/ui", asJSON, `{"trigger":"regenerate-message","messages":[` + strings.Repeat(
		`{"id":"v","role":"user","parts":[{"type":"text","text":"And?"}]},`, 15_000) +
		`{"id":"u","role":"user","parts":[{"type":"text","text":"NEW"}]}]}`}
	embedded := func(path string) request {
		return request{"POST " + path, asJSON, fmt.Sprintf(`{"model":"e","input":[%q]}`, messages)}
	}
	return []attack{
		{"320 runs of 5 s", 320, message(slowMarker), []request{message(slowMarker)}},
		{"12 vendor 500s", 12, message(failMarker), nil},
		{"8 uploads of 700 kB", 8, upload, []request{upload}},
		{"26 MB of 2.5 million members", 2, members, []request{members}},
		{"nested schemas", 4, nested, []request{nested}},
		{"2,000 half heads", 2000, request{line: post + " HTTP/1.1\r\nHost: a\r\nX-Half: "}, nil},
		{"32 recalls", 32, home, []request{{line: "GET HOME/recall?query=w12k+w700k+w4k+w19k+w333k"}}},
		{"20 imports of 1 MB", 20, bulkImport, []request{bulkImport}},
		{"1,000 keys", 1000, request{"POST /v1/keys", asJSON, `{"name":"k","scopes":["chat"]}`},
			[]request{{line: "GET /v1/keys"}}},
		{"50 streams never read", 50, request{line: unread}, nil},
		{"16 forks", 16, home, []request{{"POST HOME/fork", asJSON, `{"as":"NEW"}`}}},
		{"32 memory writes", 32, home, []request{note("HOME/notes"), note("/v1/users/OWN/notes"),
			{"PATCH HOME", asJSON, `{"title":"NEW"}`},
			{line: "DELETE HOME/messages/m7.1?scope=message"}, {"POST HOME/rewind", asJSON, `{"to":"m2000.1"}`},
			{line: "DELETE HOME"}, home}},
		{"16 transcripts", 16, home, []request{conversation("/c/OWN/v1/chat/completions", "messages"),
			conversation("/v1/chat/completions", "messages"), conversation("/v1/responses", "input"),
			conversation("/c/NEW/v1/responses", "input")}},
		{"16 posts of useChat", 16, home, []request{regenerate}},
		{"16 agents", 16, pasted, []request{pasted, conversation("GATEWAY/v1/chat/completions", "messages")}},
		{"32 embeddings", 32, request{}, []request{embedded("GATEWAY/v1/embeddings"), embedded("/v1/embeddings")}},
	}
}

// send sends a request of a and reads its answer, whatever it is.
func (r request) send(ctx context.Context, base, gateway string, worker, round int) {
	own := fmt.Sprint("a", worker)
	fresh := fmt.Sprint(own, ".", round)
	line := strings.NewReplacer("HOME", chats+own, "CHAT", chats+fresh, "OWN", own, "NEW", fresh).Replace(r.line)
	if strings.Contains(line, "HTTP/1.1") {
		if conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://")); err == nil {
			_, _ = io.WriteString(conn, line)
			<-ctx.Done()
			_ = conn.Close()
		}
		return
	}
	method, path, _ := strings.Cut(line, " ")
	path, gateways := strings.CutPrefix(path, "GATEWAY")
	if gateways {
		base = gateway
	}
	body := strings.Replace(r.body, "NEW", fresh, 1)
	req := must(http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body)))
	req.Header = http.Header{"Authorization": {"Bearer " + keyOfA}, "Content-Type": {r.kind}}
	if gateways {
		req.Header.Set("X-Ag-Memory", own)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

func flood(l *lab, only string) {
	defer l.Stop()
	must(0, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 20_000, Max: 20_000})) // children's too
	l.Runs, l.Backend = 256, frontAndBack+"}, embeddings_backend: vendor, state_machine: {"
	l.Settings = "auth: {mode: keys, keys_file: " + l.File("keys.yaml", fmt.Sprintf("keys:\n"+
		"- {id: floods, tenant: a, scopes: [admin], hash: %x}\n- {id: works, tenant: b, scopes: [chat], hash: %x}\n",
		sha256.Sum256([]byte(keyOfA)), sha256.Sum256([]byte(keyOfB)))) + "}\n"
	fmt.Println("turns of tenant b, alone and while tenant a floods: p50 and p95 in ms")
	for _, way := range attacks() {
		if !strings.Contains(way.name, only) {
			continue
		}
		mark, v := l.Mark(), newVendor(nil)
		v.Config.Handler = disturbed{v}
		s := l.Services(v, false)
		base, gateway := strings.TrimSuffix(s.URL, chats+"CHAT/messages"), "http://"+s.Proxy
		turnsOfB(s, "warm")
		ctx, stop := context.WithCancel(bg)
		var workers sync.WaitGroup
		homes := strings.HasPrefix(way.first.line, "POST HOME")
		for worker := range way.workers {
			if homes {
				workers.Go(func() { way.first.send(ctx, base, gateway, worker, 0) })
			}
		}
		workers.Wait()
		baseline, _ := turnsOfB(s, "alone")
		for worker := range way.workers {
			workers.Go(func() {
				if way.first.line != "" && !homes {
					way.first.send(ctx, base, gateway, worker, 0)
				}
				for round := 1; len(way.loop) > 0 && ctx.Err() == nil; round++ {
					way.loop[(worker+round)%len(way.loop)].send(ctx, base, gateway, worker, round)
				}
			})
		}
		time.Sleep(2 * time.Second)
		flooded, failed := turnsOfB(s, "under")
		stop()
		workers.Wait()
		fmt.Printf("  %-28s alone %6.1f %6.1f   flooded %7.1f %7.1f   p95 × %5.1f   %d of %d failed, %.0f MB\n", way.name,
			ms(quantile(baseline, .5)), ms(quantile(baseline, .95)), ms(quantile(flooded, .5)), ms(quantile(flooded, .95)),
			float64(quantile(flooded, .95))/float64(quantile(baseline, .95)), failed, len(flooded), resident(s.Pids...)/1e6)
		v.CloseClientConnections()
		l.StopTo(mark)
		v.Close()
	}
}

// turnsOfB are 40 turns, or those that begin within 10 s.
func turnsOfB(s services, chats string) (took []time.Duration, failed int) {
	for i, began := 0, time.Now(); i < 40 && time.Since(began) < 10*time.Second; i++ {
		start := time.Now()
		if send(s.URL, fmt.Sprint(chats, i/10), keyOfB, fmt.Sprintf(`{"message":%q,"stream":true}`, question)) != nil {
			failed++
		}
		took = append(took, time.Since(start))
	}
	return took, failed
}

// disturbed is the vendor as tenant a meets it.
type disturbed struct{ *vendor }

func (d disturbed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch {
	case bytes.Contains(body, []byte(failMarker)):
		http.Error(w, `{"error":{"message":"the server had an error"}}`, http.StatusInternalServerError)
		return
	case bytes.Contains(body, []byte(slowMarker)):
		time.Sleep(5 * time.Second)
	case strings.HasSuffix(r.URL.Path, "/embeddings"):
		_, _ = io.WriteString(w, `{"object":"list","model":"e","data":[{"object":"embedding","index":0,"embedding":[0.5]}],`+
			`"usage":{"prompt_tokens":1,"total_tokens":1}}`)
		return
	case bytes.Contains(body, []byte(endlessMarker)):
		w.Header().Set("Content-Type", "text/event-stream")
		for ; r.Context().Err() == nil; time.Sleep(5 * time.Millisecond) {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":"+
				"[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", strings.Repeat("And so on. ", 40))
			_ = http.NewResponseController(w).Flush()
		}
		return
	}
	d.vendor.ServeHTTP(w, r)
}
